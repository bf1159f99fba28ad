//! The first checks before a proposal is applied: it exists, it is unused, the path belongs to it, it has not expired.
//! Pure: the `workspace` crate makes the further checks that need the files (denied names, the path resolved again, the
//! hash), in this order.

use crate::error::{CallError, ErrorCode};
use crate::path::AskedPath;
use crate::timestamp::Timestamp;

/// The stored state of a proposal that is to be applied.
#[derive(Debug, Clone)]
pub struct StoredProposal<'a> {
    /// The paths that it changes.
    pub paths: &'a [String],
    /// It cannot be applied from this time on.
    pub expires_at: Timestamp,
    /// Why it cannot be applied any more, if it was decided already.
    pub used: Option<&'a str>,
}

/// Checks 1 to 3 of applying, in order: the proposal exists and is unused, the path (if given) is one of its own, it has
/// not expired (B3).
pub fn check_proposal(
    found: Option<&StoredProposal<'_>>,
    asked: Option<&AskedPath>,
    now: Timestamp,
) -> Result<(), CallError> {
    let Some(stored) = found else {
        return Err(CallError::new(ErrorCode::ProposalNotFound, "the proposal does not exist"));
    };
    if let Some(why) = stored.used {
        return Err(CallError::new(ErrorCode::ProposalUsed, why));
    }
    if let Some(asked) = asked {
        let path = asked.parse().ok().map(|path| path.to_string());
        if !stored.paths.iter().any(|own| Some(own) == path.as_ref()) {
            return Err(CallError::new(
                ErrorCode::PathMismatch,
                format!("`{}` is not a path of this proposal", asked.as_str()),
            ));
        }
    }
    if now >= stored.expires_at {
        return Err(CallError::new(ErrorCode::ProposalExpired, "the proposal has expired"));
    }
    Ok(())
}
