//! Payloads beside the chain: stored with their record, checked when read, gone permanently when forgotten.

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Entry, FindingKind, Op};
use vambrace_store::{Batch, PayloadRow, PayloadState, SqliteStore, StateChange, Store, StoreError};

use crate::fixtures::{KEY_RECORDS, at, clean, home, id, open, owner, runtime, text};
use crate::independent_verifier::verify_with_both;

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

/// Arguments in which every 16 bytes name their call.
fn arguments(n: u64, bytes: usize) -> serde_json::Value {
    json!({"content": format!("mark-{n:06}-abcd").repeat(bytes / 16)})
}

fn record(n: u64, bytes: usize) -> Entry {
    let mut entry = Entry::new(Op::ToolStart, at(n.cast_signed()));
    entry.tool_args = Some(Redacted::json(arguments(n, bytes), &NoRedaction).unwrap());
    entry
}

async fn keep(store: &SqliteStore, n: u64, bytes: usize) -> PayloadRow {
    let committed = store.commit(Batch::lazy(vec![record(n, bytes)], vec![])).await.unwrap();
    store.admin().payloads_of(&committed.last().unwrap().record).unwrap().remove(0)
}

async fn forget(store: &SqliteStore, row: &PayloadRow) -> Result<(), StoreError> {
    let (entry, change) = row.forget(at(0), text("ada"));
    store.commit(Batch::durable(vec![entry], vec![change])).await.map(drop)
}

/// The files of a directory that contain a text.
fn files_containing(dir: &Path, wanted: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_containing(&path, wanted));
        } else if let Ok(bytes) = std::fs::read(&path)
            && memchr::memmem::find(&bytes, wanted.as_bytes()).is_some()
        {
            // A file that is gone by now (the checkpoint is written to a temporary file and renamed) contains
            // nothing.
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

// B5
#[test]
fn a_payload_can_be_read_until_it_is_forgotten_and_is_then_in_no_file() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let row = keep(&store, 1, 100_000).await;
        assert_eq!((row.record.seq, row.ts, row.state), (KEY_RECORDS + 1, at(1), PayloadState::Present));
        let content = store.admin().payload(&row).unwrap().unwrap();
        assert_eq!(content, arguments(1, 100_000).to_string().into_bytes());
        assert_eq!(row.named.kept, content.len() as u64);
        assert!(!files_containing(&home, "mark-000001-").is_empty());
        clean(&home);

        forget(&store, &row).await.unwrap();
        assert!(store.admin().truncate_log().unwrap());
        assert_eq!(files_containing(&home, "mark-000001-"), [""; 0]);
        assert_eq!(store.admin().payload(&row).unwrap(), None);
        assert_eq!(store.admin().payloads_of(&row.record).unwrap()[0].state, PayloadState::Absent);
        assert_eq!(clean(&home).records, KEY_RECORDS + 2);
        // Forgetting twice fails, and the attempt leaves no record.
        assert!(matches!(forget(&store, &row).await, Err(StoreError::Conflict(_))));
        assert_eq!(store.head().await.unwrap().seq, KEY_RECORDS + 2);
    });
    drop(store);
    assert_eq!(files_containing(&home, "mark-000001-"), [""; 0]);
    clean(&home);
}

// B5: pages are split, merged and reused meanwhile; a forgotten payload is in none of them
#[test]
fn no_bytes_of_a_forgotten_payload_remain_among_many() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let mut rows = Vec::new();
        let mut order: u64 = 12345;
        for n in 0..400 {
            rows.push((n, keep(&store, n, 16_800 + usize::try_from(n).unwrap() * 97 % 700).await));
            // The order of deletion has no pattern, but is the same in every run.
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if n % 2 == 1 && n > 40 {
                let (gone, row) = rows.remove(usize::try_from(order >> 33).unwrap() % rows.len());
                forget(&store, &row).await.unwrap();
                assert!(store.admin().truncate_log().unwrap());
                assert_eq!(files_containing(&home, &format!("mark-{gone:06}-")), [""; 0], "{gone} after {n}");
            }
        }
        for (n, row) in &rows {
            assert!(store.admin().payload(row).unwrap().is_some(), "{n}");
        }
        assert_eq!(store.admin().stored_payloads().unwrap().len(), rows.len());
        for n in 0..400 {
            let kept = rows.iter().any(|(kept, _)| *kept == n);
            assert_eq!(!files_containing(&home, &format!("mark-{n:06}-")).is_empty(), kept, "{n}");
        }
    });
    clean(&home);
}

