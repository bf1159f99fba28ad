//! The witness's state directory: records survive a restart, and what cannot be stored or read is not signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::clock::Clock;
use vambrace_ledger::{KeyKind, SigningKey, Timestamp};
use vambrace_witness::{
    AddCheckpointRequest, KnownLogs, Witness, WitnessAnswer, WitnessDir, WitnessDirError,
};

use crate::fixtures::{ManualClock, NOON, ORIGIN, Tree, log_key, open_witness, witness_key};

fn home() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("w");
    (temp, path)
}

fn record(dir: &Path) -> PathBuf {
    let mut found = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.extension().is_some_and(|end| end == "checkpoint")).unwrap()
}

fn try_open(dir: &Path) -> Result<Witness, WitnessDirError> {
    let logs = KnownLogs::parse(&log_key().verify_key().to_string()).unwrap();
    Witness::open(WitnessDir::open(dir).unwrap(), witness_key(dir), logs, ManualClock::at(NOON))
}

#[test]
fn signed_checkpoints_survive_a_restart() {
    let (_temp, dir) = home();
    let tree = Tree::of("a", 20);
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert!(matches!(witness.add_checkpoint(tree.body(0, 10).as_bytes()), WitnessAnswer::Cosigned(_)));
    drop(witness);
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert_eq!(witness.add_checkpoint(tree.body(0, 5).as_bytes()), WitnessAnswer::Conflict(10));
    assert!(matches!(witness.add_checkpoint(tree.body(10, 20).as_bytes()), WitnessAnswer::Cosigned(_)));
    let seen = WitnessDir::open(&dir).unwrap().signed_checkpoints(&witness_key(&dir)).unwrap();
    assert_eq!((seen.len(), seen[0].checkpoint.size), (1, 20));
    assert_eq!(seen[0].checkpoint.origin, ORIGIN);
}

// A record that cannot be read must not count as "never seen": any history would be signed.
#[test]
fn damaged_record_stops_the_witness() {
    let (_temp, dir) = home();
    let tree = Tree::of("a", 20);
    drop({
        let witness = open_witness(&dir, ManualClock::at(NOON));
        assert!(matches!(witness.add_checkpoint(tree.body(0, 10).as_bytes()), WitnessAnswer::Cosigned(_)));
        witness
    });
    let path = record(&dir);
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        // The log's signature is stored as evidence and not verified; ours covers the text.
        let of_the_log = bad.len() > at && good[..at].iter().filter(|byte| **byte == b'\n').count() == 4;
        fs::write(&path, &bad).unwrap();
        assert!(try_open(&dir).is_err() || of_the_log, "byte {at}");
    }
    for bad in [&good[..0], &good[..good.len() / 2], &good[..good.len() - 1]] {
        fs::write(&path, bad).unwrap();
        assert!(try_open(&dir).is_err());
    }
    let other = SigningKey::new("witness.example/w", KeyKind::Witness, &[3; 32]).unwrap();
    let forged = tree.note(2).cosign(&other, Timestamp::from_millis(0));
    fs::write(&path, forged.to_string()).unwrap();
    assert!(try_open(&dir).is_err(), "a record that another key signed");
    fs::write(&path, &good).unwrap();
    assert!(try_open(&dir).is_ok());
}

// A record under the file name of another origin would replace that origin's history.
#[test]
fn record_of_another_log_is_rejected() {
    let (_temp, dir) = home();
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert!(matches!(
        witness.add_checkpoint(Tree::of("a", 20).body(0, 10).as_bytes()),
        WitnessAnswer::Cosigned(_)
    ));
    drop(witness);
    let other = SigningKey::new("vambrace/other", KeyKind::Log, &[5; 32]).unwrap();
    let open = || {
        let logs = KnownLogs::parse(&other.verify_key().to_string()).unwrap();
        Witness::open(WitnessDir::open(&dir).unwrap(), witness_key(&dir), logs, ManualClock::at(NOON))
    };
    let theirs = dir.join(format!(
        "{}.checkpoint",
        String::from_utf8_lossy(&vambrace_ledger::Digest::of(b"vambrace/other").hex())
    ));
    assert!(open().is_ok());
    fs::copy(record(&dir), theirs).unwrap();
    assert!(matches!(open(), Err(WitnessDirError::Invalid { .. })));
}

