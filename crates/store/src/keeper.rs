//! The thread for what nobody waits for: writing the segments, growing and signing the tree, and copying a long log
//! back into the database. A failure here stops no call, since the table is the truth, and is kept to be shown; but
//! a table that was changed behind our back is not written any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use vambrace_core::clock::Clock;
use vambrace_ledger::{Checkpoint, Id, Note, VerifyKey};

use crate::checkpoints::Copies;
use crate::disk::SegmentFiles;
use crate::error::StoreError;
use crate::growth::{Grown, Growth};
use crate::keys::{self, KeyFiles};
use crate::lock::FolderLock;
use crate::projection::{Cursor, Projection};
use crate::read::newest_seq;
use crate::rotation;
use crate::schema;
use crate::seal;
use crate::shared::Shared;
use crate::tide::Tide;
use crate::witness::{Heard, Turn, View, Witness};

/// What there is to do.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Records were added.
    Project,
    /// The log is long.
    Checkpoint,
    /// Somebody waits for segments and checkpoint to be up to date.
    CatchUp(std::sync::mpsc::SyncSender<Result<(), StoreError>>),
    /// A new key is to sign from now on.
    Rotate(std::sync::mpsc::SyncSender<Result<VerifyKey, StoreError>>),
    /// The store is being closed.
    Stop,
}

