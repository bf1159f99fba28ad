//! The first checks of an application, over the record of a proposal: it exists, it is unused, the path is its own, its
//! time is not over. Pure; the others (denied names, the path resolved again, the hash) need the files and are made by
//! `workspace` in the same order.

use crate::change::ChangeSet;
use crate::error::{CallError, ErrorCode};
use crate::path::AskedPath;
use crate::timestamp::Timestamp;

/// What is known of a proposal when somebody wants to apply it.
#[derive(Debug, Clone)]
pub struct Standing<'a> {
    /// What it would change.
    pub changes: &'a ChangeSet,
    /// Until when.
    pub expires_at: Timestamp,
    /// Whether it was applied or rejected already.
    pub used: bool,
}

/// Checks 1 to 3 of applying, in order: the record exists and is unused, the path (when one is given) is one of its own,
/// its time is not over (B3).
pub fn check_standing(
    found: Option<&Standing<'_>>,
    asked: Option<&AskedPath>,
    now: Timestamp,
) -> Result<(), CallError> {
    let fail = |code, message: &str| Err(CallError::new(code, message));
    let Some(standing) = found else {
        return fail(ErrorCode::ProposalNotFound, "there is no such proposal");
    };
    if standing.used {
        return fail(ErrorCode::ProposalUsed, "the proposal was already applied or rejected");
    }
    if let Some(asked) = asked {
        let path = asked.parse().ok();
        let own = |path| standing.changes.files().iter().any(|file| file.paths().any(|own| own == path));
        if !path.as_ref().is_some_and(own) {
            return fail(ErrorCode::PathMismatch, "the path is not the one of the proposal");
        }
    }
    if now >= standing.expires_at {
        return fail(ErrorCode::ProposalExpired, "the proposal is past its deadline");
    }
    Ok(())
}
