//! Every check and every store call fails in turn; each time the call is refused with a reason, nothing of the file
//! comes back, and nothing goes on as if nothing had happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use vambrace_broker::{Broker, Choice};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::redacted::{Masked, Redact, RedactError};
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::ToolFacts;
use vambrace_store::{
    ApprovalRow, AskChange, Asked, Batch, BoxFuture, CallRow, Change, Committed, Durability, GrantRow, Head,
    Id, Kept, ProposalRow, Query, Questions, RecentCalls, Record, SessionRow, SqliteStore, StartReceipt,
    Store, StoreError, TimelineEvent, TokenRow, TrustRow, Vault, ViolationRow, Watch,
};
use vambrace_tools::{About, Card, Catalogue, Output, Prepared, Room, Tool, Work};

use crate::changes::{ada, file, id, propose};
use crate::kit::{Kit, OneSecret, call, read};

const DEV: &str = "roles:\n  default: dev\nlimits:\n  calls_per_minute: 1000\n";

/// Counts down; at zero something fails.
pub(crate) struct Fuse(AtomicUsize);

impl Fuse {
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

/// A store whose n-th use fails.
pub(crate) struct Failing {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) fuse: Arc<Fuse>,
    /// How each commit was to be kept.
    pub(crate) kept: Arc<std::sync::Mutex<Vec<Durability>>>,
    /// Where a decision stops until the test lets it pass.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether only what may use the reserve is written.
    pub(crate) full: Arc<AtomicBool>,
}

/// A point that a commit with a decision stops at.
pub(crate) struct Gate {
    pub(crate) at: Stop,
    pub(crate) reached: Semaphore,
    pub(crate) open: Semaphore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    BeforeCommit,
    AfterCommit,
}

impl Gate {
    pub(crate) fn new(at: Stop) -> Arc<Self> {
        Arc::new(Self { at, reached: Semaphore::new(0), open: Semaphore::new(0) })
    }

    async fn pass(&self, at: Stop) {
        if self.at == at {
            self.reached.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
    }
}

impl Failing {
    /// One that does not fail.
    pub(crate) fn never(store: &Arc<SqliteStore>) -> Self {
        Self {
            store: Arc::clone(store),
            fuse: Fuse::new(usize::MAX - 1),
            kept: Arc::default(),
            gate: None,
            full: Arc::default(),
        }
    }

    fn or<'a, T: Send + 'a>(
        &'a self,
        then: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        if self.fuse.blows() { Box::pin(async { Err(StoreError::Io("injected".to_owned())) }) } else { then }
    }
}

impl Store for Failing {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        self.kept.lock().unwrap().push(batch.durability);
        if batch.room == vambrace_store::Room::Free && self.full.load(Ordering::Relaxed) {
            return Box::pin(async { Err(StoreError::Full("injected".to_owned())) });
        }
        let decides =
            |change: &Change| matches!(change, Change::Ask(ask) if matches!(**ask, AskChange::Decide { .. }));
        let gate = self.gate.clone().filter(|_| batch.changes.iter().any(decides));
        let commit = self.or(self.store.commit(batch));
        let Some(gate) = gate else { return commit };
        Box::pin(async move {
            gate.pass(Stop::BeforeCommit).await;
            let done = commit.await;
            gate.pass(Stop::AfterCommit).await;
            done
        })
    }
    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>> {
        self.or(self.store.session(id))
    }
    fn sessions(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionRow<String>>, StoreError>> {
        self.or(self.store.sessions(limit))
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
    fn calls(&self, limit: usize) -> BoxFuture<'_, Result<Vec<CallRow<String>>, StoreError>> {
        self.or(self.store.calls(limit))
    }
    fn events<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>> {
        self.or(self.store.events(call))
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
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>> {
        self.or(self.store.violations(session, limit))
    }
    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>> {
        self.or(self.store.trust(project))
    }
    fn records(&self, query: Query) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        self.or(self.store.records(query))
    }
    fn record(&self, seq: u64) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        self.or(self.store.record(seq))
    }
    fn questions(&self) -> &dyn Questions {
        self
    }
    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>> {
        self.or(self.store.head())
    }
}

type Found<'a, T> = BoxFuture<'a, Result<Option<T>, StoreError>>;
type List<'a, T> = BoxFuture<'a, Result<Vec<T>, StoreError>>;

