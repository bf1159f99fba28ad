//! State transitions of approval requests, proposals, grants and tokens. Every transition names the state it
//! starts from: a decision on a request that was decided or expired meanwhile is rejected. So of two approvers,
//! or of an approver and the clock, one wins.

use rusqlite::Connection;
use vambrace_ledger::{DecisionVerb, Digest, Id, RedactedText, SignedNote, Timestamp};

use super::{ApprovalRow, ApprovalState, DecisionRow, GrantRow, ProposalRow, ProposalState};
use crate::access_token::{self, TokenRow};
use crate::sealed_blob::SealedBlob;
use crate::statements::{StatementError, conflict};

/// A state transition.
#[derive(Debug, Clone)]
pub enum ApprovalChange {
    /// The batch is rejected unless fewer than `limit` approval requests of a session since `since` are without
    /// an approval. Checked inside the transaction, so requests that arrive together cannot all take the last
    /// slot.
    RequireUnapprovedBelow {
        /// Session id.
        session: Id,
        /// Start of the window.
        since: Timestamp,
        /// The batch is rejected at this count.
        limit: u32,
    },
    /// A new approval request. The session must not have an open one for the same call.
    Open(ApprovalRow<RedactedText>),
    /// A caller waits for it: its deadline moves.
    Extend {
        /// Approval request.
        id: Id,
        /// New deadline, if later.
        expires: Timestamp,
    },
    /// A decision, if the request is open and has not expired.
    Decide {
        /// Approval request.
        id: Id,
        /// The decision.
        decision: DecisionRow<RedactedText>,
        /// The signed note.
        note: SignedNote,
    },
    /// An approval is used, once.
    Use {
        /// Approval request.
        id: Id,
        /// When: before it expires.
        at: Timestamp,
    },
    /// The request expires.
    Expire {
        /// Approval request.
        id: Id,
        /// When: not before its deadline.
        at: Timestamp,
    },
    /// What the request is about no longer exists.
    Stale {
        /// Approval request.
        id: Id,
    },
    /// The caller has received the outcome.
    Deliver {
        /// Approval request.
        id: Id,
    },
    /// A change is proposed.
    Propose(ProposalRow<RedactedText>),
    /// A proposed change is about to be applied.
    Begin {
        /// Proposal.
        id: Id,
        /// What is applied.
        changes: SealedBlob,
        /// What undoes it; `None` if that is too large.
        undo: Option<SealedBlob>,
        /// The diff to show from now on, if it differs from the proposed one.
        shown: Option<SealedBlob>,
        /// Process that applies it.
        life: Id,
        /// When.
        at: Timestamp,
    },
    /// The result of applying a proposal, or why applying could not start.
    Settle {
        /// Proposal.
        id: Id,
        /// Not `Applying`.
        state: ProposalState,
        /// The result for the caller.
        outcome: Option<SealedBlob>,
        /// When.
        at: Timestamp,
    },
    /// An applied change was rolled back.
    RolledBack {
        /// Proposal.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A grant is given.
    Grant(GrantRow<RedactedText>),
    /// A grant is used; it must be valid.
    UseGrant {
        /// Grant.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A grant is revoked.
    RevokeGrant {
        /// Grant.
        id: Id,
        /// When.
        at: Timestamp,
    },
    /// A new token.
    Token(TokenRow<RedactedText>),
    /// A token is revoked.
    RevokeToken {
        /// Token.
        id: Id,
        /// When.
        at: Timestamp,
    },
}

/// Approval requests of a session since a moment that are not approved.
pub(crate) const UNAPPROVED: &str = "SELECT count(*) FROM approvals
     WHERE session = ?1 AND created >= ?2 AND state NOT IN ('approved', 'used')";

const DELETE_UNDO_DATA: &str = "DELETE FROM ways_back WHERE proposal = ?1";

/// In a table of its own: a changed row is rewritten as a whole, and undo data may be large.
fn store_undo_data(
    connection: &Connection,
    id: &Id,
    back: Option<&SealedBlob>,
) -> Result<(), StatementError> {
    let Some(back) = back else { return Ok(()) };
    let sql = "INSERT INTO ways_back (proposal, sealed) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute((id.as_str(), back.as_bytes()))?;
    Ok(())
}

/// Applies one transition.
pub(crate) fn apply(connection: &Connection, change: &ApprovalChange) -> Result<(), StatementError> {
    let run =
        |sql: &str, parameters: &[&dyn rusqlite::ToSql]| connection.prepare_cached(sql)?.execute(parameters);
    let one = |rows: usize, what: &str, id: &Id| match rows {
        1 => Ok(()),
        _ => conflict(format!("there is no {what} `{id}`")),
    };
    match change {
        ApprovalChange::RequireUnapprovedBelow { session, since, limit } => {
            let count: i64 = connection
                .prepare_cached(UNAPPROVED)?
                .query_row((session.as_str(), since.millis()), |row| row.get(0))?;
            if count >= i64::from(*limit) {
                return conflict(format!(
                    "the limit of {limit} approval requests without an approval is reached"
                ));
            }
        }
        ApprovalChange::Open(a) => {
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
        ApprovalChange::Extend { id, expires } => {
            let sql = "UPDATE approvals SET expires = max(expires, ?2) WHERE id = ?1 AND state = 'pending'";
            one(run(sql, &[&id.as_str(), &expires.millis()])?, "open approval request", id)?;
        }
        ApprovalChange::Decide { id, decision: d, note } => {
            let state = match d.verb {
                DecisionVerb::Approve => ApprovalState::Approved,
                DecisionVerb::Reject => ApprovalState::Rejected,
                other => return conflict(format!("`{other}` does not decide an approval request")),
            };
            let sql =
                "UPDATE approvals SET state = ?2, expires = CASE ?2 WHEN 'approved' THEN ?4 ELSE expires END
                       WHERE id = ?1 AND state = 'pending' AND expires > ?3";
            let moved = run(sql, &[&id.as_str(), &state.as_str(), &d.at.millis(), &d.expires.millis()])?;
            one(moved, "open approval request", id)?;
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
                    &d.reason.as_ref().map(RedactedText::get),
                    &note.to_string(),
                ],
            )?;
        }
        ApprovalChange::Use { id, at } => {
            let sql =
                "UPDATE approvals SET state = 'used' WHERE id = ?1 AND state = 'approved' AND expires > ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "unused approval", id)?;
        }
        ApprovalChange::Expire { id, at } => {
            let sql = "UPDATE approvals SET state = 'expired'
                       WHERE id = ?1 AND state IN ('pending', 'approved') AND expires <= ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "expired approval request", id)?;
        }
        ApprovalChange::Stale { id } => {
            let sql =
                "UPDATE approvals SET state = 'stale' WHERE id = ?1 AND state IN ('pending', 'approved')";
            one(run(sql, &[&id.as_str()])?, "open approval request", id)?;
        }
        ApprovalChange::Deliver { id } => {
            run("UPDATE approvals SET delivered = 1 WHERE id = ?1", &[&id.as_str()])?;
        }
        ApprovalChange::Propose(p) => {
            run(
                "INSERT INTO proposals (id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
                     state, created, changed, undoes, life, shown, changes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
                &[
                    &p.id.as_str(), &p.call.as_str(), &p.session.as_str(), p.user.get(), p.project.get(),
                    p.tool.get(), p.path.get(), p.summary.get(), &crate::statements::signed(p.files),
                    &bytes(&p.patch_hash), &bytes(&p.digest), &p.state.as_str(), &p.created.millis(),
                    &p.changed.millis(), &p.undoes.as_ref().map(Id::as_str), &p.life.as_ref().map(Id::as_str),
                    &p.shown.as_bytes(), &p.changes.as_ref().map(SealedBlob::as_bytes),
                ],
            )?;
            store_undo_data(connection, &p.id, p.undo.as_ref())?;
        }
        ApprovalChange::Begin { id, changes, undo: back, shown, life, at } => {
            let sql = "UPDATE proposals SET state = 'applying', changes = ?2, life = ?3, changed = ?4,
                       shown = coalesce(?5, shown) WHERE id = ?1 AND state = 'proposed'";
            let shown = shown.as_ref().map(SealedBlob::as_bytes);
            let moved = run(sql, &[&id.as_str(), &changes.as_bytes(), &life.as_str(), &at.millis(), &shown])?;
            one(moved, "unused proposal", id)?;
            store_undo_data(connection, id, back.as_ref())?;
        }
        ApprovalChange::Settle { id, state, outcome, at } => {
            // `changes` is needed only while the proposal is applied; a failed one has nothing to undo.
            if *state == ProposalState::Failed {
                run(DELETE_UNDO_DATA, &[&id.as_str()])?;
            }
            let sql =
                "UPDATE proposals SET state = ?2, outcome = ?3, changed = ?4, life = NULL, changes = NULL
                       WHERE id = ?1 AND state IN ('proposed', 'applying')";
            let outcome = outcome.as_ref().map(SealedBlob::as_bytes);
            one(run(sql, &[&id.as_str(), &state.as_str(), &outcome, &at.millis()])?, "open proposal", id)?;
        }
        ApprovalChange::RolledBack { id, at } => {
            let sql = "UPDATE proposals SET state = 'rolled_back', changed = ?2
                       WHERE id = ?1 AND state = 'applied'";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "applied proposal", id)?;
            run(DELETE_UNDO_DATA, &[&id.as_str()])?;
        }
        ApprovalChange::Grant(g) => {
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
        ApprovalChange::UseGrant { id, at } => {
            let sql = "UPDATE grants SET uses = uses + 1 WHERE id = ?1 AND revoked IS NULL AND expires > ?2";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "valid grant", id)?;
        }
        ApprovalChange::RevokeGrant { id, at } => {
            let sql = "UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "valid grant", id)?;
        }
        ApprovalChange::Token(t) => access_token::insert(connection, t)?,
        ApprovalChange::RevokeToken { id, at } => {
            let sql = "UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "valid token", id)?;
        }
    }
    Ok(())
}

fn bytes(digest: &Digest) -> &[u8] {
    digest.as_bytes()
}
