//! A folder that was set back is not opened; whoever says to go on is put on record, and what spoke against it is kept.
//! A key that is changed is changed wholly, wherever the change was broken off.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vambrace_ledger::{Digest, Entry, Kind, Op, handover};
use vambrace_store::{
    Batch, Heard, Options, Shown, SqliteStore, StateDir, Store as _, StoreError, VerifyOptions, Witness,
};

use crate::attacks::{later, looked};
use crate::forge::{Forge, Image, Story, resealed, story};
use crate::given::{at, home, quick, runtime};

fn options(anchors: &Path) -> Options {
    Options { anchors: Some(anchors.to_owned()), max_segment_bytes: 3000, ..quick() }
}

fn try_open(home: &Path, options: &Options) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(StateDir::open(home)?, options)
}

/// The files of a folder, but for those that say which ledger is where.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".place"))
        .collect();
    names.sort();
    names
}

/// A ledger with an anchor that knows all of it, set back to an earlier moment.
fn set_back(ours: &Story, to: &Image) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = crate::forge::folder();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.image.put(&home);
    // Opening and closing leaves the anchor.
    drop(try_open(&home, &options(&anchors)).unwrap());
    let record = Batch::durable(vec![Entry::new(Op::Grant, at(100))], vec![]);
    let store = try_open(&home, &options(&anchors)).unwrap();
    runtime().block_on(store.commit(record)).unwrap();
    drop(store);
    assert_eq!(names(&anchors).len(), 1);
    to.put(&home);
    (temp, home, anchors)
}

fn against(anchors: &Path) -> VerifyOptions {
    VerifyOptions { anchors: Some(anchors.to_owned()), ..later() }
}

// B5
#[test]
fn a_folder_set_back_as_a_whole_is_refused_at_the_start_and_goes_on_when_somebody_says_so() {
    let ours = story(4, 9, 3000);
    // Before and after the change of the key that is in the middle of it.
    for back in [&ours.before[1], &ours.before[2]] {
        let (_temp, home, anchors) = set_back(&ours, back);
        assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
        // Refusing changes nothing, and verify says the same.
        let kinds: Vec<_> =
            looked(&home, &against(&anchors)).findings.faults().iter().map(|found| found.kind).collect();
        assert!(kinds.contains(&Kind::ShorterThanCheckpoint) || kinds.contains(&Kind::Unsigned), "{kinds:?}");
        let said = Options { acknowledge_rollback: true, ..options(&anchors) };
        drop(try_open(&home, &said).unwrap());
        let report = looked(&home, &against(&anchors));
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
        assert!(report.findings.notes().iter().any(|note| note.kind == Kind::Rollback));
        assert!(names(&anchors).iter().any(|name| name.contains("set-aside")), "{:?}", names(&anchors));
        // The record names the checkpoint that was contradicted.
        let lines = Forge::of(&Image::of(&home), &home).lines();
        let told: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["event_type"] == "rollback.acknowledged")
            .collect();
        assert_eq!(told.len(), 1);
        assert!(told[0]["note"].as_str().unwrap().starts_with("vambrace/w-"));
        // It is over: the next start is like any other, also when it is said again.
        for options in [options(&anchors), said] {
            drop(try_open(&home, &options).unwrap());
        }
        let again = looked(&home, &against(&anchors));
        assert_eq!(
            (again.records, again.findings.is_clean()),
            (report.records, true),
            "{:#?}",
            again.findings
        );
    }
}

