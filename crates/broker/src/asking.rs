//! Asking a person: how long a question stands, what is stored of the call it is about, and what a caller gets meanwhile.

use std::time::Duration;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::principal::{Peer, Principal, RawCall};
use vambrace_core::risk::Level;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalRow, Kept, Questions};

/// How long questions and grants stand, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// A MEDIUM question that somebody waits for (A6).
    pub medium_ms: i64,
    /// A HIGH one.
    pub high_ms: i64,
    /// A proposal that nobody waits for (B2).
    pub proposal_ms: i64,
    /// A grant.
    pub grant_ms: i64,
    /// So many questions of a session within a minute may be without a yes; the next one pauses the session (T25).
    pub flood_limit: u32,
    /// Whether anybody is there to be asked.
    pub person: Person,
}

/// Whether anybody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Person {
    /// Somebody decides, sooner or later.
    Somewhere,
    /// Nobody will: what would be asked is refused at once (`profile: ci`).
    Nowhere,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            medium_ms: 300_000,
            high_ms: 600_000,
            proposal_ms: 120_000,
            grant_ms: 3_600_000,
            flood_limit: 20,
            person: Person::Somewhere,
        }
    }
}

impl Asking {
    /// The deadline of a question of this risk.
    #[must_use]
    pub fn deadline_ms(&self, risk: Level) -> i64 {
        if risk == Level::High { self.high_ms } else { self.medium_ms }
    }
}

/// Whether, how long and how a caller waits for a decision.
#[derive(Default)]
pub struct Patience<'a> {
    /// At most so long; the question's own deadline where it is longer. `None`: not at all.
    pub longest: Option<Duration>,
    /// Told when a question is open, and again while it is; for progress.
    pub told: Option<&'a (dyn Fn(&Waiting) + Send + Sync)>,
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patience").field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl Patience<'_> {
    /// As long as the question stands.
    #[must_use]
    pub fn whole() -> Self {
        Self { longest: Some(Duration::MAX), told: None }
    }
}

/// An open question, as a waiting caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub id: Id,
    /// What it is about, in one line.
    pub summary: String,
    /// How risky.
    pub risk: String,
    /// Seconds until it runs out.
    pub seconds: u64,
}

impl Waiting {
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

/// The call that a question is about, as it was made: words, nothing planned and nothing decided.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedCall {
    /// The call.
    pub raw: RawCall,
    /// Who made it.
    pub peer: Peer,
    /// The role it asked for; `None` for the default one.
    pub role: Option<String>,
    /// The project's folder.
    pub project: String,
    /// The class of calls that a grant would be for.
    pub class: String,
}

impl AskedCall {
    pub(crate) fn seal(&self, id: &Id, questions: &dyn Questions) -> Result<Kept, CallError> {
        let who = &self.peer.principal;
        let words = json!({
            "v": 1, "tool": self.raw.tool, "args": self.raw.args, "tool_call_id": self.raw.tool_call_id,
            "context_id": self.raw.context_id, "tenant": who.tenant, "user": who.user, "agent": who.agent,
            "sub_agent": who.sub_agent, "skill": who.skill, "session": self.peer.session.as_str(),
            "door": self.peer.door, "role": self.role, "project": self.project, "class": self.class,
        });
        let kept = questions.vault().seal(id.as_str(), words.to_string().as_bytes());
        kept.map_err(|error| CallError::from(&error))
    }

    /// Opens what was stored of a question's call.
    pub fn of(row: &ApprovalRow<String>, questions: &dyn Questions) -> Result<Self, CallError> {
        let damaged =
            || CallError::new(ErrorCode::Internal, format!("what was stored of `{}` does not open", row.id));
        let bytes = questions.vault().open_kept(row.id.as_str(), &row.sealed).ok_or_else(damaged)?;
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
        let door = match must("door")?.as_str() {
            "mcp" => "mcp",
            "cli" => "cli",
            _ => "other",
        };
        let raw = RawCall {
            tool: must("tool")?,
            args: words.get("args").cloned().ok_or_else(damaged)?,
            tool_call_id: text("tool_call_id"),
            context_id: text("context_id"),
        };
        let peer = Peer { principal, session, door };
        Ok(Self { raw, peer, role: text("role"), project: must("project")?, class: must("class")? })
    }
}

/// Why a walk along the corridor stopped.
pub(crate) enum Stop {
    /// An error or a refusal.
    Refused(CallError),
    /// A person must agree first.
    Ask(Box<Question>),
    /// The same call was asked before: this is its question.
    Known(Box<ApprovalRow<String>>),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Refused(error)
    }
}

/// What a person must agree to.
pub(crate) struct Question {
    pub(crate) digest: Digest,
    pub(crate) level: Level,
    pub(crate) grantable: bool,
    /// One line for each reason.
    pub(crate) why: Vec<String>,
}