#[test]
fn checkpoint_that_cannot_be_stored_is_not_signed() {
    let (_temp, dir) = home();
    let tree = Tree::of("a", 20);
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert!(matches!(witness.add_checkpoint(tree.body(0, 10).as_bytes()), WitnessAnswer::Cosigned(_)));
    // A directory blocks the path of the temporary file.
    let beside = record(&dir).with_extension("new");
    fs::create_dir(&beside).unwrap();
    assert!(matches!(witness.add_checkpoint(tree.body(10, 20).as_bytes()), WitnessAnswer::Failed(_)));
    assert_eq!(
        witness.add_checkpoint(tree.body(20, 20).as_bytes()),
        WitnessAnswer::Conflict(10),
        "the old size is unchanged"
    );
    fs::remove_dir(&beside).unwrap();
    assert!(matches!(witness.add_checkpoint(tree.body(10, 20).as_bytes()), WitnessAnswer::Cosigned(_)));
    // The rename fails: its effect is unknown, so nothing is signed from here on.
    let path = record(&dir);
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("x")).unwrap();
    let longer = Tree::of("a", 30);
    assert!(matches!(witness.add_checkpoint(longer.body(20, 30).as_bytes()), WitnessAnswer::Failed(_)));
    fs::remove_dir_all(&path).unwrap();
    assert!(matches!(witness.add_checkpoint(longer.body(20, 30).as_bytes()), WitnessAnswer::Failed(_)));
    assert!(matches!(witness.add_checkpoint(longer.body(20, 20).as_bytes()), WitnessAnswer::Failed(_)));
}

// An attacker adds signatures, or the log adds lines, until the record could not be parsed again.
#[test]
fn stored_records_can_always_be_parsed_again() {
    let (_temp, dir) = home();
    let tree = Tree::of("a", 40);
    let clock: Arc<dyn Clock> = ManualClock::at(NOON);
    let witness = open_witness(&dir, Arc::clone(&clock));
    let mut crowded = tree.note(10);
    for n in 0..15 {
        crowded = crowded.sign(&SigningKey::new(&format!("x{n}"), KeyKind::Log, &[n; 32]).unwrap());
    }
    let body = AddCheckpointRequest::new(0, vec![], crowded).unwrap().to_string();
    assert!(matches!(witness.add_checkpoint(body.as_bytes()), WitnessAnswer::Cosigned(_)));
    let mut size = 10;
    for fill in (65_000..65_536).step_by(8) {
        let text = format!("{}{}\n", tree.note(size + 1).text(), "x".repeat(fill));
        let note = vambrace_ledger::SignedNote::new(text).unwrap().sign(&log_key());
        let body = AddCheckpointRequest::new(size, tree.proof(size, size + 1), note).unwrap().to_string();
        match witness.add_checkpoint(body.as_bytes()) {
            WitnessAnswer::Cosigned(_) => size += 1,
            WitnessAnswer::Malformed(_) => {}
            other => panic!("{other:?}"),
        }
        if size == 40 {
            break;
        }
    }
    drop(witness);
    assert_eq!(
        open_witness(&dir, clock).add_checkpoint(tree.body(0, 1).as_bytes()),
        WitnessAnswer::Conflict(size)
    );
}

#[test]
fn forgotten_log_starts_anew() {
    let (_temp, dir) = home();
    let tree = Tree::of("a", 20);
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert!(matches!(witness.add_checkpoint(tree.body(0, 10).as_bytes()), WitnessAnswer::Cosigned(_)));
    let busy = WitnessDir::open(&dir).unwrap().forget(ORIGIN);
    assert!(matches!(busy, Err(WitnessDirError::Running { .. })));
    drop(witness);
    assert!(WitnessDir::open(&dir).unwrap().forget(ORIGIN).unwrap());
    let witness = open_witness(&dir, ManualClock::at(NOON));
    assert!(matches!(
        witness.add_checkpoint(tree.forked(2, "b").body(0, 5).as_bytes()),
        WitnessAnswer::Cosigned(_)
    ));
}
