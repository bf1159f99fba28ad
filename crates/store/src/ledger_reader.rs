//! Reads the records of a ledger that may not be writable: one that contradicts its checkpoints, a copy, a
//! directory without write permission. Creates, repairs, migrates and signs nothing.

use rusqlite::Connection;

use crate::error::StoreError;
use crate::read_pool::newest_seq;
use crate::record_query::{LedgerRecord, RecordQuery};
use crate::state_dir::StateDir;
use crate::verify;

/// A ledger opened for reading.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
    dir: StateDir,
}

impl LedgerReader {
    /// Opens the ledger of a directory.
    pub fn open(dir: StateDir) -> Result<Self, StoreError> {
        Ok(Self { connection: verify::open(&dir)?, dir })
    }

    /// The records that match.
    pub fn records(&self, query: &RecordQuery) -> Result<Vec<LedgerRecord>, StoreError> {
        query.run(&self.connection).map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
    }

    /// The number of the newest record; 0 if there is none.
    pub fn newest(&self) -> Result<u64, StoreError> {
        newest_seq(&self.connection).map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
    }
}
