//! Calls: the execution log. A row is inserted before the effect and ends once.

use vambrace_core::ErrorCode;
use vambrace_ledger::{Digest, Id, RedactedText, Timestamp, word_enum};

use crate::record_id::RecordId;
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
    pub first_record: Option<RecordId>,
    /// The last record about it. Filled in by the store.
    pub last_record: Option<RecordId>,
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
            first_record: None,
            last_record: None,
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
