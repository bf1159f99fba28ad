//! Writing a group of batches: one transaction under the folder's lock. The chain continues from the newest
//! record, which is read inside the transaction, so it does not matter which process wrote last.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use vambrace_ledger::{Encoded, Head, Id};

use crate::batch::{Change, Durability, Room, Sealed};
use crate::error::StoreError;
use crate::lock::FolderLock;
use crate::reserve::Reserve;
use crate::shared::Shared;
use crate::statements::{Refusal, Statements};
use crate::tide::Tide;
use crate::wal::Wal;

/// A process with fewer commits does not pay for a longer log.
const SETTLED: u64 = 24;
/// Past this many pages the log is copied back by a background thread. The little that came meanwhile is copied
/// between two groups: only then can the log start over under load. Past the other number all of it is.
const SOFT_PAGES: u32 = 5000;
const HARD_PAGES: u32 = 15_000;
/// On a full disk the log is copied back early, so that it can start over: half of the reserve.
const TIGHT_PAGES: u32 = 512;

/// A batch to be written, and room for where it was written.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) encoded: Vec<Encoded>,
    pub(crate) changes: Vec<Change>,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) durability: Durability,
    pub(crate) room: Room,
}

impl AsMut<Self> for Job {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// What it takes to write, besides the connection.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) database: PathBuf,
    pub(crate) writer: Id,
    pub(crate) lock: FolderLock,
    pub(crate) patience: Duration,
    pub(crate) wal: Wal,
    pub(crate) shared: Arc<Shared>,
    pub(crate) tide: Arc<Tide>,
    pub(crate) reserve: Reserve,
    /// The disk was full at the last group.
    pub(crate) tight: bool,
    /// The memory of the last line.
    pub(crate) buffer: Vec<u8>,
}

/// Why one batch of a written group was left out.
type Refused = Option<StoreError>;

/// A group that is committed and not yet synced.
#[derive(Debug)]
pub(crate) struct Written {
    refused: Vec<Refused>,
    commit: u64,
    /// What the most demanding of its batches asks for.
    durability: Durability,
}

/// What became of one batch: whether it is on the disk.
pub(crate) type Outcome = Result<bool, StoreError>;

impl Written {
    /// Waits for the disk where somebody asked for it; one outcome for each batch.
    pub(crate) fn settle(self, tide: &Tide) -> Vec<Outcome> {
        let settled = match self.durability {
            // What was committed lazily is synced with the rest, and then says so.
            Durability::Durable => tide.ensure(self.commit),
            Durability::Lazy => {
                tide.later(self.commit);
                Ok(())
            }
            Durability::WithNext => Ok(()),
        };
        let outcome = |refused: Refused| match (refused, &settled) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(self.durability == Durability::Durable),
            (None, Err(error)) => Err(error.clone()),
        };
        self.refused.into_iter().map(outcome).collect()
    }
}

impl Writer {
    /// Waits for its turn among the processes, and writes a group.
    pub(crate) fn serve<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Written, StoreError> {
        self.tide.check()?;
        self.lock.acquire(self.patience)?;
        self.serve_locked(connection, group)
    }

    /// Writes a group under the lock of the folder, which is given back. After a failure that leaves the disk in doubt
    /// nothing is accepted any more.
    pub(crate) fn serve_locked<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Written, StoreError> {
        let result = self.tide.check().and_then(|()| self.write(connection, group));
        self.lock.release();
        match result {
            Ok(refused) => {
                let commit = self.tide.committed();
                let sealed = |job: &mut J| job.as_mut().sealed.len() as u64;
                let records: u64 = group.iter_mut().map(sealed).sum();
                self.shared.recorded(records);
                self.shared.log_grew(self.wal.frames(), SOFT_PAGES);
                let asked = group.iter_mut().map(|job| job.as_mut().durability).max();
                Ok(Written { refused, commit, durability: asked.unwrap_or(Durability::WithNext) })
            }
            Err(error) => {
                if error.is_fatal() {
                    self.tide.poison(&error);
                }
                Err(error)
            }
        }
    }

    /// Whether [`Writer::tidy`] has anything to do.
    pub(crate) fn is_untidy(&self) -> bool {
        self.is_log_long() || self.shared.is_nearly_copied() || self.wants_longer_log()
    }

