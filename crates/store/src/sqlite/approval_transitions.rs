//! Writes the state transitions of approval requests, proposals, grants and tokens.

use rusqlite::Connection;
use rusqlite::OptionalExtension as _;
use vambrace_ledger::{DecisionVerb, Digest, Id, RedactedText};

use crate::approvals::{ApprovalChange, ApprovalState, ProposalState};
use crate::error::StoreError;
use crate::sealed_blob::SealedBlob;
use crate::session_owner::OwnerFilter;
use crate::sqlite::rows::approval::{UNAPPROVED, owned_by};
use crate::sqlite::rows::{self, signed, token};
use crate::sqlite::statements::{StatementError, conflict};

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

/// Rejects the batch if the row with this id belongs to another owner.
fn require_owner(
    connection: &Connection,
    table: &str,
    id: &Id,
    owner: &OwnerFilter,
) -> Result<(), StatementError> {
    if *owner == OwnerFilter::Everyone {
        return Ok(());
    }
    let owned = owned_by("user", "session");
    let [tenant, user, project] = owner.columns();
    let found = connection
        .prepare_cached(&format!("SELECT session, {owned} FROM {table} WHERE id = ?1"))?
        .query_row((id.as_str(), tenant, user, project), |row| Ok((rows::id(row, 0)?, row.get(1)?)))
        .optional()?;
    match found {
        Some((session, false)) => Err(StatementError::Store(StoreError::ForeignSession(session))),
        _ => Ok(()),
    }
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
                     asked, digest, revision, sealed, created, expires, state, waiter)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 'pending', ?19)",
                &[
                    &a.id.as_str(), &a.call.as_str(), &a.session.as_str(), a.user.get(), a.agent.get(),
                    a.project.get(), a.tool.get(), &a.kind.as_str(), a.risk.get(), a.summary.get(), a.why.get(),
                    &a.grantable, &asked, &digest, &revision, &a.sealed.as_bytes(), &a.created.millis(),
                    &a.expires.millis(), &a.waiter.as_ref().map(Id::as_str),
                ],
            )?;
        }
        ApprovalChange::Wait { id, process } => {
            let sql = "UPDATE approvals SET waiter = ?2 WHERE id = ?1 AND state = 'pending'";
            run(sql, &[&id.as_str(), &process.as_str()])?;
        }
        ApprovalChange::StopWaiting { id, process } => {
            let sql = "UPDATE approvals SET waiter = NULL WHERE id = ?1 AND waiter = ?2";
            run(sql, &[&id.as_str(), &process.as_str()])?;
        }
        ApprovalChange::Extend { id, expires } => {
            let sql = "UPDATE approvals SET expires = max(expires, ?2) WHERE id = ?1 AND state = 'pending'";
            one(run(sql, &[&id.as_str(), &expires.millis()])?, "open approval request", id)?;
        }
        ApprovalChange::Decide { id, owner, decision: d, note } => {
            require_owner(connection, "approvals", id, owner)?;
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
                "INSERT INTO decisions (approval, verb, reach, digest, at, expires, by, reason, note, amendment)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
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
                    &d.amendment.as_ref().map(SealedBlob::as_bytes),
                ],
            )?;
        }
        ApprovalChange::Use { id, process, at } => {
            let sql = "UPDATE approvals SET state = 'used', performer = ?3
                       WHERE id = ?1 AND state = 'approved' AND expires > ?2";
            one(run(sql, &[&id.as_str(), &at.millis(), &process.as_str()])?, "unused approval", id)?;
        }
        ApprovalChange::CallOutcome { id, outcome } => {
            let sql = "INSERT INTO call_outcomes (approval, sealed) SELECT id, ?2 FROM approvals
                       WHERE id = ?1 AND kind = 'call' AND delivered = 0";
            run(sql, &[&id.as_str(), &outcome.as_bytes()])?;
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
            run("DELETE FROM call_outcomes WHERE approval = ?1", &[&id.as_str()])?;
        }
        ApprovalChange::Propose(p) => {
            run(
                "INSERT INTO proposals (id, call, session, user, project, tool, path, summary, files, patch_hash, digest,
                     state, created, changed, undoes, life, shown, changes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
                &[
                    &p.id.as_str(), &p.call.as_str(), &p.session.as_str(), p.user.get(), p.project.get(),
                    p.tool.get(), p.path.get(), p.summary.get(), &signed(p.files),
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
        ApprovalChange::RequireApplied { id, owner } => {
            require_owner(connection, "proposals", id, owner)?;
            let sql = "SELECT 1 FROM proposals WHERE id = ?1 AND state = 'applied'";
            let applied = connection.prepare_cached(sql)?.exists([id.as_str()])?;
            one(usize::from(applied), "applied proposal", id)?;
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
        ApprovalChange::RevokeGrant { id, owner, at } => {
            require_owner(connection, "grants", id, owner)?;
            let sql = "UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
            one(run(sql, &[&id.as_str(), &at.millis()])?, "valid grant", id)?;
        }
        ApprovalChange::Token(t) => token::insert(connection, t)?,
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
