//! Queries for approval requests, proposals, grants and tokens.

use vambrace_ledger::{Digest, Timestamp};

use super::{ApprovalRow, GrantRow, ProposalRow};
use crate::access_token::TokenRow;
use crate::error::StoreError;
use crate::notify::ApprovalNotifier;
use crate::process_liveness::ProcessLiveness;
use crate::sealed_blob::{BlobSealer, SealedBlob};
use crate::session_owner::OwnerFilter;
use crate::store::BoxFuture;

/// Selects approval requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only open ones.
    pub open: bool,
    /// Whose.
    pub owner: OwnerFilter,
    /// Maximum number; 0 means all.
    pub limit: usize,
}

pub(crate) type OptionalRow<'a, T> = BoxFuture<'a, Result<Option<T>, StoreError>>;
pub(crate) type RowList<'a, T> = BoxFuture<'a, Result<Vec<T>, StoreError>>;

/// Queries for approval requests, proposals, grants and tokens.
pub trait ApprovalQueries: Send + Sync {
    /// An approval request.
    fn approval<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ApprovalRow<String>>;

    /// Approval requests: oldest first if only open ones are selected, else newest first.
    fn approvals(&self, asked: ApprovalFilter) -> RowList<'_, ApprovalRow<String>>;

    /// Whether an approval request or a proposal with this id belongs to an owner.
    fn is_owned<'a>(&'a self, id: &'a str, owner: &'a OwnerFilter)
    -> BoxFuture<'a, Result<bool, StoreError>>;

    /// The stored result of an approved call whose caller was not there, sealed.
    fn call_outcome<'a>(&'a self, id: &'a str) -> OptionalRow<'a, SealedBlob>;

    /// The newest approval request for the same call of a session.
    fn latest_for_call<'a>(&'a self, session: &'a str, asked: Digest)
    -> OptionalRow<'a, ApprovalRow<String>>;

    /// How many approval requests of a session since `since` are not approved.
    fn unapproved_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// A proposal.
    fn proposal<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ProposalRow<String>>;

    /// The applied proposal that rolled back another one.
    fn rollback_of<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ProposalRow<String>>;

    /// What undoes a proposal, sealed.
    fn undo_data<'a>(&'a self, id: &'a str) -> OptionalRow<'a, SealedBlob>;

    /// The newest proposals, newest first, without their sealed content.
    fn proposals<'a>(&'a self, owner: &'a OwnerFilter, limit: usize) -> RowList<'a, ProposalRow<String>>;

    /// Proposals whose applying has started and whose result is not recorded.
    fn unfinished<'a>(&'a self, project: &'a str) -> RowList<'a, ProposalRow<String>>;

    /// The grants of a session, or of every session; newest first.
    fn grants<'a>(
        &'a self,
        session: Option<&'a str>,
        owner: &'a OwnerFilter,
    ) -> RowList<'a, GrantRow<String>>;

    /// A token.
    fn token<'a>(&'a self, id: &'a str) -> OptionalRow<'a, TokenRow<String>>;

    /// The tokens, newest first. A token is for every project of its user.
    fn tokens<'a>(&'a self, owner: &'a OwnerFilter) -> RowList<'a, TokenRow<String>>;

    /// Seals and unseals stored content.
    fn blob_sealer(&self) -> &dyn BlobSealer;

    /// Notifications about changed approval requests.
    fn notifier(&self) -> &dyn ApprovalNotifier;

    /// Which processes that use this store still run.
    fn liveness(&self) -> &dyn ProcessLiveness;
}
