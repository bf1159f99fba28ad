//! Reads the records of a ledger that may not be writable: one that contradicts its checkpoints, a copy, a
//! directory without write permission. Creates, repairs, migrates and signs nothing.

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::Value;
use vambrace_ledger::{Id, line_fields};

use crate::error::StoreError;
use crate::record_id::RecordId;
use crate::record_query::{LedgerRecord, RecordQuery};
use crate::sqlite::rows::record;
use crate::sqlite::verify;
use crate::state_dir::StateDir;

/// A ledger opened for reading.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
    dir: StateDir,
    writer: Id,
}

impl LedgerReader {
    /// Opens the ledger of a directory.
    pub fn open(dir: StateDir) -> Result<Self, StoreError> {
        let connection = verify::open(&dir)?;
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&dir.database(), &error);
        let named = record::writer_name(&connection).map_err(sqlite)?;
        let named = named.and_then(|name| Id::new(&name).ok());
        let writer = match named {
            Some(writer) => writer,
            None => claimed_writer(&connection).map_err(sqlite)?,
        };
        Ok(Self { connection, dir, writer })
    }

    /// The records that match.
    pub fn records(&self, query: &RecordQuery) -> Result<Vec<LedgerRecord>, StoreError> {
        record::select(&self.connection, &self.writer, query).map_err(|error| self.sqlite(&error))
    }

    /// The newest record; number 0 if there is none.
    pub fn newest(&self) -> Result<RecordId, StoreError> {
        let seq = record::newest_seq(&self.connection).map_err(|error| self.sqlite(&error))?;
        Ok(RecordId::new(&self.writer, seq))
    }

    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.dir.database(), error)
    }
}

/// The writer according to the newest line: the row that names it is missing or damaged, and the records can be read
/// nevertheless.
fn claimed_writer(connection: &Connection) -> rusqlite::Result<Id> {
    let line = connection.query_row(record::NEWEST, (), |row| row.get::<_, String>(1)).optional()?;
    let fields = line.and_then(|line| line_fields(&line));
    let name = fields.as_ref().and_then(|fields| fields.get("writer")).and_then(Value::as_str);
    let name = name.and_then(|name| Id::new(name).ok());
    name.map_or_else(|| Id::new("unknown").map_err(|_| rusqlite::Error::InvalidQuery), Ok)
}
