//! Approval requests: their deadlines, the call that is stored with them, and how a caller waits for a decision.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::principal::{EntryPoint, Peer, Principal, RawCall};
use vambrace_core::risk::RiskLevel;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalQueries, ApprovalRow, SealedBlob};

use crate::held_change::HeldCall;

/// Deadlines of approval requests and grants, in milliseconds, and the flood limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// MEDIUM risk, with a waiting caller (A6).
    pub medium_ms: i64,
    /// HIGH risk.
    pub high_ms: i64,
    /// A proposal without a waiting caller (B2).
    pub proposal_ms: i64,
    /// Lifetime of a grant.
    pub grant_ms: i64,
    /// Maximum number of requests of a session within a minute that were not approved; the next one suspends the
    /// session (T25).
    pub flood_limit: u32,
    /// Whether an approver is available.
    pub approver: ApproverAvailability,
}

/// Whether an approver can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApproverAvailability {
    /// A person will decide, sooner or later.
    Available,
    /// No person will: what needs an approval is denied at once (`profile: ci`).
    Unavailable,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            medium_ms: 300_000,
            high_ms: 600_000,
            proposal_ms: 120_000,
            grant_ms: 3_600_000,
            flood_limit: 20,
            approver: ApproverAvailability::Available,
        }
    }
}

impl ApprovalSettings {
    /// Deadline of an approval request of this risk, in ms.
    #[must_use]
    pub(crate) fn deadline_ms(&self, risk: RiskLevel) -> i64 {
        if risk == RiskLevel::High { self.high_ms } else { self.medium_ms }
    }
}

/// Called while an approval request is open.
pub type WaitCallback = dyn Fn(&WaitProgress) + Send + Sync;

/// How long a caller waits for a decision, and how it is notified meanwhile.
#[derive(Default, Clone)]
pub struct DecisionWait {
    /// Maximum wait, bounded by the request's own deadline. `None`: do not wait.
    pub max_wait: Option<Duration>,
    /// Called when the request is open, and again while it is; for progress.
    pub on_waiting: Option<Arc<WaitCallback>>,
}

impl std::fmt::Debug for DecisionWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionWait").field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}

impl DecisionWait {
    /// Whether the caller waits at all: one with a maximum of zero only shows that it could.
    pub(crate) fn really_waits(&self) -> bool {
        self.max_wait.is_some_and(|max_wait| !max_wait.is_zero())
    }

    /// Waits until the request is decided or expires.
    #[must_use]
    pub fn until_decided() -> Self {
        Self { max_wait: Some(Duration::MAX), on_waiting: None }
    }
}

/// A pending approval request, as reported to a waiting caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitProgress {
    /// Its id.
    pub id: Id,
    /// One-line summary.
    pub summary: String,
    /// Risk level.
    pub risk: String,
    /// Seconds until it expires.
    pub seconds: u64,
}

impl WaitProgress {
    pub(crate) fn of(row: &ApprovalRow<String>, now: Timestamp) -> Self {
        Self {
            id: row.id.clone(),
            summary: row.summary.clone(),
            risk: row.risk.clone(),
            seconds: seconds_left(row, now),
        }
    }
}

pub(crate) fn seconds_left(row: &ApprovalRow<String>, now: Timestamp) -> u64 {
    let left = (row.expires.millis() - now.millis()).max(0).unsigned_abs();
    left.div_ceil(1000)
}

/// The call that an approval request is about, as it was made: raw input, neither planned nor decided.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedCall {
    /// The call.
    pub raw: RawCall,
    /// The caller.
    pub peer: Peer,
    /// The requested role; `None` for the default role.
    pub role: Option<String>,
    /// The project's directory.
    pub project: String,
    /// The class of calls that a grant would cover.
    pub class: String,
    /// The change that waits, if the call ran already.
    pub(crate) held: Option<HeldCall>,
}

impl RequestedCall {
    pub(crate) fn seal(&self, id: &Id, queries: &dyn ApprovalQueries) -> Result<SealedBlob, CallError> {
        let who = &self.peer.principal;
        let words = json!({
            "v": 1, "tool": self.raw.tool, "args": self.raw.args, "tool_call_id": self.raw.tool_call_id,
            "context_id": self.raw.context_id, "tenant": who.tenant, "user": who.user, "agent": who.agent,
            "sub_agent": who.sub_agent, "skill": who.skill, "session": self.peer.session.as_str(),
            "door": self.peer.entry_point.as_str(), "role": self.role, "project": self.project, "class": self.class,
            "held": self.held.as_ref().map(HeldCall::to_json),
        });
        let kept = queries.blob_sealer().seal(id.as_str(), words.to_string().as_bytes());
        kept.map_err(|error| CallError::from(&error))
    }

    /// Unseals the call of an approval request.
    pub fn of(row: &ApprovalRow<String>, queries: &dyn ApprovalQueries) -> Result<Self, CallError> {
        let damaged = || {
            CallError::new(
                ErrorCode::Internal,
                format!("the stored data of `{}` cannot be decrypted", row.id),
            )
        };
        let bytes = queries.blob_sealer().unseal(row.id.as_str(), &row.sealed).ok_or_else(damaged)?;
        let words: Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let text = |key: &str| words.get(key).and_then(Value::as_str).map(str::to_owned);
        let must = |key: &str| text(key).ok_or_else(damaged);
        let principal = Principal {
            tenant: must("tenant")?,
            user: must("user")?,
            agent: must("agent")?,
            sub_agent: text("sub_agent"),
            skill: text("skill"),
        };
        let session = Id::new(&must("session")?).map_err(|_| damaged())?;
        let entry_point = EntryPoint::parse(&must("door")?).ok_or_else(damaged)?;
        let raw = RawCall {
            tool: must("tool")?,
            args: words.get("args").cloned().ok_or_else(damaged)?,
            tool_call_id: text("tool_call_id"),
            context_id: text("context_id"),
        };
        let peer = Peer { principal, session, entry_point };
        let held = match words.get("held") {
            None | Some(Value::Null) => None,
            Some(held) => Some(HeldCall::from_json(held).ok_or_else(damaged)?),
        };
        Ok(Self { raw, peer, role: text("role"), project: must("project")?, class: must("class")?, held })
    }
}

/// Why a call left the pipeline early.
pub(crate) enum PipelineStop {
    /// An error or a denial.
    Failed(CallError),
    /// A person must decide first.
    Approval(NeededApproval),
}

/// The approval request that a call waits for.
pub(crate) enum NeededApproval {
    /// It must be opened.
    New(Box<ApprovalRequest>),
    /// The same call has one already.
    Open(Box<ApprovalRow<String>>),
}

impl PipelineStop {
    /// The error for a caller that cannot wait for a decision.
    pub(crate) fn into_error(self) -> CallError {
        match self {
            Self::Failed(error) => error,
            Self::Approval(_) => CallError::new(ErrorCode::Internal, "this step needs no approval"),
        }
    }
}

impl From<CallError> for PipelineStop {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// What a person must approve.
pub(crate) struct ApprovalRequest {
    pub(crate) digest: Digest,
    pub(crate) level: RiskLevel,
    pub(crate) grantable: bool,
    /// One line per reason.
    pub(crate) why: Vec<String>,
}
