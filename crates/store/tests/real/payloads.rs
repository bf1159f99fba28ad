//! What lies beside the chain: kept with its record, read back against it, gone for good when it is forgotten.

use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use vambrace_core::redacted::{Masked, Redact, RedactError, Redacted};
use vambrace_ledger::{Entry, Kind, Op};
use vambrace_store::{Batch, Change, PayloadRow, SqliteStore, Standing, Store, StoreError};

use crate::agreement::agreed;
use crate::given::{KEY, at, clean, home, id, open, runtime, text};

struct Clean;

impl Redact for Clean {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        Ok(Masked { text: text.into(), count: 0 })
    }
}

/// Arguments whose every piece of 16 bytes says whose they are.
fn arguments(n: u64, bytes: usize) -> serde_json::Value {
    json!({"content": format!("mark-{n:06}-abcd").repeat(bytes / 16)})
}

fn record(n: u64, bytes: usize) -> Entry {
    let mut entry = Entry::new(Op::ToolStart, at(n.cast_signed()));
    entry.tool_args = Some(Redacted::json(arguments(n, bytes), &Clean).unwrap());
    entry
}

async fn keep(store: &SqliteStore, n: u64, bytes: usize) -> PayloadRow {
    let committed = store.commit(Batch::lazy(vec![record(n, bytes)], vec![])).await.unwrap();
    store.payloads_of(committed.last().unwrap().seq).unwrap().remove(0)
}

async fn forget(store: &SqliteStore, row: &PayloadRow) -> Result<(), StoreError> {
    let (entry, change) = row.forget(at(0), text("ada"));
    store.commit(Batch::durable(vec![entry], vec![change])).await.map(drop)
}

/// The files of a folder in which a text stands.
fn standing_in(folder: &Path, wanted: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(standing_in(&path, wanted));
        } else if let Ok(bytes) = std::fs::read(&path)
            && memchr::memmem::find(&bytes, wanted.as_bytes()).is_some()
        {
            // A file that is gone by now (the checkpoint is written beside and renamed) holds nothing.
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

// B5
#[test]
fn a_payload_is_read_back_until_it_is_forgotten_and_then_it_is_nowhere() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let row = keep(&store, 1, 100_000).await;
        assert_eq!((row.seq, row.ts, row.standing), (KEY + 1, at(1), Standing::Kept));
        let content = store.payload(&row).unwrap().unwrap();
        assert_eq!(content, arguments(1, 100_000).to_string().into_bytes());
        assert_eq!(row.named.kept, content.len() as u64);
        assert!(!standing_in(&home, "mark-000001-").is_empty());
        clean(&home);

        forget(&store, &row).await.unwrap();
        assert!(store.clear_log().unwrap());
        assert_eq!(standing_in(&home, "mark-000001-"), [""; 0]);
        assert_eq!(store.payload(&row).unwrap(), None);
        assert_eq!(store.payloads_of(KEY + 1).unwrap()[0].standing, Standing::Gone);
        assert_eq!(clean(&home).records, KEY + 2);
        // Not twice, and nothing is recorded about the attempt.
        assert!(matches!(forget(&store, &row).await, Err(StoreError::Conflict(_))));
        assert_eq!(store.head().await.unwrap().seq, KEY + 2);
    });
    drop(store);
    assert_eq!(standing_in(&home, "mark-000001-"), [""; 0]);
    clean(&home);
}

