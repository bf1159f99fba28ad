//! Every change of a state directory that the chain can reveal is found, with the right kind.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use vambrace_ledger::{Digest, Entry, FindingKind, Op, Timestamp};
use vambrace_store::{Batch, Store};

use crate::fixtures::{KEY_RECORDS, clean, home, id, open, runtime, segments, session, start, verified};

/// With the record of the key there are twelve.
const RECORDS: i64 = 11;

fn honest() -> (tempfile::TempDir, PathBuf) {
    let (temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        store.commit(Batch::durable(vec![], vec![session("s-1")])).await.unwrap();
        for n in 0..RECORDS {
            store.commit(start("s-1", &format!("c-{n}"), n)).await.unwrap();
        }
    });
    drop(store);
    assert_eq!(clean(&home).records, RECORDS.unsigned_abs() + KEY_RECORDS);
    (temp, home)
}

/// Changes a fresh copy and returns the findings.
fn after(alter: impl FnOnce(&Path)) -> Vec<FindingKind> {
    let (_temp, home) = honest();
    alter(&home);
    let report = verified(&home);
    report.findings.faults().iter().map(|finding| finding.kind).collect()
}

fn sql(statements: &'static str) -> Vec<FindingKind> {
    after(|home| database(home).execute_batch(statements).unwrap())
}

fn without(kinds: &[FindingKind], found: Vec<FindingKind>) -> Vec<FindingKind> {
    found.into_iter().filter(|kind| !kinds.contains(kind)).collect()
}

fn database(home: &Path) -> Connection {
    Connection::open(home.join("vambrace.db")).unwrap()
}

