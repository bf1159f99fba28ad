//! State transitions of approval requests, proposals, grants and tokens. Every transition names the state it
//! starts from: a decision on a request that was decided or expired meanwhile is rejected. So of two approvers,
//! or of an approver and the clock, one wins.

use vambrace_ledger::{Id, RedactedText, SignedNote, Timestamp};

use super::{ApprovalRow, DecisionRow, GrantRow, ProposalRow, ProposalState};
use crate::access_token::TokenRow;
use crate::sealed_blob::SealedBlob;
use crate::session_owner::OwnerFilter;

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
    /// The caller waits in this process; an earlier one is replaced. Nothing happens if the request is decided.
    Wait {
        /// Approval request.
        id: Id,
        /// The process.
        process: Id,
    },
    /// The caller no longer waits in this process.
    StopWaiting {
        /// Approval request.
        id: Id,
        /// The process.
        process: Id,
    },
    /// A decision, if the request is open and has not expired, and the approver decides for its owner.
    Decide {
        /// Approval request.
        id: Id,
        /// Whose requests the approver decides.
        owner: OwnerFilter,
        /// The decision.
        decision: DecisionRow<RedactedText>,
        /// The signed note.
        note: SignedNote,
    },
    /// An approval is used, once: of several processes that would perform, one does.
    Use {
        /// Approval request.
        id: Id,
        /// The process that performs.
        process: Id,
        /// When: before it expires.
        at: Timestamp,
    },
    /// The result of an approved call whose caller is not there.
    CallOutcome {
        /// Approval request.
        id: Id,
        /// The result for the caller.
        outcome: SealedBlob,
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
    /// The caller has received the outcome; a stored one is deleted.
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
    /// The batch is rejected unless this change is applied and the approver decides for its owner: a rollback starts.
    RequireApplied {
        /// Proposal.
        id: Id,
        /// Whose changes the approver rolls back.
        owner: OwnerFilter,
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
    /// A grant is revoked, if the approver decides for its owner.
    RevokeGrant {
        /// Grant.
        id: Id,
        /// Whose grants the approver revokes.
        owner: OwnerFilter,
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
