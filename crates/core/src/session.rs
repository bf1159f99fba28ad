//! The session as a layer: its state, its commands, its pace.

use crate::error::ErrorCode;
use crate::plan::Plan;
use crate::verdict::{LayerKind, Reason, Site, Verdict};

/// The state of a session. Only a person makes it active again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionState {
    /// At work.
    Active,
    /// Too many violations: flagged for review, still at work.
    Alert,
    /// Waits for a person.
    Suspended,
    /// Over.
    Ended,
}

impl SessionState {
    /// The word in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Alert => "alert",
            Self::Suspended => "suspended",
            Self::Ended => "ended",
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Active, Self::Alert, Self::Suspended, Self::Ended]
            .into_iter()
            .find(|state| state.as_str() == word)
    }

    /// Whether calls are still taken.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Active | Self::Alert)
    }
}

/// What the session says about a call, as it is at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its state.
    pub state: SessionState,
    /// The pace, where a limit is configured.
    pub pace: Option<Pace>,
}

/// Calls of this session and tool within the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How many.
    pub calls: u32,
    /// How many may be.
    pub limit: u32,
    /// When the next one may be made, in milliseconds from now.
    pub wait_ms: i64,
}

impl Pace {
    /// The refusal in words, with the time to wait.
    #[must_use]
    pub fn refusal(&self, tool: &str) -> String {
        let seconds = self.wait_ms.max(1).div_euclid(1000) + 1;
        format!("{} calls of `{tool}` in a minute are the limit; wait {seconds} s", self.limit)
    }
}

impl SessionView {
    /// A session with nothing against it.
    pub const OPEN: Self = Self { state: SessionState::Active, pace: None };

    /// Judges a plan.
    pub fn judge(&self, plan: &Plan, verdict: &mut Verdict) {
        let reason = |rule: &str, why: String| Reason {
            layer: LayerKind::Session,
            rule: rule.to_owned(),
            at: Site::built_in(),
            about: plan.tool.name.to_string(),
            why,
        };
        if !self.state.is_open() {
            let why = format!("the session is {}", self.state.as_str());
            verdict.deny(ErrorCode::SessionSuspended, reason("session state", why));
        }
        if let Some(pace) = &self.pace
            && pace.calls >= pace.limit
        {
            let why = pace.refusal(plan.tool.name.as_str());
            verdict.deny(ErrorCode::RateLimited, reason("calls per minute", why));
        }
    }
}
