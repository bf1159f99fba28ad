//! The broker: everything that a call needs on its way through the pipeline. The entry point passes it in.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use vambrace_core::clock::{Clock, RandomSource};
use vambrace_core::config::AuditSync;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::policy::Policy;
use vambrace_core::principal::Principal;
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::rule::RuleDecision;
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::ToolDescriptor;
use vambrace_store::{RedactedText, SessionOwner, Store};
use vambrace_tools::{Catalogue, Tool, ToolContext};

use crate::approval_request::ApprovalSettings;

/// Runs the calls of one workspace in one role.
pub struct Broker {
    pub(crate) parts: BrokerParts,
    /// Canonical names of the tools that at least one call could use.
    offered: BTreeSet<String>,
    /// Canonical names of the tools whose calls may need an approval.
    may_need_approval: BTreeSet<String>,
    /// Cached session of the last call. Every start checks the session again in its own transaction.
    pub(crate) cached_session: Mutex<Option<CachedSession>>,
}

/// State of a session, with its owner.
pub(crate) struct CachedSession {
    id: Id,
    tenant: String,
    user: String,
    state: SessionState,
}

impl CachedSession {
    fn is(&self, id: &Id, owner: &Principal) -> bool {
        self.id == *id && self.tenant == owner.tenant && self.user == owner.user
    }
}

/// What a broker is built from.
#[derive(Clone)]
pub struct BrokerParts {
    /// The tools.
    pub catalogue: Arc<Catalogue>,
    /// The policy layers.
    pub policy: Arc<Policy>,
    /// What tools work with: workspace, limits, HTTP client.
    pub tool_context: ToolContext,
    /// State and ledger.
    pub store: Arc<dyn Store>,
    /// Removes secrets from everything that leaves the broker.
    pub redactor: Arc<dyn Redact>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness.
    pub chance: Arc<dyn RandomSource>,
    /// Name of the role, for the ledger.
    pub role: String,
    /// The project, for the ledger.
    pub project: String,
    /// When start records are synced to disk.
    pub sync: AuditSync,
    /// How many violations a session may commit, and what follows.
    pub violations: ViolationLimits,
    /// How many calls per minute are allowed.
    pub rate_limits: RateLimits,
    /// Deadlines of approval requests.
    pub approvals: ApprovalSettings,
    /// The role that the caller requested; `None` for the default role.
    pub requested_role: Option<String>,
    /// Where the policy comes from; `None` if it cannot change.
    pub policy_source: Option<Arc<dyn PolicySource>>,
}

/// The configuration that a policy was compiled from.
pub trait PolicySource: Send + Sync {
    /// Whether the policy is still that of the configuration.
    fn is_current(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

/// When violations change the state of the session (T23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViolationLimits {
    /// Maximum number of violations
    pub limit: u64,
    /// within this window, in milliseconds.
    pub window_ms: i64,
    /// State of the session once the limit is exceeded.
    pub action: SessionState,
}

/// Maximum calls per minute, by tool (T25).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// For tools without a limit of their own.
    pub default: Option<u32>,
    /// By canonical tool name.
    pub tools: BTreeMap<String, u32>,
}

impl RateLimits {
    /// The limit for a tool.
    #[must_use]
    pub fn limit(&self, tool: &str) -> Option<u32> {
        self.tools.get(tool).copied().or(self.default)
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("role", &self.parts.role)
            .field("project", &self.parts.project)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BrokerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Broker {
    /// Builds a broker and computes which tools it offers.
    #[must_use]
    pub fn new(parts: BrokerParts) -> Arc<Self> {
        let tools = parts.catalogue.tools().map(|tool| tool.descriptor());
        let offered =
            tools.filter(|tool| parts.policy.offers(tool)).map(|tool| tool.name.to_string()).collect();
        let needs_approval = |tool: &ToolDescriptor| {
            let ruled = parts.policy.rules.iter().flat_map(|(_, table)| table.rules());
            !tool.read_only
                || ruled
                    .filter(|rule| rule.decision == RuleDecision::Ask)
                    .any(|rule| rule.applies_to_tool(tool))
        };
        let tools = parts.catalogue.tools().map(|tool| tool.descriptor());
        let may_need_approval =
            tools.filter(|tool| needs_approval(tool)).map(|tool| tool.name.to_string()).collect();
        Arc::new(Self { parts, offered, may_need_approval, cached_session: Mutex::new(None) })
    }

    /// The same broker under another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Arc<Self> {
        Self::new(BrokerParts { policy: Arc::new(policy), ..self.parts.clone() })
    }

    /// The tools that at least one call of this role and skill could use, in the order of the catalogue.
    #[must_use]
    pub fn offered(&self) -> Vec<&Arc<dyn Tool>> {
        self.parts.catalogue.tools().filter(|tool| self.offers(tool.descriptor())).collect()
    }

    pub(crate) fn offers(&self, tool: &ToolDescriptor) -> bool {
        self.offered.contains(tool.name.as_str())
    }

    /// Whether calls of this tool may need an approval.
    pub(crate) fn may_need_approval(&self, tool: &str) -> bool {
        self.may_need_approval.contains(tool)
    }

    /// State and ledger.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    /// State of a session from the cache, without reading the store.
    pub(crate) fn cached_state(&self, session: &Id, owner: &Principal) -> Option<SessionState> {
        let cached = self.cached_session.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|cached| cached.is(session, owner)).map(|cached| cached.state)
    }

    /// Caches the state of a session; `None` clears the cache.
    pub(crate) fn cache_state(&self, session: &Id, owner: &Principal, state: Option<SessionState>) {
        let cached = state.map(|state| CachedSession {
            id: session.clone(),
            tenant: owner.tenant.clone(),
            user: owner.user.clone(),
            state,
        });
        *self.cached_session.lock().unwrap_or_else(PoisonError::into_inner) = cached;
    }

    /// Who owns the sessions of a caller: its tenant and user, in this project.
    pub(crate) fn session_owner(&self, principal: &Principal) -> Result<SessionOwner, CallError> {
        Ok(SessionOwner {
            tenant: self.text(&principal.tenant)?,
            user: self.text(&principal.user)?,
            project: self.text(&self.parts.project)?,
        })
    }

    /// An unpredictable id that sorts by time.
    pub(crate) fn new_id(&self, prefix: &'static str) -> Id {
        self.new_id_at(prefix, self.parts.clock.now())
    }

    pub(crate) fn new_id_at(&self, prefix: &'static str, now: Timestamp) -> Id {
        let chance = self.parts.chance.random_u128().to_be_bytes();
        let mut random = [0; 10];
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        Id::time_ordered(prefix, now.millis().unsigned_abs(), random)
    }

    pub(crate) fn text(&self, text: &str) -> Result<RedactedText, CallError> {
        Redacted::text(text, &*self.parts.redactor).map_err(redactor_failed)
    }
}

/// Text that the redactor could not check neither leaves the broker nor is recorded.
pub(crate) fn redactor_failed(error: vambrace_core::redacted::RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