impl Questions for Failing {
    fn approval<'a>(&'a self, id: &'a str) -> Found<'a, ApprovalRow<String>> {
        self.or(self.store.approval(id))
    }
    fn approvals(&self, asked: Asked) -> List<'_, ApprovalRow<String>> {
        self.or(self.store.approvals(asked))
    }
    fn asked_before<'a>(&'a self, session: &'a str, asked: Digest) -> Found<'a, ApprovalRow<String>> {
        self.or(self.store.asked_before(session, asked))
    }
    fn unanswered<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.or(self.store.unanswered(session, since))
    }
    fn proposal<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        self.or(self.store.proposal(id))
    }
    fn undone_by<'a>(&'a self, id: &'a str) -> Found<'a, ProposalRow<String>> {
        self.or(self.store.undone_by(id))
    }
    fn way_back<'a>(&'a self, id: &'a str) -> Found<'a, Kept> {
        self.or(self.store.way_back(id))
    }
    fn proposals(&self, limit: usize) -> List<'_, ProposalRow<String>> {
        self.or(self.store.proposals(limit))
    }
    fn unfinished<'a>(&'a self, project: &'a str) -> List<'a, ProposalRow<String>> {
        self.or(self.store.unfinished(project))
    }
    fn grants<'a>(&'a self, session: Option<&'a str>) -> List<'a, GrantRow<String>> {
        self.or(self.store.grants(session))
    }
    fn token<'a>(&'a self, id: &'a str) -> Found<'a, TokenRow<String>> {
        self.or(self.store.token(id))
    }
    fn tokens(&self) -> List<'_, TokenRow<String>> {
        self.or(self.store.tokens())
    }
    fn vault(&self) -> &Vault {
        self.store.vault()
    }
    fn watch(&self) -> Watch {
        self.store.watch()
    }
    fn life(&self) -> &Id {
        self.store.life()
    }
    fn lives(&self, life: &Id) -> bool {
        self.store.lives(life)
    }
}

fn refused(answer: &Value, code: &str) {
    assert_eq!(answer["status"], "error", "{answer}");
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    assert!(!answer.to_string().contains("println"), "content came back: {answer}");
}

// No durable record, no effect
#[tokio::test]
async fn whichever_store_call_fails_the_call_is_denied() {
    for (path, uses) in [("src/main.rs", 5), ("../x", 5), ("nope", 4)] {
        for at in 0.. {
            let mut kit = Kit::new(DEV);
            let fuse = Fuse::new(at);
            let store = Failing { fuse: Arc::clone(&fuse), ..Failing::never(&kit.store) };
            kit.parts.as_mut().unwrap().store = Arc::new(store);
            let broker = kit.broker();
            let answer = read(&broker, path).await;
            if !fuse.is_spent() {
                assert_eq!(at, uses, "{path} uses the store {at} times");
                break;
            }
            refused(&answer, "AuditUnavailable");
            assert_eq!(answer["details"]["status"], "denied");
        }
    }
}

// The same for changes: asked about, agreed to by a rule, and asked about again after a yes or a no
#[tokio::test]
async fn whichever_store_call_fails_no_change_is_made_without_a_record() {
    const RULE: &str =
        "roles:\n  default: dev\napprovals:\n  rules:\n    - {id: docs, paths: [docs/**], decision: allow}\n";
    for (path, answered) in
        [("docs/new.md", None), ("src/new.rs", None), ("src/new.rs", Some(true)), ("src/new.rs", Some(false))]
    {
        let mut failed = 0;
        for at in 0.. {
            let mut kit = Kit::new(RULE);
            let fuse = Fuse::new(if answered.is_some() { usize::MAX - 1 } else { at });
            let store = Failing { fuse: Arc::clone(&fuse), ..Failing::never(&kit.store) };
            kit.parts.as_mut().unwrap().store = Arc::new(store);
            let broker = kit.broker();
            let args = json!({"path": path, "content": "fn println() {}\n"});
            if let Some(yes) = answered {
                let asked = id(&propose(&broker, "write_file", args.clone()).await);
                if yes {
                    broker.approve(&asked, Choice::once(), &ada()).await.unwrap();
                } else {
                    broker.reject(&asked, Some("no"), &ada()).await.unwrap();
                }
                fuse.light(at);
            }
            let made_before = file(&kit, path).is_some();
            let answer = call(&broker, "write_file", args).await;
            if !fuse.is_spent() {
                break;
            }
            failed += 1;
            refused(&answer, "AuditUnavailable");
            if file(&kit, path).is_some() && !made_before {
                let records = kit.records().await;
                assert!(records.iter().any(|record| record["op"] == "tool.start"), "{at}: {answer}");
            }
        }
        assert!(failed > 2, "{path} {answered:?}: {failed}");
    }
}

