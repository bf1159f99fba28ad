//! Writes a group of batches: one transaction under the writer lock of the directory. The chain continues from
//! the newest record, which is read inside the transaction, so it does not matter which process wrote last.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use vambrace_ledger::{ChainHead, Digest, EncodedEntry, Id};

use crate::batch::{ChainPosition, DiskSpace, Durability, StateChange};
use crate::error::StoreError;
use crate::lock::StateDirLock;
use crate::record_id::RecordId;
use crate::sqlite::reserve::Reserve;
use crate::sqlite::shared_state::SharedState;
use crate::sqlite::statements::{BatchRecords, StatementError, Statements};
use crate::sqlite::sync_state::SyncState;
use crate::sqlite::wal::Wal;

/// Commits after which a process extends the WAL; a process with fewer does not pay for it.
const MIN_COMMITS_TO_EXTEND: u64 = 24;
/// WAL pages after which the background worker checkpoints the WAL. The few pages written meanwhile are
/// checkpointed between two groups: only then can the WAL restart under load. Beyond `HARD_PAGES` the writer
/// checkpoints all of it.
const SOFT_PAGES: u32 = 5000;
const HARD_PAGES: u32 = 15_000;
/// On a full disk the WAL is checkpointed early, so that it can restart: half of the reserve.
const FULL_DISK_PAGES: u32 = 512;

/// A batch to write, with space for the links of its records.
#[derive(Debug)]
pub(crate) struct EncodedBatch {
    pub(crate) encoded: Vec<EncodedEntry>,
    pub(crate) changes: Vec<StateChange>,
    pub(crate) links: Vec<ChainLink>,
    pub(crate) durability: Durability,
    pub(crate) space: DiskSpace,
}

/// A record that was appended: its number, and its link in the chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainLink {
    pub(crate) seq: u64,
    pub(crate) prev_hash: Digest,
    pub(crate) event_hash: Digest,
}

impl ChainLink {
    /// The position in the chain of `writer`.
    pub(crate) fn position(self, writer: &Id) -> ChainPosition {
        let record = RecordId::new(writer, self.seq);
        ChainPosition { record, prev_hash: self.prev_hash, event_hash: self.event_hash }
    }
}

impl AsMut<Self> for EncodedBatch {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// Everything a write needs besides the connection.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    pub(crate) database: PathBuf,
    pub(crate) writer: Id,
    pub(crate) lock: StateDirLock,
    pub(crate) lock_timeout: Duration,
    pub(crate) wal: Wal,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) sync_state: Arc<SyncState>,
    pub(crate) reserve: Reserve,
    /// The disk was full at the last group.
    pub(crate) disk_full: bool,
    /// Buffer of the last line, reused for the next.
    pub(crate) buffer: Vec<u8>,
}

/// Why one batch of a group was rejected, if it was.
type Rejection = Option<StoreError>;

/// A group that is committed and not yet synced.
#[derive(Debug)]
pub(crate) struct CommittedGroup {
    rejections: Vec<Rejection>,
    commit: u64,
    /// The strongest durability that one of its batches requests.
    durability: Durability,
}

/// The result of one batch: whether it is on disk.
pub(crate) type BatchOutcome = Result<bool, StoreError>;

impl CommittedGroup {
    /// Syncs if a batch requested it; returns one outcome per batch.
    pub(crate) fn settle(self, sync_state: &SyncState) -> Vec<BatchOutcome> {
        let settled = match self.durability {
            // Lazy batches of the group are covered by the same sync and report it.
            Durability::Durable => sync_state.ensure_durable(self.commit),
            Durability::Lazy => {
                sync_state.defer(self.commit);
                Ok(())
            }
            Durability::NextSync => Ok(()),
        };
        let outcome = |rejection: Rejection| match (rejection, &settled) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(self.durability == Durability::Durable),
            (None, Err(error)) => Err(error.clone()),
        };
        self.rejections.into_iter().map(outcome).collect()
    }
}

impl GroupWriter {
    /// Waits for the writer lock of the directory, then writes a group.
    pub(crate) fn write_group<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<CommittedGroup, StoreError> {
        self.sync_state.check()?;
        self.lock.acquire(self.lock_timeout)?;
        self.write_group_locked(connection, group)
    }

    /// Writes a group; the caller holds the writer lock, which is released here. After a failure that leaves
    /// the disk state unknown the store accepts nothing more.
    pub(crate) fn write_group_locked<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<CommittedGroup, StoreError> {
        let result = self.sync_state.check().and_then(|()| self.write(connection, group));
        self.lock.release();
        match result {
            Ok(rejections) => {
                let commit = self.sync_state.record_commit();
                let records: u64 = group.iter_mut().map(|batch| batch.as_mut().links.len() as u64).sum();
                self.shared.add_records(records);
                self.shared.wal_grew(self.wal.frames(), SOFT_PAGES);
                let requested = group.iter_mut().map(|batch| batch.as_mut().durability).max();
                Ok(CommittedGroup {
                    rejections,
                    commit,
                    durability: requested.unwrap_or(Durability::NextSync),
                })
            }
            Err(error) => {
                if error.is_fatal() {
                    self.sync_state.poison(&error);
                }
                Err(error)
            }
        }
    }

