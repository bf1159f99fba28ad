//! What the rest of the program may ask of a store. One writing method; everything else reads.

use std::pin::Pin;

use vambrace_ledger::{Digest, Head, Timestamp};

use crate::batch::{Batch, Committed};
use crate::call::{CallRow, RecentCalls};
use crate::error::StoreError;
use crate::event::TimelineEvent;
use crate::questions::Questions;
use crate::record::{Query, Record};
use crate::session::SessionRow;
use crate::trust::TrustRow;
use crate::violation::ViolationRow;

/// A future that can be named, so that a store can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// State and ledger.
pub trait Store: Send + Sync {
    /// Writes a batch in one transaction. A batch that is refused leaves nothing behind and does not disturb
    /// others. Once polled it is written even when the future is dropped.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>>;

    /// A session.
    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>>;

    /// The newest sessions, newest first.
    fn sessions(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionRow<String>>, StoreError>>;

    /// How many counted calls of a tool a session began since a moment, and when the oldest of them was.
    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>>;

    /// A call.
    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>>;

    /// The newest calls, newest first.
    fn calls(&self, limit: usize) -> BoxFuture<'_, Result<Vec<CallRow<String>>, StoreError>>;

    /// The timeline of a call, oldest first.
    fn events<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>>;

    /// How many violations a session has since a moment.
    fn violations_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// The newest violations, newest first; of one session when it is named.
    fn violations<'a>(
        &'a self,
        session: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>>;

    /// What was trusted of a project.
    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>>;

    /// The records that fit a query.
    fn records(&self, query: Query) -> BoxFuture<'_, Result<Vec<Record>, StoreError>>;

    /// One record.
    fn record(&self, seq: u64) -> BoxFuture<'_, Result<Option<Record>, StoreError>>;

    /// Questions, proposals, grants and tokens.
    fn questions(&self) -> &dyn Questions;

    /// The newest record.
    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>>;
}
