//! The moves of questions, proposals, grants and tokens. Every move says from where: an answer to a question that was
//! answered or ran out meanwhile is refused, so of two deciders, or of a decider and the clock, one wins.

use rusqlite::Connection;
use vambrace_ledger::{Digest, Id, Note, Text, Timestamp, Verb};

use super::{ApprovalRow, AskState, Decided, GrantRow, ProposalRow, ProposalState};
use crate::statements::{Refusal, refuse};
use crate::token::{self, TokenRow};
use crate::vault::Kept;

/// A move.
#[derive(Debug, Clone)]
pub enum AskChange {
    /// The batch is refused unless fewer questions of a session since a moment are without a yes: questions that arrive
    /// together cannot all be the last one.
    RequireCalm {
        /// In which session.
        session: Id,
        /// Since when.
        since: Timestamp,
        /// How many are too many.
        limit: u32,
    },
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
        /// What is shown of it from now on, where it is not what was proposed.
        shown: Option<Kept>,
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

/// Questions of a session since a moment that nobody agreed to.
pub(crate) const UNANSWERED: &str = "SELECT count(*) FROM approvals
     WHERE session = ?1 AND created >= ?2 AND state NOT IN ('approved', 'used')";

const FORGET_WAY_BACK: &str = "DELETE FROM ways_back WHERE proposal = ?1";

/// In a table of its own: a row that moves is written anew, and a way back may be large.
fn keep_way_back(connection: &Connection, id: &Id, back: Option<&Kept>) -> Result<(), Refusal> {
    let Some(back) = back else { return Ok(()) };
    let sql = "INSERT INTO ways_back (proposal, sealed) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute((id.as_str(), back.as_bytes()))?;
    Ok(())
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
        AskChange::RequireCalm { session, since, limit } => {
            let count: i64 = connection
                .prepare_cached(UNANSWERED)?
                .query_row((session.as_str(), since.millis()), |row| row.get(0))?;
            if count >= i64::from(*limit) {
                return refuse(format!("{limit} questions without a yes are the limit"));
            }
        }
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
                     state, created, changed, undoes, life, shown, changes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
                &[
                    &p.id.as_str(), &p.call.as_str(), &p.session.as_str(), p.user.get(), p.project.get(),
                    p.tool.get(), p.path.get(), p.summary.get(), &crate::statements::signed(p.files),
                    &bytes(&p.patch_hash), &bytes(&p.digest), &p.state.as_str(), &p.created.millis(),
                    &p.changed.millis(), &p.undoes.as_ref().map(Id::as_str), &p.life.as_ref().map(Id::as_str),
                    &p.shown.as_bytes(), &p.changes.as_ref().map(Kept::as_bytes),
                ],
            )?;
            keep_way_back(connection, &p.id, p.back.as_ref())?;
        }
        AskChange::Begin { id, changes, back, shown, life, at } => {
            let sql = "UPDATE proposals SET state = 'applying', changes = ?2, life = ?3, changed = ?4,
                       shown = coalesce(?5, shown) WHERE id = ?1 AND state = 'proposed'";
            let shown = shown.as_ref().map(Kept::as_bytes);
            let moved = run(sql, &[&id.as_str(), &changes.as_bytes(), &life.as_str(), &at.millis(), &shown])?;
            one(moved, "unused proposal", id)?;
            keep_way_back(connection, id, back.as_ref())?;
        }
        AskChange::Settle { id, state, outcome, at } => {
            // What it took is of use while it is applied, and the way back of what was not made leads nowhere.
            if *state == ProposalState::Failed {
                run(FORGET_WAY_BACK, &[&id.as_str()])?;
            }
            let sql =
                "UPDATE proposals SET state = ?2, outcome = ?3, changed = ?4, life = NULL, changes = NULL
                       WHERE id = ?1 AND state IN ('proposed', 'applying')";
            let outcome = outcome.as_ref().map(Kept::as_bytes);
            one(run(sql, &[&id.as_str(), &state.as_str(), &outcome, &at.millis()])?, "open proposal", id)?;
        }
        AskChange::RolledBack { id, at } => {
            let sql = "UPDATE proposals SET state = 'rolled_back', changed = ?2
                       WHERE id = ?1 AND state = 'applied'";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "applied proposal", id)?;
            run(FORGET_WAY_BACK, &[&id.as_str()])?;
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
