//! Fixtures: a state directory, a store, batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use vambrace_core::clock::Clock;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Digest, Op, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, Batch, CallRow, Entry, Id, RedactedText,
    SealedBlob, SessionOwner, SessionRow, SessionState, SqliteStore, StateChange, StateDir, StoreError,
    StoreOptions, Timestamp, VerifyOptions, VerifyReport, verify,
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
    session_of(name, &owner("default", "someone", "/project"))
}

pub(crate) fn owner(tenant: &str, user: &str, project: &str) -> SessionOwner {
    SessionOwner { tenant: text(tenant), user: text(user), project: text(project) }
}

pub(crate) fn session_of(name: &str, owner: &SessionOwner) -> StateChange {
    let SessionOwner { tenant, user, project } = owner.clone();
    StateChange::OpenSession(SessionRow {
        id: id(name),
        tenant,
        user,
        agent: text("agent"),
        role: text("dev"),
        project,
        state: SessionState::Active,
        opened: at(0),
        changed: at(0),
    })
}

/// An open approval request of a user in a session.
pub(crate) fn approval(session: &str, name: &str, user: &str) -> StateChange {
    let row = ApprovalRow {
        id: id(name),
        call: id(name),
        session: id(session),
        user: text(user),
        agent: text("agent"),
        project: text("/project"),
        tool: text("write_file"),
        kind: ApprovalKind::Change,
        risk: text("MEDIUM"),
        summary: text("MODIFY f"),
        why: text("a rule"),
        grantable: true,
        asked: Digest::of(name.as_bytes()),
        digest: Digest::of(name.as_bytes()),
        revision: Digest::ZERO,
        sealed: SealedBlob::stored(vec![1]),
        created: at(1),
        expires: at(60_000),
        state: ApprovalState::Pending,
        delivered: false,
        waiter: None,
        performer: None,
        decision: None,
    };
    ApprovalChange::Open(row).into()
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
