//! What the witness keeps: it outlives the process, and what cannot be kept or read is not signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::clock::Clock;
use vambrace_ledger::{KeyKind, SigningKey, Timestamp};
use vambrace_witness::{Answer, Folder, FolderError, KnownLogs, Submission, Witness};

use crate::given::{NOON, ORIGIN, Stopped, Tree, log_key, witness, witness_key};

fn home() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("w");
    (temp, path)
}

fn record(folder: &Path) -> PathBuf {
    let mut found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.extension().is_some_and(|end| end == "checkpoint")).unwrap()
}

fn try_open(folder: &Path) -> Result<Witness, FolderError> {
    let logs = KnownLogs::parse(&log_key().verify_key().to_string()).unwrap();
    Witness::open(Folder::open(folder).unwrap(), witness_key(folder), logs, Stopped::at(NOON))
}

#[test]
fn what_was_signed_is_remembered_after_a_restart() {
    let (_temp, folder) = home();
    let tree = Tree::of("a", 20);
    let eye = witness(&folder, Stopped::at(NOON));
    assert!(matches!(eye.add(tree.body(0, 10).as_bytes()), Answer::Cosigned(_)));
    drop(eye);
    let eye = witness(&folder, Stopped::at(NOON));
    assert_eq!(eye.add(tree.body(0, 5).as_bytes()), Answer::Conflict(10));
    assert!(matches!(eye.add(tree.body(10, 20).as_bytes()), Answer::Cosigned(_)));
    let seen = Folder::open(&folder).unwrap().seen(&witness_key(&folder)).unwrap();
    assert_eq!((seen.len(), seen[0].checkpoint.size), (1, 20));
    assert_eq!(seen[0].checkpoint.origin, ORIGIN);
}

// A record that cannot be read must not count as "never seen": that would sign any history.
#[test]
fn a_damaged_record_stops_the_witness() {
    let (_temp, folder) = home();
    let tree = Tree::of("a", 20);
    drop({
        let eye = witness(&folder, Stopped::at(NOON));
        assert!(matches!(eye.add(tree.body(0, 10).as_bytes()), Answer::Cosigned(_)));
        eye
    });
    let path = record(&folder);
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        // A log's own signature is kept as evidence; ours covers the text.
        let of_the_log = bad.len() > at && good[..at].iter().filter(|byte| **byte == b'\n').count() == 4;
        fs::write(&path, &bad).unwrap();
        assert!(try_open(&folder).is_err() || of_the_log, "byte {at}");
    }
    for bad in [&good[..0], &good[..good.len() / 2], &good[..good.len() - 1]] {
        fs::write(&path, bad).unwrap();
        assert!(try_open(&folder).is_err());
    }
    let other = SigningKey::new("eye.example/w", KeyKind::Witness, &[3; 32]).unwrap();
    let forged = tree.note(2).cosign(&other, Timestamp::from_millis(0));
    fs::write(&path, forged.to_string()).unwrap();
    assert!(try_open(&folder).is_err(), "a record that another key signed");
    fs::write(&path, &good).unwrap();
    assert!(try_open(&folder).is_ok());
}

// A record under the name of another origin would let that one's history be chosen.
#[test]
fn the_record_of_another_log_is_not_taken() {
    let (_temp, folder) = home();
    let eye = witness(&folder, Stopped::at(NOON));
    assert!(matches!(eye.add(Tree::of("a", 20).body(0, 10).as_bytes()), Answer::Cosigned(_)));
    drop(eye);
    let other = SigningKey::new("vambrace/other", KeyKind::Log, &[5; 32]).unwrap();
    let open = || {
        let logs = KnownLogs::parse(&other.verify_key().to_string()).unwrap();
        Witness::open(Folder::open(&folder).unwrap(), witness_key(&folder), logs, Stopped::at(NOON))
    };
    let theirs = folder.join(format!(
        "{}.checkpoint",
        String::from_utf8_lossy(&vambrace_ledger::Digest::of(b"vambrace/other").hex())
    ));
    assert!(open().is_ok());
    fs::copy(record(&folder), theirs).unwrap();
    assert!(matches!(open(), Err(FolderError::Unfit { .. })));
}