    /// Whether [`GroupWriter::maintain_log`] has anything to do.
    pub(crate) fn needs_maintenance(&self) -> bool {
        self.is_log_long() || self.shared.is_wal_nearly_checkpointed() || self.should_extend_log()
    }

    fn is_log_long(&self) -> bool {
        self.wal.frames() > if self.disk_full { FULL_DISK_PAGES } else { HARD_PAGES }
    }

    fn should_extend_log(&self) -> bool {
        !self.disk_full && self.sync_state.commits() >= MIN_COMMITS_TO_EXTEND && self.wal.is_low()
    }

    /// Work that can wait until every caller has its answer.
    pub(crate) fn maintain_log(&mut self, connection: &Connection) {
        if self.shared.take_wal_nearly_checkpointed() || self.is_log_long() {
            // Incomplete while a reader still uses an older state; the next group tries again.
            let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
            self.poison_if_unsynced(copied.map_err(|error| StoreError::sqlite(&self.database, &error)));
        }
        if self.should_extend_log() {
            let extended = self.extend_log(connection);
            self.poison_if_unsynced(extended);
        }
    }

    /// This work is only about speed and may fail, but a failed sync still leaves the disk state unknown.
    fn poison_if_unsynced(&self, result: Result<(), StoreError>) {
        if let Err(error @ StoreError::Unsynced(_)) = result {
            self.sync_state.poison(&error);
        }
    }

    /// Writes the whole group, or on a full disk the batches that may use the reserve.
    fn write<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Vec<Rejection>, StoreError> {
        let result = match self.reserve.ensure() {
            Ok(()) => match self.write_once(connection, group) {
                Err(error @ StoreError::Full(_)) if group.iter_mut().any(may_use_reserve) => {
                    self.reserve.release();
                    Err(error)
                }
                other => other,
            },
            short => short.map(|()| Vec::new()),
        };
        self.disk_full = matches!(result, Err(StoreError::Full(_)));
        match result {
            Err(error @ StoreError::Full(_)) => self.write_from_reserve(connection, group, &error),
            other => other,
        }
    }

