//! Timeline events: what happened inside one call, step by step, for people. The ledger is the evidence;
//! this is the story.

use std::time::Duration;

use rusqlite::Row;
use vambrace_core::ErrorCode;
use vambrace_ledger::{Id, Text, Timestamp, words};

use crate::read::{id, stamp, word};

words! {
    /// The part of a call's path that an event belongs to.
    pub enum Phase {
        /// Deciding.
        Policy = "policy",
        /// Asking a human.
        Approval = "approval",
        /// Confining.
        Sandbox = "sandbox",
        /// The effect.
        Call = "call",
        /// Connections.
        Egress = "egress",
        /// What went back.
        Result = "result",
    }
}

words! {
    /// How a step ended.
    pub enum EventStatus {
        /// As wished.
        Ok = "ok",
        /// Refused.
        Denied = "denied",
        /// Too late.
        Timeout = "timeout",
        /// Failed.
        Error = "error",
    }
}

/// One event. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEvent<T = Text> {
    /// When.
    pub ts: Timestamp,
    /// Of which call.
    pub call: Id,
    /// In which part of it.
    pub phase: Phase,
    /// What was done: `check`, `enforce`, `violation`, `run` ...
    pub action: T,
    /// Which tool.
    pub tool: T,
    /// The policy that spoke.
    pub policy: Option<T>,
    /// What it said.
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
    /// Which attempt, counted from one.
    pub attempt: Option<u32>,
    /// How long it took, in microseconds.
    pub duration_us: u64,
}

impl<T> TimelineEvent<T> {
    /// An event with nothing said but what every event says.
    #[must_use]
    pub fn new(ts: Timestamp, call: Id, phase: Phase, action: T, tool: T, status: EventStatus) -> Self {
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
    /// How long it took, in milliseconds as the contract counts it.
    #[must_use]
    pub fn duration_ms(&self) -> f64 {
        Duration::from_micros(self.duration_us).as_secs_f64() * 1000.0
    }
}

// The number continues within the call: the rows of a call lie side by side, so this touches one page.
pub(crate) const INSERT: &str =
    "INSERT INTO events (call, n, ts, phase, action, tool, policy, verdict, violation_type, attempted_action,
                         status, error, message, attempt, duration_us)
     VALUES (?1, coalesce((SELECT max(n) FROM events WHERE call = ?1), 0) + 1,
             ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
pub(crate) const OF_CALL: &str =
    "SELECT call, ts, phase, action, tool, policy, verdict, violation_type, attempted_action,
            status, error, message, attempt, duration_us
     FROM events WHERE call = ?1 ORDER BY n";

impl TimelineEvent<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let code = |text: &str| ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text);
        let error: Option<String> = row.get(10)?;
        Ok(Self {
            call: id(row, 0)?,
            ts: stamp(row, 1)?,
            phase: word(row, 2, Phase::parse)?,
            action: row.get(3)?,
            tool: row.get(4)?,
            policy: row.get(5)?,
            verdict: row.get(6)?,
            violation_type: row.get(7)?,
            attempted_action: row.get(8)?,
            status: word(row, 9, EventStatus::parse)?,
            error: error.as_deref().and_then(code),
            message: row.get(11)?,
            attempt: row.get(12)?,
            duration_us: row.get::<_, i64>(13)?.unsigned_abs(),
        })
    }
}
