//! Queries for approval requests, proposals, grants and tokens, on SQLite.

use vambrace_ledger::{Digest, Timestamp};

use crate::access_token::TokenRow;
use crate::approvals::{
    ApprovalFilter, ApprovalQueries, ApprovalRow, GrantRow, OptionalRow, ProposalRow, RowList,
};
use crate::error::StoreError;
use crate::notify::ApprovalNotifier;
use crate::process_liveness::ProcessLiveness;
use crate::sealed_blob::{BlobSealer, SealedBlob};
use crate::session_owner::OwnerFilter;
use crate::sqlite::SqliteStore;
use crate::sqlite::rows::approval::{
    self, APPROVALS, CALL_OUTCOME, GRANTS, PROPOSAL_LIST, PROPOSALS, UNAPPROVED, UNDO_DATA, owned_by,
};
use crate::sqlite::rows::{sql_limit, token};
use crate::store::BoxFuture;

impl ApprovalQueries for SqliteStore {
    fn approval<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ApprovalRow<String>> {
        let sql = format!("{APPROVALS} WHERE a.id = ?1");
        Box::pin(async move { self.read_pool.one(&sql, [id], approval::read_approval) })
    }

    fn approvals(&self, asked: ApprovalFilter) -> RowList<'_, ApprovalRow<String>> {
        let open = if asked.open { "a.state = 'pending'" } else { "1" };
        let order = if asked.open { "a.created, a.id" } else { "a.created DESC, a.id DESC" };
        let owned = owned_by("a.user", "a.session");
        let sql = format!("{APPROVALS} WHERE {open} AND {owned} ORDER BY {order} LIMIT ?1");
        let limit = if asked.limit == 0 { i64::MAX } else { sql_limit(asked.limit) };
        Box::pin(async move {
            let [tenant, user, project] = asked.owner.columns();
            self.read_pool.all(&sql, (limit, tenant, user, project), approval::read_approval)
        })
    }

    fn is_owned<'a>(
        &'a self,
        id: &'a str,
        owner: &'a OwnerFilter,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let owned = owned_by("user", "session");
        let sql = format!(
            "SELECT 1 FROM approvals WHERE id = ?1 AND {owned}
             UNION ALL SELECT 1 FROM proposals WHERE id = ?1 AND {owned} LIMIT 1"
        );
        Box::pin(async move {
            let [tenant, user, project] = owner.columns();
            Ok(self.read_pool.one(&sql, (id, tenant, user, project), |_| Ok(()))?.is_some())
        })
    }

    fn call_outcome<'a>(&'a self, id: &'a str) -> OptionalRow<'a, SealedBlob> {
        Box::pin(
            async move { self.read_pool.one(CALL_OUTCOME, [id], |row| row.get(0).map(SealedBlob::stored)) },
        )
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
            self.read_pool.one(&sql, (session, asked.as_bytes().as_slice()), approval::read_approval)
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
        Box::pin(async move { self.read_pool.one(&sql, [id], approval::read_proposal) })
    }

    fn rollback_of<'a>(&'a self, id: &'a str) -> OptionalRow<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE undoes = ?1 AND state IN ('applied', 'rolled_back')");
        Box::pin(async move { self.read_pool.one(&sql, [id], approval::read_proposal) })
    }

    fn undo_data<'a>(&'a self, id: &'a str) -> OptionalRow<'a, SealedBlob> {
        Box::pin(async move { self.read_pool.one(UNDO_DATA, [id], |row| row.get(0).map(SealedBlob::stored)) })
    }

    fn proposals<'a>(&'a self, owner: &'a OwnerFilter, limit: usize) -> RowList<'a, ProposalRow<String>> {
        let owned = owned_by("user", "session");
        let sql = format!("{PROPOSAL_LIST} WHERE {owned} ORDER BY created DESC, id DESC LIMIT ?1");
        Box::pin(async move {
            let [tenant, user, project] = owner.columns();
            self.read_pool.all(&sql, (sql_limit(limit), tenant, user, project), approval::read_proposal)
        })
    }

    fn unfinished<'a>(&'a self, project: &'a str) -> RowList<'a, ProposalRow<String>> {
        let sql = format!("{PROPOSALS} WHERE state = 'applying' AND project = ?1 ORDER BY created");
        Box::pin(async move { self.read_pool.all(&sql, [project], approval::read_proposal) })
    }

    fn grants<'a>(
        &'a self,
        session: Option<&'a str>,
        owner: &'a OwnerFilter,
    ) -> RowList<'a, GrantRow<String>> {
        let owned = owned_by("user", "session");
        let sql =
            format!("{GRANTS} WHERE (?1 IS NULL OR session = ?1) AND {owned} ORDER BY created DESC, id DESC");
        Box::pin(async move {
            let [tenant, user, project] = owner.columns();
            self.read_pool.all(&sql, (session, tenant, user, project), approval::read_grant)
        })
    }

    fn token<'a>(&'a self, id: &'a str) -> OptionalRow<'a, TokenRow<String>> {
        Box::pin(async move { self.read_pool.one(token::BY_ID, [id], token::read) })
    }

    fn tokens<'a>(&'a self, owner: &'a OwnerFilter) -> RowList<'a, TokenRow<String>> {
        Box::pin(async move {
            let [tenant, user, _project] = owner.columns();
            self.read_pool.all(token::NEWEST, (tenant, user), token::read)
        })
    }

    fn blob_sealer(&self) -> &dyn BlobSealer {
        &self.blob_cipher
    }

    fn notifier(&self) -> &dyn ApprovalNotifier {
        &self.notifier
    }

    fn liveness(&self) -> &dyn ProcessLiveness {
        &self.liveness
    }
}
