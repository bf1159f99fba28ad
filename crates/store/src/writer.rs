//! The one thread of a process that writes. It takes what has queued up, writes all of it in one transaction
//! under the folder's lock, syncs once, and then answers everybody. While it syncs the next group gathers:
//! groups grow by themselves under load, and a single caller never waits for company.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use vambrace_ledger::{Encoded, Head, Id};

use crate::batch::{Change, Sealed};
use crate::error::StoreError;
use crate::lock::FolderLock;
use crate::sqlite::Shared;
use crate::statements::{Refusal, Statements};
use crate::wal::Wal;

/// What was committed lazily is synced after this time at the latest.
const LAZY: Duration = Duration::from_millis(90);
/// No group is larger, so that nobody's first answer waits for ever behind a flood.
const MOST: usize = 1024;
/// How often the processor is offered in vain before a small group is written after all.
const OFFERS: u32 = 4;
/// A process with fewer commits does not pay for a longer log.
const SETTLED: u64 = 24;
/// Past this many pages the log is copied back by a background thread, past the other by the writer itself:
/// only between two of its groups can the log start over.
const SOFT_PAGES: u32 = 2000;
const HARD_PAGES: u32 = 4000;

/// One batch and who waits for it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) durable: bool,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// What is to be written, and room for where it was written. It goes back with the answer: memory is freed by
/// the thread that took it, or the two fight for the allocator's locks.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) encoded: Vec<Encoded>,
    pub(crate) changes: Vec<Change>,
    pub(crate) sealed: Vec<Sealed>,
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) durable: Result<bool, StoreError>,
    pub(crate) work: Work,
}

impl Request {
    fn answer(self, durable: Result<bool, StoreError>) {
        // Nobody may be waiting any more; the batch is written all the same.
        let _ = self.answer.send(Answer { durable, work: self.work });
    }
}

/// The state of the writing thread.
pub(crate) struct Writer {
    pub(crate) database: PathBuf,
    pub(crate) writer: Id,
    pub(crate) lock: FolderLock,
    pub(crate) patience: Duration,
    pub(crate) wal: Wal,
    pub(crate) shared: Arc<Shared>,
    /// Why nothing is accepted any more.
    pub(crate) poison: Option<String>,
    /// Since when something is committed and not synced.
    pub(crate) unsynced: Option<Instant>,
    /// The memory of the last line.
    pub(crate) buffer: Vec<u8>,
    /// How many batches were in the last group.
    pub(crate) last: usize,
}

/// One for each batch of a group.
type Outcome = Result<(), StoreError>;

impl Writer {
    /// Writes until nobody can ask any more.
    pub(crate) fn run(mut self, connection: &Connection, queue: &Receiver<Request>) {
        let mut statements = match Statements::prepare(connection) {
            Ok(statements) => statements,
            Err(error) => {
                let error = StoreError::sqlite(&self.database, &error);
                while let Ok(request) = queue.recv() {
                    request.answer(Err(error.clone()));
                }
                return;
            }
        };
        let mut group = Vec::new();
        while self.gather(queue, &mut group) {
            self.serve(connection, &mut statements, &mut group);
        }
    }

