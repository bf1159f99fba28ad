//! Timeline events: what happened inside one call, step by step, for people. The ledger is the evidence.

use std::time::Duration;

use vambrace_core::ErrorCode;
use vambrace_ledger::{Id, RedactedText, Timestamp, word_enum};

word_enum! {
    /// The phase of a call that an event belongs to.
    pub enum EventPhase {
        /// Policy decision.
        Policy = "policy",
        /// Approval by a person.
        Approval = "approval",
        /// Sandbox setup.
        Sandbox = "sandbox",
        /// The effect.
        Call = "call",
        /// Network connections.
        Egress = "egress",
        /// The result for the caller.
        Result = "result",
    }
}

word_enum! {
    /// How a step ended.
    pub enum EventStatus {
        /// Success.
        Ok = "ok",
        /// Denied.
        Denied = "denied",
        /// Timed out.
        Timeout = "timeout",
        /// Failed.
        Error = "error",
    }
}

/// One event. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEvent<T = RedactedText> {
    /// When.
    pub ts: Timestamp,
    /// Call id.
    pub call: Id,
    /// Phase of the call.
    pub phase: EventPhase,
    /// What was done: `check`, `request`, `call`, `violation` ...
    pub action: T,
    /// Tool name.
    pub tool: T,
    /// The policy that decided.
    pub policy: Option<T>,
    /// Its verdict.
    pub verdict: Option<T>,
    /// What was violated.
    pub violation_type: Option<T>,
    /// What was attempted.
    pub attempted_action: Option<T>,
    /// How it ended.
    pub status: EventStatus,
    /// The code of the error.
    pub error: Option<ErrorCode>,
    /// The error in words; names the path or host and the rule.
    pub message: Option<T>,
    /// Attempt number, counted from one.
    pub attempt: Option<u32>,
    /// Duration in microseconds.
    pub duration_us: u64,
}

impl<T> TimelineEvent<T> {
    /// An event with the required fields only.
    #[must_use]
    pub fn new(ts: Timestamp, call: Id, phase: EventPhase, action: T, tool: T, status: EventStatus) -> Self {
        Self {
            ts,
            call,
            phase,
            action,
            tool,
            policy: None,
            verdict: None,
            violation_type: None,
            attempted_action: None,
            status,
            error: None,
            message: None,
            attempt: None,
            duration_us: 0,
        }
    }
}

impl<T> TimelineEvent<T> {
    /// Duration in milliseconds, the unit of the contract.
    #[must_use]
    pub fn duration_ms(&self) -> f64 {
        Duration::from_micros(self.duration_us).as_secs_f64() * 1000.0
    }
}
