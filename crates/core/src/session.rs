//! The session as a policy layer: its state and its call rate.

use crate::error::ErrorCode;
use crate::plan::Plan;
use crate::verdict::{LayerKind, Reason, SourceLocation, Verdict};

/// The state of a session. Only a person can make it active again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionState {
    /// Calls are accepted.
    Active,
    /// Too many violations: flagged for review, calls are still accepted.
    Alert,
    /// Calls are denied until a person resumes the session.
    Suspended,
    /// The session is over.
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

    /// Parses the word of [`Self::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Active, Self::Alert, Self::Suspended, Self::Ended]
            .into_iter()
            .find(|state| state.as_str() == word)
    }

    /// Whether calls are accepted.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Active | Self::Alert)
    }
}

/// The current state of a session, for judging one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The session's state.
    pub state: SessionState,
    /// The call rate, if a limit is configured.
    pub call_rate: Option<CallRate>,
}

/// Calls of this tool in this session within the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRate {
    /// Number of calls.
    pub calls: u32,
    /// Maximum number of calls.
    pub limit: u32,
    /// Time until the next call is allowed, in milliseconds.
    pub wait_ms: i64,
}

impl CallRate {
    /// The message of a denial, with the time to wait.
    #[must_use]
    pub fn denial_message(&self, tool: &str) -> String {
        let seconds = self.wait_ms.max(1).div_euclid(1000) + 1;
        format!("the limit is {} calls of `{tool}` per minute; wait {seconds} s", self.limit)
    }
}

impl SessionView {
    /// An active session without a rate limit.
    pub const OPEN: Self = Self { state: SessionState::Active, call_rate: None };

    /// Judges a plan.
    pub fn judge(&self, plan: &Plan, verdict: &mut Verdict) {
        let reason = |rule: &str, why: String| Reason {
            layer: LayerKind::Session,
            rule: rule.to_owned(),
            at: SourceLocation::built_in(),
            about: plan.tool.name.to_string(),
            why,
        };
        if !self.state.is_open() {
            let why = format!("the session is {}", self.state.as_str());
            verdict.deny(ErrorCode::SessionSuspended, reason("session state", why));
        }
        if let Some(pace) = &self.call_rate
            && pace.calls >= pace.limit
        {
            let why = pace.denial_message(plan.tool.name.as_str());
            verdict.deny(ErrorCode::RateLimited, reason("calls per minute", why));
        }
    }
}