// B5
#[test]
fn a_folder_that_was_emptied_or_exchanged_is_not_a_new_one() {
    let (ours, other) = (story(1, 9, 30_000), story(1, 4, 30_000));
    let temp = crate::forge::folder();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    for replace in [None, Some(&other.image)] {
        let _ = fs::remove_dir_all(&anchors);
        ours.image.put(&home);
        let record = Batch::durable(vec![Entry::new(Op::ToolStart, at(60_000))], vec![]);
        let store = try_open(&home, &options(&anchors)).unwrap();
        runtime().block_on(store.commit(record)).unwrap();
        drop(store);
        fs::remove_dir_all(&home).unwrap();
        replace.iter().for_each(|image| image.put(&home));
        for _ in 0..2 {
            assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
        }
        drop(try_open(&home, &Options { acknowledge_rollback: true, ..options(&anchors) }).unwrap());
        let report = looked(&home, &against(&anchors));
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
        assert!(report.findings.notes().iter().any(|note| note.kind == Kind::Rollback));
        drop(try_open(&home, &options(&anchors)).unwrap());
    }
    // Another folder is another place.
    drop(try_open(&temp.path().join("elsewhere"), &options(&anchors)).unwrap());
}

/// A witness that has seen more than there is.
struct Ahead(u64);

impl Witness for Ahead {
    fn show(&self, _: &dyn Shown) -> Heard {
        Heard::RolledBack(self.0)
    }
}

// B5
#[test]
fn only_the_record_of_an_acknowledgement_quiets_a_witness() {
    let (_temp, home) = home();
    let with = |size| Options { witness: Some(Arc::new(Ahead(size))), ..quick() };
    drop(try_open(&home, &quick()).unwrap());
    let refused = |size| matches!(try_open(&home, &with(size)), Err(StoreError::RolledBack { .. }));
    assert!(refused(50));
    // A row that somebody planted, also one that points at a record about something else.
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    for record in [0, 1] {
        let sql =
            "INSERT OR REPLACE INTO projection VALUES ('witness.acknowledged', 9223372036854775807, ?1, 0)";
        connection.execute(sql, [record]).unwrap();
        assert!(refused(50), "a row for record {record}");
    }
    drop(connection);
    drop(try_open(&home, &Options { acknowledge_rollback: true, ..with(50) }).unwrap());
    assert!(!refused(50));
    // It was said about that much, and not about more.
    assert!(refused(51));
}

// B5
#[test]
fn acknowledging_without_need_changes_nothing() {
    let ours = story(2, 9, 3000);
    let temp = crate::forge::folder();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.image.put(&home);
    let before = looked(&home, &later());
    let said = Options { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &said).unwrap());
    let after = looked(&home, &later());
    assert_eq!((after.records, after.head, after.root), (before.records, before.head, before.root));
    assert!(after.findings.is_clean());
    assert!(!names(&home.join("ledger")).iter().any(|name| name.contains("set-aside")));
}

// B5
#[test]
fn a_database_set_back_beside_its_segments_is_refused_and_what_it_lacks_is_kept_aside() {
    let ours = story(4, 9, 3000);
    let temp = crate::forge::folder();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.before[2].only(|name| name == "vambrace.db").over(&ours.image).put(&home);
    assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
    let said = Options { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &said).unwrap());
    let report = looked(&home, &later());
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    let kept = names(&home.join("ledger"));
    assert!(kept.iter().any(|name| name.starts_with("checkpoint.set-aside")), "{kept:?}");
    assert!(kept.iter().any(|name| name.contains(".jsonl.set-aside")), "{kept:?}");
}

// B5
#[test]
fn a_table_that_was_rewritten_is_refused_and_stays_a_finding_when_it_is_acknowledged() {
    let ours = story(2, 9, 3000);
    let temp = crate::forge::folder();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    let forge = Forge::of(&ours.image, &home);
    let mut lines = forge.lines();
    let at = lines.len() - 4;
    lines[at] = lines[at].replacen("INFO", "WARN", 1);
    forge.set_lines(&Forge::rechained(&lines, at));
    forge.fix_segments();
    forge.fix_tree();
    drop(forge);
    assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
    let said = Options { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &said).unwrap());
    // What was signed for the other history is kept beside.
    let kept = names(&home.join("ledger"));
    assert!(kept.iter().any(|name| name.contains("set-aside")), "{kept:?}");
    let options = VerifyOptions { checkpoints: vec![("kept".into(), ours.kept[1].clone())], ..later() };
    assert!(!looked(&home, &options).findings.is_clean());
}

