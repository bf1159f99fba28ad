//! What a verification covers and what it leaves out: since a time, with several threads, while others write,
//! and records that no checkpoint covers yet.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vambrace_core::clock::Clock;
use vambrace_ledger::{FindingKind, Timestamp};
use vambrace_store::{Batch, SqliteStore, StateDir, Store as _, StoreOptions, VerifyOptions};

use crate::attacks::{later, verify_with};
use crate::fixtures::{at, home, open, runtime, session, start, test_options, try_open};
use crate::forge::{Forge, SeededRandom, sample_ledger};
use crate::mutations::{MUTATIONS, MutationContext};

/// The wall clock, as a running store has it.
#[derive(Debug)]
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
    }
}

// B5
#[test]
fn verifying_while_the_store_is_written_gives_no_false_finding() {
    let (_temp, home) = home();
    let options = StoreOptions {
        max_segment_bytes: 20_000,
        ..StoreOptions { clock: Arc::new(WallClock), ..test_options() }
    };
    let store = Arc::new(SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap());
    let runtime = runtime();
    runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_i64.. {
                let mut batch = start("s-1", &format!("c-{n}"), 0);
                batch.entries[0].ts = WallClock.now();
                runtime.block_on(store.commit(batch)).unwrap();
                if n % 100 == 50 {
                    store.admin().rotate_key().unwrap();
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut segments = 0;
        for round in 0..40 {
            let options = VerifyOptions { jobs: 1 + round % 2, ..VerifyOptions::new(WallClock.now()) };
            let report = verify_with(&home, &options);
            if !report.findings.is_clean() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(report.findings.is_clean(), "round {round}: {:#?}", report.findings.faults());
            segments = report.segments;
        }
        // However slow the disk is, some segments are closed during the verification.
        while segments < 3 {
            let report = verify_with(&home, &VerifyOptions::new(WallClock.now()));
            if !report.findings.is_clean() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(report.findings.is_clean(), "{:#?}", report.findings.faults());
            segments = report.segments;
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(store);
    let report = verify_with(&home, &VerifyOptions::new(WallClock.now()));
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
}

// B5
#[test]
fn one_thread_and_many_find_the_same() {
    let (ours, other) = (sample_ledger(3, 12, 3000), sample_ledger(1, 5, 3000));
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("forged");
    let mut random = SeededRandom(21);
    for (name, make) in MUTATIONS {
        for _ in 0..4 {
            let forge = Forge::of(&ours.image, &home);
            make(&mut MutationContext { ours: &ours, other: &other, forge: &forge, random: &mut random });
            drop(forge);
            let one = verify_with(&home, &later());
            let many = verify_with(&home, &VerifyOptions { jobs: 7, ..later() });
            assert_eq!(one.findings, many.findings, "{name}");
            assert_eq!((one.records, one.root, one.head), (many.records, many.root, many.head), "{name}");
        }
    }
}

// B5: the table is rewritten and rechained while a store is open, and its stored tree and checkpoints are
// deleted
#[test]
fn a_history_rewritten_under_a_running_store_is_not_signed() {
    for forgery in [Forgery::WithoutCheckpoints, Forgery::WithoutTree, Forgery::TreeOfItsOwn] {
        let (_temp, home) = home();
        let options = StoreOptions { anchors: Some(home.with_file_name("anchors")), ..test_options() };
        let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
        let runtime = runtime();
        let one = |n: i64| runtime.block_on(store.commit(start("s-1", &format!("c-{n}"), n)));
        runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
        (0..12).for_each(|n| drop(one(n).unwrap()));
        store.admin().catch_up().unwrap();
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
        assert!(store.admin().catch_up().is_err(), "{forgery:?} was signed");
        assert!(one(101).is_err(), "{forgery:?}: the store goes on");
        assert_eq!(fs::read(home.join("ledger/checkpoint")).unwrap(), published);
        drop(store);
        assert!(!verify_with(&home, &later()).findings.is_clean(), "{forgery:?}");
    }
}

// B5: a checkpoint that was published and could not be stored is signed again, and is no contradiction
#[test]
fn a_checkpoint_that_could_not_be_stored_does_not_close_the_store() {
    let (_temp, home) = home();
    let options = StoreOptions { segment_interval: Duration::from_secs(3600), ..test_options() };
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
    let runtime = runtime();
    runtime.block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    runtime.block_on(store.commit(start("s-1", "c-1", 1))).unwrap();
    // Another process holds the writer lock for longer than the background worker waits.
    let lock = fs::File::open(home.join("writer.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(store.admin().catch_up().is_err());
    assert!(home.join("ledger/checkpoint").exists(), "it was not published before");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    store.admin().catch_up().unwrap();
    runtime.block_on(store.commit(start("s-1", "c-2", 2))).unwrap();
    store.admin().catch_up().unwrap();
    drop(store);
    let report = verify_with(&home, &later());
    assert!(report.findings.is_clean() && report.anchored == report.records, "{report:?}");
}

#[derive(Debug, Clone, Copy)]
enum Forgery {
    WithoutCheckpoints,
    WithoutTree,
    TreeOfItsOwn,
}

/// Rounds of records, each an hour after the previous one.
fn hours(home: &Path, rounds: i64) {
    #[derive(Debug)]
    struct Hour(i64);
    impl Clock for Hour {
        fn now(&self) -> Timestamp {
            at(self.0 * 3_600_000 + 9_000)
        }
    }
    for hour in 0..rounds {
        let options = StoreOptions { clock: Arc::new(Hour(hour)), max_segment_bytes: 3000, ..test_options() };
        let store = SqliteStore::open(StateDir::open(home).unwrap(), &options).unwrap();
        let name = format!("s-{hour}");
        runtime().block_on(async {
            store.commit(Batch::durable(vec![], vec![session(&name)])).await.unwrap();
            for n in 0..8 {
                store.commit(start(&name, &format!("{name}-{n}"), hour * 3_600_000 + n)).await.unwrap();
            }
        });
        if hour == 1 {
            store.admin().rotate_key().unwrap();
        }
    }
}

// B5
#[test]
fn verifying_since_a_time_starts_at_the_checkpoint_before_it() {
    let (_temp, home) = home();
    hours(&home, 4);
    let whole = verify_with(&home, &later());
    assert!(whole.findings.is_clean(), "{:#?}", whole.findings);
    let since = |hour: i64| VerifyOptions { since: Some(at(hour * 3_600_000 - 60_000)), ..later() };
    let mut last = 0;
    for hour in 1..4 {
        let part = verify_with(&home, &since(hour));
        assert!(part.findings.is_clean(), "{:#?}", part.findings);
        assert!(part.skipped > last && part.skipped + part.records == whole.records, "{part:?}");
        assert_eq!((part.head, part.root), (whole.head, whole.root));
        last = part.skipped;
    }
    // From before the first record: nothing is skipped.
    assert_eq!(verify_with(&home, &since(-1)).records, whole.records);
    // A change after that time is found.
    let edit = |seq: u64| {
        let sql = "UPDATE ledger SET line = replace(line, 'INFO', 'WARN') WHERE seq = ?1";
        let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
        connection.execute(sql, [i64::try_from(seq).unwrap()]).unwrap();
    };
    // No records since then.
    let idle = verify_with(&home, &since(100));
    assert!(idle.findings.is_clean(), "{:#?}", idle.findings);
    assert_eq!((idle.records, idle.head, idle.root), (0, whole.head, whole.root));
    edit(whole.records - 2);
    assert!(!verify_with(&home, &since(3)).findings.is_clean());
}

// B5
#[test]
fn a_row_with_a_false_time_does_not_shorten_a_verification() {
    let (_temp, home) = home();
    hours(&home, 3);
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    connection.execute("UPDATE checkpoints SET at = 0", ()).unwrap();
    drop(connection);
    let since = at(2 * 3_600_000 - 60_000);
    let report = verify_with(&home, &VerifyOptions { since: Some(since), ..later() });
    assert!(report.findings.is_clean() && report.records >= 8, "{report:?}");
    let last = Forge::of(&crate::forge::DirSnapshot::of(&home), &home).lines();
    let skipped = &last[usize::try_from(report.skipped).unwrap() - 1];
    assert!(
        skipped.contains("\"ts\":\"2026-07-25T18:") || skipped.contains("\"ts\":\"2026-07-25T17:"),
        "{skipped}"
    );
}

// B5
#[test]
fn records_without_a_checkpoint_are_a_note_while_young_and_a_finding_afterwards() {
    let ours = sample_ledger(1, 9, 30_000);
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("state");
    let forge = Forge::of(&ours.image, &home);
    let mut lines = forge.lines();
    let last = crate::forge::hash_of(lines.last().unwrap());
    lines.push(crate::forge::resealed(&lines[5].clone(), lines.len() + 1, last));
    forge.set_lines(&lines);
    forge.fix_segments();
    drop(forge);
    let tail = |millis: i64| {
        let report = verify_with(&home, &VerifyOptions::new(at(millis)));
        let is = |found: &[vambrace_ledger::Finding]| {
            found.iter().any(|one| one.kind == FindingKind::UnanchoredTail)
        };
        (is(report.findings.notes()), is(report.findings.faults()), report.findings.is_clean())
    };
    assert_eq!(tail(5_000), (true, false, true));
    assert_eq!(tail(60_000), (false, true, false));
    // A record from the future does not wait for a checkpoint either.
    assert_eq!(tail(-60_000), (false, true, false));
}

/// Files appear and disappear beside the segments while another process opens the directory.
#[test]
fn a_directory_opens_while_others_replace_their_checkpoints() {
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
