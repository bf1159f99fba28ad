//! Queries for approval requests, proposals, grants and tokens.

use vambrace_ledger::{Digest, Id, Timestamp};

use crate::access_token::{TOKENS, TokenRow};
use crate::approvals::{
    APPROVALS, ApprovalRow, GRANTS, GrantRow, PROPOSAL_LIST, PROPOSALS, ProposalRow, UNAPPROVED, UNDO_DATA,
};
use crate::error::StoreError;
use crate::notify::ApprovalWatch;
use crate::sealed_blob::{BlobCipher, SealedBlob};
use crate::sqlite::{SqliteStore, sql_limit};
use crate::store::BoxFuture;

/// Selects approval requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only open ones.
    pub open: bool,
    /// Only of this user.
    pub user: Option<String>,
    /// Maximum number; 0 means all.
    pub limit: usize,
}

type OptionalRow<'a, T> = BoxFuture<'a, Result<Option<T>, StoreError>>;
type RowList<'a, T> = BoxFuture<'a, Result<Vec<T>, StoreError>>;

/// Queries for approval requests, proposals, grants and tokens.
pub trait ApprovalQueries: Send + Sync {
    /// An approval request.
    fn approval<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ApprovalRow<String>>;

    /// Approval requests: oldest first if only open ones are selected, else newest first.
    fn approvals(&self, asked: ApprovalFilter) -> RowList<'_, ApprovalRow<String>>;

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
    fn proposals(&self, limit: usize) -> RowList<'_, ProposalRow<String>>;

    /// Proposals whose applying has started and whose result is not recorded.
    fn unfinished<'a>(&'a self, project: &'a str) -> RowList<'a, ProposalRow<String>>;

    /// The grants of a session, or all of them; newest first.
    fn grants<'a>(&'a self, session: Option<&'a str>) -> RowList<'a, GrantRow<String>>;

    /// A token.
    fn token<'a>(&'a self, id: &'a str) -> OptionalRow<'a, TokenRow<String>>;

    /// Every token, newest first.
    fn tokens(&self) -> RowList<'_, TokenRow<String>>;

    /// The cipher that seals and unseals stored content.
    fn blob_cipher(&self) -> &BlobCipher;

    /// Waits for changes; no change after this call is missed.
    fn watch(&self) -> ApprovalWatch;

    /// Id of this process, stored with what it starts.
    fn process_id(&self) -> &Id;

    /// Whether the process with this id still runs.
    fn is_process_alive(&self, life: &Id) -> bool;
}

impl ApprovalQueries for SqliteStore {
    fn approval<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ApprovalRow<String>> {
        let sql = format!("{APPROVALS} WHERE a.id = ?1");
        Box::pin(async move { self.read_pool.one(&sql, [id], ApprovalRow::read) })
    }

    fn approvals(&self, asked: ApprovalFilter) -> RowList<'_, ApprovalRow<String>> {
        let open = if asked.open { "a.state = 'pending'" } else { "1" };
        let order = if asked.open { "a.created, a.id" } else { "a.created DESC, a.id DESC" };
        let sql =
            format!("{APPROVALS} WHERE {open} AND (?1 IS NULL OR a.user = ?1) ORDER BY {order} LIMIT ?2");
        let limit = if asked.limit == 0 { i64::MAX } else { sql_limit(asked.limit) };
        Box::pin(async move { self.read_pool.all(&sql, (asked.user, limit), ApprovalRow::read) })
    }

    fn latest_for_call<'a>(
        &'a self,
        session: &'a str,
        asked: Digest,
    ) -> OptionalRow<'a, ApprovalRow<String>> {
        let sql = format!(
            "{APPROVALS} WHERE a.session = ?1 AND a.asked = ?2 ORDER BY a.created DESC, a.id DESC LIMIT 1"
        );
        Box::pin(async move {
            self.read_pool.one(&sql, (session, asked.as_bytes().as_slice()), ApprovalRow::read)
        })
    }

    fn unapproved_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let count =
                self.read_pool.one(UNAPPROVED, (session, since.millis()), |row| row.get::<_, i64>(0))?;
            Ok(count.unwrap_or_default().unsigned_abs())
        })
    }

    fn proposal<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE id = ?1");
        Box::pin(async move { self.read_pool.one(&sql, [id], ProposalRow::read) })
    }

    fn rollback_of<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE undoes = ?1 AND state IN ('applied', 'rolled_back')");
        Box::pin(async move { self.read_pool.one(&sql, [id], ProposalRow::read) })
    }

    fn undo_data<'a>(&'a self, id: &'a str) -> OptionalRow<'a, SealedBlob> {
        Box::pin(async move { self.read_pool.one(UNDO_DATA, [id], |row| row.get(0).map(SealedBlob::stored)) })
    }

    fn proposals(&self, limit: usize) -> RowList<'_, ProposalRow<String>> {
        let sql = format!("{PROPOSAL_LIST} ORDER BY created DESC, id DESC LIMIT ?1");
        Box::pin(async move { self.read_pool.all(&sql, [sql_limit(limit)], ProposalRow::read) })
    }

    fn unfinished<'a>(&'a self, project: &'a str) -> RowList<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE state = 'applying' AND project = ?1 ORDER BY created");
        Box::pin(async move { self.read_pool.all(&sql, [project], ProposalRow::read) })
    }

    fn grants<'a>(&'a self, session: Option<&'a str>) -> RowList<'a, GrantRow<String>> {
        let sql = format!("{GRANTS} WHERE ?1 IS NULL OR session = ?1 ORDER BY created DESC, id DESC");
        Box::pin(async move { self.read_pool.all(&sql, [session], GrantRow::read) })
    }

    fn token<'a>(&'a self, id: &'a str) -> OptionalRow<'a, TokenRow<String>> {
        let sql = format!("{TOKENS} WHERE id = ?1");
        Box::pin(async move { self.read_pool.one(&sql, [id], TokenRow::read) })
    }

    fn tokens(&self) -> RowList<'_, TokenRow<String>> {
        let sql = format!("{TOKENS} ORDER BY created DESC, id DESC");
        Box::pin(async move { self.read_pool.all(&sql, (), TokenRow::read) })
    }

    fn blob_cipher(&self) -> &BlobCipher {
        &self.blob_cipher
    }

    fn watch(&self) -> ApprovalWatch {
        self.notifier.subscribe()
    }

    fn process_id(&self) -> &Id {
        self.liveness.id()
    }

    fn is_process_alive(&self, life: &Id) -> bool {
        self.liveness.is_alive(life)
    }
}
