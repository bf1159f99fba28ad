//! A rolled-back directory is not opened; an acknowledgement is recorded, and the contradicting evidence is
//! kept. A key rotation completes, wherever it was interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vambrace_ledger::{Digest, Entry, FindingKind, Op, handover};
use vambrace_store::{
    Batch, CheckpointWitness, LedgerView, SqliteStore, StateDir, Store as _, StoreError, StoreOptions,
    VerifyOptions, WitnessReply,
};

use crate::attacks::{later, verify_with};
use crate::fixtures::{at, home, runtime, test_options};
use crate::forge::{DirSnapshot, Forge, SampleLedger, resealed, sample_ledger};

fn options(anchors: &Path) -> StoreOptions {
    StoreOptions { anchors: Some(anchors.to_owned()), max_segment_bytes: 3000, ..test_options() }
}

fn try_open(home: &Path, options: &StoreOptions) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(StateDir::open(home)?, options)
}

/// The files of a directory, without the markers that name its ledger.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".place"))
        .collect();
    names.sort();
    names
}

/// A ledger with an anchor that covers all of it, rolled back to an earlier moment.
fn set_back(ours: &SampleLedger, to: &DirSnapshot) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = crate::forge::temp_dir();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.image.put(&home);
    // Opening and closing writes the anchor.
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
fn a_directory_rolled_back_as_a_whole_is_rejected_until_it_is_acknowledged() {
    let ours = sample_ledger(4, 9, 3000);
    // Before and after the key rotation in its middle.
    for back in [&ours.before[1], &ours.before[2]] {
        let (_temp, home, anchors) = set_back(&ours, back);
        assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
        // Rejecting changes nothing, and verify reports the same.
        let kinds: Vec<_> =
            verify_with(&home, &against(&anchors)).findings.faults().iter().map(|found| found.kind).collect();
        assert!(
            kinds.contains(&FindingKind::ShorterThanCheckpoint) || kinds.contains(&FindingKind::Unsigned),
            "{kinds:?}"
        );
        let acknowledging = StoreOptions { acknowledge_rollback: true, ..options(&anchors) };
        drop(try_open(&home, &acknowledging).unwrap());
        let report = verify_with(&home, &against(&anchors));
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
        assert!(report.findings.notes().iter().any(|note| note.kind == FindingKind::Rollback));
        assert!(names(&anchors).iter().any(|name| name.contains("set-aside")), "{:?}", names(&anchors));
        // The record names the contradicted checkpoint.
        let lines = Forge::of(&DirSnapshot::of(&home), &home).lines();
        let acknowledged: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["event_type"] == "rollback.acknowledged")
            .collect();
        assert_eq!(acknowledged.len(), 1);
        assert!(acknowledged[0]["note"].as_str().unwrap().starts_with("vambrace/w-"));
        // Afterwards every start is normal, also with another acknowledgement.
        for options in [options(&anchors), acknowledging] {
            drop(try_open(&home, &options).unwrap());
        }
        let again = verify_with(&home, &against(&anchors));
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
fn an_emptied_or_exchanged_directory_is_not_taken_for_a_new_one() {
    let (ours, other) = (sample_ledger(1, 9, 30_000), sample_ledger(1, 4, 30_000));
    let temp = crate::forge::temp_dir();
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
        drop(try_open(&home, &StoreOptions { acknowledge_rollback: true, ..options(&anchors) }).unwrap());
        let report = verify_with(&home, &against(&anchors));
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
        assert!(report.findings.notes().iter().any(|note| note.kind == FindingKind::Rollback));
        drop(try_open(&home, &options(&anchors)).unwrap());
    }
    // Another directory has its own marker.
    drop(try_open(&temp.path().join("elsewhere"), &options(&anchors)).unwrap());
}

/// A witness that has signed more than there is.
struct WitnessAhead(u64);

impl CheckpointWitness for WitnessAhead {
    fn submit(&self, _: &dyn LedgerView) -> WitnessReply {
        WitnessReply::RolledBack(self.0)
    }
}

// B5
#[test]
fn only_the_record_of_an_acknowledgement_silences_a_witness() {
    let (_temp, home) = home();
    let with = |size| StoreOptions { witness: Some(Arc::new(WitnessAhead(size))), ..test_options() };
    drop(try_open(&home, &test_options()).unwrap());
    let rejected = |size| matches!(try_open(&home, &with(size)), Err(StoreError::RolledBack { .. }));
    assert!(rejected(50));
    // A planted row, also one that points to a record about something else.
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    for record in [0, 1] {
        let sql =
            "INSERT OR REPLACE INTO projection VALUES ('witness.acknowledged', 9223372036854775807, ?1, 0)";
        connection.execute(sql, [record]).unwrap();
        assert!(rejected(50), "a row for record {record}");
    }
    drop(connection);
    drop(try_open(&home, &StoreOptions { acknowledge_rollback: true, ..with(50) }).unwrap());
    assert!(!rejected(50));
    // It was acknowledged for this size, not for a larger one.
    assert!(rejected(51));
}

