//! Fixtures: a project, a state directory and a broker for one test.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use vambrace_broker::{
    ApprovalSettings, Broker, BrokerParts, EntryPoint, Peer, Principal, RateLimits, RawCall, ViolationLimits,
};
use vambrace_core::clock::{Clock, RandomSource};
use vambrace_core::config::{self, ConfigSource};
use vambrace_core::id::Id;
use vambrace_core::policy::Policy;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, SecretSpan};
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{RecordId, RecordQuery, SqliteStore, StateDir, Store, StoreOptions};
use vambrace_tools::{Catalogue, ChangeContext, ToolContext, ToolLimits};
use vambrace_workspace::{Applier, EditLimits, Isolation, ScopeRules, Workspace};

pub(crate) const SECRET: &str = "hunter2-the-secret-value";

/// A clock that the test sets.
pub(crate) struct ManualClock(pub(crate) AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Unique across all brokers of the process.
struct CountingRandomness;

impl RandomSource for CountingRandomness {
    fn random_u128(&self) -> u128 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64
    }
}

/// Redacts one secret.
pub(crate) struct OneSecret;

impl Redact for OneSecret {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        let count = u32::try_from(text.matches(SECRET).count()).unwrap();
        let text = if count == 0 { text.into() } else { text.replace(SECRET, "[REDACTED]").into() };
        Ok(RedactOutput { text, count })
    }

    fn secrets(&self, text: &str) -> Result<Vec<SecretSpan>, RedactError> {
        let secret = |at| SecretSpan { span: at..at + SECRET.len(), placeholder: "[REDACTED]".to_owned() };
        Ok(text.match_indices(SECRET).map(|(at, _)| secret(at)).collect())
    }
}

pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) parts: Option<BrokerParts>,
}

impl Fixture {
    /// A small project with a trusted configuration.
    pub(crate) fn new(config: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let project = dir.path().join("project");
        for (path, content) in [
            ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
            ("docs/guide.md", "# Guide\nread me\n"),
            ("docs/private/plan.md", "the private plan\n"),
            ("notes.txt", "the password is hunter2-the-secret-value\n"),
            (".env", "API_TOKEN=canary-in-env\n"),
            ("secrets/key.txt", "canary-in-secrets\n"),
        ] {
            let path = project.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        std::fs::write(dir.path().join("outside.txt"), "canary-outside\n").unwrap();
        std::os::unix::fs::symlink("../outside.txt", project.join("link.txt")).unwrap();
        let clock = Arc::new(ManualClock(AtomicI64::new(1_785_000_000_000)));
        let state = StateDir::open(dir.path().join("state")).unwrap();
        let store = Arc::new(SqliteStore::open(state, &StoreOptions::new(clock.clone())).unwrap());
        let parts = parts(&project, config, None, store.clone(), clock.clone());
        Self { dir, store, clock, parts: Some(parts) }
    }

    pub(crate) fn broker(&mut self) -> Arc<Broker> {
        Broker::new(self.parts.take().unwrap())
    }

    /// All records after that of the ledger's key, oldest first.
    pub(crate) async fn records(&self) -> Vec<Value> {
        let first = RecordId::new(self.store.writer(), 1);
        let records = self.store.records(RecordQuery::after(first, 10_000)).await.unwrap();
        records.iter().map(|record| record.fields()).collect()
    }
}

pub(crate) fn parts(
    project: &Path,
    config: &str,
    role: Option<&str>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
) -> BrokerParts {
    let catalogue = Arc::new(Catalogue::built_in().unwrap());
    let facts: Vec<_> = catalogue.tools().map(|tool| Arc::clone(tool.descriptor())).collect();
    let file = config::parse(config, "config.yaml", ConfigSource::Project { trusted: true }).unwrap();
    let settings = config::combine(None, None, Some(file));
    let policy = Policy::compile(&settings, role, None, &facts).unwrap();
    let rules = ScopeRules {
        service_root: settings.service_root.clone(),
        isolation: Isolation::Strict,
        shared_paths: settings.shared_paths.clone(),
        block: settings.block_list().unwrap(),
    };
    let limits = ToolLimits {
        read_bytes: settings.limits.read_bytes,
        read_bytes_hard: settings.limits.read_bytes_hard,
        list_entries: 1000,
        output_bytes: 1 << 20,
        regex: Duration::from_millis(100),
        search: Duration::from_secs(20),
    };
    let rates = facts
        .iter()
        .filter_map(|tool| {
            let rate = settings.calls_per_minute(&[tool.name.as_str()])?;
            Some((tool.name.to_string(), u32::try_from(rate.value).unwrap()))
        })
        .collect();
    let workspace = Workspace::open(project, rules).unwrap();
    BrokerParts {
        approvals: ApprovalSettings {
            proposal_ms: i64::try_from(settings.approvals.proposal_ttl_sec).unwrap() * 1000,
            ..ApprovalSettings::default()
        },
        requested_role: role.map(str::to_owned),
        role: policy.role.as_ref().map_or_else(|_| "none".to_owned(), |role| role.name().to_string()),
        catalogue,
        policy: Arc::new(policy),
        tool_context: ToolContext {
            changes: changes(project, &workspace, &settings),
            workspace: Arc::new(workspace),
            limits,
            web: vambrace_tools::WebConfig::default(),
            programs: None,
            call: vambrace_tools::CallContext::default(),
        },
        store,
        redactor: Arc::new(OneSecret),
        clock,
        chance: Arc::new(CountingRandomness),
        project: project.display().to_string(),
        sync: settings.audit_sync,
        violations: ViolationLimits { limit: 5, window_ms: 60_000, action: SessionState::Alert },
        rate_limits: RateLimits { default: None, tools: rates },
        policy_source: None,
    }
}

/// Locks and journals next to the project.
fn changes(project: &Path, workspace: &Workspace, settings: &config::EffectiveConfig) -> ChangeContext {
    let state = std::fs::File::open(project.parent().unwrap()).unwrap();
    let dir = |name: &str| vambrace_workspace::open_state_dir(&state, name).unwrap();
    ChangeContext {
        applier: Some(Applier::new(workspace.clone(), dir("locks"), dir("journals"))),
        redactor: Arc::new(OneSecret),
        limits: EditLimits { write_bytes: settings.limits.write_bytes, ..EditLimits::default() },
    }
}

pub(crate) fn peer() -> Peer {
    let principal = Principal {
        tenant: vambrace_core::principal::DEFAULT_TENANT.to_owned(),
        user: "ada".to_owned(),
        agent: "tester".to_owned(),
        sub_agent: None,
        skill: None,
    };
    Peer { principal, session: Id::new("s-1").unwrap(), entry_point: EntryPoint::Cli }
}

pub(crate) fn raw(tool: &str, args: Value) -> RawCall {
    RawCall { tool: tool.to_owned(), args, tool_call_id: Some("tc-1".to_owned()), context_id: None }
}

pub(crate) async fn call(broker: &Arc<Broker>, tool: &str, args: Value) -> Value {
    broker.call(raw(tool, args), &peer()).await.envelope()
}

pub(crate) async fn read(broker: &Arc<Broker>, path: &str) -> Value {
    call(broker, "read_file", json!({"path": path})).await
}
