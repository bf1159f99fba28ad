//! Fixtures: a state directory, a store, batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use vambrace_core::clock::Clock;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Digest, Op, RecordStatus};
use vambrace_store::{
    Batch, CallRow, Entry, Id, RedactedText, SessionRow, SessionState, SqliteStore, StateChange, StateDir,
    StoreError, StoreOptions, Timestamp, VerifyOptions, VerifyReport, verify,
};

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

/// A fixed clock, a little after the records of the tests.
#[derive(Debug)]
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        at(9_000)
    }
}

pub(crate) fn text(text: &str) -> RedactedText {
    Redacted::text(text, &NoRedaction).unwrap()
}

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_785_000_000_000 + millis)
}

pub(crate) fn home() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().join("state");
    (temp, home)
}

pub(crate) fn open(home: &Path) -> SqliteStore {
    try_open(home).unwrap()
}

pub(crate) fn try_open(home: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(StateDir::open(home)?, &test_options())
}

/// Segments that follow at once, and a lock timeout that a test can wait for.
pub(crate) fn test_options() -> StoreOptions {
    StoreOptions {
        lock_timeout: Duration::from_secs(20),
        segment_interval: Duration::from_millis(5),
        ..StoreOptions::new(Arc::new(FixedClock))
    }
}

pub(crate) fn session(name: &str) -> StateChange {
    StateChange::OpenSession(SessionRow {
        id: id(name),
        user: text("someone"),
        agent: text("agent"),
        role: text("dev"),
        project: text("/project"),
        state: SessionState::Active,
        opened: at(0),
        changed: at(0),
    })
}

pub(crate) fn start(session: &str, call: &str, millis: i64) -> Batch {
    let mut entry = Entry::new(Op::ToolStart, at(millis));
    entry.status = Some(RecordStatus::Allowed);
    entry.session = Some(id(session));
    entry.execution_id = Some(id(call));
    entry.tool_name = Some(Redacted::literal("read_file"));
    entry.tool_args = Some(Redacted::json(json!({"path": "src/main.rs"}), &NoRedaction).unwrap());
    entry.path = Some(text("src/main.rs"));
    let mut row = CallRow::executing(id(call), id(session), Redacted::literal("read_file"), at(millis));
    row.counted = true;
    row.plan_digest = Some(Digest::of(call.as_bytes()));
    Batch::durable(vec![entry], vec![StateChange::InsertCall(row)])
}

pub(crate) fn verified(home: &Path) -> VerifyReport {
    verify(&StateDir::existing(home).unwrap(), &VerifyOptions::new(at(5_000)), &mut |_| {}).unwrap()
}

pub(crate) fn clean(home: &Path) -> VerifyReport {
    let report = verified(home);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    report
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Number of records about the key at the start of every ledger.
pub(crate) const KEY_RECORDS: u64 = 1;

/// All segments of a directory, in order.
pub(crate) fn segments(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(home.join("ledger")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}