// B5: pages are split, merged and used again meanwhile; what is forgotten is in none of them
#[test]
fn nothing_of_forgotten_payloads_is_left_among_many() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let mut rows = Vec::new();
        let mut order: u64 = 12345;
        for n in 0..400 {
            rows.push((n, keep(&store, n, 16_800 + usize::try_from(n).unwrap() * 97 % 700).await));
            // The order in which they go is of no pattern, but the same every time.
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if n % 2 == 1 && n > 40 {
                let (gone, row) = rows.remove(usize::try_from(order >> 33).unwrap() % rows.len());
                forget(&store, &row).await.unwrap();
                assert!(store.clear_log().unwrap());
                assert_eq!(standing_in(&home, &format!("mark-{gone:06}-")), [""; 0], "{gone} after {n}");
            }
        }
        for (n, row) in &rows {
            assert!(store.payload(row).unwrap().is_some(), "{n}");
        }
        assert_eq!(store.payloads_kept().unwrap().len(), rows.len());
        for n in 0..400 {
            let kept = rows.iter().any(|(kept, _)| *kept == n);
            assert_eq!(!standing_in(&home, &format!("mark-{n:06}-")).is_empty(), kept, "{n}");
        }
    });
    clean(&home);
}

// B5
#[test]
fn altered_missing_and_foreign_payloads_are_found() {
    let cases: [(&str, &[Kind]); 9] = [
        ("UPDATE payloads SET content = x'00' WHERE seq = 2", &[Kind::PayloadDiffers]),
        ("UPDATE payloads SET salt = randomblob(32) WHERE seq = 2", &[Kind::PayloadDiffers]),
        ("UPDATE payloads SET salt = x'00' WHERE seq = 2", &[Kind::PayloadDiffers]),
        ("DELETE FROM payloads WHERE seq = 2", &[Kind::PayloadMissing]),
        ("DROP TABLE payloads", &[Kind::PayloadMissing]),
        (
            "INSERT INTO payloads (seq, field, salt, content) VALUES (3, 'tool_args', x'00', x'00')",
            &[Kind::PayloadUnknown],
        ),
        (
            "INSERT INTO payloads (seq, field, salt, content) VALUES (-5, 'tool_args', x'00', x'00')",
            &[Kind::PayloadUnknown],
        ),
        ("UPDATE payloads SET seq = -seq WHERE seq = 2", &[Kind::PayloadUnknown, Kind::PayloadMissing]),
        ("UPDATE payloads SET seq = 77 WHERE seq = 2", &[Kind::PayloadUnknown, Kind::PayloadMissing]),
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
            if expected == [Kind::PayloadDiffers] {
                assert!(matches!(store.payload(&row), Err(StoreError::Damaged { .. })), "{edit}");
            }
        });
        let found: Vec<Kind> = agreed(&home).findings.faults().iter().map(|finding| finding.kind).collect();
        assert_eq!(found, expected, "{edit}");
    }
}

// B5: what an agent says is an argument, also to the second verifier
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
            entry.tool_args = Some(Redacted::json(args, &Clean).unwrap());
            store.commit(Batch::durable(vec![entry], vec![])).await.unwrap();
        }
    });
    let report = agreed(&home);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
}

// B5: one transaction
#[test]
fn a_refused_batch_leaves_no_payload() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let refused = Batch::durable(vec![record(1, 20_000)], vec![Change::RequireSession { id: id("s-9") }]);
        assert!(matches!(store.commit(refused).await, Err(StoreError::Conflict(_))));
        assert_eq!(store.payloads_kept().unwrap(), []);
        assert_eq!(store.head().await.unwrap().seq, KEY);
    });
    clean(&home);
}

// The log can only go when nobody reads an older state of it
#[test]
fn a_reader_keeps_the_log_and_is_told_of() {
    let (_temp, home) = home();
    let store = open(&home);
    runtime().block_on(async {
        let row = keep(&store, 1, 20_000).await;
        let mut reader = Connection::open(home.join("vambrace.db")).unwrap();
        let reading = reader.transaction().unwrap();
        let _: i64 = reading.query_row("SELECT count(*) FROM ledger", (), |row| row.get(0)).unwrap();
        forget(&store, &row).await.unwrap();
        assert!(!store.clear_log().unwrap());
        drop(reading);
        assert!(store.clear_log().unwrap());
        assert_eq!(standing_in(&home, "mark-000001-"), [""; 0]);
    });
}