    /// Waits for work; syncs what was committed lazily when its time has come. False when it is all over.
    fn gather(&mut self, queue: &Receiver<Request>, group: &mut Vec<Request>) -> bool {
        loop {
            let first = match self.unsynced {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) => queue.recv_timeout(LAZY.saturating_sub(since.elapsed())),
            };
            match first {
                Ok(request) => {
                    group.push(request);
                    group.extend(queue.try_iter().take(MOST - 1));
                    self.let_others_come(queue, group);
                    return true;
                }
                Err(RecvTimeoutError::Timeout) => self.sync_lazily(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.sync_lazily();
                    return false;
                }
            }
        }
    }

    /// Those who were just answered are likely to ask again: while fewer than half of them have, the processor
    /// is offered to them. No clock is involved, and one caller alone never waits.
    fn let_others_come(&mut self, queue: &Receiver<Request>, group: &mut Vec<Request>) {
        let mut offers = 0;
        while group.len() * 2 < self.last && offers < OFFERS {
            std::thread::yield_now();
            let before = group.len();
            group.extend(queue.try_iter().take(MOST - before));
            offers = if group.len() > before { 0 } else { offers + 1 };
        }
        self.last = group.len();
    }

    fn sync_lazily(&mut self) {
        if self.unsynced.take().is_some()
            && self.poison.is_none()
            && let Err(error) = self.sync()
        {
            self.poison = Some(error.to_string());
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.wal.sync()?;
        self.unsynced = None;
        self.shared.synced();
        Ok(())
    }

    fn serve(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        group: &mut Vec<Request>,
    ) {
        let result = match &self.poison {
            Some(why) => Err(StoreError::Poisoned(why.clone())),
            None => self.write(connection, statements, group.as_mut_slice()).and_then(|outcomes| {
                // What was committed lazily is synced with the rest, and then says so.
                let durable = group.iter().any(|request| request.durable);
                if durable {
                    self.sync()?;
                } else {
                    self.unsynced.get_or_insert_with(Instant::now);
                }
                Ok((outcomes, durable))
            }),
        };
        match result {
            Ok((outcomes, durable)) => {
                self.shared
                    .committed(group.iter().map(|request| request.work.sealed.len() as u64).sum());
                for (request, outcome) in group.drain(..).zip(outcomes) {
                    request.answer(outcome.map(|()| durable));
                }
                self.tidy(connection, statements);
            }
            Err(error) => {
                if error.is_fatal() && self.poison.is_none() {
                    self.poison = Some(error.to_string());
                }
                for request in group.drain(..) {
                    request.answer(Err(error.clone()));
                }
            }
        }
    }

    /// One transaction for the whole group.
    fn write(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        group: &mut [Request],
    ) -> Result<Vec<Outcome>, StoreError> {
        self.lock.acquire(self.patience)?;
        // Nearly every group is written without a savepoint, which would copy each page it touches. When a
        // batch is refused the whole group is written again, each batch on its own feet.
        let result = match self.attempt(connection, statements, group, false) {
            Err(error) if error.concerns_batch_only() => match group {
                [alone] => {
                    alone.work.sealed.clear();
                    Ok(vec![Err(error)])
                }
                _ => self.attempt(connection, statements, group, true),
            },
            other => other,
        };
        self.lock.release();
        result
    }

    fn attempt(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        group: &mut [Request],
        apart: bool,
    ) -> Result<Vec<Outcome>, StoreError> {
        let result = self.transaction(statements, group, apart);
        result.map_err(|refusal| {
            let error = self.sort(refusal);
            if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                return StoreError::Io(format!("{error}; and it could not be undone"));
            }
            error
        })
    }

    fn transaction(
        &mut self,
        statements: &mut Statements<'_>,
        group: &mut [Request],
        apart: bool,
    ) -> Result<Vec<Outcome>, Refusal> {
        statements.begin()?;
        let before = statements.head()?;
        let mut head = before;
        let mut outcomes = Vec::with_capacity(group.len());
        for Request { work, .. } in group {
            work.sealed.clear();
            if !apart {
                self.batch(statements, work, &mut head)?;
                outcomes.push(Ok(()));
                continue;
            }
            statements.savepoint()?;
            let mut next = head;
            match self.batch(statements, work, &mut next).map_err(|refusal| self.sort(refusal)) {
                Ok(()) => {
                    statements.release()?;
                    head = next;
                    outcomes.push(Ok(()));
                }
                Err(error) if error.concerns_batch_only() => {
                    statements.undo()?;
                    work.sealed.clear();
                    outcomes.push(Err(error));
                }
                Err(error) => return Err(Refusal::Store(error)),
            }
        }
        if head != before {
            statements.set_head(head)?;
        }
        statements.commit()?;
        Ok(outcomes)
    }

    fn batch(
        &mut self,
        statements: &mut Statements<'_>,
        work: &mut Work,
        head: &mut Head,
    ) -> Result<(), Refusal> {
        for encoded in &work.encoded {
            let seq = head.seq + 1;
            let buffer = std::mem::take(&mut self.buffer);
            let line = encoded.seal_in(buffer, &self.writer, seq, head.hash);
            let line = line.map_err(|error| Refusal::Store(error.into()))?;
            statements.append(seq, line.as_str())?;
            let (prev_hash, event_hash) = (head.hash, line.event_hash());
            work.sealed.push(Sealed { seq, prev_hash, event_hash });
            *head = Head { seq, hash: event_hash };
            self.buffer = line.into_buffer();
        }
        let first = work.sealed.first().map(|sealed| sealed.seq);
        let last = work.sealed.last().map(|sealed| sealed.seq);
        for change in &work.changes {
            statements.change(change, first, last)?;
        }
        Ok(())
    }

    fn sort(&self, refusal: Refusal) -> StoreError {
        match refusal {
            Refusal::Store(error) => error,
            Refusal::Sqlite(error) => StoreError::sqlite(&self.database, &error),
        }
    }

    /// What can wait until everybody has an answer.
    fn tidy(&mut self, connection: &Connection, statements: &mut Statements<'_>) {
        self.shared.changed();
        let pages = self.wal.frames();
        if pages > HARD_PAGES {
            // Not complete when somebody still reads the old state; the next group tries again.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
        } else {
            self.shared.log_grew(pages, SOFT_PAGES);
        }
        if self.shared.commits() >= SETTLED && self.wal.is_low() {
            // Only a matter of speed: a failure shows when the log is really written.
            let _ = self.lengthen(connection, statements);
        }
    }

    fn lengthen(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
    ) -> Result<(), StoreError> {
        if !self.lock.try_acquire()? {
            return Ok(());
        }
        let begun = statements.begin().map_err(|error| StoreError::sqlite(&self.database, &error));
        let result = begun.and_then(|()| self.wal.lengthen());
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        self.lock.release();
        result
    }
}
