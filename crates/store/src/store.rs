//! The interface of a store. One method writes; every other method reads. A list returns rows of one owner or of
//! everybody; a row that is named by its id is returned whoever asks, and the caller compares its owner.

use std::pin::Pin;

use vambrace_ledger::{ChainHead, Digest, Id, Timestamp};

use crate::approvals::ApprovalQueries;
use crate::batch::{Batch, Committed};
use crate::call::{CallRow, RecentCalls};
use crate::error::StoreError;
use crate::ledger_admin::LedgerAdmin;
use crate::record_id::RecordId;
use crate::record_query::{LedgerRecord, RecordQuery};
use crate::session::SessionRow;
use crate::session_owner::OwnerFilter;
use crate::timeline_event::TimelineEvent;
use crate::trust::TrustRow;
use crate::violation::ViolationRow;

/// A boxed future, so that a store can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// State and ledger.
pub trait Store: Send + Sync {
    /// Writes a batch in one transaction. A rejected batch leaves nothing behind and does not affect other
    /// batches. Once polled, the batch is written even if the future is dropped.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>>;

    /// The writer of the chain that this store appends to.
    fn writer(&self) -> &Id;

    /// A session.
    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>>;

    /// The newest sessions, newest first.
    fn sessions<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow<String>>, StoreError>>;

    /// How many counted calls of a tool a session started since `since`, and when the oldest of them started.
    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>>;

    /// A call.
    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>>;

    /// The newest calls, newest first.
    fn calls<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<CallRow<String>>, StoreError>>;

    /// The timeline of a call, oldest first; empty for a call of another owner.
    fn events<'a>(
        &'a self,
        call: &'a str,
        owner: &'a OwnerFilter,
    ) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>>;

    /// How many violations a session has since `since`.
    fn violations_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// The newest violations, newest first; those of one session if `session` is given.
    fn violations<'a>(
        &'a self,
        session: Option<&'a str>,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>>;

    /// The trusted configuration of a project.
    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>>;

    /// The records that match a query.
    fn records(&self, query: RecordQuery) -> BoxFuture<'_, Result<Vec<LedgerRecord>, StoreError>>;

    /// One record.
    fn record<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<LedgerRecord>, StoreError>>;

    /// Queries for approval requests, proposals, grants and tokens.
    fn approval_queries(&self) -> &dyn ApprovalQueries;

    /// Administration of the ledger.
    fn admin(&self) -> &dyn LedgerAdmin;

    /// The newest record of the chain that this store appends to.
    fn head(&self) -> BoxFuture<'_, Result<ChainHead, StoreError>>;
}
