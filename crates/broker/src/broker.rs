//! The broker: what a call needs on its way, handed over at the door.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use vambrace_core::clock::{Chance, Clock};
use vambrace_core::config::AuditSync;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::policy::Policy;
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::rule::Decision;
use vambrace_core::session::SessionState;
use vambrace_core::tool::ToolFacts;
use vambrace_store::{Store, Text};
use vambrace_tools::{Catalogue, Room, Tool};

use crate::asking::Asking;

/// Governs calls of one workspace in one role.
pub struct Broker {
    pub(crate) parts: Parts,
    /// The canonical names of the tools that some call could use.
    offered: BTreeSet<String>,
    /// The canonical names of the tools that a person may have to be asked about.
    asks: BTreeSet<String>,
    /// The session of the last call as it was then; every start checks it again in its own transaction.
    pub(crate) known: Mutex<Option<(Id, SessionState)>>,
}

/// Everything a broker is made of.
#[derive(Clone)]
pub struct Parts {
    /// The tools.
    pub catalogue: Arc<Catalogue>,
    /// The layers.
    pub policy: Arc<Policy>,
    /// Where tools work.
    pub room: Room,
    /// State and ledger.
    pub store: Arc<dyn Store>,
    /// What takes secrets out.
    pub redactor: Arc<dyn Redact>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// The role's name, for the record.
    pub role: String,
    /// The project, for the record.
    pub project: String,
    /// When starts are synced.
    pub sync: AuditSync,
    /// How many violations are too many.
    pub violations: Violations,
    /// How many calls are too many.
    pub pace: Pace,
    /// How long questions stand.
    pub asking: Asking,
    /// The role that the caller asked for; `None` for the default one.
    pub asked_role: Option<String>,
}

/// When violations have consequences (T23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violations {
    /// More than this many
    pub limit: u64,
    /// within this many milliseconds
    pub window_ms: i64,
    /// lead to this state.
    pub action: SessionState,
}

/// Calls per minute, by tool (T25).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pace {
    /// For tools that are not named.
    pub default: Option<u32>,
    /// By canonical name.
    pub tools: BTreeMap<String, u32>,
}

impl Pace {
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

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let tools = parts.catalogue.tools().map(|tool| tool.facts());
        let offered =
            tools.filter(|tool| parts.policy.offers(tool)).map(|tool| tool.name.to_string()).collect();
        let asks = |tool: &ToolFacts| {
            let ruled = parts.policy.rules.iter().flat_map(|(_, table)| table.rules());
            !tool.read_only
                || ruled.filter(|rule| rule.decision == Decision::Ask).any(|rule| rule.is_about(tool))
        };
        let tools = parts.catalogue.tools().map(|tool| tool.facts());
        let asks = tools.filter(|tool| asks(tool)).map(|tool| tool.name.to_string()).collect();
        Self { parts, offered, asks, known: Mutex::new(None) }
    }

    /// The same under another policy.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        Self::new(Parts { policy: Arc::new(policy), ..self.parts.clone() })
    }

    /// The tools that some call of this role and skill could use, in the order of the catalogue.
    #[must_use]
    pub fn offered(&self) -> Vec<&Arc<dyn Tool>> {
        self.parts.catalogue.tools().filter(|tool| self.offers(tool.facts())).collect()
    }

    pub(crate) fn offers(&self, tool: &ToolFacts) -> bool {
        self.offered.contains(tool.name.as_str())
    }

    /// Whether a person may have to be asked about calls of this tool.
    pub(crate) fn may_ask(&self, tool: &str) -> bool {
        self.asks.contains(tool)
    }

    /// State and ledger.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    /// What is known of a session without asking the store.
    pub(crate) fn known_state(&self, session: &Id) -> Option<SessionState> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(id, _)| id == session).map(|(_, state)| *state)
    }

    /// Remembers a session, or forgets it.
    pub(crate) fn remember(&self, session: &Id, state: Option<SessionState>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            state.map(|state| (session.clone(), state));
    }

    /// An id that nobody can foresee and that sorts by time.
    pub(crate) fn new_id(&self, prefix: &'static str) -> Id {
        let chance = self.parts.chance.draw().to_be_bytes();
        let mut random = [0; 10];
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        Id::timed(prefix, self.parts.clock.now().millis().unsigned_abs(), random)
    }

    pub(crate) fn text(&self, text: &str) -> Result<Text, CallError> {
        Redacted::text(text, &*self.parts.redactor).map_err(redactor_failed)
    }
}

/// Nothing leaves and nothing is recorded that the redactor could not look at.
pub(crate) fn redactor_failed(error: vambrace_core::redacted::RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