/// What a change of the key does, step by step: the new key beside the old, the record, the new key in its place.
// B5
#[test]
fn a_change_of_the_key_that_was_broken_off_anywhere_is_made_good() {
    let ours = story(1, 9, 30_000);
    let temp = crate::forge::folder();
    let home = temp.path().join("state");
    let begin = || {
        ours.image.put(&home);
        let store = try_open(&home, &quick()).unwrap();
        store.rotate_key().unwrap();
        drop(store);
        Connectionless::settle(&home);
        Image::of(&home)
    };
    let whole = begin();
    let old = ours.image.only(|name| name.starts_with("keys/"));
    // Broken off before the record: the new key lies beside and counts for nothing.
    let new = fs::read(home.join("keys/ledger.key")).unwrap();
    ours.image.put(&home);
    crate::forge::write(&home.join("keys/ledger.key.next"), &new);
    goes_on(&home, 1);
    // Broken off between the record and the file: records name the new key, the file holds the old one.
    old.over(&whole).put(&home);
    crate::forge::write(&home.join("keys/ledger.key.next"), &new);
    let before = looked(&home, &later());
    assert!(
        before.findings.faults().iter().all(|found| found.kind == Kind::WrongKey),
        "{:#?}",
        before.findings
    );
    goes_on(&home, 2);
    // Not broken off.
    whole.put(&home);
    goes_on(&home, 2);
    // The new key is lost: nothing is signed with the old one, and nobody opens it.
    old.over(&whole).put(&home);
    assert!(matches!(try_open(&home, &quick()), Err(StoreError::Key(_))));
}

struct Connectionless;

impl Connectionless {
    /// One file, so that a copy is a copy.
    fn settle(home: &Path) {
        let settled = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE";
        rusqlite::Connection::open(home.join("vambrace.db")).unwrap().execute_batch(settled).unwrap();
    }
}

/// Opens, writes, is clean, and has had so many keys.
fn goes_on(home: &Path, keys: usize) {
    let store = try_open(home, &quick()).unwrap();
    let record = Batch::durable(vec![Entry::new(Op::Grant, at(100))], vec![]);
    runtime().block_on(store.commit(record)).unwrap();
    store.catch_up().unwrap();
    assert_eq!(store.ledger_keys().unwrap().len(), keys);
    drop(store);
    let report = looked(home, &later());
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    assert!(!home.join("keys/ledger.key.next").exists() || keys == 1);
}

// B5
#[test]
fn a_key_that_takes_over_by_itself_is_found() {
    let ours = story(1, 5, 30_000);
    let temp = crate::forge::folder();
    let home = temp.path().join("state");
    let forge = Forge::of(&ours.image, &home);
    let mut lines = forge.lines();
    let own = crate::forge::own_key(ours.key.split('+').next().unwrap());
    let old = ours.key.parse().unwrap();
    // Signed by the new key alone.
    let note = handover(own.verify_key().name(), &old, &own.verify_key()).unwrap().sign(&own);
    let (body, _) = lines[0].rsplit_once(",\"prev_hash\"").unwrap();
    let body =
        body.replacen("key.created", "key.rotated", 1).replacen(&ours.key, &own.verify_key().to_string(), 1);
    let last: Digest = crate::forge::hash_of(lines.last().unwrap());
    let line = format!("{body},\"note\":{},\"prev_hash\":\"\"", Value::from(note.to_string()));
    lines.push(resealed(&line, lines.len() + 1, last));
    forge.set_lines(&lines);
    forge.fix_segments();
    forge.fix_tree();
    let row = (i64::try_from(lines.len()).unwrap(), own.verify_key().to_string());
    forge.db.execute("INSERT INTO ledger_keys VALUES (?1, ?2)", row).unwrap();
    crate::forge::write(&home.join("keys/ledger.key"), own.secret_text().as_bytes());
    drop(forge);
    let kinds: Vec<_> = looked(&home, &later()).findings.faults().iter().map(|found| found.kind).collect();
    assert!(kinds.contains(&Kind::BadHandover), "{kinds:?}");
}
