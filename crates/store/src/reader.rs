//! The records of a ledger that nobody may be able to add to: one that contradicts its checkpoints, a copy, a folder
//! without write permission. Nothing is made, repaired, migrated or signed.

use rusqlite::Connection;

use crate::error::StoreError;
use crate::read::newest_seq;
use crate::record::{Query, Record};
use crate::state_dir::StateDir;
use crate::verify;

/// A ledger to look at.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    dir: StateDir,
}

impl Reader {
    /// Opens what is there.
    pub fn open(dir: StateDir) -> Result<Self, StoreError> {
        Ok(Self { connection: verify::open(&dir)?, dir })
    }

    /// The records that fit.
    pub fn records(&self, query: &Query) -> Result<Vec<Record>, StoreError> {
        query.run(&self.connection).map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
    }

    /// The number of the newest record; 0 when there is none.
    pub fn newest(&self) -> Result<u64, StoreError> {
        newest_seq(&self.connection).map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
    }
}