fn segment(change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<FindingKind> {
    after(|home| {
        let (path, bytes) = segments(home).remove(0);
        fs::write(path, change(bytes)).unwrap();
    })
}

fn by_lines(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<FindingKind> {
    segment(|bytes| {
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        change(&mut lines);
        lines.concat()
    })
}

// B5
#[test]
fn changes_of_the_table_are_found() {
    use FindingKind::{ExtraLines, Gap, Reordered, SegmentDiffers, WrongHash};
    // Every change of the records also contradicts the tree and both checkpoints.
    let sql = |statements| without(&[FindingKind::TreeDiffers, FindingKind::WrongRoot], sql(statements));
    let changed = sql("UPDATE ledger SET line = replace(line, 'src/main.rs', 'src/evil.rs') WHERE seq = 5");
    assert_eq!(changed, [WrongHash, SegmentDiffers]);
    assert_eq!(sql("DELETE FROM ledger WHERE seq = 5"), [Gap, ExtraLines]);
    let first = sql("DELETE FROM ledger WHERE seq = 1");
    assert_eq!(first[..3], [Gap, ExtraLines, FindingKind::WrongKey]);
    let cut = [ExtraLines, FindingKind::ShorterThanCheckpoint, FindingKind::ShorterThanCheckpoint];
    assert_eq!(sql("DELETE FROM ledger WHERE seq > 10"), cut);
    let deleted = sql("DELETE FROM ledger");
    assert_eq!(deleted[..2], [ExtraLines, FindingKind::WrongKey]);
    assert_eq!(sql("DELETE FROM writer")[0], FindingKind::WriterMissing);
    let swapped = sql("UPDATE ledger SET seq = -1 WHERE seq = 4; UPDATE ledger SET seq = 4 WHERE seq = 5;
                       UPDATE ledger SET seq = 5 WHERE seq = -1");
    assert!(swapped.contains(&Reordered), "{swapped:?}");
    let twice = sql("INSERT INTO ledger SELECT 13, line FROM ledger WHERE seq = 12");
    assert!(twice.contains(&FindingKind::Duplicate), "{twice:?}");
}

// B5
#[test]
fn a_record_forged_with_a_correct_hash_is_found() {
    let kinds = after(|home| {
        let forged = Entry::new(Op::Grant, Timestamp::from_millis(0));
        let connection = database(home);
        let (writer, prev): (String, String) = connection
            .query_row(
                "SELECT name, (SELECT substr(line, -73, 71) FROM ledger WHERE seq = 11) FROM writer",
                (),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        let prev: Digest = prev.parse().unwrap();
        let line = vambrace_ledger::seal(&forged, &id(&writer), 12, prev).unwrap();
        connection.execute("UPDATE ledger SET line = ?1 WHERE seq = 12", [line.as_str()]).unwrap();
    });
    assert_eq!(
        kinds,
        [
            FindingKind::SegmentDiffers,
            FindingKind::TreeDiffers,
            FindingKind::WrongRoot,
            FindingKind::WrongRoot
        ]
    );
}

// B5
#[test]
fn changes_of_a_segment_are_found() {
    use FindingKind::{ExtraLines, SegmentDiffers, SegmentShort};
    let changed = by_lines(|lines| lines[4] = [b"x".as_slice(), &lines[4][1..]].concat());
    assert_eq!(changed, [SegmentDiffers]);
    assert_eq!(by_lines(|lines| drop(lines.remove(4))), [SegmentShort, SegmentShort]);
    assert_eq!(by_lines(|lines| drop(lines.drain(2..6))), [SegmentShort, SegmentShort]);
    assert_eq!(by_lines(|lines| lines.insert(4, lines[3].clone())), [ExtraLines]);
    let swapped = by_lines(|lines| lines.swap(3, 4));
    assert!(swapped.contains(&ExtraLines) && swapped.contains(&SegmentShort), "{swapped:?}");
    assert_eq!(by_lines(|lines| lines.truncate(9)), [SegmentShort, SegmentShort]);
    assert_eq!(segment(|bytes| bytes[..bytes.len() - 1].to_vec()), [SegmentShort, SegmentShort]);
    assert_eq!(segment(|_| Vec::new()), [SegmentShort, SegmentShort]);
    assert_eq!(segment(|bytes| [bytes, b"\n".to_vec()].concat()), [ExtraLines]);
    let gone = after(|home| fs::remove_file(&segments(home)[0].0).unwrap());
    assert_eq!(gone, [SegmentShort, FindingKind::SegmentMissing]);
    let extra = after(|home| fs::write(home.join("ledger/00000000000000000099.jsonl"), "{}\n").unwrap());
    assert_eq!(extra, [FindingKind::Unsealed, ExtraLines]);
}

// B5
#[test]
fn a_flipped_bit_of_a_segment_is_found() {
    let (_temp, home) = honest();
    let (path, honest) = segments(&home).remove(0);
    // One bit of every third byte of the first and last lines; the ledger crate tries all eight of each byte.
    let edge = 700;
    for at in (0..edge).chain(honest.len() - edge..honest.len()).step_by(3) {
        let mut bytes = honest.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        assert!(!verified(&home).findings.is_clean(), "byte {at}");
    }
}

#[test]
fn a_damaged_database_is_a_finding_and_the_segments_are_still_verified() {
    let (_temp, home) = honest();
    fs::write(home.join("vambrace.db"), "this is no database at all, but long enough to look at").unwrap();
    let report = verified(&home);
    assert!(!report.table_read);
    let kinds: Vec<_> = report.findings.faults().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::DatabaseDamaged]);
    assert_eq!(report.records, RECORDS.unsigned_abs() + KEY_RECORDS);
    let (path, bytes) = segments(&home).remove(0);
    fs::write(path, String::from_utf8(bytes).unwrap().replacen("main.rs", "evil.rs", 1)).unwrap();
    let kinds: Vec<_> = verified(&home).findings.faults().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::DatabaseDamaged, FindingKind::WrongHash]);
}

#[test]
fn a_database_damaged_in_its_middle_is_a_finding() {
    let kinds = after(|home| {
        let path = home.join("vambrace.db");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 4;
        bytes[middle..].fill(0xa5);
        fs::write(path, bytes).unwrap();
    });
    assert!(kinds.contains(&FindingKind::DatabaseDamaged), "{kinds:?}");
}
