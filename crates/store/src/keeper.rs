//! The thread for what nobody waits for: writing the segments, and copying a long log back into the database.
//! A failure here stops no call, since the table is the truth; it is kept to be shown.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::disk::SegmentFiles;
use crate::error::StoreError;
use crate::lock::FolderLock;
use crate::projection::Projection;
use crate::schema;
use crate::shared::Shared;

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Records were added.
    Project,
    /// The log is long.
    Checkpoint,
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
}

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
                Chore::Stop => {
                    self.project(Duration::from_secs(1));
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

    fn advance(&mut self) -> Result<(), StoreError> {
        let connection = open(&mut self.connection, &self.database)?;
        let mut projection = Projection {
            connection,
            database: self.database.clone(),
            files: self.files.as_mut(),
            max_segment: self.max_segment,
        };
        let Some(cursor) = projection.advance()? else { return Ok(()) };
        self.writer.acquire(Duration::from_secs(5))?;
        let stored = cursor.store(connection);
        self.writer.release();
        stored.map_err(|error| StoreError::sqlite(&self.database, &error))
    }

    fn checkpoint(&mut self) {
        let result = open(&mut self.connection, &self.database).and_then(|connection| {
            connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
                .map_err(|error| StoreError::sqlite(&self.database, &error))
        });
        match result {
            Ok(()) => self.shared.set_nearly_copied(),
            Err(error) => self.shared.set_fault(Some(error.to_string())),
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
