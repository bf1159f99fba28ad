//! SQL that reads approval requests, proposals and grants. `approval_transitions.rs` writes them.

use rusqlite::Row;
use vambrace_ledger::{DecisionReach, DecisionVerb};

use super::{id, id_or_none, required_digest, session_of_owner, stamp, stamp_or_none, word};
use crate::approvals::{
    ApprovalKind, ApprovalRow, ApprovalState, DecisionRow, GrantRow, ProposalRow, ProposalState,
};
use crate::sealed_blob::SealedBlob;

pub(crate) const APPROVALS: &str = "SELECT a.id, a.call, a.session, a.user, a.agent, a.project, a.tool, a.kind, a.risk,
     a.summary, a.why, a.grantable, a.asked, a.digest, a.revision, a.sealed, a.created, a.expires, a.state, a.delivered,
     d.verb, d.reach, d.digest, d.at, d.expires, d.by, d.reason, d.amendment, a.waiter, a.performer
     FROM approvals a LEFT JOIN decisions d ON d.approval = a.id";

pub(crate) fn read_approval(row: &Row<'_>) -> rusqlite::Result<ApprovalRow<String>> {
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
            amendment: row.get::<_, Option<Vec<u8>>>(27)?.map(SealedBlob::stored),
        }),
    };
    Ok(ApprovalRow {
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
        waiter: id_or_none(row, 28)?,
        performer: id_or_none(row, 29)?,
        decision: decided,
    })
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
pub(crate) const CALL_OUTCOME: &str = "SELECT sealed FROM call_outcomes WHERE approval = ?1";

pub(crate) fn read_proposal(row: &Row<'_>) -> rusqlite::Result<ProposalRow<String>> {
    let kept = |column: usize| {
        Ok::<_, rusqlite::Error>(row.get::<_, Option<Vec<u8>>>(column)?.map(SealedBlob::stored))
    };
    Ok(ProposalRow {
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

pub(crate) const GRANTS: &str = "SELECT id, session, user, agent, reach, shape, by, approval, created, expires, revoked, uses FROM grants";

pub(crate) fn read_grant(row: &Row<'_>) -> rusqlite::Result<GrantRow<String>> {
    Ok(GrantRow {
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

/// The condition that a row is of an owner, in the parameters from number 2 on: its user asked, in a session of
/// the owner. Older programs let a user ask in the session of another one; such a row is nobody's.
pub(crate) fn owned_by(user: &str, session: &str) -> String {
    format!("(?3 IS NULL OR {user} = ?3) AND {}", session_of_owner(session, 2))
}

/// Approval requests of a session since a moment that are not approved.
pub(crate) const UNAPPROVED: &str = "SELECT count(*) FROM approvals
     WHERE session = ?1 AND created >= ?2 AND state NOT IN ('approved', 'used')";
