//! What is written together, and the proof that it was.

use vambrace_ledger::{Digest, Entry, Id, Op, Text, Timestamp};

use crate::ask::AskChange;
use crate::call::{CallFinish, CallRow};
use crate::event::TimelineEvent;
use crate::session::{SessionRow, SessionState};
use crate::trust::TrustRow;
use crate::violation::ViolationRow;

/// State changes and the records that describe them: all of it or nothing.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The records, in the order of the chain.
    pub entries: Vec<Entry>,
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// When the commit counts as done.
    pub durability: Durability,
    /// What it may be written to when the disk is full.
    pub room: Room,
}

/// What a batch may be written to when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Nothing: it is refused, and so is what it would have let begin.
    Free,
    /// The reserve: it only tells that something was refused or has ended.
    Reserve,
}

/// When a commit counts as done; what asks for more comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Handed to the operating system, like [`Durability::Lazy`], and asks for no sync: the next one takes it along, at the
    /// latest that of the next checkpoint (a second later) or of closing the store. For what a start after a power cut finds
    /// out by itself.
    WithNext,
    /// Handed to the operating system: survives the end of this process, and a power cut some 100 ms later.
    Lazy,
    /// On the disk: survives a power cut.
    Durable,
}

/// One change of state.
#[derive(Debug, Clone)]
pub enum Change {
    /// A session begins. Its id must be new.
    OpenSession(SessionRow<Text>),
    /// A session changes its state. It must exist.
    SetSession {
        /// Which.
        id: Id,
        /// The new state.
        state: SessionState,
        /// When.
        at: Timestamp,
    },
    /// The batch is refused unless this session is open: whoever ends it ends what has not started.
    RequireSession {
        /// Which.
        id: Id,
    },
    /// The batch is refused unless fewer counted calls of a tool were begun in a session since a moment: calls that
    /// arrive together cannot all be the last one.
    RequirePace {
        /// In which session.
        session: Id,
        /// Which tool.
        tool: Text,
        /// Since when.
        since: Timestamp,
        /// How many are too many.
        limit: u32,
    },
    /// A call is known from now on. Its id must be new.
    InsertCall(CallRow<Text>),
    /// A call moves on; refused when it has ended already.
    SetCall {
        /// Which.
        id: Id,
        /// The new state.
        state: crate::call::CallState,
    },
    /// A call ends; refused when it has ended already.
    FinishCall(CallFinish),
    /// An event of a call's timeline.
    Event(TimelineEvent<Text>),
    /// Something was attempted that is not allowed.
    Violation(ViolationRow<Text>),
    /// Something about questions, proposals, grants and tokens.
    Ask(Box<AskChange>),
    /// A project's configuration is trusted as it is now.
    Trust(TrustRow<Text>),
    /// A payload beside the chain is deleted with its salt; refused when it is not there. The record that says so is
    /// part of the batch.
    ForgetPayload {
        /// The record that it belongs to.
        seq: u64,
        /// The field that it stands for.
        field: String,
    },
    /// A project's configuration is not trusted any more.
    Untrust {
        /// The digest of the project's path.
        project: Digest,
    },
}

impl From<AskChange> for Change {
    fn from(change: AskChange) -> Self {
        Self::Ask(Box::new(change))
    }
}

impl Batch {
    /// A batch that is on the disk when it is done.
    #[must_use]
    pub fn durable(entries: Vec<Entry>, changes: Vec<Change>) -> Self {
        Self { entries, changes, durability: Durability::Durable, room: Room::Free }
    }

    /// A batch that rides along with the next sync, which comes soon.
    #[must_use]
    pub fn lazy(entries: Vec<Entry>, changes: Vec<Change>) -> Self {
        Self { entries, changes, durability: Durability::Lazy, room: Room::Free }
    }

    /// A batch that rides along with the next sync, whenever that is.
    #[must_use]
    pub fn with_next(entries: Vec<Entry>, changes: Vec<Change>) -> Self {
        Self { entries, changes, durability: Durability::WithNext, room: Room::Free }
    }

    /// A batch that only tells of a refusal or an end: written even when the disk is full, while the reserve lasts.
    #[must_use]
    pub fn from_reserve(self) -> Self {
        Self { room: Room::Reserve, ..self }
    }
}

/// The place of a record in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Its number.
    pub seq: u64,
    /// The hash of the record before.
    pub prev_hash: Digest,
    /// Its own hash.
    pub event_hash: Digest,
}

/// The proof that a batch was committed. Only a store makes one.
#[derive(Debug, Clone)]
pub struct Committed {
    // INVARIANT: built after the transaction was committed; `durable` only after the sync came back.
    sealed: Vec<Sealed>,
    durable: bool,
    start: Option<Start>,
}

/// The proof that the start record of a call was committed: what it takes to have an effect. For anything but
/// reading it is on the disk as well.
#[derive(Debug)]
pub struct StartReceipt {
    // INVARIANT: built from a commit that held a start record; see `into_start` and `into_read_start`.
    call: Option<Id>,
    sealed: Sealed,
}

/// Which entry of a batch is the start record, and of which call.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    place: usize,
    call: Option<Id>,
}

impl Start {
    pub(crate) fn of(entries: &[Entry]) -> Option<Self> {
        let starts = |entry: &Entry| entry.op == Op::ToolStart;
        let (place, entry) = entries.iter().enumerate().find(|(_, entry)| starts(entry))?;
        Some(Self { place, call: entry.execution_id.clone() })
    }
}

impl Committed {
    pub(crate) fn new(sealed: Vec<Sealed>, durable: bool, start: Option<Start>) -> Self {
        Self { sealed, durable, start }
    }

    /// Where the records stand, in the order they were handed in.
    #[must_use]
    pub fn sealed(&self) -> &[Sealed] {
        &self.sealed
    }

    /// The last record of the batch.
    #[must_use]
    pub fn last(&self) -> Option<Sealed> {
        self.sealed.last().copied()
    }

    /// Whether it is on the disk already.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The receipt for the start record, if the batch held one and it is on the disk.
    #[must_use]
    pub fn into_start(self) -> Option<StartReceipt> {
        self.durable.then_some(self)?.into_read_start()
    }

    /// The receipt for the start record of a call that only reads: committed, so that it survives the end of this
    /// process, and synced within 100 ms.
    #[must_use]
    pub fn into_read_start(self) -> Option<StartReceipt> {
        let start = self.start?;
        let sealed = self.sealed.get(start.place).copied()?;
        Some(StartReceipt { call: start.call, sealed })
    }
}

impl StartReceipt {
    /// The call that may go on.
    #[must_use]
    pub fn call(&self) -> Option<&Id> {
        self.call.as_ref()
    }

    /// Where the start record stands.
    #[must_use]
    pub fn sealed(&self) -> Sealed {
        self.sealed
    }
}
