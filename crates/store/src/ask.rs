//! Questions, proposals and grants: their rows. What moves them is `ask/moves.rs`.

mod moves;

use rusqlite::Row;
use vambrace_ledger::{Digest, Id, Reach, Text, Timestamp, Verb, words};

use crate::read::{id, id_or_none, must_digest, stamp, stamp_or_none, word};
use crate::vault::Kept;

pub use moves::AskChange;
pub(crate) use moves::{UNANSWERED, make};

words! {
    /// What is asked about.
    pub enum AskKind {
        /// A change of files: whoever agrees applies it.
        Change = "change",
        /// Any other call: a yes is a voucher that the caller uses.
        Call = "call",
    }
}

words! {
    /// How a question stands.
    pub enum AskState {
        /// Nobody has answered.
        Pending = "pending",
        /// Yes, and not used yet.
        Approved = "approved",
        /// Yes, and used.
        Used = "used",
        /// No.
        Rejected = "rejected",
        /// Nobody answered in time.
        Expired = "expired",
        /// What it was about is not there any more.
        Stale = "stale",
    }
}

words! {
    /// How a change stands.
    pub enum ProposalState {
        /// Waits for a decision, or was not agreed to: the question says which.
        Proposed = "proposed",
        /// Being applied.
        Applying = "applying",
        /// Applied.
        Applied = "applied",
        /// Not applied: a check or the disk stood against it.
        Failed = "failed",
        /// Nobody knows whether it was applied.
        Unknown = "unknown",
        /// Applied, and undone.
        RolledBack = "rolled_back",
    }
}

/// A question. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct ApprovalRow<T = Text> {
    pub id: Id,
    pub call: Id,
    pub session: Id,
    pub user: T,
    pub agent: T,
    pub project: T,
    pub tool: T,
    pub kind: AskKind,
    pub risk: T,
    pub summary: T,
    /// Why it is asked, one reason a line.
    pub why: T,
    pub grantable: bool,
    pub asked: Digest,
    pub digest: Digest,
    pub revision: Digest,
    pub sealed: Kept,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub state: AskState,
    /// Whether the caller has heard the outcome.
    pub delivered: bool,
    /// Filled in by the store on the way out.
    pub decided: Option<Decided<T>>,
}

/// How a question was answered.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct Decided<T = Text> {
    pub verb: Verb,
    pub reach: Reach,
    pub digest: Digest,
    pub at: Timestamp,
    pub expires: Timestamp,
    pub by: T,
    pub reason: Option<T>,
}

/// A change of files. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct ProposalRow<T = Text> {
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
    pub shown: Kept,
    /// What is applied, once it is begun; nothing for a rollback, which is the way back of the change that it undoes.
    pub changes: Option<Kept>,
    /// What undoes it. On the way out only whether there is such a way: see [`crate::Questions::way_back`].
    pub back: Option<Kept>,
    /// What the caller is told.
    pub outcome: Option<Kept>,
}

/// A grant. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the table, described there")]
pub struct GrantRow<T = Text> {
    pub id: Id,
    pub session: Id,
    pub user: T,
    pub agent: T,
    pub reach: Reach,
    /// What it is for: `write_file`, `execute git`, `*`.
    pub shape: T,
    pub by: T,
    pub approval: Id,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub revoked: Option<Timestamp>,
    pub uses: u64,
}

impl<T> GrantRow<T> {
    /// Whether it counts at a moment.
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
            Some(_) => Some(Decided {
                verb: word(row, 20, Verb::parse)?,
                reach: word(row, 21, Reach::parse)?,
                digest: must_digest(row, 22)?,
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
            kind: word(row, 7, AskKind::parse)?,
            risk: row.get(8)?,
            summary: row.get(9)?,
            why: row.get(10)?,
            grantable: row.get(11)?,
            asked: must_digest(row, 12)?,
            digest: must_digest(row, 13)?,
            revision: must_digest(row, 14)?,
            sealed: Kept::stored(row.get(15)?),
            created: stamp(row, 16)?,
            expires: stamp(row, 17)?,
            state: word(row, 18, AskState::parse)?,
            delivered: row.get(19)?,
            decided,
        })
    }
}

pub(crate) const PROPOSALS: &str =
    "SELECT id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
     state, created, changed, undoes, life, shown, changes,
     EXISTS (SELECT 1 FROM ways_back WHERE proposal = proposals.id), outcome FROM proposals";

/// The same for a list: nothing of what is large.
pub(crate) const LISTED: &str =
    "SELECT id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
     state, created, changed, undoes, life, x'', NULL,
     EXISTS (SELECT 1 FROM ways_back WHERE proposal = proposals.id), NULL FROM proposals";

pub(crate) const WAY_BACK: &str = "SELECT sealed FROM ways_back WHERE proposal = ?1";

impl ProposalRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let kept = |column: usize| {
            Ok::<_, rusqlite::Error>(row.get::<_, Option<Vec<u8>>>(column)?.map(Kept::stored))
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
            patch_hash: must_digest(row, 9)?,
            digest: must_digest(row, 10)?,
            state: word(row, 11, ProposalState::parse)?,
            created: stamp(row, 12)?,
            changed: stamp(row, 13)?,
            undoes: id_or_none(row, 14)?,
            life: id_or_none(row, 15)?,
            shown: Kept::stored(row.get(16)?),
            changes: kept(17)?,
            back: row.get::<_, bool>(18)?.then(|| Kept::stored(Vec::new())),
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
            reach: word(row, 4, Reach::parse)?,
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
