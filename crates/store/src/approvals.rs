//! Rows of approval requests, proposals and grants. `approvals/change.rs` has their state transitions,
//! `approvals/queries.rs` the queries.

mod change;
mod queries;

use vambrace_ledger::{DecisionReach, DecisionVerb, Digest, Id, RedactedText, Timestamp, word_enum};

use crate::sealed_blob::SealedBlob;

pub use change::ApprovalChange;
pub use queries::{ApprovalFilter, ApprovalQueries};
pub(crate) use queries::{OptionalRow, RowList};

word_enum! {
    /// What an approval request is about.
    pub enum ApprovalKind {
        /// A change of files; its proposal has the result.
        Change = "change",
        /// Any other call.
        Call = "call",
    }
}

word_enum! {
    /// State of an approval request.
    pub enum ApprovalState {
        /// Waits for a decision.
        Pending = "pending",
        /// Approved and not used yet.
        Approved = "approved",
        /// Approved and used.
        Used = "used",
        /// Rejected.
        Rejected = "rejected",
        /// Not decided in time.
        Expired = "expired",
        /// What it was about no longer exists.
        Stale = "stale",
    }
}

word_enum! {
    /// State of a proposal.
    pub enum ProposalState {
        /// Waits for a decision, or was rejected: the approval request says which.
        Proposed = "proposed",
        /// Being applied.
        Applying = "applying",
        /// Applied.
        Applied = "applied",
        /// Not applied: a check or the disk prevented it.
        Failed = "failed",
        /// It is not known whether it was applied.
        Unknown = "unknown",
        /// Applied and rolled back.
        RolledBack = "rolled_back",
    }
}

/// An approval request. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct ApprovalRow<T = RedactedText> {
    pub id: Id,
    pub call: Id,
    pub session: Id,
    pub user: T,
    pub agent: T,
    pub project: T,
    pub tool: T,
    pub kind: ApprovalKind,
    pub risk: T,
    pub summary: T,
    /// Why approval is needed, one reason per line.
    pub why: T,
    pub grantable: bool,
    pub asked: Digest,
    pub digest: Digest,
    pub revision: Digest,
    pub sealed: SealedBlob,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub state: ApprovalState,
    /// Whether the caller has received the outcome.
    pub delivered: bool,
    /// The process in which the caller waits.
    pub waiter: Option<Id>,
    /// The process that performs what was approved. Filled in by the store when read.
    pub performer: Option<Id>,
    /// Filled in by the store when read.
    pub decision: Option<DecisionRow<T>>,
}

/// The decision on an approval request.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct DecisionRow<T = RedactedText> {
    pub verb: DecisionVerb,
    pub reach: DecisionReach,
    pub digest: Digest,
    pub at: Timestamp,
    pub expires: Timestamp,
    pub by: T,
    pub reason: Option<T>,
    /// What was approved instead of the whole.
    pub amendment: Option<SealedBlob>,
}

/// A change of files. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct ProposalRow<T = RedactedText> {
    pub id: Id,
    pub call: Id,
    pub session: Id,
    pub user: T,
    pub project: T,
    pub tool: T,
    pub path: T,
    pub summary: T,
    pub files: u64,
    pub patch_hash: Digest,
    pub digest: Digest,
    pub state: ProposalState,
    pub created: Timestamp,
    pub changed: Timestamp,
    pub undoes: Option<Id>,
    pub life: Option<Id>,
    /// The diff as it was shown.
    pub shown: SealedBlob,
    /// What is applied, once applying has started; `None` for a rollback, which applies the undo data of the
    /// change that it undoes.
    pub changes: Option<SealedBlob>,
    /// What undoes it. When read, only whether it exists: see [`crate::ApprovalQueries::undo_data`].
    pub undo: Option<SealedBlob>,
    /// The result for the caller.
    pub outcome: Option<SealedBlob>,
}

/// A grant. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct GrantRow<T = RedactedText> {
    pub id: Id,
    pub session: Id,
    pub user: T,
    pub agent: T,
    pub reach: DecisionReach,
    /// What it covers: `write_file`, `execute git`, `*`.
    pub shape: T,
    pub by: T,
    pub approval: Id,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub revoked: Option<Timestamp>,
    pub uses: u64,
}

impl<T> GrantRow<T> {
    /// Whether the grant is valid at `now`.
    pub fn counts(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.expires
    }
}
