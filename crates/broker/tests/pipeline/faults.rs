//! Fault injection: every check and every store call fails in turn; each time the call is denied with a reason, no
//! file content is returned, and nothing continues as if the call had succeeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use vambrace_broker::{ApprovalChoice, Broker};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput};
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::ToolDescriptor;
use vambrace_store::{
    ApprovalChange, ApprovalFilter, ApprovalNotifier, ApprovalQueries, ApprovalRow, Batch, BlobSealer,
    BoxFuture, CallRow, ChainHead, Committed, Durability, GrantRow, Id, LedgerAdmin, LedgerRecord,
    OwnerFilter, ProcessLiveness, ProposalRow, RecentCalls, RecordId, RecordQuery, SealedBlob, SessionRow,
    SqliteStore, StartReceipt, StateChange, Store, StoreError, TimelineEvent, TokenRow, TrustRow,
    ViolationRow,
};
use vambrace_tools::{
    Catalogue, Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork,
};

use crate::changes::{ada, file, id, propose};
use crate::fixtures::{Fixture, OneSecret, call, read};

const DEV: &str = "roles:\n  default: dev\nlimits:\n  calls_per_minute: 1000\n";

/// Counts down; at zero an operation fails.
pub(crate) struct FailureCountdown(AtomicUsize);

impl FailureCountdown {
    pub(crate) fn new(lit: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(lit + 1)))
    }

    pub(crate) fn light(&self, at: usize) {
        self.0.store(at + 1, Ordering::Relaxed);
    }

    fn blows(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// A store whose n-th call fails.
pub(crate) struct FailingStore {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) countdown: Arc<FailureCountdown>,
    /// Durability of each commit.
    pub(crate) kept: Arc<std::sync::Mutex<Vec<Durability>>>,
    /// Where a commit with a decision stops until the test releases it.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether only batches that may use the reserve are written.
    pub(crate) full: Arc<AtomicBool>,
}

/// A point at which a commit with a decision stops.
pub(crate) struct Gate {
    pub(crate) at: GatePoint,
    pub(crate) reached: Semaphore,
    pub(crate) open: Semaphore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatePoint {
    BeforeCommit,
    AfterCommit,
}

impl Gate {
    pub(crate) fn new(at: GatePoint) -> Arc<Self> {
        Arc::new(Self { at, reached: Semaphore::new(0), open: Semaphore::new(0) })
    }

    async fn pass(&self, at: GatePoint) {
        if self.at == at {
            self.reached.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
    }
}

impl FailingStore {
    /// A store that never fails.
    pub(crate) fn never(store: &Arc<SqliteStore>) -> Self {
        Self {
            store: Arc::clone(store),
            countdown: FailureCountdown::new(usize::MAX - 1),
            kept: Arc::default(),
            gate: None,
            full: Arc::default(),
        }
    }

    fn or<'a, T: Send + 'a>(
        &'a self,
        then: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        if self.countdown.blows() {
            Box::pin(async { Err(StoreError::Io("injected".to_owned())) })
        } else {
            then
        }
    }
}

impl Store for FailingStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        self.kept.lock().unwrap().push(batch.durability);
        if batch.space == vambrace_store::DiskSpace::Free && self.full.load(Ordering::Relaxed) {
            return Box::pin(async { Err(StoreError::Full("injected".to_owned())) });
        }
        let decides = |change: &StateChange| matches!(change, StateChange::Approval(ask) if matches!(**ask, ApprovalChange::Decide { .. }));
        let gate = self.gate.clone().filter(|_| batch.changes.iter().any(decides));
        let commit = self.or(self.store.commit(batch));
        let Some(gate) = gate else { return commit };
        Box::pin(async move {
            gate.pass(GatePoint::BeforeCommit).await;
            let done = commit.await;
            gate.pass(GatePoint::AfterCommit).await;
            done
        })
    }
    fn writer(&self) -> &Id {
        self.store.writer()
    }
    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>> {
        self.or(self.store.session(id))
    }
    fn sessions<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow<String>>, StoreError>> {
        self.or(self.store.sessions(owner, limit))
    }
    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>> {
        self.or(self.store.recent_calls(session, tool, since))
    }
    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>> {
        self.or(self.store.call(id))
    }
    fn calls<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<CallRow<String>>, StoreError>> {
        self.or(self.store.calls(owner, limit))
    }
    fn events<'a>(
        &'a self,
        call: &'a str,
        owner: &'a OwnerFilter,
    ) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>> {
        self.or(self.store.events(call, owner))
    }
    fn violations_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.or(self.store.violations_since(session, since))
    }
    fn violations<'a>(
        &'a self,
        session: Option<&'a str>,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>> {
        self.or(self.store.violations(session, owner, limit))
    }
    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>> {
        self.or(self.store.trust(project))
    }
    fn records(&self, query: RecordQuery) -> BoxFuture<'_, Result<Vec<LedgerRecord>, StoreError>> {
        self.or(self.store.records(query))
    }
    fn record<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<LedgerRecord>, StoreError>> {
        self.or(self.store.record(id))
    }
    fn approval_queries(&self) -> &dyn ApprovalQueries {
        self
    }
    fn admin(&self) -> &dyn LedgerAdmin {
        self.store.admin()
    }
    fn head(&self) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        self.or(self.store.head())
    }
}

