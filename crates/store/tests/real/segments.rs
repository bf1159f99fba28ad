//! The segments as files: rolled over, repaired after a crash, left alone where another program wrote.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use vambrace_ledger::FindingKind;
use vambrace_store::{Batch, SqliteStore, StateDir, Store, StoreOptions};

use crate::fixtures::{KEY_RECORDS, clean, home, runtime, segments, session, start, test_options, verified};

fn write(home: &Path, name: &str, records: i64, options: &StoreOptions) {
    let store = SqliteStore::open(StateDir::open(home).unwrap(), options).unwrap();
    runtime().block_on(async {
        store.commit(Batch::durable(vec![], vec![session(name)])).await.unwrap();
        for n in 0..records {
            store.commit(start(name, &format!("{name}-{n}"), n)).await.unwrap();
        }
    });
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn segments_hold_the_lines_of_the_table_and_roll_over() {
    let (_temp, home) = home();
    let options = StoreOptions { max_segment_bytes: 2000, ..test_options() };
    for round in 0..4 {
        write(&home, &format!("s-{round}"), 10, &options);
    }
    let report = clean(&home);
    let seals = segments(&home).len() as u64 - 1;
    assert_eq!(report.records, 40 + KEY_RECORDS + 2 * seals);
    let files = segments(&home);
    assert!(files.len() > 3, "{} segments", files.len());
    let mut seq = 1;
    for (path, bytes) in &files {
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), format!("{seq:020}.jsonl"));
        seq += bytes.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(seq as u64, report.records + 1);
}

#[test]
fn a_torn_tail_is_rewritten_wherever_it_was_cut() {
    let (_temp, home) = home();
    write(&home, "s-0", 5, &test_options());
    let whole = segments(&home).remove(0);
    // As after a crash: the cursor is before the end of the file, and the file ends anywhere.
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    let third: usize = whole.1.split_inclusive(|byte| *byte == b'\n').take(3).map(<[u8]>::len).sum();
    for cut in (third..whole.1.len()).step_by(97) {
        let back = "UPDATE projection SET seq = 3, offset = ?1";
        connection.execute(back, [i64::try_from(third).unwrap()]).unwrap();
        fs::write(&whole.0, &whole.1[..cut]).unwrap();
        let report = verified(&home);
        assert!(report.findings.is_clean(), "{:?}", report.findings);
        drop(crate::fixtures::open(&home));
        assert_eq!(segments(&home), std::slice::from_ref(&whole), "cut at {cut}");
        clean(&home);
    }
}

#[test]
fn foreign_content_in_a_segment_stays_to_be_found() {
    let (_temp, home) = home();
    write(&home, "s-0", 5, &test_options());
    let (path, before) = segments(&home).remove(0);
    append(&path, b"{\"v\":1,\"writer\":\"w-evil\"}\n");
    write(&home, "s-1", 5, &test_options());
    let files = segments(&home);
    assert_eq!(files.len(), 2);
    assert!(files[0].1.len() > before.len());
    assert_eq!(files[1].0.file_name().unwrap(), "00000000000000000007.jsonl");
    let report = verified(&home);
    let kinds: Vec<_> = report.findings.faults().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::ExtraLines, FindingKind::Unsealed], "{:#?}", report.findings);
}

#[test]
fn a_deleted_segment_stops_no_call_and_is_found() {
    let (_temp, home) = home();
    write(&home, "s-0", 5, &test_options());
    fs::remove_file(&segments(&home)[0].0).unwrap();
    let report = verified(&home);
    assert!(report.findings.faults().iter().any(|finding| finding.kind == FindingKind::SegmentMissing));
    write(&home, "s-1", 5, &test_options());
    let report = verified(&home);
    let kinds: Vec<_> = report.findings.faults().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::SegmentShort], "{:#?}", report.findings);
}
