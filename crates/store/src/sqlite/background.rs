//! The background worker: writes the segments, extends and signs the tree, and checkpoints a long WAL. A
//! failure here stops no call, since the table is the source of truth, and is kept for `vambrace doctor`; but a
//! table that was changed from outside is not written any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use vambrace_core::clock::Clock;
use vambrace_ledger::{Checkpoint, Id, SignedNote, VerifyKey};

use crate::checkpoints::CheckpointFiles;
use crate::error::StoreError;
use crate::ledger_keys::LedgerKeyFiles;
use crate::lock::StateDirLock;
use crate::segment_files::SegmentFiles;
use crate::sqlite::key_rotation;
use crate::sqlite::rows::ledger_keys;
use crate::sqlite::rows::record::newest_seq;
use crate::sqlite::schema;
use crate::sqlite::segment_seal;
use crate::sqlite::segment_writer::{SegmentCursor, SegmentWriter};
use crate::sqlite::shared_state::SharedState;
use crate::sqlite::sync_state::SyncState;
use crate::sqlite::table_view::TableView;
use crate::sqlite::tree_builder::{BuiltTree, TreeBuilder};
use crate::witness::{CheckpointWitness, WitnessReply, WitnessSchedule};

/// A task of the background worker.
#[derive(Debug)]
pub(crate) enum BackgroundTask {
    /// Records were added.
    WriteSegments,
    /// The WAL is long.
    CheckpointWal,
    /// A caller waits for segments and checkpoint to be up to date.
    CatchUp(std::sync::mpsc::SyncSender<Result<(), StoreError>>),
    /// Rotate the ledger key.
    RotateKey(std::sync::mpsc::SyncSender<Result<VerifyKey, StoreError>>),
    /// The store is being closed.
    Stop,
}

/// State of the background worker.
pub(crate) struct BackgroundWorker {
    pub(crate) database: PathBuf,
    pub(crate) connection: Option<Connection>,
    pub(crate) files: Box<dyn SegmentFiles>,
    pub(crate) segment_lock: StateDirLock,
    pub(crate) writer_lock: StateDirLock,
    pub(crate) interval: Duration,
    pub(crate) max_segment: u64,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) sync_state: Arc<SyncState>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: Id,
    pub(crate) keys: LedgerKeyFiles,
    pub(crate) checkpoint_files: CheckpointFiles,
    pub(crate) witness: Option<Arc<dyn CheckpointWitness>>,
    pub(crate) witness_schedule: WitnessSchedule,
    /// The newest checkpoint that this process has read or signed.
    pub(crate) seen: Option<Checkpoint>,
}

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