type Found<'a, T> = BoxFuture<'a, Result<Option<T>, StoreError>>;
type List<'a, T> = BoxFuture<'a, Result<Vec<T>, StoreError>>;

impl ApprovalQueries for FailingStore {
    fn approval<'a>(&'a self, id: &'a str) -> Found<'a, ApprovalRow<String>> {
        self.or(self.store.approval(id))
    }
    fn approvals(&self, request: ApprovalFilter) -> List<'_, ApprovalRow<String>> {
        self.or(self.store.approvals(request))
    }
    fn is_owned<'a>(
        &'a self,
        id: &'a str,
        owner: &'a OwnerFilter,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.or(self.store.is_owned(id, owner))
    }
    fn call_outcome<'a>(&'a self, id: &'a str) -> Found<'a, SealedBlob> {
        self.or(self.store.call_outcome(id))
    }
    fn latest_for_call<'a>(&'a self, session: &'a str, request: Digest) -> Found<'a, ApprovalRow<String>> {
        self.or(self.store.latest_for_call(session, request))
    }
    fn unapproved_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.or(self.store.unapproved_since(session, since))
    }
    fn proposal<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        self.or(self.store.proposal(id))
    }
    fn rollback_of<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        self.or(self.store.rollback_of(id))
    }
    fn undo_data<'a>(&'a self, id: &'a str) -> Found<'a, SealedBlob> {
        self.or(self.store.undo_data(id))
    }
    fn proposals<'a>(&'a self, owner: &'a OwnerFilter, limit: usize) -> List<'a, ProposalRow<String>> {
        self.or(self.store.proposals(owner, limit))
    }
    fn unfinished<'a>(&'a self, project: &'a str) -> List<'a, ProposalRow<String>> {
        self.or(self.store.unfinished(project))
    }
    fn grants<'a>(&'a self, session: Option<&'a str>, owner: &'a OwnerFilter) -> List<'a, GrantRow<String>> {
        self.or(self.store.grants(session, owner))
    }
    fn token<'a>(&'a self, id: &'a str) -> Found<'a, TokenRow<String>> {
        self.or(self.store.token(id))
    }
    fn tokens<'a>(&'a self, owner: &'a OwnerFilter) -> List<'a, TokenRow<String>> {
        self.or(self.store.tokens(owner))
    }
    fn blob_sealer(&self) -> &dyn BlobSealer {
        self.store.blob_sealer()
    }
    fn notifier(&self) -> &dyn ApprovalNotifier {
        self.store.notifier()
    }
    fn liveness(&self) -> &dyn ProcessLiveness {
        self.store.liveness()
    }
}

fn denied(answer: &Value, code: &str) {
    assert_eq!(answer["status"], "error", "{answer}");
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    assert!(!answer.to_string().contains("println"), "content was returned: {answer}");
}

// No durable record, no effect
#[tokio::test]
async fn call_is_denied_whichever_store_call_fails() {
    for (path, uses) in [("src/main.rs", 5), ("../x", 5), ("nope", 4)] {
        for at in 0.. {
            let mut fixture = Fixture::new(DEV);
            let countdown = FailureCountdown::new(at);
            let store =
                FailingStore { countdown: Arc::clone(&countdown), ..FailingStore::never(&fixture.store) };
            fixture.parts.as_mut().unwrap().store = Arc::new(store);
            let broker = fixture.broker();
            let answer = read(&broker, path).await;
            if !countdown.is_spent() {
                assert_eq!(at, uses, "{path} uses the store {at} times");
                break;
            }
            denied(&answer, "AuditUnavailable");
            assert_eq!(answer["details"]["status"], "denied");
        }
    }
}

