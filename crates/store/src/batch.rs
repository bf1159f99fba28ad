//! Batches: what one transaction writes, and the proof that it was committed.

use vambrace_ledger::{Digest, Entry, Id, Op, RedactedText, Timestamp};

use crate::approvals::ApprovalChange;
use crate::call::{CallFinish, CallRow};
use crate::record_id::RecordId;
use crate::session::{SessionRow, SessionState};
use crate::session_owner::{OwnerFilter, SessionOwner};
use crate::timeline_event::TimelineEvent;
use crate::trust::TrustRow;
use crate::violation::ViolationRow;

/// State changes and the records that describe them: all or nothing.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The records, in the order of the chain.
    pub entries: Vec<Entry>,
    /// The changes, in order.
    pub changes: Vec<StateChange>,
    /// When the commit counts as done.
    pub durability: Durability,
    /// Which disk space the batch may use when the disk is full.
    pub space: DiskSpace,
}

/// Which disk space a batch may use when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskSpace {
    /// Free space only: on a full disk the batch is rejected, and so is the call that it would have started.
    Free,
    /// The reserve too: the batch only records a denial or the end of a call.
    Reserve,
}

/// When a commit counts as done; later variants are stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Written to the operating system like [`Durability::Lazy`], but requests no sync: the next sync covers
    /// it, at the latest that of the next checkpoint (one second later) or of closing the store. For state that
    /// a start after a power cut can reconstruct.
    NextSync,
    /// Written to the operating system: survives the end of this process, and a power cut about 100 ms later.
    Lazy,
    /// On disk: survives a power cut.
    Durable,
}

/// One change of state.
#[derive(Debug, Clone)]
pub enum StateChange {
    /// A session starts. Its id must be new.
    OpenSession(SessionRow<RedactedText>),
    /// A session changes its state. It must exist and belong to the owner.
    SetSession {
        /// Session id.
        id: Id,
        /// Whose sessions may be changed.
        owner: OwnerFilter,
        /// The new state.
        state: SessionState,
        /// When.
        at: Timestamp,
    },
    /// The batch is rejected unless this session is open and belongs to this owner: ending a session ends every
    /// call that has not started, and nobody makes calls in the session of another user or project.
    RequireSession {
        /// Session id.
        id: Id,
        /// The owner that it must have.
        owner: SessionOwner<RedactedText>,
    },
    /// The batch is rejected unless fewer than `limit` counted calls of a tool were started in a session since
    /// `since`. Checked inside the transaction, so calls that arrive together cannot all take the last slot.
    RequireCallRate {
        /// Session id.
        session: Id,
        /// Tool name.
        tool: RedactedText,
        /// Start of the window.
        since: Timestamp,
        /// The batch is rejected at this count.
        limit: u32,
    },
    /// A new call. Its id must be new.
    InsertCall(CallRow<RedactedText>),
    /// A call changes its state; rejected if it has ended.
    SetCall {
        /// Call id.
        id: Id,
        /// The new state.
        state: crate::call::CallState,
    },
    /// A call ends; rejected if it has already ended.
    FinishCall(CallFinish),
    /// An event of a call's timeline.
    Event(TimelineEvent<RedactedText>),
    /// An attempt that policy does not allow.
    Violation(ViolationRow<RedactedText>),
    /// A change of approval requests, proposals, grants or tokens.
    Approval(Box<ApprovalChange>),
    /// A project's configuration is trusted as it is now.
    Trust(TrustRow<RedactedText>),
    /// A payload beside the chain is deleted with its salt; rejected if it is not there. The record of the
    /// deletion is part of the batch.
    ForgetPayload {
        /// The record that it belongs to.
        record: RecordId,
        /// The field whose content it holds.
        field: String,
    },
    /// A project's configuration is no longer trusted.
    Untrust {
        /// The digest of the project's path.
        project: Digest,
    },
}

impl From<ApprovalChange> for StateChange {
    fn from(change: ApprovalChange) -> Self {
        Self::Approval(Box::new(change))
    }
}

