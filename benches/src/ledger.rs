//! Ledgers for the benches: many records of the size that calls have, written through the store.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use vambrace_core::redacted::{Masked, Redact, RedactError, Redacted};
use vambrace_ledger::{Entry, Id, Op, Status, Text};
use vambrace_store::{Batch, Options, SqliteStore, StateDir, Store as _};

use crate::wall::Wall;

/// Records of one batch, and batches that are under way at once.
const TOGETHER: u64 = 200;
const UNDER_WAY: u64 = 32;

struct Clean;

impl Redact for Clean {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        Ok(Masked { text: text.into(), count: 0 })
    }
}

fn text(text: &str) -> Text {
    Redacted::text(text, &Clean).expect("a clean text")
}

/// A record as a call leaves it.
pub(crate) fn entry(n: u64) -> Entry {
    use vambrace_core::clock::Clock as _;
    let args = json!({"path": "src/broker/pipeline.rs", "start_line": n % 900, "end_line": n % 900 + 200});
    Entry {
        status: Some(Status::Allowed),
        user: Some(text("someone")),
        agent_id: Some(text("claude-code")),
        session: Some(Id::timed("s-", 1_785_000_000_000, [7; 10])),
        role: Some(text("dev")),
        execution_id: Some(Id::timed("c-", 1_785_000_000_000 + n, [9; 10])),
        tool_call_id: Some(text("toolu_01ABCDEF")),
        tool_name: Some(Redacted::literal("read_file")),
        tool_args: Some(Redacted::json(args, &Clean).expect("clean arguments")),
        path: Some(text("src/broker/pipeline.rs")),
        execution_environment: Some("in_process"),
        risk: Some("LOW"),
        verdict: Some("allow"),
        ..Entry::new(Op::ToolStart, Wall.now())
    }
}

pub(crate) fn open(home: &Path, segment: u64) -> SqliteStore {
    let options = Options { max_segment_bytes: segment, ..Options::new(Arc::new(Wall)) };
    let dir = StateDir::open(home).expect("a state folder");
    SqliteStore::open(dir, &options).expect("a store")
}

/// A state folder with about so many records, in segments of about so many bytes.
pub(crate) fn write(home: &Path, records: u64, segment: u64) {
    let store = Arc::new(open(home, segment));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (0..UNDER_WAY)
            .map(|task| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for batch in (0..records / TOGETHER).filter(|batch| batch % UNDER_WAY == task) {
                        let entries = (0..TOGETHER).map(|n| entry(batch * TOGETHER + n)).collect();
                        store.commit(Batch::lazy(entries, Vec::new())).await.expect("a commit");
                        // Segments are closed when the keeper sees them full.
                        if batch % 500 == task {
                            let store = Arc::clone(&store);
                            tokio::task::spawn_blocking(move || store.catch_up())
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
    store.catch_up().expect("segments");
}
