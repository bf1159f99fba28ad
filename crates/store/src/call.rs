//! Calls: the execution log. A row is inserted before the effect and ends once.

use rusqlite::Row;
use vambrace_core::ErrorCode;
use vambrace_ledger::{Digest, Id, RedactedText, Timestamp, word_enum};

use crate::read_pool::{digest, id, stamp, stamp_or_none, word};
use crate::timeline_event::TimelineEvent;

word_enum! {
    /// State of a call.
    pub enum CallState {
        /// Waits for a decision.
        Pending = "pending",
        /// Decided and not started.
        Approved = "approved",
        /// Rejected.
        Rejected = "rejected",
        /// Its effect may be in progress.
        Executing = "executing",
        /// Done.
        Completed = "completed",
        /// Failed.
        Failed = "failed",
        /// Not decided in time.
        Expired = "expired",
    }
}

impl CallState {
    /// Whether the call has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Rejected | Self::Completed | Self::Failed | Self::Expired)
    }
}

/// A call. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow<T = RedactedText> {
    /// Its id; created with [`Id::time_ordered`] so that the table only grows at its end.
    pub id: Id,
    /// Session id.
    pub session: Id,
    /// Tool name.
    pub tool: T,
    /// State.
    pub state: CallState,
    /// When it started.
    pub started: Timestamp,
    /// Whether [`crate::Store::recent_calls`] counts it: set where a rate limit applies to the tool. A call
    /// that is not counted has no index entry.
    pub counted: bool,
    /// The digest of the decided plan.
    pub plan_digest: Option<Digest>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<T>,
    /// The first record about it. Filled in by the store if it is `None`.
    pub first_seq: Option<u64>,
    /// The last record about it. Filled in by the store.
    pub last_seq: Option<u64>,
    /// Its events, if it has ended when its row is inserted. When read they come from [`crate::Store::events`].
    pub events: Vec<TimelineEvent<T>>,
}

impl<T> CallRow<T> {
    /// A call that is about to have its effect.
    #[must_use]
    pub fn executing(id: Id, session: Id, tool: T, started: Timestamp) -> Self {
        Self {
            id,
            session,
            tool,
            state: CallState::Executing,
            started,
            counted: false,
            plan_digest: None,
            finished: None,
            error: None,
            first_seq: None,
            last_seq: None,
            events: Vec::new(),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFinish {
    /// Call id.
    pub id: Id,
    /// A final state.
    pub state: CallState,
    /// When.
    pub at: Timestamp,
    /// Why it failed.
    pub error: Option<ErrorCode>,
}

/// The calls that count toward a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentCalls {
    /// How many.
    pub count: u64,
    /// When the oldest of them started.
    pub oldest: Option<Timestamp>,
}

pub(crate) const INSERT: &str =
    "INSERT INTO calls (id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq,
                        events)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
pub(crate) const SET: &str = "UPDATE calls SET state = ?2 WHERE id = ?1 AND finished IS NULL";
pub(crate) const FINISH: &str = "UPDATE calls SET state = ?2, finished = ?3, error = ?4, last_seq = ?5
     WHERE id = ?1 AND finished IS NULL";
pub(crate) const BY_ID: &str =
    "SELECT id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq
     FROM calls WHERE id = ?1";
pub(crate) const NEWEST: &str =
    "SELECT id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq
     FROM calls ORDER BY id DESC LIMIT ?1";
pub(crate) const RECENT: &str = "SELECT count(*), min(started) FROM calls
     WHERE counted = 1 AND session = ?1 AND tool = ?2 AND started >= ?3";

impl CallRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: id(row, 0)?,
            session: id(row, 1)?,
            tool: row.get(2)?,
            state: word(row, 3, CallState::parse)?,
            started: stamp(row, 4)?,
            counted: row.get(5)?,
            plan_digest: digest(row, 6)?,
            finished: stamp_or_none(row, 7)?,
            error: row.get(8)?,
            first_seq: row.get::<_, Option<i64>>(9)?.map(i64::unsigned_abs),
            last_seq: row.get::<_, Option<i64>>(10)?.map(i64::unsigned_abs),
            events: Vec::new(),
        })
    }
}