/// The state of the thread.
pub(crate) struct Keeper {
    pub(crate) database: PathBuf,
    pub(crate) connection: Option<Connection>,
    pub(crate) files: Box<dyn SegmentFiles>,
    pub(crate) mirror: FolderLock,
    pub(crate) writer: FolderLock,
    pub(crate) interval: Duration,
    pub(crate) max_segment: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) tide: Arc<Tide>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: Id,
    pub(crate) keys: KeyFiles,
    pub(crate) copies: Copies,
    pub(crate) witness: Option<Arc<dyn Witness>>,
    pub(crate) turn: Turn,
    /// The newest checkpoint that this process has seen or signed.
    pub(crate) seen: Option<Checkpoint>,
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Keeper {
    /// Works until it is told to stop; catches up first.
    pub(crate) fn run(mut self, chores: &Receiver<Chore>) {
        let mut due = Some(Instant::now());
        loop {
            let chore = match due {
                None => chores.recv().unwrap_or(Chore::Stop),
                Some(at) => match chores.recv_timeout(at.saturating_duration_since(Instant::now())) {
                    Ok(chore) => chore,
                    Err(RecvTimeoutError::Disconnected) => Chore::Stop,
                    Err(RecvTimeoutError::Timeout) => {
                        // Whoever holds the lock may not have seen our records: come again.
                        due = if self.project(Duration::ZERO) { None } else { self.later() };
                        continue;
                    }
                },
            };
            match chore {
                Chore::Project => due = due.or_else(|| self.later()),
                Chore::Checkpoint => self.checkpoint(),
                Chore::CatchUp(answer) => {
                    let done = self.caught_up();
                    // What comes from now on says so.
                    due = due.filter(|_| done.is_err());
                    let _ = answer.send(done);
                }
                Chore::Rotate(answer) => {
                    let _ = answer.send(self.rotate());
                }
                Chore::Stop => {
                    self.project(PATIENCE);
                    return;
                }
            }
        }
    }

    fn later(&self) -> Option<Instant> {
        Some(Instant::now() + self.interval)
    }

    /// Brings the segments up to date. False when somebody else is at it.
    fn project(&mut self, patience: Duration) -> bool {
        self.shared.seen();
        let taken = if patience.is_zero() {
            self.mirror.try_acquire()
        } else {
            self.mirror.acquire(patience).map(|()| true)
        };
        let result = match taken {
            Ok(false) => return false,
            Ok(true) => {
                let result = self.advance();
                self.mirror.release();
                result
            }
            Err(error) => Err(error),
        };
        self.shared.set_fault(result.err().map(|error| error.to_string()));
        true
    }

    /// Everything that is there now is in a segment and signed.
    fn caught_up(&mut self) -> Result<(), StoreError> {
        self.shared.seen();
        self.mirror.acquire(PATIENCE)?;
        let result = self.advance();
        self.mirror.release();
        result
    }

    /// What is there is signed by the old key, what comes by the new one.
    fn rotate(&mut self) -> Result<VerifyKey, StoreError> {
        self.mirror.acquire(PATIENCE)?;
        let result = self.advance().and_then(|()| self.change_key()).and_then(|key| {
            self.advance()?;
            Ok(key)
        });
        self.mirror.release();
        result
    }

    fn change_key(&mut self) -> Result<VerifyKey, StoreError> {
        let connection = open(&mut self.connection, &self.database)?;
        self.writer.acquire(PATIENCE)?;
        let key =
            rotation::rotate(connection, &self.database, &self.id, &self.keys, &self.tide, self.clock.now());
        self.writer.release();
        key
    }

    /// Segments, tree and checkpoint, up to the newest record that is on the disk.
    fn advance(&mut self) -> Result<(), StoreError> {
        while self.turn()? {}
        Ok(())
    }

    /// A part of it; true when there may be more to do.
    pub(crate) fn turn(&mut self) -> Result<bool, StoreError> {
        // Changed behind our back, or in doubt on the disk: nothing more is accepted on top of it.
        self.step().inspect_err(|error| {
            if matches!(error, StoreError::Damaged { .. } | StoreError::Unsynced(_)) {
                self.tide.poison(error);
            }
        })
    }

    fn step(&mut self) -> Result<bool, StoreError> {
        let connection = open(&mut self.connection, &self.database)?;
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&self.database, &error);
        let upto = newest_seq(connection).map_err(sqlite)?;
        // What is told elsewhere must not be lost by a power cut here.
        self.tide.flush()?;
        let named = keys::newest(connection).map_err(sqlite)?.unwrap_or_default();
        let key = match self.keys.current()?.filter(|key| key.verify_key().to_string() == named) {
            Some(key) => key,
            // Whoever began to change the key is gone, for the lock of the mirror is ours.
            None => {
                self.writer.acquire(PATIENCE)?;
                let key = rotation::finish(&self.keys, &named, &self.tide);
                self.writer.release();
                key?
            }
        };
        let now = self.clock.now();
        // One look at each line serves both; they have come equally far unless something went wrong before.
        let seen = self.seen.as_ref();
        let mut growth = Growth::begin(connection, &self.database, &key, seen, upto, now)?;
        let mut projection = Projection {
            connection,
            database: self.database.clone(),
            files: self.files.as_mut(),
            upto: growth.upto(),
        };
        let cursor = projection.advance(&mut |seq, line| growth.take(seq, line))?;
        let grown = growth.finish()?;
        if cursor.is_none() && grown.is_none() {
            return Ok(false);
        }
        // The file first: whoever finds the row finds the file too.
        let newest = grown.as_ref().and_then(Grown::newest);
        let signed = newest.map(Checkpoint::of).transpose();
        let signed = signed.map_err(|error| StoreError::Io(error.to_string()))?;
        if let (Some(signed), Some(note)) = (&signed, newest) {
            self.copies.replace(signed, note, &self.database)?;
        }
        self.writer.acquire(PATIENCE)?;
        let stored = connection.unchecked_transaction().and_then(|transaction| {
            cursor.map_or(Ok(()), |cursor| cursor.store(&transaction))?;
            grown.as_ref().map_or(Ok(()), |grown| grown.store(&transaction))?;
            transaction.commit()
        });
        // Only what the table has was seen: where storing fails, for want of room or of the lock, it is signed again.
        if stored.is_ok() {
            self.seen = signed.or(self.seen.take());
        }
        let due =
            stored.and_then(|()| seal::is_due(connection, Cursor::read(connection)?, self.max_segment, now));
        let sealed = match due {
            Ok(true) => {
                seal::seal(connection, &self.database, &self.id, &key.verify_key(), now).map(|()| true)
            }
            Ok(false) => Ok(false),
            Err(error) => Err(sqlite(error)),
        };
        self.writer.release();
        let sealed = sealed?;
        if let Some(note) = newest {
            self.show(note)?;
        }
        Ok(sealed || grown.is_some_and(|grown| grown.size() < upto))
    }

    /// Shows the witness the newest checkpoint, and keeps its signature beside ours.
    fn show(&mut self, note: &Note) -> Result<(), StoreError> {
        let Some(witness) = self.witness.as_ref().filter(|_| self.turn.has_come()) else { return Ok(()) };
        let connection = open(&mut self.connection, &self.database)?;
        let heard = View { connection, database: &self.database }.ask(witness.as_ref());
        let heard = heard.inspect_err(|error| self.tide.poison(error))?;
        self.turn.took(&heard);
        self.shared.set_witness(&heard);
        match heard {
            Heard::Signed(line) => match note.clone().add_lines(&line) {
                Ok(both) => self.copies.publish(&both.to_string()),
                Err(_) => Ok(()),
            },
            Heard::RolledBack(_) | Heard::Nothing(_) => Ok(()),
        }
    }

    fn checkpoint(&mut self) {
        let result = open(&mut self.connection, &self.database).and_then(|connection| {
            connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
                .map_err(|error| StoreError::sqlite(&self.database, &error))
        });
        match result {
            Ok(()) => self.shared.set_nearly_copied(),
            Err(error) => {
                if matches!(error, StoreError::Unsynced(_)) {
                    self.tide.poison(&error);
                }
                self.shared.set_fault(Some(error.to_string()));
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