// The start of a read is synced first where the configuration says so; a refusal always is
#[tokio::test]
async fn starts_are_kept_as_configured() {
    use Durability::{Durable, Lazy};
    for (sync, path, expected) in [
        ("always", "src/main.rs", vec![Durable, Durable, Lazy]),
        ("reads_later", "src/main.rs", vec![Durable, Lazy, Lazy]),
        ("reads_later", "../x", vec![Durable, Durable]),
    ] {
        let mut kit = Kit::new(&format!("roles:\n  default: dev\naudit:\n  sync: {sync}\n"));
        let kept = Arc::default();
        let store = Failing { kept: Arc::clone(&kept), ..Failing::never(&kit.store) };
        kit.parts.as_mut().unwrap().store = Arc::new(store);
        read(&kit.broker(), path).await;
        assert_eq!(*kept.lock().unwrap(), expected, "{sync} {path}");
    }
}

struct FailingRedactor(Arc<Fuse>);

impl Redact for FailingRedactor {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        if self.0.blows() { Err(RedactError("injected".to_owned())) } else { OneSecret.redact(text) }
    }
}

#[tokio::test]
async fn whenever_the_redactor_fails_nothing_leaves() {
    let mut seen = 0;
    for at in 0.. {
        let mut kit = Kit::new(DEV);
        let fuse = Fuse::new(at);
        kit.parts.as_mut().unwrap().redactor = Arc::new(FailingRedactor(Arc::clone(&fuse)));
        let broker = kit.broker();
        let answer = read(&broker, "src/main.rs").await;
        if !fuse.is_spent() {
            assert_eq!(answer["status"], "success");
            break;
        }
        refused(&answer, "Internal");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// A tool that breaks where it is told to.
struct Broken {
    card: Card,
    at: &'static str,
}

impl Tool for Broken {
    fn card(&self) -> &Card {
        &self.card
    }
    fn plan(&self, _args: &Value, _room: &Room) -> Result<Prepared, CallError> {
        match self.at {
            "plan-panic" => panic!("println in a panic"),
            "plan-error" => Err(CallError::new(ErrorCode::Internal, "broken")),
            at => Ok(Prepared { work: Box::new(BrokenWork(at)), ..Prepared::nothing() }),
        }
    }
}

struct BrokenWork(&'static str);

impl Work for BrokenWork {
    fn run(self: Box<Self>, _: &Room, _: &Fence, _: &StartReceipt) -> Result<Output, CallError> {
        if self.0 == "work-panic" {
            panic!("println in a panic")
        } else {
            Err(CallError::new(ErrorCode::Internal, "broken"))
        }
    }
}

// A panic in one call answers that call and no other
#[tokio::test]
async fn a_broken_tool_answers_its_call_and_no_other() {
    for at in ["plan-panic", "plan-error", "work-panic", "work-error"] {
        let mut kit = Kit::new(DEV);
        let parts = kit.parts.as_mut().unwrap();
        let whole = parts.catalogue.find("read_file").unwrap();
        let facts = Arc::new(ToolFacts {
            name: vambrace_core::id::ToolName::new("broken"),
            aliases: &[],
            ..(**whole.facts()).clone()
        });
        let about = About { input: json!({"type": "object"}), ..whole.about().clone() };
        let broken: Arc<dyn Tool> = Arc::new(Broken { card: Card { facts, about }, at });
        parts.catalogue = Arc::new(Catalogue::new(vec![broken, Arc::clone(whole)]).unwrap());
        let broker: Broker = kit.broker();
        refused(&call(&broker, "broken", json!({})).await, "Internal");
        assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
        let ends = kit.records().await.iter().filter(|record| record["error_code"] == "Internal").count();
        assert_eq!(ends, 1, "{at}");
    }
}
