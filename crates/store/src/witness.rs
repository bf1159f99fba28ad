//! Somebody elsewhere who signs our checkpoints and remembers how far we were. Who that is and how it is reached is
//! not known here; what it says is: a witness that has seen more than we have says that the folder was set back.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};
use serde_json::Value;
use vambrace_ledger::{Digest, Line, Note};

use crate::checkpoints;
use crate::error::StoreError;
use crate::state_dir::StateDir;
use crate::statements::signed;
use crate::{tree, verify};

/// After a failure it is left alone for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// What a witness is shown of a ledger.
pub trait Shown {
    /// The newest checkpoint, if there is one.
    fn checkpoint(&self) -> Result<Option<Note>, StoreError>;
    /// The proof that the first `old` records are the beginning of the first `new`.
    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError>;
}

/// What a witness said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It signed; the line of its signature.
    Signed(String),
    /// It has signed a ledger of this size that ours is not the continuation of.
    RolledBack(u64),
    /// Nothing to go by, and why.
    Nothing(String),
}

/// Somebody who signs checkpoints. Takes a few seconds at most.
pub trait Witness: Send + Sync {
    /// Shows it the newest checkpoint.
    fn show(&self, ledger: &dyn Shown) -> Heard;
}

/// The ledger of a connection.
pub(crate) struct View<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Path,
}

impl View<'_> {
    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(self.database, error)
    }

    /// Shows a witness the ledger; an error when it says that the ledger was set back, and nobody has acknowledged that.
    pub(crate) fn ask(&self, witness: &dyn Witness) -> Result<Heard, StoreError> {
        let heard = witness.show(self);
        match heard {
            Heard::RolledBack(size) if size > self.acknowledged()? => {
                let reason = format!("the witness has signed {size} records that ours do not continue");
                Err(StoreError::RolledBack { path: self.database.to_owned(), reason })
            }
            Heard::RolledBack(size) => {
                let why = "it does not follow since a rollback was acknowledged; its operator has to forget this ledger";
                Ok(Heard::Nothing(format!("{why} ({size} records)")))
            }
            other => Ok(other),
        }
    }

    /// The size of a witness that was acknowledged to be of another history. The row only says where the record of it
    /// is; the record counts.
    fn acknowledged(&self) -> Result<u64, StoreError> {
        let sql = "SELECT line FROM ledger WHERE seq = (SELECT segment FROM projection WHERE name = 'witness.acknowledged')";
        let line = self.connection.query_row(sql, (), |row| row.get::<_, String>(0)).optional();
        let line = line.map_err(|error| self.sqlite(&error))?.unwrap_or_default();
        let sound = Line::read(line.as_bytes()).is_ok_and(|line| line.op == "recovery");
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let is_one = sound && said.get("event_type").and_then(Value::as_str) == Some("rollback.acknowledged");
        Ok(said.get("tree_size").and_then(Value::as_u64).filter(|_| is_one).unwrap_or(0))
    }

    /// A witness of this size does not stop us any more, as a record says. The caller is inside a transaction.
    pub(crate) fn acknowledge(&self, size: u64, record: u64) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO projection (name, seq, segment, offset)
                   VALUES ('witness.acknowledged', ?1, ?2, 0)";
        self.connection.execute(sql, (signed(size), signed(record))).map(drop)
    }
}

impl Shown for View<'_> {
    fn checkpoint(&self) -> Result<Option<Note>, StoreError> {
        let row = checkpoints::newest(self.connection).map_err(|error| self.sqlite(&error))?;
        Ok(row.and_then(|row| Note::parse(row.note.as_bytes()).ok()))
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError> {
        let damaged = || {
            let reason = "it has not all the records that a proof needs".to_owned();
            StoreError::Damaged { path: self.database.to_owned(), reason }
        };
        let stretches = vambrace_ledger::consistency(old, new).ok_or_else(damaged)?;
        let root = |stretch| {
            tree::root(self.connection, stretch).map_err(|error| self.sqlite(&error))?.ok_or_else(damaged)
        };
        stretches.into_iter().map(root).collect()
    }
}

/// Shows a witness a folder that is only looked at.
pub fn show(dir: &StateDir, witness: &dyn Witness) -> Result<Heard, StoreError> {
    let connection = verify::open(dir)?;
    Ok(witness.show(&View { connection: &connection, database: &dir.database() }))
}

/// When to ask again.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    not_before: Option<Instant>,
}

impl Turn {
    pub(crate) fn has_come(&self) -> bool {
        self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    pub(crate) fn took(&mut self, heard: &Heard) {
        let failed = matches!(heard, Heard::Nothing(_));
        self.not_before = failed.then(|| Instant::now() + PAUSE);
    }
}
