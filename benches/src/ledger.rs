//! Ledgers for the benches: many records of typical size, written through the store.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Entry, Id, Op, RecordStatus, RedactedText};
use vambrace_store::{Batch, SqliteStore, StateDir, Store as _, StoreOptions};

use crate::system_clock::SystemClock;

/// Records in one batch, and number of concurrent batches.
const BATCH_RECORDS: u64 = 200;
const CONCURRENT_BATCHES: u64 = 32;

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

fn text(text: &str) -> RedactedText {
    Redacted::text(text, &NoRedaction).expect("a clean text")
}

/// A typical record of a call.
pub(crate) fn entry(n: u64) -> Entry {
    use vambrace_core::clock::Clock as _;
    let args = json!({"path": "src/broker/pipeline.rs", "start_line": n % 900, "end_line": n % 900 + 200});
    Entry {
        status: Some(RecordStatus::Allowed),
        user: Some(text("someone")),
        agent_id: Some(text("claude-code")),
        session: Some(Id::time_ordered("s-", 1_785_000_000_000, [7; 10])),
        role: Some(text("dev")),
        execution_id: Some(Id::time_ordered("c-", 1_785_000_000_000 + n, [9; 10])),
        tool_call_id: Some(text("toolu_01ABCDEF")),
        tool_name: Some(Redacted::literal("read_file")),
        tool_args: Some(Redacted::json(args, &NoRedaction).expect("clean arguments")),
        path: Some(text("src/broker/pipeline.rs")),
        execution_environment: Some("in_process"),
        risk: Some("LOW"),
        verdict: Some("allow"),
        ..Entry::new(Op::ToolStart, SystemClock.now())
    }
}

pub(crate) fn open(home: &Path, segment: u64) -> SqliteStore {
    let options = StoreOptions { max_segment_bytes: segment, ..StoreOptions::new(Arc::new(SystemClock)) };
    let dir = StateDir::open(home).expect("a state directory");
    SqliteStore::open(dir, &options).expect("a store")
}

/// Fills a state directory with about this many records, in segments of about this many bytes.
pub(crate) fn write(home: &Path, records: u64, segment: u64) {
    let store = Arc::new(open(home, segment));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..CONCURRENT_BATCHES)
            .map(|task| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for batch in
                        (0..records / BATCH_RECORDS).filter(|batch| batch % CONCURRENT_BATCHES == task)
                    {
                        let entries = (0..BATCH_RECORDS).map(|n| entry(batch * BATCH_RECORDS + n)).collect();
                        store.commit(Batch::lazy(entries, Vec::new())).await.expect("a commit");
                        // The background thread closes segments when it sees that they are full.
                        if batch % 500 == task {
                            let store = Arc::clone(&store);
                            tokio::task::spawn_blocking(move || store.admin().catch_up())
                                .await
                                .expect("a thread")
                                .expect("segments");
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a writer");
        }
    });
    store.admin().catch_up().expect("segments");
}