#[test]
fn what_cannot_be_stored_is_not_signed() {
    let (_temp, folder) = home();
    let tree = Tree::of("a", 20);
    let eye = witness(&folder, Stopped::at(NOON));
    assert!(matches!(eye.add(tree.body(0, 10).as_bytes()), Answer::Cosigned(_)));
    // A folder stands where the new record is written first.
    let beside = record(&folder).with_extension("new");
    fs::create_dir(&beside).unwrap();
    assert!(matches!(eye.add(tree.body(10, 20).as_bytes()), Answer::Failed(_)));
    assert_eq!(eye.add(tree.body(20, 20).as_bytes()), Answer::Conflict(10), "the old size stands");
    fs::remove_dir(&beside).unwrap();
    assert!(matches!(eye.add(tree.body(10, 20).as_bytes()), Answer::Cosigned(_)));
    // A folder that cannot be replaced: whether it was is not known, so nothing is signed from here on.
    let path = record(&folder);
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("x")).unwrap();
    let longer = Tree::of("a", 30);
    assert!(matches!(eye.add(longer.body(20, 30).as_bytes()), Answer::Failed(_)));
    fs::remove_dir_all(&path).unwrap();
    assert!(matches!(eye.add(longer.body(20, 30).as_bytes()), Answer::Failed(_)));
    assert!(matches!(eye.add(longer.body(20, 20).as_bytes()), Answer::Failed(_)));
}

// Somebody on the way adds signatures, or the log adds lines, until the record could not be read again.
#[test]
fn no_checkpoint_makes_a_record_that_cannot_be_read() {
    let (_temp, folder) = home();
    let tree = Tree::of("a", 40);
    let clock: Arc<dyn Clock> = Stopped::at(NOON);
    let eye = witness(&folder, Arc::clone(&clock));
    let mut crowded = tree.note(10);
    for n in 0..15 {
        crowded = crowded.sign(&SigningKey::new(&format!("x{n}"), KeyKind::Log, &[n; 32]).unwrap());
    }
    let body = Submission::new(0, vec![], crowded).unwrap().to_string();
    assert!(matches!(eye.add(body.as_bytes()), Answer::Cosigned(_)));
    let mut size = 10;
    for fill in (65_000..65_536).step_by(8) {
        let text = format!("{}{}\n", tree.note(size + 1).text(), "x".repeat(fill));
        let note = vambrace_ledger::Note::new(text).unwrap().sign(&log_key());
        let body = Submission::new(size, tree.proof(size, size + 1), note).unwrap().to_string();
        match eye.add(body.as_bytes()) {
            Answer::Cosigned(_) => size += 1,
            Answer::Malformed(_) => {}
            other => panic!("{other:?}"),
        }
        if size == 40 {
            break;
        }
    }
    drop(eye);
    assert_eq!(witness(&folder, clock).add(tree.body(0, 1).as_bytes()), Answer::Conflict(size));
}

#[test]
fn what_was_forgotten_starts_anew() {
    let (_temp, folder) = home();
    let tree = Tree::of("a", 20);
    let eye = witness(&folder, Stopped::at(NOON));
    assert!(matches!(eye.add(tree.body(0, 10).as_bytes()), Answer::Cosigned(_)));
    let busy = Folder::open(&folder).unwrap().forget(ORIGIN);
    assert!(matches!(busy, Err(FolderError::Running { .. })));
    drop(eye);
    assert!(Folder::open(&folder).unwrap().forget(ORIGIN).unwrap());
    let eye = witness(&folder, Stopped::at(NOON));
    assert!(matches!(eye.add(tree.forked(2, "b").body(0, 5).as_bytes()), Answer::Cosigned(_)));
}
