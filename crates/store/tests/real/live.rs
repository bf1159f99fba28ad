//! What a check looks at and what it leaves out: since when, with how many cores, while others write, and records that
//! no checkpoint covers yet.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vambrace_core::clock::Clock;
use vambrace_ledger::{Kind, Timestamp};
use vambrace_store::{Batch, Options, SqliteStore, StateDir, Store as _, VerifyOptions};

use crate::attacks::{later, looked};
use crate::forge::{Dice, Forge, story};
use crate::given::{at, home, open, quick, runtime, session, start, try_open};
use crate::moves::{Hand, MOVES};

/// The time on the wall, as a running store has it.
#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
    }
}

// B5
#[test]
fn a_store_that_is_written_meanwhile_gives_no_false_finding() {
    let (_temp, home) = home();
    let options = Options { max_segment_bytes: 20_000, ..Options { clock: Arc::new(Wall), ..quick() } };
    let store = Arc::new(SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap());
    let runtime = runtime();
    runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_i64.. {
                let mut batch = start("s-1", &format!("c-{n}"), 0);
                batch.entries[0].ts = Wall.now();
                runtime.block_on(store.commit(batch)).unwrap();
                if n % 100 == 50 {
                    store.rotate_key().unwrap();
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut segments = 0;
        for round in 0..40 {
            let options = VerifyOptions { jobs: 1 + round % 2, ..VerifyOptions::new(Wall.now()) };
            let report = looked(&home, &options);
            if !report.findings.is_clean() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(report.findings.is_clean(), "round {round}: {:#?}", report.findings.faults());
            segments = report.segments;
        }
        // However slow the disk is, some segments are closed while somebody looks.
        while segments < 3 {
            let report = looked(&home, &VerifyOptions::new(Wall.now()));
            if !report.findings.is_clean() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(report.findings.is_clean(), "{:#?}", report.findings.faults());
            segments = report.segments;
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(store);
    let report = looked(&home, &VerifyOptions::new(Wall.now()));
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
}

// B5
#[test]
fn one_core_and_many_find_the_same() {
    let (ours, other) = (story(3, 12, 3000), story(1, 5, 3000));
    let temp = crate::forge::folder();
    let home = temp.path().join("forged");
    let mut dice = Dice(21);
    for (name, make) in MOVES {
        for _ in 0..4 {
            let forge = Forge::of(&ours.image, &home);
            make(&mut Hand { ours: &ours, other: &other, forge: &forge, dice: &mut dice });
            drop(forge);
            let one = looked(&home, &later());
            let many = looked(&home, &VerifyOptions { jobs: 7, ..later() });
            assert_eq!(one.findings, many.findings, "{name}");
            assert_eq!((one.records, one.root, one.head), (many.records, many.root, many.head), "{name}");
        }
    }
}

// B5: the table is rewritten and chained anew while a store is open, with everything that it keeps of the tree and of
// checkpoints taken away
#[test]
fn a_history_that_was_rewritten_under_a_running_store_is_not_signed() {
    for forgery in [Forgery::WithoutCheckpoints, Forgery::WithoutTree, Forgery::TreeOfItsOwn] {
        let (_temp, home) = home();
        let options = Options { anchors: Some(home.with_file_name("anchors")), ..quick() };
        let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
        let runtime = runtime();
        let one = |n: i64| runtime.block_on(store.commit(start("s-1", &format!("c-{n}"), n)));
        runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
        (0..12).for_each(|n| drop(one(n).unwrap()));
        store.catch_up().unwrap();
        let published = fs::read(home.join("ledger/checkpoint")).unwrap();

        let forge =
            Forge { home: home.clone(), db: rusqlite::Connection::open(home.join("vambrace.db")).unwrap() };
        let mut lines = forge.lines();
        lines[5] = lines[5].replacen("INFO", "WARN", 1);
        forge.set_lines(&Forge::rechained(&lines, 5));
        match forgery {
            Forgery::WithoutCheckpoints => {
                forge.sql("DELETE FROM tree; DELETE FROM tree_nodes; DELETE FROM checkpoints");
            }
            Forgery::WithoutTree => forge.sql("DELETE FROM tree; DELETE FROM tree_nodes"),
            Forgery::TreeOfItsOwn => forge.fix_tree(),
        }
        drop(forge);
        let _ = one(100);
        assert!(store.catch_up().is_err(), "{forgery:?} was signed");
        assert!(one(101).is_err(), "{forgery:?}: it goes on");
        assert_eq!(fs::read(home.join("ledger/checkpoint")).unwrap(), published);
        drop(store);
        assert!(!looked(&home, &later()).findings.is_clean(), "{forgery:?}");
    }
}

// B5: what is published and could not be stored is signed again, and is no contradiction
#[test]
fn a_checkpoint_that_could_not_be_stored_closes_nothing() {
    let (_temp, home) = home();
    let options = Options { projection_interval: Duration::from_secs(3600), ..quick() };
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
    let runtime = runtime();
    runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    runtime.block_on(store.commit(start("s-1", "c-1", 1))).unwrap();
    // Somebody else holds the writer's lock for longer than the keeper waits.
    let lock = fs::File::open(home.join("writer.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(store.catch_up().is_err());
    assert!(home.join("ledger/checkpoint").exists(), "it was published before");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    store.catch_up().unwrap();
    runtime.block_on(store.commit(start("s-1", "c-2", 2))).unwrap();
    store.catch_up().unwrap();
    drop(store);
    let report = looked(&home, &later());
    assert!(report.findings.is_clean() && report.anchored == report.records, "{report:?}");
}

#[derive(Debug, Clone, Copy)]
enum Forgery {
    WithoutCheckpoints,
    WithoutTree,
    TreeOfItsOwn,
}

/// Rounds of records, each an hour after the one before.
fn hours(home: &Path, rounds: i64) {
    #[derive(Debug)]
    struct Hour(i64);
    impl Clock for Hour {
        fn now(&self) -> Timestamp {
            at(self.0 * 3_600_000 + 9_000)
        }
    }
    for hour in 0..rounds {
        let options = Options { clock: Arc::new(Hour(hour)), max_segment_bytes: 3000, ..quick() };
        let store = SqliteStore::open(StateDir::open(home).unwrap(), &options).unwrap();
        let name = format!("s-{hour}");
        runtime().block_on(async {
            store.commit(Batch::durable(vec![], vec![session(&name)])).await.unwrap();
            for n in 0..8 {
                store.commit(start(&name, &format!("{name}-{n}"), hour * 3_600_000 + n)).await.unwrap();
            }
        });
        if hour == 1 {
            store.rotate_key().unwrap();
        }
    }
}

// B5
#[test]
fn a_check_since_a_moment_begins_at_the_checkpoint_before_it() {
    let (_temp, home) = home();
    hours(&home, 4);
    let whole = looked(&home, &later());
    assert!(whole.findings.is_clean(), "{:#?}", whole.findings);
    let since = |hour: i64| VerifyOptions { since: Some(at(hour * 3_600_000 - 60_000)), ..later() };
    let mut last = 0;
    for hour in 1..4 {
        let part = looked(&home, &since(hour));
        assert!(part.findings.is_clean(), "{:#?}", part.findings);
        assert!(part.skipped > last && part.skipped + part.records == whole.records, "{part:?}");
        assert_eq!((part.head, part.root), (whole.head, whole.root));
        last = part.skipped;
    }
    // From before everything: nothing is left out.
    assert_eq!(looked(&home, &since(-1)).records, whole.records);
    // What was changed after that moment is found.
    let edit = |seq: u64| {
        let sql = "UPDATE ledger SET line = replace(line, 'INFO', 'WARN') WHERE seq = ?1";
        let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
        connection.execute(sql, [i64::try_from(seq).unwrap()]).unwrap();
    };
    // Nothing has come since.
    let idle = looked(&home, &since(100));
    assert!(idle.findings.is_clean(), "{:#?}", idle.findings);
    assert_eq!((idle.records, idle.head, idle.root), (0, whole.head, whole.root));
    edit(whole.records - 2);
    assert!(!looked(&home, &since(3)).findings.is_clean());
}

// B5
#[test]
fn a_row_that_lies_about_its_time_does_not_shorten_a_check() {
    let (_temp, home) = home();
    hours(&home, 3);
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    connection.execute("UPDATE checkpoints SET at = 0", ()).unwrap();
    drop(connection);
    let since = at(2 * 3_600_000 - 60_000);
    let report = looked(&home, &VerifyOptions { since: Some(since), ..later() });
    assert!(report.findings.is_clean() && report.records >= 8, "{report:?}");
    let last = Forge::of(&crate::forge::Image::of(&home), &home).lines();
    let skipped = &last[usize::try_from(report.skipped).unwrap() - 1];
    assert!(
        skipped.contains("\"ts\":\"2026-07-25T18:") || skipped.contains("\"ts\":\"2026-07-25T17:"),
        "{skipped}"
    );
}

// B5
#[test]
fn records_without_a_checkpoint_are_a_note_while_they_are_young_and_a_finding_afterwards() {
    let ours = story(1, 9, 30_000);
    let temp = crate::forge::folder();
    let home = temp.path().join("state");
    let forge = Forge::of(&ours.image, &home);
    let mut lines = forge.lines();
    let last = crate::forge::hash_of(lines.last().unwrap());
    lines.push(crate::forge::resealed(&lines[5].clone(), lines.len() + 1, last));
    forge.set_lines(&lines);
    forge.fix_segments();
    drop(forge);
    let tail = |millis: i64| {
        let report = looked(&home, &VerifyOptions::new(at(millis)));
        let is =
            |found: &[vambrace_ledger::Finding]| found.iter().any(|one| one.kind == Kind::UnanchoredTail);
        (is(report.findings.notes()), is(report.findings.faults()), report.findings.is_clean())
    };
    assert_eq!(tail(5_000), (true, false, true));
    assert_eq!(tail(60_000), (false, true, false));
    // A record of the future does not wait for a checkpoint either.
    assert_eq!(tail(-60_000), (false, true, false));
}

/// Files come and go beside the segments while somebody else opens the folder.
#[test]
fn a_folder_opens_while_others_replace_their_checkpoints() {
    let (_temp, home) = home();
    drop(open(&home));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (new, gone) = (home.join("ledger/checkpoint.new"), home.join("ledger/passing"));
            while !done.load(Ordering::Relaxed) {
                fs::write(&new, "passing").unwrap();
                fs::rename(&new, &gone).unwrap();
                fs::remove_file(&gone).unwrap();
            }
        });
        for _ in 0..200 {
            try_open(&home).map(drop).unwrap_or_else(|error| panic!("{error}"));
        }
        done.store(true, Ordering::Relaxed);
    });
}