    fn is_log_long(&self) -> bool {
        self.wal.frames() > if self.tight { TIGHT_PAGES } else { HARD_PAGES }
    }

    fn wants_longer_log(&self) -> bool {
        !self.tight && self.tide.commits() >= SETTLED && self.wal.is_low()
    }

    /// What can wait until everybody has an answer.
    pub(crate) fn tidy(&mut self, connection: &Connection) {
        if self.shared.take_nearly_copied() || self.is_log_long() {
            // Not complete when somebody still reads the old state; the next group tries again.
            let copied = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
            self.doubt(copied.map_err(|error| StoreError::sqlite(&self.database, &error)));
        }
        if self.wants_longer_log() {
            let lengthened = self.lengthen(connection);
            self.doubt(lengthened);
        }
    }

    /// What is only a matter of speed may fail; a failed sync leaves everything in doubt all the same.
    fn doubt(&self, result: Result<(), StoreError>) {
        if let Err(error @ StoreError::Unsynced(_)) = result {
            self.tide.poison(&error);
        }
    }

    /// The whole group, or on a full disk what may use the reserve.
    fn write<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Vec<Refused>, StoreError> {
        let result = match self.reserve.ensure() {
            Ok(()) => match self.together(connection, group) {
                Err(error @ StoreError::Full(_)) if group.iter_mut().any(may_use_reserve) => {
                    self.reserve.release();
                    Err(error)
                }
                other => other,
            },
            short => short.map(|()| Vec::new()),
        };
        self.tight = matches!(result, Err(StoreError::Full(_)));
        match result {
            Err(error @ StoreError::Full(_)) => self.without_room(connection, group, &error),
            other => other,
        }
    }

    /// Only what may use the reserve.
    fn without_room<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
        full: &StoreError,
    ) -> Result<Vec<Refused>, StoreError> {
        let mut chosen: Vec<&mut J> =
            group.iter_mut().filter_map(|job| may_use_reserve(job).then_some(job)).collect();
        if chosen.is_empty() {
            return Err(full.clone());
        }
        let mut written = self.together(connection, &mut chosen)?.into_iter();
        let outcome = |job: &mut J| {
            if may_use_reserve(job) {
                return written.next().flatten();
            }
            job.as_mut().sealed.clear();
            Some(full.clone())
        };
        Ok(group.iter_mut().map(outcome).collect())
    }

    /// One transaction.
    fn together<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
    ) -> Result<Vec<Refused>, StoreError> {
        // Nearly every group is written without a savepoint, which would copy each page it touches. When a
        // batch is refused the whole group is written again, each batch on its own feet.
        // A pace counts the calls before it, so there each batch must stand after the one before.
        let paced = |job: &mut J| {
            job.as_mut().changes.iter().any(|change| matches!(change, Change::RequirePace { .. }))
        };
        let apart = group.iter_mut().any(paced);
        match self.attempt(connection, group, apart) {
            Err(error) if error.concerns_batch_only() => match group {
                [alone] => {
                    alone.as_mut().sealed.clear();
                    Ok(vec![Some(error)])
                }
                _ => self.attempt(connection, group, true),
            },
            other => other,
        }
    }

    fn attempt<J: AsMut<Job>>(
        &mut self,
        connection: &Connection,
        group: &mut [J],
        apart: bool,
    ) -> Result<Vec<Refused>, StoreError> {
        let result = self.transaction(&mut Statements::of(connection), group, apart);
        result.map_err(|refusal| {
            let error = self.sort(refusal);
            if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                return StoreError::Io(format!("{error}; and it could not be undone"));
            }
            error
        })
    }

    fn transaction<J: AsMut<Job>>(
        &mut self,
        statements: &mut Statements<'_>,
        group: &mut [J],
        apart: bool,
    ) -> Result<Vec<Refused>, Refusal> {
        statements.begin()?;
        let mut head = statements.head()?;
        let mut refused = Vec::with_capacity(group.len());
        if !apart {
            insert_calls(statements, group, head.seq)?;
        }
        for job in group {
            let job = job.as_mut();
            job.sealed.clear();
            if !apart {
                self.batch(statements, job, &mut head, Calls::Inserted)?;
                refused.push(None);
                continue;
            }
            statements.savepoint()?;
            let mut next = head;
            let done = self.batch(statements, job, &mut next, Calls::ToInsert);
            match done.map_err(|refusal| self.sort(refusal)) {
                Ok(()) => {
                    statements.release()?;
                    head = next;
                    refused.push(None);
                }
                Err(error) if error.concerns_batch_only() => {
                    statements.undo()?;
                    job.sealed.clear();
                    refused.push(Some(error));
                }
                Err(error) => return Err(Refusal::Store(error)),
            }
        }
        statements.commit()?;
        Ok(refused)
    }

    fn batch(
        &mut self,
        statements: &mut Statements<'_>,
        job: &mut Job,
        head: &mut Head,
        calls: Calls,
    ) -> Result<(), Refusal> {
        for encoded in &job.encoded {
            let seq = head.seq + 1;
            let buffer = std::mem::take(&mut self.buffer);
            let line = encoded.seal_in(buffer, &self.writer, seq, head.hash);
            let line = line.map_err(|error| Refusal::Store(error.into()))?;
            statements.append(seq, line.as_str())?;
            encoded.payloads().iter().try_for_each(|payload| statements.payload(seq, payload))?;
            let (prev_hash, event_hash) = (head.hash, line.event_hash());
            job.sealed.push(Sealed { seq, prev_hash, event_hash });
            *head = Head { seq, hash: event_hash };
            self.buffer = line.into_buffer();
        }
        let first = job.sealed.first().map(|sealed| sealed.seq);
        let last = job.sealed.last().map(|sealed| sealed.seq);
        for change in &job.changes {
            if calls == Calls::ToInsert || !matches!(change, Change::InsertCall(_)) {
                statements.change(change, first, last)?;
            }
        }
        Ok(())
    }

    fn sort(&self, refusal: Refusal) -> StoreError {
        match refusal {
            Refusal::Store(error) => error,
            Refusal::Sqlite(error) => StoreError::sqlite(&self.database, &error),
        }
    }

    fn lengthen(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if !self.lock.try_acquire()? {
            return Ok(());
        }
        let begun = Statements::of(connection).begin();
        let begun = begun.map_err(|error| StoreError::sqlite(&self.database, &error));
        let result = begun.and_then(|()| self.wal.lengthen());
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        self.lock.release();
        result
    }
}

