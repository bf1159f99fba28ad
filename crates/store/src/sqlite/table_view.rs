//! What a witness sees of the ledger in the database, and which of its replies stop the store.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use serde_json::Value;
use vambrace_ledger::{Digest, LedgerLine, SignedNote};

use crate::error::StoreError;
use crate::sqlite::rows::{checkpoints, signed};
use crate::sqlite::{merkle_tree, verify};
use crate::state_dir::StateDir;
use crate::witness::{CheckpointWitness, LedgerView, WitnessReply};

/// The ledger of a connection.
pub(crate) struct TableView<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Path,
}

impl TableView<'_> {
    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(self.database, error)
    }

    /// Submits the ledger to a witness; an error if the witness reports a rollback that is not acknowledged.
    pub(crate) fn submit_to(&self, witness: &dyn CheckpointWitness) -> Result<WitnessReply, StoreError> {
        let reply = witness.submit(self);
        match reply {
            WitnessReply::RolledBack(size) if size > self.acknowledged()? => {
                let reason =
                    format!("the witness has signed {size} records that this ledger does not continue");
                Err(StoreError::RolledBack { path: self.database.to_owned(), reason })
            }
            WitnessReply::RolledBack(size) => {
                let why = "it does not follow since a rollback was acknowledged; its operator has to forget this ledger";
                Ok(WitnessReply::Inconclusive(format!("{why} ({size} records)")))
            }
            other => Ok(other),
        }
    }

    /// The largest witness size that was acknowledged as another history. The row only points to the record;
    /// the record counts.
    fn acknowledged(&self) -> Result<u64, StoreError> {
        let sql = "SELECT line FROM ledger WHERE seq = (SELECT segment FROM projection WHERE name = 'witness.acknowledged')";
        let line = self.connection.query_row(sql, (), |row| row.get::<_, String>(0)).optional();
        let line = line.map_err(|error| self.sqlite(&error))?.unwrap_or_default();
        let sound = LedgerLine::read(line.as_bytes()).is_ok_and(|line| line.op == "recovery");
        let record: Value = serde_json::from_str(&line).unwrap_or_default();
        let is_one =
            sound && record.get("event_type").and_then(Value::as_str) == Some("rollback.acknowledged");
        Ok(record.get("tree_size").and_then(Value::as_u64).filter(|_| is_one).unwrap_or(0))
    }

    /// A witness of this size no longer stops us, according to a record. The caller is inside a transaction.
    pub(crate) fn acknowledge(&self, size: u64, record: u64) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO projection (name, seq, segment, offset)
                   VALUES ('witness.acknowledged', ?1, ?2, 0)";
        self.connection.execute(sql, (signed(size), signed(record))).map(drop)
    }
}

impl LedgerView for TableView<'_> {
    fn checkpoint(&self) -> Result<Option<SignedNote>, StoreError> {
        let row = checkpoints::newest(self.connection).map_err(|error| self.sqlite(&error))?;
        Ok(row.and_then(|row| SignedNote::parse(row.note.as_bytes()).ok()))
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError> {
        let damaged = || {
            let reason = "records that the proof needs are missing".to_owned();
            StoreError::Damaged { path: self.database.to_owned(), reason }
        };
        let ranges = vambrace_ledger::consistency(old, new).ok_or_else(damaged)?;
        let root = |range| {
            merkle_tree::root(self.connection, range)
                .map_err(|error| self.sqlite(&error))?
                .ok_or_else(damaged)
        };
        ranges.into_iter().map(root).collect()
    }
}

/// Submits a directory that is only read to a witness.
pub fn submit_to_witness(
    dir: &StateDir,
    witness: &dyn CheckpointWitness,
) -> Result<WitnessReply, StoreError> {
    let connection = verify::open(dir)?;
    Ok(witness.submit(&TableView { connection: &connection, database: &dir.database() }))
}