// B5
#[test]
fn altered_missing_and_foreign_payloads_are_found() {
    let cases: [(&str, &[FindingKind]); 9] = [
        ("UPDATE payloads SET content = x'00' WHERE seq = 2", &[FindingKind::PayloadDiffers]),
        ("UPDATE payloads SET salt = randomblob(32) WHERE seq = 2", &[FindingKind::PayloadDiffers]),
        ("UPDATE payloads SET salt = x'00' WHERE seq = 2", &[FindingKind::PayloadDiffers]),
        ("DELETE FROM payloads WHERE seq = 2", &[FindingKind::PayloadMissing]),
        ("DROP TABLE payloads", &[FindingKind::PayloadMissing]),
        (
            "INSERT INTO payloads (seq, field, salt, content) VALUES (3, 'tool_args', x'00', x'00')",
            &[FindingKind::PayloadUnknown],
        ),
        (
            "INSERT INTO payloads (seq, field, salt, content) VALUES (-5, 'tool_args', x'00', x'00')",
            &[FindingKind::PayloadUnknown],
        ),
        (
            "UPDATE payloads SET seq = -seq WHERE seq = 2",
            &[FindingKind::PayloadUnknown, FindingKind::PayloadMissing],
        ),
        (
            "UPDATE payloads SET seq = 77 WHERE seq = 2",
            &[FindingKind::PayloadUnknown, FindingKind::PayloadMissing],
        ),
    ];
    for (edit, expected) in cases {
        let (_temp, home) = home();
        let store = open(&home);
        runtime().block_on(async {
            let row = keep(&store, 1, 20_000).await;
            let gone = keep(&store, 2, 20_000).await;
            forget(&store, &gone).await.unwrap();
            clean(&home);
            Connection::open(home.join("vambrace.db")).unwrap().execute_batch(edit).unwrap();
            if expected == [FindingKind::PayloadDiffers] {
                assert!(matches!(store.admin().payload(&row), Err(StoreError::Damaged { .. })), "{edit}");
            }
        });
        let found: Vec<FindingKind> =
            verify_with_both(&home).findings.faults().iter().map(|finding| finding.kind).collect();
        assert_eq!(found, expected, "{edit}");
    }
}

// B5: what an agent writes is an argument, for the Python verifier too
#[test]
fn arguments_that_look_like_payloads_name_and_forget_none() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        keep(&store, 1, 20_000).await;
        for args in [
            json!({"a": 1, "payloads": [{"field": "tool_args"}]}),
            json!({"a": 1, "forgotten": {"seq": 2}}),
            json!({"a": {"b": 1, "payloads": [], "forgotten": {}}}),
        ] {
            let mut entry = Entry::new(Op::Violation, at(3));
            entry.tool_args = Some(Redacted::json(args, &NoRedaction).unwrap());
            store.commit(Batch::durable(vec![entry], vec![])).await.unwrap();
        }
    });
    let report = verify_with_both(&home);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
}

// B5: one transaction
#[test]
fn a_rejected_batch_leaves_no_payload() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let rejected = Batch::durable(
            vec![record(1, 20_000)],
            vec![StateChange::RequireSession { id: id("s-9"), owner: owner("t", "u", "p") }],
        );
        assert!(matches!(store.commit(rejected).await, Err(StoreError::Conflict(_))));
        assert_eq!(store.admin().stored_payloads().unwrap(), []);
        assert_eq!(store.head().await.unwrap().seq, KEY_RECORDS);
    });
    clean(&home);
}

// The WAL can only be truncated when no reader uses an older state
#[test]
fn a_reader_keeps_the_log_and_truncation_reports_it() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let row = keep(&store, 1, 20_000).await;
        let mut reader = Connection::open(home.join("vambrace.db")).unwrap();
        let reading = reader.transaction().unwrap();
        let _: i64 = reading.query_row("SELECT count(*) FROM ledger", (), |row| row.get(0)).unwrap();
        forget(&store, &row).await.unwrap();
        assert!(!store.admin().truncate_log().unwrap());
        drop(reading);
        assert!(store.admin().truncate_log().unwrap());
        assert_eq!(files_containing(&home, "mark-000001-"), [""; 0]);
    });
}
