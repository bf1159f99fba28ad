//! Commits and queries of the store on SQLite.

use std::sync::Arc;

use vambrace_ledger::{ChainHead, Digest, EncodedEntry, Entry, Id, Salt, Timestamp};

use crate::approvals::ApprovalQueries;
use crate::batch::{Batch, Committed, StartRecord, StateChange};
use crate::call::{CallRow, RecentCalls};
use crate::error::StoreError;
use crate::ledger_admin::LedgerAdmin;
use crate::notify::ApprovalNotifier as _;
use crate::record_id::RecordId;
use crate::record_query::{LedgerRecord, RecordQuery};
use crate::session::SessionRow;
use crate::session_owner::OwnerFilter;
use crate::sqlite::SqliteStore;
use crate::sqlite::group_writer::EncodedBatch;
use crate::sqlite::read_pool::ReadPool;
use crate::sqlite::rows::{
    call, record, session, signed, sql_limit, stamp_or_none, timeline_event, trust, violation,
};
use crate::store::{BoxFuture, Store};
use crate::timeline_event::TimelineEvent;
use crate::trust::TrustRow;
use crate::violation::ViolationRow;

impl Store for SqliteStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            // Encoded on the caller's thread: the write connection is the one resource that all callers share.
            let encoded = EncodedBatch {
                encoded: encode(&batch.entries)?,
                changes: batch.changes,
                links: Vec::with_capacity(batch.entries.len()),
                durability: batch.durability,
                space: batch.space,
            };
            let start = StartRecord::of(&batch.entries);
            drop(batch.entries);
            let commit_queue = self.commit_queue.as_ref().ok_or(StoreError::Closed)?;
            let (encoded, durable) = commit_queue.write(encoded).await?;
            let durable = durable?;
            if encoded.changes.iter().any(|change| matches!(change, StateChange::Approval(_))) {
                self.notifier.notify();
            }
            // The caller's thread names the writer, so that the writer thread allocates nothing for it.
            let positions = encoded.links.iter().map(|link| link.position(&self.writer)).collect();
            Ok(Committed::new(positions, durable, start))
        })
    }

    fn writer(&self) -> &Id {
        &self.writer
    }

    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.one(session::BY_ID, [id], session::read) })
    }

    fn sessions<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow<String>>, StoreError>> {
        Box::pin(async move {
            let [tenant, user, project] = owner.columns();
            self.read_pool.all(session::NEWEST, (sql_limit(limit), tenant, user, project), session::read)
        })
    }

    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>> {
        Box::pin(async move {
            let found = self.read_pool.one(call::RECENT, (session, tool, since.millis()), |row| {
                let count = row.get::<_, i64>(0)?.unsigned_abs();
                Ok(RecentCalls { count, oldest: stamp_or_none(row, 1)? })
            })?;
            Ok(found.unwrap_or(RecentCalls { count: 0, oldest: None }))
        })
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.one(call::BY_ID, [id], |row| call::read(&self.writer, row)) })
    }

    fn calls<'a>(
        &'a self,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<CallRow<String>>, StoreError>> {
        let (writer, wanted) = (self.writer.clone(), owner.clone());
        Box::pin(self.list(owner, move |read_pool| {
            let [tenant, user, project] = wanted.columns();
            let parameters = (sql_limit(limit), tenant, user, project);
            read_pool.all(&call::newest(), parameters, |row| call::read(&writer, row))
        }))
    }

    fn events<'a>(
        &'a self,
        call: &'a str,
        owner: &'a OwnerFilter,
    ) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>> {
        Box::pin(async move {
            let [tenant, user, project] = owner.columns();
            // A call that was never admitted has events and no row: it is of no owner.
            let is_owned = |_: &rusqlite::Row<'_>| Ok(());
            if *owner != OwnerFilter::Everyone
                && self.read_pool.one(&call::of_owner(), (call, tenant, user, project), is_owned)?.is_none()
            {
                return Ok(Vec::new());
            }
            let mut events = self.read_pool.all(timeline_event::IN_ROW, [call], timeline_event::read)?;
            events.extend(self.read_pool.all(timeline_event::OF_CALL, [call], timeline_event::read)?);
            Ok(events)
        })
    }

    fn violations_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            let found = self.read_pool.one(violation::COUNT, (session, since.millis()), count)?;
            Ok(found.unwrap_or(0).unsigned_abs())
        })
    }

    fn violations<'a>(
        &'a self,
        session: Option<&'a str>,
        owner: &'a OwnerFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>> {
        let (session, wanted) = (session.map(str::to_owned), owner.clone());
        Box::pin(self.list(owner, move |read_pool| {
            let [tenant, user, project] = wanted.columns();
            let limit = sql_limit(limit);
            match session {
                None => {
                    let parameters = (limit, tenant, user, project);
                    read_pool.all(&violation::newest(), parameters, violation::read)
                }
                Some(session) => {
                    let parameters = (limit, tenant, user, project, session);
                    read_pool.all(&violation::newest_of_session(), parameters, violation::read)
                }
            }
        }))
    }

    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>> {
        Box::pin(async move {
            let project = project.as_bytes().as_slice();
            self.read_pool.one(trust::OF_PROJECT, [project], trust::read)
        })
    }

    fn records(&self, query: RecordQuery) -> BoxFuture<'_, Result<Vec<LedgerRecord>, StoreError>> {
        // May read the whole ledger, so it does not run on a runtime worker.
        let (read_pool, writer) = (Arc::clone(&self.read_pool), self.writer.clone());
        Box::pin(async move {
            let select = move || read_pool.with(|connection| record::select(connection, &writer, &query));
            tokio::task::spawn_blocking(select).await.map_err(|_| StoreError::Closed)?
        })
    }

    fn record<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Result<Option<LedgerRecord>, StoreError>> {
        Box::pin(async move {
            let Some(seq) = self.own_seq(id) else { return Ok(None) };
            let read = |row: &rusqlite::Row<'_>| Ok(LedgerRecord { id: id.clone(), line: row.get(0)? });
            self.read_pool.one(record::LINE, [signed(seq)], read)
        })
    }

    fn approval_queries(&self) -> &dyn ApprovalQueries {
        self
    }

    fn admin(&self) -> &dyn LedgerAdmin {
        self
    }

    fn head(&self) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        Box::pin(async move {
            let found = self.read_pool.one(record::NEWEST, (), record::head)?;
            found.unwrap_or(Some(ChainHead::EMPTY)).ok_or_else(|| StoreError::Damaged {
                path: self.dir().database(),
                reason: "its newest record cannot be read".into(),
            })
        })
    }
}

impl SqliteStore {
    /// Reads a list. One of an owner may read a whole table until it has enough rows, so it does not run on a
    /// runtime worker.
    async fn list<T: Send + 'static>(
        &self,
        owner: &OwnerFilter,
        read: impl FnOnce(&ReadPool) -> Result<Vec<T>, StoreError> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        if *owner == OwnerFilter::Everyone {
            return read(&self.read_pool);
        }
        let read_pool = Arc::clone(&self.read_pool);
        tokio::task::spawn_blocking(move || read(&read_pool)).await.map_err(|_| StoreError::Closed)?
    }
}

/// Encodes entries; large arguments get their salts here.
fn encode(entries: &[Entry]) -> Result<Vec<EncodedEntry>, StoreError> {
    let mut failed = None;
    let mut draw = || {
        let mut salt = Salt::default();
        failed = getrandom::fill(&mut salt).err().or(failed);
        salt
    };
    let encoded = entries.iter().map(|entry| entry.encode_with_payloads(&mut draw)).collect();
    match failed {
        None => Ok(encoded),
        Some(error) => Err(StoreError::Io(format!("no salt for a payload: {error}"))),
    }
}
