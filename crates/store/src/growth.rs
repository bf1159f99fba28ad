//! Growing the tree and signing it. Lines are read from the table in the order of the chain, and only a line that
//! fits its hash and continues the one before is ever signed: whoever changes the table behind our back is not
//! helped by the next checkpoint.

use std::path::Path;

use rusqlite::Connection;
use vambrace_ledger::{Checkpoint, LineReader, Note, SigningKey, Timestamp};

use crate::checkpoints::{self, APART};
use crate::error::StoreError;
use crate::statements::signed;
use crate::tree::{Node, Tree};

/// Records that are added before what was made of them is stored.
const PIECE: u64 = 1 << 16;

/// What the tree has become.
#[derive(Debug)]
pub(crate) struct Grown {
    tree: Tree,
    completed: Vec<Node>,
    signed: Vec<(u64, Note)>,
    at: Timestamp,
}

/// Adds what the tree lacks up to a record, or a good part of it; none when there is nothing to do.
pub(crate) fn grow(
    connection: &Connection,
    database: &Path,
    key: &SigningKey,
    upto: u64,
    at: Timestamp,
) -> Result<Option<Grown>, StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
    let damaged = |reason: String| StoreError::Damaged { path: database.to_owned(), reason };
    let tree = Tree::read(connection).map_err(sqlite)?;
    let tree = tree.ok_or_else(|| damaged("what it keeps of the tree cannot be read".to_owned()))?;
    let last = checkpoints::newest(connection).map_err(sqlite)?.map_or(0, |row| row.size);
    let start = tree.edge.size();
    if last > upto {
        return Err(damaged(format!("it holds a checkpoint of {last} records and has {upto}")));
    }
    let upto = upto.min(start + PIECE);
    if start >= upto && last >= start {
        return Ok(None);
    }
    let mut grown = Grown { tree, completed: Vec::new(), signed: Vec::new(), at };
    let mut covered = last;
    let reader = LineReader::default();
    let mut add = || -> rusqlite::Result<Result<(), StoreError>> {
        let sql = "SELECT line FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query((signed(start), signed(upto)))?;
        while let Some(row) = rows.next()? {
            let seq = grown.tree.edge.size() + 1;
            let (line, leaf) = reader.read(row.get_ref(0)?.as_bytes()?);
            let line = match line {
                Ok(line) if line.seq == seq && line.prev_hash == grown.tree.hash => line,
                Ok(line) => {
                    let reason = format!("record {} does not continue record {}", line.seq, seq - 1);
                    return Ok(Err(damaged(reason)));
                }
                Err(fault) => return Ok(Err(damaged(format!("record {seq}: {fault}")))),
            };
            grown.tree.push(leaf, line.event_hash, &mut grown.completed);
            if seq.saturating_sub(covered) >= APART {
                grown.sign(key)?;
                covered = seq;
            }
        }
        Ok(Ok(()))
    };
    add().map_err(sqlite)??;
    if grown.tree.edge.size() < upto {
        return Err(damaged(format!("record {} is missing", grown.tree.edge.size() + 1)));
    }
    if covered < upto {
        grown.sign(key).map_err(sqlite)?;
    }
    Ok(Some(grown))
}

impl Grown {
    /// The newest checkpoint among it.
    pub(crate) fn newest(&self) -> Option<&Note> {
        self.signed.last().map(|(_, note)| note)
    }

    /// How far the tree has come.
    pub(crate) fn size(&self) -> u64 {
        self.tree.edge.size()
    }

    /// The caller holds the writer lock and has begun a transaction.
    pub(crate) fn store(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.tree.store(connection, &self.completed)?;
        self.signed.iter().try_for_each(|(size, note)| checkpoints::insert(connection, *size, self.at, note))
    }

    fn sign(&mut self, key: &SigningKey) -> rusqlite::Result<()> {
        let (size, root) = (self.tree.edge.size(), self.tree.edge.root());
        let origin = key.verify_key().name().to_owned();
        let note = Checkpoint { origin, size, root }.sign(key);
        // An origin of our own making has no control characters.
        let note = note.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        self.signed.push((size, note));
        Ok(())
    }
}
