//! Questions, proposals and grants: their rows, and the changes that move them. Every move says from where: an answer to a
//! question that was answered or ran out meanwhile is refused, so of two deciders, or of a decider and the clock, one wins.

use rusqlite::{Connection, Row};
use vambrace_ledger::{Digest, Id, Note, Reach, Text, Timestamp, Verb, words};

use crate::read::{id, id_or_none, must_digest, stamp, stamp_or_none, word};
use crate::statements::{Refusal, refuse};
use crate::token::{self, TokenRow};
use crate::vault::Kept;

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
    /// What is applied, and what undoes it; once it is begun.
    pub changes: Option<Kept>,
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

/// A move.
#[derive(Debug, Clone)]
pub enum AskChange {
    /// A question is put. There must not be an open one for the same call in the session.
    Open(ApprovalRow<Text>),
    /// Somebody waits for it: it stands longer.
    Extend {
        /// Which.
        id: Id,
        /// Until when at least.
        expires: Timestamp,
    },
    /// It is answered, if it is open and its time is not over.
    Decide {
        /// Which.
        id: Id,
        /// How.
        decided: Decided<Text>,
        /// The signed text.
        note: Note,
    },
    /// A yes is used, once.
    Use {
        /// Which.
        id: Id,
        /// When: not after its end.
        at: Timestamp,
    },
    /// Its time is over.
    Expire {
        /// Which.
        id: Id,
        /// When: not before its end.
        at: Timestamp,
    },
    /// What it was about is not there any more.
    Stale {
        /// Which.
        id: Id,
    },
    /// The caller has heard the outcome.
    Deliver {
        /// Which.
        id: Id,
    },
    /// A change is proposed.
    Propose(ProposalRow<Text>),
    /// A proposed change is about to be applied.
    Begin {
        /// Which.
        id: Id,
        /// What is applied.
        changes: Kept,
        /// What undoes it; nothing where that is too large.
        back: Option<Kept>,
        /// By which process.
        life: Id,
        /// When.
        at: Timestamp,
    },
    /// A change that was begun, or could not be, stands so now.
    Settle {
        /// Which.
        id: Id,
        /// Not `Applying`.
        state: ProposalState,
        /// What the caller is told.
        outcome: Option<Kept>,
        /// When.
        at: Timestamp,
    },
    /// An applied change was undone.
    RolledBack {
        /// Which.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A grant is given.
    Grant(GrantRow<Text>),
    /// A grant is used; it must count.
    UseGrant {
        /// Which.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A grant is taken back.
    RevokeGrant {
        /// Which.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A token is made.
    Token(TokenRow<Text>),
    /// A token is taken back.
    RevokeToken {
        /// Which.
        id: Id,
        /// When.
        at: Timestamp,
    },
}

/// Makes one move.
pub(crate) fn make(connection: &Connection, change: &AskChange) -> Result<(), Refusal> {
    let run =
        |sql: &str, parameters: &[&dyn rusqlite::ToSql]| connection.prepare_cached(sql)?.execute(parameters);
    let one = |rows: usize, what: &str, id: &Id| match rows {
        1 => Ok(()),
        _ => refuse(format!("there is no {what} `{id}`")),
    };
    match change {
        AskChange::Open(a) => {
            let (asked, digest, revision) = (bytes(&a.asked), bytes(&a.digest), bytes(&a.revision));
            run(
                "INSERT INTO approvals (id, call, session, user, agent, project, tool, kind, risk, summary, why, grantable,
                     asked, digest, revision, sealed, created, expires, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 'pending')",
                &[
                    &a.id.as_str(), &a.call.as_str(), &a.session.as_str(), a.user.get(), a.agent.get(),
                    a.project.get(), a.tool.get(), &a.kind.as_str(), a.risk.get(), a.summary.get(), a.why.get(),
                    &a.grantable, &asked, &digest, &revision, &a.sealed.as_bytes(), &a.created.millis(),
                    &a.expires.millis(),
                ],
            )?;
        }
        AskChange::Extend { id, expires } => {
            let sql = "UPDATE approvals SET expires = max(expires, ?2) WHERE id = ?1 AND state = 'pending'";
            one(run(sql, &[&id.as_str(), &expires.millis()])?, "open question", id)?;
        }
        AskChange::Decide { id, decided: d, note } => {
            let state = match d.verb {
                Verb::Approve => AskState::Approved,
                Verb::Reject => AskState::Rejected,
                other => return refuse(format!("`{other}` answers no question")),
            };
            let sql =
                "UPDATE approvals SET state = ?2, expires = CASE ?2 WHEN 'approved' THEN ?4 ELSE expires END
                       WHERE id = ?1 AND state = 'pending' AND expires > ?3";
            let moved = run(sql, &[&id.as_str(), &state.as_str(), &d.at.millis(), &d.expires.millis()])?;
            one(moved, "open question", id)?;
            run(
                "INSERT INTO decisions (approval, verb, reach, digest, at, expires, by, reason, note)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                &[
                    &id.as_str(),
                    &d.verb.as_str(),
                    &d.reach.as_str(),
                    &bytes(&d.digest),
                    &d.at.millis(),
                    &d.expires.millis(),
                    d.by.get(),
                    &d.reason.as_ref().map(Text::get),
                    &note.to_string(),
                ],
            )?;
        }
        AskChange::Use { id, at } => {
            let sql =
                "UPDATE approvals SET state = 'used' WHERE id = ?1 AND state = 'approved' AND expires > ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "unused yes", id)?;
        }
        AskChange::Expire { id, at } => {
            let sql = "UPDATE approvals SET state = 'expired'
                       WHERE id = ?1 AND state IN ('pending', 'approved') AND expires <= ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "question past its time", id)?;
        }
        AskChange::Stale { id } => {
            let sql =
                "UPDATE approvals SET state = 'stale' WHERE id = ?1 AND state IN ('pending', 'approved')";
            one(run(sql, &[&id.as_str()])?, "open question", id)?;
        }
        AskChange::Deliver { id } => {
            run("UPDATE approvals SET delivered = 1 WHERE id = ?1", &[&id.as_str()])?;
        }
        AskChange::Propose(p) => {
            run(
                "INSERT INTO proposals (id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
                     state, created, changed, undoes, life, shown, changes, back)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
                &[
                    &p.id.as_str(), &p.call.as_str(), &p.session.as_str(), p.user.get(), p.project.get(),
                    p.tool.get(), p.path.get(), p.summary.get(), &crate::statements::signed(p.files),
                    &bytes(&p.patch_hash), &bytes(&p.digest), &p.state.as_str(), &p.created.millis(),
                    &p.changed.millis(), &p.undoes.as_ref().map(Id::as_str), &p.life.as_ref().map(Id::as_str),
                    &p.shown.as_bytes(), &p.changes.as_ref().map(Kept::as_bytes), &p.back.as_ref().map(Kept::as_bytes),
                ],
            )?;
        }
        AskChange::Begin { id, changes, back, life, at } => {
            let sql =
                "UPDATE proposals SET state = 'applying', changes = ?2, back = ?3, life = ?4, changed = ?5
                       WHERE id = ?1 AND state = 'proposed'";
            let back = back.as_ref().map(Kept::as_bytes);
            let moved = run(sql, &[&id.as_str(), &changes.as_bytes(), &back, &life.as_str(), &at.millis()])?;
            one(moved, "unused proposal", id)?;
        }
        AskChange::Settle { id, state, outcome, at } => {
            let sql = "UPDATE proposals SET state = ?2, outcome = ?3, changed = ?4, life = NULL
                       WHERE id = ?1 AND state IN ('proposed', 'applying')";
            let outcome = outcome.as_ref().map(Kept::as_bytes);
            one(run(sql, &[&id.as_str(), &state.as_str(), &outcome, &at.millis()])?, "open proposal", id)?;
        }
        AskChange::RolledBack { id, at } => {
            let sql = "UPDATE proposals SET state = 'rolled_back', changed = ?2 WHERE id = ?1 AND state = 'applied'";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "applied proposal", id)?;
        }
        AskChange::Grant(g) => {
            run(
                "INSERT INTO grants (id, session, user, agent, reach, shape, by, approval, created, expires)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                &[
                    &g.id.as_str(),
                    &g.session.as_str(),
                    g.user.get(),
                    g.agent.get(),
                    &g.reach.as_str(),
                    g.shape.get(),
                    g.by.get(),
                    &g.approval.as_str(),
                    &g.created.millis(),
                    &g.expires.millis(),
                ],
            )?;
        }
        AskChange::UseGrant { id, at } => {
            let sql = "UPDATE grants SET uses = uses + 1 WHERE id = ?1 AND revoked IS NULL AND expires > ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "grant that counts", id)?;
        }
        AskChange::RevokeGrant { id, at } => {
            let sql = "UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "grant that counts", id)?;
        }
        AskChange::Token(t) => token::insert(connection, t)?,
        AskChange::RevokeToken { id, at } => {
            let sql = "UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "token that counts", id)?;
        }
    }
    Ok(())
}

fn bytes(digest: &Digest) -> &[u8] {
    digest.as_bytes()
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
     state, created, changed, undoes, life, shown, changes, back, outcome FROM proposals";

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
            back: kept(18)?,
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