impl Batch {
    /// A batch that is on disk when its commit returns.
    #[must_use]
    pub fn durable(entries: Vec<Entry>, changes: Vec<StateChange>) -> Self {
        Self { entries, changes, durability: Durability::Durable, space: DiskSpace::Free }
    }

    /// A batch that is synced within 100 ms.
    #[must_use]
    pub fn lazy(entries: Vec<Entry>, changes: Vec<StateChange>) -> Self {
        Self { entries, changes, durability: Durability::Lazy, space: DiskSpace::Free }
    }

    /// A batch that is synced with the next sync, whenever that happens.
    #[must_use]
    pub fn with_next_sync(entries: Vec<Entry>, changes: Vec<StateChange>) -> Self {
        Self { entries, changes, durability: Durability::NextSync, space: DiskSpace::Free }
    }

    /// The same batch, allowed to use the reserve: only for denials and ends of calls, which are written even
    /// on a full disk while the reserve lasts.
    #[must_use]
    pub fn from_reserve(self) -> Self {
        Self { space: DiskSpace::Reserve, ..self }
    }
}

/// The position of a record in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPosition {
    /// Its address.
    pub record: RecordId,
    /// The hash of the previous record.
    pub prev_hash: Digest,
    /// Its own hash.
    pub event_hash: Digest,
}

/// The proof that a batch was committed. Only a store makes one.
#[derive(Debug, Clone)]
pub struct Committed {
    // INVARIANT: built after the transaction was committed; `durable` is true only after the sync returned.
    positions: Vec<ChainPosition>,
    durable: bool,
    start: Option<StartRecord>,
}

/// The proof that the start record of a call was committed; a tool needs it to have an effect. For every call
/// that does more than read, the record is also on disk.
#[derive(Debug)]
pub struct StartReceipt {
    // INVARIANT: built from a commit that contained a start record; see `into_start` and `into_read_start`.
    call: Option<Id>,
    position: ChainPosition,
}

/// Which entry of a batch is the start record, and of which call.
#[derive(Debug, Clone)]
pub(crate) struct StartRecord {
    index: usize,
    call: Option<Id>,
}

impl StartRecord {
    pub(crate) fn of(entries: &[Entry]) -> Option<Self> {
        let starts = |entry: &Entry| entry.op == Op::ToolStart;
        let (index, entry) = entries.iter().enumerate().find(|(_, entry)| starts(entry))?;
        Some(Self { index, call: entry.execution_id.clone() })
    }
}

impl Committed {
    pub(crate) fn new(positions: Vec<ChainPosition>, durable: bool, start: Option<StartRecord>) -> Self {
        Self { positions, durable, start }
    }

    /// The positions of the records, in the order of the batch.
    #[must_use]
    pub fn positions(&self) -> &[ChainPosition] {
        &self.positions
    }

    /// The last record of the batch.
    #[must_use]
    pub fn last(&self) -> Option<ChainPosition> {
        self.positions.last().cloned()
    }

    /// Whether the batch is on disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The receipt for the start record, if the batch contained one and is on disk.
    #[must_use]
    pub fn into_start(self) -> Option<StartReceipt> {
        self.durable.then_some(self)?.into_read_start()
    }

    /// The receipt for the start record of a call that only reads: committed, so it survives the end of this
    /// process, and synced within 100 ms.
    #[must_use]
    pub fn into_read_start(mut self) -> Option<StartReceipt> {
        let start = self.start?;
        let position =
            (start.index < self.positions.len()).then(|| self.positions.swap_remove(start.index))?;
        Some(StartReceipt { call: start.call, position })
    }
}

impl StartReceipt {
    /// The call that may start.
    #[must_use]
    pub fn call(&self) -> Option<&Id> {
        self.call.as_ref()
    }

    /// The position of the start record.
    #[must_use]
    pub fn position(&self) -> &ChainPosition {
        &self.position
    }
}