// The same for changes: pending, allowed by a rule, and repeated after an approval or a rejection
#[tokio::test]
async fn no_change_is_made_without_a_record_whichever_store_call_fails() {
    const RULE: &str =
        "roles:\n  default: dev\napprovals:\n  rules:\n    - {id: docs, paths: [docs/**], decision: allow}\n";
    for (path, answered) in
        [("docs/new.md", None), ("src/new.rs", None), ("src/new.rs", Some(true)), ("src/new.rs", Some(false))]
    {
        let mut failed = 0;
        for at in 0.. {
            let mut fixture = Fixture::new(RULE);
            let countdown = FailureCountdown::new(if answered.is_some() { usize::MAX - 1 } else { at });
            let store =
                FailingStore { countdown: Arc::clone(&countdown), ..FailingStore::never(&fixture.store) };
            fixture.parts.as_mut().unwrap().store = Arc::new(store);
            let broker = fixture.broker();
            let args = json!({"path": path, "content": "fn println() {}\n"});
            if let Some(yes) = answered {
                let request = id(&propose(&broker, "write_file", args.clone()).await);
                if yes {
                    broker.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap();
                } else {
                    broker.reject(&request, Some("no"), &ada()).await.unwrap();
                }
                countdown.light(at);
            }
            let made_before = file(&fixture, path).is_some();
            let answer = call(&broker, "write_file", args).await;
            if !countdown.is_spent() {
                break;
            }
            failed += 1;
            denied(&answer, "AuditUnavailable");
            if file(&fixture, path).is_some() && !made_before {
                let records = fixture.records().await;
                assert!(records.iter().any(|record| record["op"] == "tool.start"), "{at}: {answer}");
            }
        }
        assert!(failed > 2, "{path} {answered:?}: {failed}");
    }
}

// The start of a read is synced first if the configuration says so; a denial always is
#[tokio::test]
async fn starts_are_synced_as_configured() {
    use Durability::{Durable, Lazy};
    for (sync, path, expected) in [
        ("always", "src/main.rs", vec![Durable, Durable, Lazy]),
        ("reads_later", "src/main.rs", vec![Durable, Lazy, Lazy]),
        ("reads_later", "../x", vec![Durable, Durable]),
    ] {
        let mut fixture = Fixture::new(&format!("roles:\n  default: dev\naudit:\n  sync: {sync}\n"));
        let kept = Arc::default();
        let store = FailingStore { kept: Arc::clone(&kept), ..FailingStore::never(&fixture.store) };
        fixture.parts.as_mut().unwrap().store = Arc::new(store);
        read(&fixture.broker(), path).await;
        assert_eq!(*kept.lock().unwrap(), expected, "{sync} {path}");
    }
}

struct FailingRedactor(Arc<FailureCountdown>);

impl Redact for FailingRedactor {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        if self.0.blows() { Err(RedactError("injected".to_owned())) } else { OneSecret.redact(text) }
    }
}

#[tokio::test]
async fn nothing_leaves_when_the_redactor_fails() {
    let mut seen = 0;
    for at in 0.. {
        let mut fixture = Fixture::new(DEV);
        let countdown = FailureCountdown::new(at);
        fixture.parts.as_mut().unwrap().redactor = Arc::new(FailingRedactor(Arc::clone(&countdown)));
        let broker = fixture.broker();
        let answer = read(&broker, "src/main.rs").await;
        if !countdown.is_spent() {
            assert_eq!(answer["status"], "success");
            break;
        }
        denied(&answer, "Internal");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// A tool that fails at the given point.
struct BrokenTool {
    card: ToolDefinition,
    at: &'static str,
}

impl Tool for BrokenTool {
    fn definition(&self) -> &ToolDefinition {
        &self.card
    }
    fn plan(&self, _args: &Value, _room: &ToolContext) -> Result<ToolPlan, CallError> {
        match self.at {
            "plan-panic" => panic!("println in a panic"),
            "plan-error" => Err(CallError::new(ErrorCode::Internal, "broken")),
            at => Ok(ToolPlan { work: Box::new(BrokenWork(at)), ..ToolPlan::nothing() }),
        }
    }
}

struct BrokenWork(&'static str);

impl ToolWork for BrokenWork {
    fn run(self: Box<Self>, _: &ToolContext, _: &Fence, _: &StartReceipt) -> Result<ToolOutput, CallError> {
        if self.0 == "work-panic" {
            panic!("println in a panic")
        } else {
            Err(CallError::new(ErrorCode::Internal, "broken"))
        }
    }
}

// A panic in one call fails that call and no other
#[tokio::test]
async fn broken_tool_fails_its_call_and_no_other() {
    for at in ["plan-panic", "plan-error", "work-panic", "work-error"] {
        let mut fixture = Fixture::new(DEV);
        let parts = fixture.parts.as_mut().unwrap();
        let whole = parts.catalogue.find("read_file").unwrap();
        let facts = Arc::new(ToolDescriptor {
            name: vambrace_core::id::ToolName::new("broken"),
            aliases: Vec::new(),
            ..(**whole.descriptor()).clone()
        });
        let description = ToolDescription { input: json!({"type": "object"}), ..whole.description().clone() };
        let broken: Arc<dyn Tool> = Arc::new(BrokenTool {
            card: ToolDefinition { descriptor: facts, description, planning: vambrace_tools::Weight::Light },
            at,
        });
        parts.catalogue = Arc::new(Catalogue::new(vec![broken, Arc::clone(whole)]).unwrap());
        let broker: Arc<Broker> = fixture.broker();
        denied(&call(&broker, "broken", json!({})).await, "Internal");
        assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
        let ends = fixture.records().await.iter().filter(|record| record["error_code"] == "Internal").count();
        assert_eq!(ends, 1, "{at}");
    }
}
