//! A witness: another party that signs our checkpoints and remembers how far we were. Which party that is, and
//! how it is reached, is not known here. A witness that has signed more than we have proves that the directory
//! was rolled back.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};
use serde_json::Value;
use vambrace_ledger::{Digest, LedgerLine, SignedNote};

use crate::checkpoints;
use crate::error::StoreError;
use crate::state_dir::StateDir;
use crate::statements::signed;
use crate::{merkle_tree, verify};

/// Delay before the witness is asked again after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// What a witness sees of a ledger.
pub trait LedgerView {
    /// The newest checkpoint, if there is one.
    fn checkpoint(&self) -> Result<Option<SignedNote>, StoreError>;
    /// The proof that the first `old` records are a prefix of the first `new`.
    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError>;
}

/// The reply of a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessReply {
    /// It signed; its signature line.
    Signed(String),
    /// It has signed a ledger of this size that ours does not continue.
    RolledBack(u64),
    /// No usable reply, and why.
    Inconclusive(String),
}

/// Signs checkpoints. Takes a few seconds at most.
pub trait CheckpointWitness: Send + Sync {
    /// Submits the newest checkpoint.
    fn submit(&self, ledger: &dyn LedgerView) -> WitnessReply;
}

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

/// When to ask the witness again.
#[derive(Debug, Default)]
pub(crate) struct WitnessSchedule {
    not_before: Option<Instant>,
}

impl WitnessSchedule {
    pub(crate) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    pub(crate) fn update(&mut self, reply: &WitnessReply) {
        let failed = matches!(reply, WitnessReply::Inconclusive(_));
        self.not_before = failed.then(|| Instant::now() + RETRY_DELAY);
    }
}