// B5
#[test]
fn acknowledging_without_a_rollback_changes_nothing() {
    let ours = sample_ledger(2, 9, 3000);
    let temp = crate::forge::temp_dir();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.image.put(&home);
    let before = verify_with(&home, &later());
    let acknowledging = StoreOptions { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &acknowledging).unwrap());
    let after = verify_with(&home, &later());
    assert_eq!((after.records, after.head, after.root), (before.records, before.head, before.root));
    assert!(after.findings.is_clean());
    assert!(!names(&home.join("ledger")).iter().any(|name| name.contains("set-aside")));
}

// B5
#[test]
fn a_database_rolled_back_beside_its_segments_is_rejected_and_the_rest_is_set_aside() {
    let ours = sample_ledger(4, 9, 3000);
    let temp = crate::forge::temp_dir();
    let (home, anchors) = (temp.path().join("state"), temp.path().join("anchors"));
    ours.before[2].only(|name| name == "vambrace.db").over(&ours.image).put(&home);
    assert!(matches!(try_open(&home, &options(&anchors)), Err(StoreError::RolledBack { .. })));
    let acknowledging = StoreOptions { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &acknowledging).unwrap());
    let report = verify_with(&home, &later());
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    let kept = names(&home.join("ledger"));
    assert!(kept.iter().any(|name| name.starts_with("checkpoint.set-aside")), "{kept:?}");
    assert!(kept.iter().any(|name| name.contains(".jsonl.set-aside")), "{kept:?}");
}

// B5
#[test]
fn a_rewritten_table_is_rejected_and_remains_a_finding_after_acknowledgement() {
    let ours = sample_ledger(2, 9, 3000);
    let temp = crate::forge::temp_dir();
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
    let acknowledging = StoreOptions { acknowledge_rollback: true, ..options(&anchors) };
    drop(try_open(&home, &acknowledging).unwrap());
    // What was signed for the other history is kept.
    let kept = names(&home.join("ledger"));
    assert!(kept.iter().any(|name| name.contains("set-aside")), "{kept:?}");
    let options = VerifyOptions { checkpoints: vec![("kept".into(), ours.kept[1].clone())], ..later() };
    assert!(!verify_with(&home, &options).findings.is_clean());
}

/// The steps of a key rotation: the new key beside the old one, the record, the new key in its place.
// B5
#[test]
fn a_key_rotation_interrupted_anywhere_is_completed() {
    let ours = sample_ledger(1, 9, 30_000);
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("state");
    let begin = || {
        ours.image.put(&home);
        let store = try_open(&home, &test_options()).unwrap();
        store.admin().rotate_key().unwrap();
        drop(store);
        merge_wal(&home);
        DirSnapshot::of(&home)
    };
    let whole = begin();
    let old = ours.image.only(|name| name.starts_with("keys/"));
    // Interrupted before the record: the new key is beside the old one and not valid.
    let new = fs::read(home.join("keys/ledger.key")).unwrap();
    ours.image.put(&home);
    crate::forge::write(&home.join("keys/ledger.key.next"), &new);
    goes_on(&home, 1);
    // Interrupted between the record and the file: records name the new key, the file holds the old one.
    old.over(&whole).put(&home);
    crate::forge::write(&home.join("keys/ledger.key.next"), &new);
    let before = verify_with(&home, &later());
    assert!(
        before.findings.faults().iter().all(|found| found.kind == FindingKind::WrongKey),
        "{:#?}",
        before.findings
    );
    goes_on(&home, 2);
    // Not interrupted.
    whole.put(&home);
    goes_on(&home, 2);
    // The new key is lost: the old one signs nothing, and the directory cannot be opened.
    old.over(&whole).put(&home);
    assert!(matches!(try_open(&home, &test_options()), Err(StoreError::Key(_))));
}

/// Merges the WAL into the database file, so that copying one file copies the database.
fn merge_wal(home: &Path) {
    let settled = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE";
    rusqlite::Connection::open(home.join("vambrace.db")).unwrap().execute_batch(settled).unwrap();
}

/// Opens, writes, verifies cleanly, and has had this many keys.
fn goes_on(home: &Path, keys: usize) {
    let store = try_open(home, &test_options()).unwrap();
    let record = Batch::durable(vec![Entry::new(Op::Grant, at(100))], vec![]);
    runtime().block_on(store.commit(record)).unwrap();
    store.admin().catch_up().unwrap();
    assert_eq!(store.admin().ledger_keys().unwrap().len(), keys);
    drop(store);
    let report = verify_with(home, &later());
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    assert!(!home.join("keys/ledger.key.next").exists() || keys == 1);
}

// B5
#[test]
fn a_key_that_takes_over_without_its_predecessor_is_found() {
    let ours = sample_ledger(1, 5, 30_000);
    let temp = crate::forge::temp_dir();
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
    let kinds: Vec<_> =
        verify_with(&home, &later()).findings.faults().iter().map(|found| found.kind).collect();
    assert!(kinds.contains(&FindingKind::BadHandover), "{kinds:?}");
}
