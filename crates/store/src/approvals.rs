//! Rows of approval requests, proposals and grants. `approvals/transitions.rs` changes them,
//! `approvals/queries.rs` reads them.

mod queries;
mod transitions;

use rusqlite::Row;
use vambrace_ledger::{DecisionReach, DecisionVerb, Digest, Id, RedactedText, Timestamp, word_enum};

use crate::read_pool::{id, id_or_none, required_digest, stamp, stamp_or_none, word};
use crate::sealed_blob::SealedBlob;

pub use queries::{ApprovalFilter, ApprovalQueries};
pub use transitions::ApprovalChange;
pub(crate) use transitions::{UNAPPROVED, apply};

word_enum! {
    /// What an approval request is about.
    pub enum ApprovalKind {
        /// A change of files: approving applies it.
        Change = "change",
        /// Any other call: an approval is a voucher that the caller uses.
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

pub(crate) const APPROVALS: &str = "SELECT a.id, a.call, a.session, a.user, a.agent, a.project, a.tool, a.kind, a.risk,
     a.summary, a.why, a.grantable, a.asked, a.digest, a.revision, a.sealed, a.created, a.expires, a.state, a.delivered,
     d.verb, d.reach, d.digest, d.at, d.expires, d.by, d.reason
     FROM approvals a LEFT JOIN decisions d ON d.approval = a.id";

impl ApprovalRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let verb: Option<String> = row.get(20)?;
        let decided = match verb {
            None => None,
            Some(_) => Some(DecisionRow {
                verb: word(row, 20, DecisionVerb::parse)?,
                reach: word(row, 21, DecisionReach::parse)?,
                digest: required_digest(row, 22)?,
                at: stamp(row, 23)?,
                expires: stamp(row, 24)?,
                by: row.get(25)?,
                reason: row.get(26)?,
            }),
        };
        Ok(Self {
            id: id(row, 0)?,
            call: id(row, 1)?,
            session: id(row, 2)?,
            user: row.get(3)?,
            agent: row.get(4)?,
            project: row.get(5)?,
            tool: row.get(6)?,
            kind: word(row, 7, ApprovalKind::parse)?,
            risk: row.get(8)?,
            summary: row.get(9)?,
            why: row.get(10)?,
            grantable: row.get(11)?,
            asked: required_digest(row, 12)?,
            digest: required_digest(row, 13)?,
            revision: required_digest(row, 14)?,
            sealed: SealedBlob::stored(row.get(15)?),
            created: stamp(row, 16)?,
            expires: stamp(row, 17)?,
            state: word(row, 18, ApprovalState::parse)?,
            delivered: row.get(19)?,
            decision: decided,
        })
    }
}

pub(crate) const PROPOSALS: &str =
    "SELECT id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
     state, created, changed, undoes, life, shown, changes,
     EXISTS (SELECT 1 FROM ways_back WHERE proposal = proposals.id), outcome FROM proposals";

/// The same for a list, without the large columns.
pub(crate) const PROPOSAL_LIST: &str =
    "SELECT id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
     state, created, changed, undoes, life, x'', NULL,
     EXISTS (SELECT 1 FROM ways_back WHERE proposal = proposals.id), NULL FROM proposals";

pub(crate) const UNDO_DATA: &str = "SELECT sealed FROM ways_back WHERE proposal = ?1";

impl ProposalRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let kept = |column: usize| {
            Ok::<_, rusqlite::Error>(row.get::<_, Option<Vec<u8>>>(column)?.map(SealedBlob::stored))
        };
        Ok(Self {
            id: id(row, 0)?,
            call: id(row, 1)?,
            session: id(row, 2)?,
            user: row.get(3)?,
            project: row.get(4)?,
            tool: row.get(5)?,
            path: row.get(6)?,
            summary: row.get(7)?,
            files: row.get::<_, i64>(8)?.unsigned_abs(),
            patch_hash: required_digest(row, 9)?,
            digest: required_digest(row, 10)?,
            state: word(row, 11, ProposalState::parse)?,
            created: stamp(row, 12)?,
            changed: stamp(row, 13)?,
            undoes: id_or_none(row, 14)?,
            life: id_or_none(row, 15)?,
            shown: SealedBlob::stored(row.get(16)?),
            changes: kept(17)?,
            undo: row.get::<_, bool>(18)?.then(|| SealedBlob::stored(Vec::new())),
            outcome: kept(19)?,
        })
    }
}

pub(crate) const GRANTS: &str = "SELECT id, session, user, agent, reach, shape, by, approval, created, expires, revoked, uses FROM grants";

impl GrantRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: id(row, 0)?,
            session: id(row, 1)?,
            user: row.get(2)?,
            agent: row.get(3)?,
            reach: word(row, 4, DecisionReach::parse)?,
            shape: row.get(5)?,
            by: row.get(6)?,
            approval: id(row, 7)?,
            created: stamp(row, 8)?,
            expires: stamp(row, 9)?,
            revoked: stamp_or_none(row, 10)?,
            uses: row.get::<_, i64>(11)?.unsigned_abs(),
        })
    }
}