impl BackgroundWorker {
    /// Runs until it is stopped; catches up first.
    pub(crate) fn run(mut self, tasks: &Receiver<BackgroundTask>) {
        let mut due = Some(Instant::now());
        loop {
            let task = match due {
                None => tasks.recv().unwrap_or(BackgroundTask::Stop),
                Some(at) => match tasks.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(task) => task,
                    Err(RecvTimeoutError::Disconnected) => BackgroundTask::Stop,
                    Err(RecvTimeoutError::Timeout) => {
                        // The process that holds the lock may not have seen our records: try again later.
                        due = if self.write_segments(Duration::ZERO) { None } else { self.next_run() };
                        continue;
                    }
                },
            };
            match task {
                BackgroundTask::WriteSegments => due = due.or_else(|| self.next_run()),
                BackgroundTask::CheckpointWal => self.checkpoint(),
                BackgroundTask::CatchUp(answer) => {
                    let done = self.catch_up();
                    // Records that come from now on wake the worker again.
                    due = due.filter(|_| done.is_err());
                    let _ = answer.send(done);
                }
                BackgroundTask::RotateKey(answer) => {
                    let _ = answer.send(self.rotate());
                }
                BackgroundTask::Stop => {
                    self.write_segments(LOCK_TIMEOUT);
                    return;
                }
            }
        }
    }

    fn next_run(&self) -> Option<Instant> {
        Some(Instant::now() + self.interval)
    }

    /// Brings the segments up to date. `false` if another process is doing so.
    fn write_segments(&mut self, lock_timeout: Duration) -> bool {
        self.shared.clear_dirty();
        let taken = if lock_timeout.is_zero() {
            self.segment_lock.try_acquire()
        } else {
            self.segment_lock.acquire(lock_timeout).map(|()| true)
        };
        let result = match taken {
            Ok(false) => return false,
            Ok(true) => {
                let result = self.advance_all();
                self.segment_lock.release();
                result
            }
            Err(error) => Err(error),
        };
        self.shared.set_segment_error(result.err().map(|error| error.to_string()));
        true
    }

    /// Brings segments and checkpoint up to date with the newest record.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        self.shared.clear_dirty();
        self.segment_lock.acquire(LOCK_TIMEOUT)?;
        let result = self.advance_all();
        self.segment_lock.release();
        result
    }

    /// The old key signs what is there, the new one what follows.
    fn rotate(&mut self) -> Result<VerifyKey, StoreError> {
        self.segment_lock.acquire(LOCK_TIMEOUT)?;
        let result = self.advance_all().and_then(|()| self.change_key()).and_then(|key| {
            self.advance_all()?;
            Ok(key)
        });
        self.segment_lock.release();
        result
    }

    fn change_key(&mut self) -> Result<VerifyKey, StoreError> {
        let connection = open(&mut self.connection, &self.database)?;
        self.writer_lock.acquire(LOCK_TIMEOUT)?;
        let key = key_rotation::rotate(
            connection,
            &self.database,
            &self.id,
            &self.keys,
            &self.sync_state,
            self.clock.now(),
        );
        self.writer_lock.release();
        key
    }

    /// Advances segments, tree and checkpoint to the newest durable record.
    fn advance_all(&mut self) -> Result<(), StoreError> {
        while self.run_once()? {}
        Ok(())
    }

    /// One step of that; `true` if there may be more to do.
    pub(crate) fn run_once(&mut self) -> Result<bool, StoreError> {
        // Changed from outside, or the disk state is unknown: accept nothing more on top of it.
        self.run_step().inspect_err(|error| {
            if matches!(error, StoreError::Damaged { .. } | StoreError::Unsynced(_)) {
                self.sync_state.poison(error);
            }
        })
    }

    fn run_step(&mut self) -> Result<bool, StoreError> {
        let connection = open(&mut self.connection, &self.database)?;
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&self.database, &error);
        let upto = newest_seq(connection).map_err(sqlite)?;
        // A power cut here must not lose what segments and checkpoints already contain.
        self.sync_state.flush()?;
        let named = ledger_keys::newest(connection).map_err(sqlite)?.unwrap_or_default();
        let key = match self.keys.current()?.filter(|key| key.verify_key().to_string() == named) {
            Some(key) => key,
            // The process that began to rotate the key is gone, since we hold the segment lock.
            None => {
                self.writer_lock.acquire(LOCK_TIMEOUT)?;
                let key = key_rotation::finish_rotation(&self.keys, &named, &self.sync_state);
                self.writer_lock.release();
                key?
            }
        };
        let now = self.clock.now();
        // One pass over the lines serves tree and segments; both are equally far unless something failed
        // before.
        let seen = self.seen.as_ref();
        let mut builder = TreeBuilder::begin(connection, &self.database, &key, seen, upto, now)?;
        let mut segment_writer = SegmentWriter {
            connection,
            database: self.database.clone(),
            files: self.files.as_mut(),
            upto: builder.upto(),
        };
        let cursor = segment_writer.advance(&mut |seq, line| builder.take(seq, line))?;
        let built = builder.finish()?;
        if cursor.is_none() && built.is_none() {
            return Ok(false);
        }
        // The file first: a reader that finds the row also finds the file.
        let newest = built.as_ref().and_then(BuiltTree::newest);
        let signed = newest.map(Checkpoint::of).transpose();
        let signed = signed.map_err(|error| StoreError::Io(error.to_string()))?;
        if let (Some(signed), Some(note)) = (&signed, newest) {
            self.checkpoint_files.replace(signed, note, &self.database)?;
        }
        self.writer_lock.acquire(LOCK_TIMEOUT)?;
        let stored = connection.unchecked_transaction().and_then(|transaction| {
            cursor.map_or(Ok(()), |cursor| cursor.store(&transaction))?;
            built.as_ref().map_or(Ok(()), |built| built.store(&transaction))?;
            transaction.commit()
        });
        // Only what is stored counts as seen: if storing fails, for lack of space or of the lock, it is signed
        // again.
        if stored.is_ok() {
            self.seen = signed.or(self.seen.take());
        }
        let due = stored.and_then(|()| {
            segment_seal::should_seal(connection, SegmentCursor::read(connection)?, self.max_segment, now)
        });
        let sealed = match due {
            Ok(true) => segment_seal::seal(connection, &self.database, &self.id, &key.verify_key(), now)
                .map(|()| true),
            Ok(false) => Ok(false),
            Err(error) => Err(sqlite(error)),
        };
        self.writer_lock.release();
        let sealed = sealed?;
        if let Some(note) = newest {
            self.show(note)?;
        }
        Ok(sealed || built.is_some_and(|built| built.size() < upto))
    }

    /// Submits the newest checkpoint to the witness, and keeps its signature beside ours.
    fn show(&mut self, note: &SignedNote) -> Result<(), StoreError> {
        let Some(witness) = self.witness.as_ref().filter(|_| self.witness_schedule.is_due()) else {
            return Ok(());
        };
        let connection = open(&mut self.connection, &self.database)?;
        let reply = TableView { connection, database: &self.database }.submit_to(witness.as_ref());
        let reply = reply.inspect_err(|error| self.sync_state.poison(error))?;
        self.witness_schedule.update(&reply);
        self.shared.set_witness(&reply);
        match reply {
            WitnessReply::Signed(line) => match note.clone().add_lines(&line) {
                Ok(both) => self.checkpoint_files.publish(&both.to_string()),
                Err(_) => Ok(()),
            },
            WitnessReply::RolledBack(_) | WitnessReply::Inconclusive(_) => Ok(()),
        }
    }

    fn checkpoint(&mut self) {
        let result = open(&mut self.connection, &self.database).and_then(|connection| {
            connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
                .map_err(|error| StoreError::sqlite(&self.database, &error))
        });
        match result {
            Ok(()) => self.shared.set_wal_nearly_checkpointed(),
            Err(error) => {
                if matches!(error, StoreError::Unsynced(_)) {
                    self.sync_state.poison(&error);
                }
                self.shared.set_segment_error(Some(error.to_string()));
            }
        }
    }
}

fn open<'c>(
    connection: &'c mut Option<Connection>,
    database: &std::path::Path,
) -> Result<&'c Connection, StoreError> {
    match connection {
        Some(connection) => Ok(connection),
        empty => Ok(empty.insert(schema::open_again(database)?)),
    }
}