fn may_use_reserve<J: AsMut<Job>>(job: &mut J) -> bool {
    job.as_mut().room == Room::Reserve
}

/// Whether the new calls of a batch are in the table already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Inserted,
    ToInsert,
}

/// The new calls of a group in the order of their ids, and so of their table: a page is visited once.
fn insert_calls<J: AsMut<Job>>(
    statements: &mut Statements<'_>,
    group: &mut [J],
    mut seq: u64,
) -> Result<(), Refusal> {
    let mut calls = Vec::with_capacity(group.len());
    for job in group {
        let job = &*job.as_mut();
        let records = job.encoded.len() as u64;
        let (first, last) = ((records > 0).then_some(seq + 1), (records > 0).then_some(seq + records));
        seq += records;
        for change in &job.changes {
            if let Change::InsertCall(row) = change {
                calls.push((&row.id, change, first, last));
            }
        }
    }
    calls.sort_unstable_by_key(|(id, ..)| *id);
    calls.into_iter().try_for_each(|(_, change, first, last)| statements.change(change, first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_the_next_sync_asks_for_none_and_is_taken_along() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tide = Tide::new(crate::files::OsDisk::shared(), file.path().to_owned());
        let settle = |durability: Durability| {
            let written = Written { refused: vec![None], commit: tide.committed(), durability };
            let outcome = written.settle(&tide).pop().unwrap().unwrap();
            (outcome, tide.due().is_some())
        };
        assert_eq!(settle(Durability::WithNext), (false, false));
        assert_eq!(settle(Durability::Lazy), (false, true));
        assert_eq!(settle(Durability::Durable), (true, false));
        assert_eq!(tide.syncs(), 1);
        // Closing: what nobody asked a sync for, once.
        assert_eq!(settle(Durability::WithNext), (false, false));
        tide.ensure_all();
        tide.ensure_all();
        assert_eq!(tide.syncs(), 2);
    }
}