    /// Writes only the batches that may use the reserve.
    fn write_from_reserve<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
        full: &StoreError,
    ) -> Result<Vec<Rejection>, StoreError> {
        let mut chosen: Vec<&mut J> =
            group.iter_mut().filter_map(|batch| may_use_reserve(batch).then_some(batch)).collect();
        if chosen.is_empty() {
            return Err(full.clone());
        }
        let mut written = self.write_once(connection, &mut chosen)?.into_iter();
        let outcome = |batch: &mut J| {
            if may_use_reserve(batch) {
                return written.next().flatten();
            }
            batch.as_mut().links.clear();
            Some(full.clone())
        };
        Ok(group.iter_mut().map(outcome).collect())
    }

    /// Writes the group in one transaction.
    fn write_once<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Vec<Rejection>, StoreError> {
        // Nearly every group is written without a savepoint, which would copy each page it touches. If a batch
        // is rejected, the whole group is written again with one savepoint per batch. A call rate counts the
        // calls before it, so such a group needs savepoints from the start: each batch must see the one before.
        let has_rate_limit = |batch: &mut J| {
            batch.as_mut().changes.iter().any(|change| matches!(change, StateChange::RequireCallRate { .. }))
        };
        let savepoints = group.iter_mut().any(has_rate_limit);
        match self.attempt(connection, group, savepoints) {
            Err(error) if error.concerns_batch_only() => match group {
                [alone] => {
                    alone.as_mut().links.clear();
                    Ok(vec![Some(error)])
                }
                _ => self.attempt(connection, group, true),
            },
            other => other,
        }
    }

    fn attempt<J: AsMut<EncodedBatch>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
        savepoints: bool,
    ) -> Result<Vec<Rejection>, StoreError> {
        let result = self.transaction(&mut Statements::of(connection), group, savepoints);
        result.map_err(|error| {
            let error = self.store_error(error);
            if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                return StoreError::Io(format!("{error}; the rollback failed too"));
            }
            error
        })
    }

    fn transaction<J: AsMut<EncodedBatch>>(
        &mut self,
        statements: &mut Statements<'_>,
        group: &mut [J],
        savepoints: bool,
    ) -> Result<Vec<Rejection>, StatementError> {
        statements.begin()?;
        let mut head = statements.head()?;
        let mut rejections = Vec::with_capacity(group.len());
        if !savepoints {
            insert_calls(statements, &self.writer, group, head.seq)?;
        }
        for batch in group {
            let batch = batch.as_mut();
            batch.links.clear();
            if !savepoints {
                self.write_batch(statements, batch, &mut head, CallInserts::Inserted)?;
                rejections.push(None);
                continue;
            }
            statements.savepoint()?;
            let mut next = head;
            let done = self.write_batch(statements, batch, &mut next, CallInserts::ToInsert);
            match done.map_err(|error| self.store_error(error)) {
                Ok(()) => {
                    statements.release()?;
                    head = next;
                    rejections.push(None);
                }
                Err(error) if error.concerns_batch_only() => {
                    statements.undo()?;
                    batch.links.clear();
                    rejections.push(Some(error));
                }
                Err(error) => return Err(StatementError::Store(error)),
            }
        }
        statements.commit()?;
        Ok(rejections)
    }

    fn write_batch(
        &mut self,
        statements: &mut Statements<'_>,
        batch: &mut EncodedBatch,
        head: &mut ChainHead,
        calls: CallInserts,
    ) -> Result<(), StatementError> {
        for encoded in &batch.encoded {
            let seq = head.seq + 1;
            let buffer = std::mem::take(&mut self.buffer);
            let line = encoded.seal_in(buffer, &self.writer, seq, head.hash);
            let line = line.map_err(|error| StatementError::Store(error.into()))?;
            statements.append(seq, line.as_str())?;
            encoded.payloads().iter().try_for_each(|payload| statements.payload(seq, payload))?;
            let (prev_hash, event_hash) = (head.hash, line.event_hash());
            batch.links.push(ChainLink { seq, prev_hash, event_hash });
            *head = ChainHead { seq, hash: event_hash };
            self.buffer = line.into_buffer();
        }
        let records = BatchRecords {
            writer: &self.writer,
            first: batch.links.first().map(|link| link.seq),
            last: batch.links.last().map(|link| link.seq),
        };
        for change in &batch.changes {
            if calls == CallInserts::ToInsert || !matches!(change, StateChange::InsertCall(_)) {
                statements.change(change, records)?;
            }
        }
        Ok(())
    }

    fn store_error(&self, error: StatementError) -> StoreError {
        match error {
            StatementError::Store(error) => error,
            StatementError::Sqlite(error) => StoreError::sqlite(&self.database, &error),
        }
    }

    fn extend_log(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if !self.lock.try_acquire()? {
            return Ok(());
        }
        let begun = Statements::of(connection).begin();
        let begun = begun.map_err(|error| StoreError::sqlite(&self.database, &error));
        let result = begun.and_then(|()| self.wal.extend());
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        self.lock.release();
        result
    }
}

fn may_use_reserve<J: AsMut<EncodedBatch>>(batch: &mut J) -> bool {
    batch.as_mut().space == DiskSpace::Reserve
}

/// Whether the new calls of a batch are already inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallInserts {
    Inserted,
    ToInsert,
}

/// Inserts the new calls of a group in the order of their ids, which is the order of the table: each page is
/// visited once.
fn insert_calls<J: AsMut<EncodedBatch>>(
    statements: &mut Statements<'_>,
    writer: &Id,
    group: &mut [J],
    mut seq: u64,
) -> Result<(), StatementError> {
    let mut calls = Vec::with_capacity(group.len());
    for batch in group {
        let batch = &*batch.as_mut();
        let records = batch.encoded.len() as u64;
        let (first, last) = ((records > 0).then_some(seq + 1), (records > 0).then_some(seq + records));
        let span = BatchRecords { writer, first, last };
        seq += records;
        for change in &batch.changes {
            if let StateChange::InsertCall(row) = change {
                calls.push((&row.id, change, span));
            }
        }
    }
    calls.sort_unstable_by_key(|(id, ..)| *id);
    calls.into_iter().try_for_each(|(_, change, span)| statements.change(change, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_sync_commit_requests_no_sync_and_is_covered_by_the_next_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sync_state = SyncState::new(crate::disk::OsDisk::shared(), file.path().to_owned());
        let settle = |durability: Durability| {
            let written =
                CommittedGroup { rejections: vec![None], commit: sync_state.record_commit(), durability };
            let outcome = written.settle(&sync_state).pop().unwrap().unwrap();
            (outcome, sync_state.lazy_due_in().is_some())
        };
        assert_eq!(settle(Durability::NextSync), (false, false));
        assert_eq!(settle(Durability::Lazy), (false, true));
        assert_eq!(settle(Durability::Durable), (true, false));
        assert_eq!(sync_state.syncs(), 1);
        // Closing syncs, once, commits for which no sync was requested.
        assert_eq!(settle(Durability::NextSync), (false, false));
        sync_state.sync_all();
        sync_state.sync_all();
        assert_eq!(sync_state.syncs(), 2);
    }
}
