//! Extends the Merkle tree and signs it. Lines are read from the table in the order of the chain, and only a
//! line that matches its hash and continues the previous one is ever signed: the next checkpoint never covers
//! for a table that was changed from outside.

use std::path::Path;

use rusqlite::Connection;
use vambrace_ledger::{Checkpoint, Digest, LineReader, SignedNote, SigningKey, Timestamp};

use crate::checkpoints::{CheckpointRow, MAX_CHECKPOINT_GAP};
use crate::error::StoreError;
use crate::sqlite::merkle_tree::{MerkleTree, TreeNode};
use crate::sqlite::rows::{checkpoints, signed};
use crate::sqlite::verify::handed_down;

/// Records added before the result is stored; few in tests, so that they see several chunks.
const CHUNK_RECORDS: u64 = if cfg!(test) { 7 } else { 1 << 16 };

/// The tree while lines are added to it.
pub(crate) struct TreeBuilder<'a> {
    connection: &'a Connection,
    database: &'a Path,
    key: &'a SigningKey,
    reader: LineReader,
    built: BuiltTree,
    /// Size of the tree at the start.
    start: u64,
    /// Records covered by a checkpoint.
    covered: u64,
    /// A checkpoint ahead of the tree, whose root the tree must have when it reaches that size.
    ahead: Option<Checkpoint>,
    /// Size to grow to.
    upto: u64,
}

/// The extended tree.
#[derive(Debug)]
pub(crate) struct BuiltTree {
    tree: MerkleTree,
    completed: Vec<TreeNode>,
    signed: Vec<(u64, SignedNote)>,
    at: Timestamp,
}

impl<'a> TreeBuilder<'a> {
    /// Starts from the stored tree, up to record `upto` or one chunk. The stored tree must be the one that was
    /// signed last, and that checkpoint must continue the one that this process has `seen`; otherwise a
    /// rewritten table would get signed.
    pub(crate) fn begin(
        connection: &'a Connection,
        database: &'a Path,
        key: &'a SigningKey,
        seen: Option<&Checkpoint>,
        upto: u64,
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
        let damaged = |reason: String| StoreError::Damaged { path: database.to_owned(), reason };
        let tree = MerkleTree::read(connection).map_err(sqlite)?;
        let tree = tree.ok_or_else(|| damaged("its stored tree cannot be read".to_owned()))?;
        let newest = checkpoints::newest(connection).map_err(sqlite)?;
        let newest = newest.map(|row| continued(&row, seen, key, connection)).transpose().map_err(sqlite)?;
        let newest = newest.transpose().map_err(damaged)?;
        let (start, covered) = (tree.edge.size(), newest.as_ref().map_or(0, |newest| newest.size));
        if covered > upto {
            return Err(damaged(format!(
                "it holds a checkpoint of {covered} records and only {upto} records"
            )));
        }
        if let Some(seen) = seen.filter(|seen| seen.size > covered) {
            let reason =
                format!("a checkpoint of {} records was signed, its newest has {covered}", seen.size);
            return Err(damaged(reason));
        }
        let signed = newest.as_ref().map_or(Digest::of(b""), |newest| newest.root);
        if start > covered || (start == covered && tree.edge.root() != signed) {
            return Err(damaged(format!("its tree of {start} records is not the one that was signed")));
        }
        let upto = upto.min(start + CHUNK_RECORDS);
        let built = BuiltTree { tree, completed: Vec::new(), signed: Vec::new(), at };
        let (reader, ahead) = (LineReader::default(), newest.filter(|_| covered > start));
        Ok(Self { connection, database, key, reader, built, start, covered, ahead, upto })
    }

    /// Size it grows to.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    /// Adds the line of a record, if it is the next.
    pub(crate) fn take(&mut self, seq: u64, line: &[u8]) -> Result<(), StoreError> {
        let BuiltTree { tree, completed, .. } = &mut self.built;
        let next = tree.edge.size() + 1;
        if seq != next || next > self.upto {
            return Ok(());
        }
        let (line, leaf) = self.reader.read(line);
        let line = match line {
            Ok(line) if line.seq == next && line.prev_hash == tree.hash => line,
            Ok(line) => {
                return Err(self.damaged(format!(
                    "record {} does not continue record {}",
                    line.seq,
                    next - 1
                )));
            }
            Err(fault) => return Err(self.damaged(format!("record {next}: {fault}"))),
        };
        tree.push(leaf, line.event_hash, completed);
        if self
            .ahead
            .as_ref()
            .is_some_and(|checkpoint| checkpoint.size == next && checkpoint.root != tree.edge.root())
        {
            return Err(self.damaged(format!("its first {next} records are not those that were signed")));
        }
        if next.saturating_sub(self.covered) >= MAX_CHECKPOINT_GAP { self.sign() } else { Ok(()) }
    }

    /// Reads the lines that were not passed to `take`, and signs the tree; `None` if it has not grown.
    pub(crate) fn finish(mut self) -> Result<Option<BuiltTree>, StoreError> {
        let have = self.built.size();
        if have < self.upto {
            let database = self.database;
            let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
            let sql = "SELECT seq, line FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
            let mut statement = self.connection.prepare_cached(sql).map_err(sqlite)?;
            let mut rows = statement.query((signed(have), signed(self.upto))).map_err(sqlite)?;
            while let Some(row) = rows.next().map_err(sqlite)? {
                let seq = row.get::<_, i64>(0).map_err(sqlite)?.unsigned_abs();
                let line =
                    row.get_ref(1).map_err(sqlite)?.as_bytes().map_err(|error| sqlite(error.into()))?;
                self.take(seq, line)?;
            }
        }
        let size = self.built.size();
        if size < self.upto {
            return Err(self.damaged(format!("record {} is missing", size + 1)));
        }
        if self.covered < size {
            self.sign()?;
        }
        Ok((size > self.start).then_some(self.built))
    }

    fn sign(&mut self) -> Result<(), StoreError> {
        let MerkleTree { edge, .. } = &self.built.tree;
        let origin = self.key.verify_key().name().to_owned();
        let note = Checkpoint { origin, size: edge.size(), root: edge.root() }.sign(self.key);
        // Our own origin has no control characters, so this does not fail.
        let note = note.map_err(|error| self.damaged(format!("its tree cannot be signed: {error}")))?;
        self.covered = edge.size();
        self.built.signed.push((self.covered, note));
        Ok(())
    }

    fn damaged(&self, reason: String) -> StoreError {
        StoreError::Damaged { path: self.database.to_owned(), reason }
    }
}

/// The checkpoint of a row, if it is the one seen last or was signed later by our key or by a predecessor that
/// handed over to it.
fn continued(
    row: &CheckpointRow,
    seen: Option<&Checkpoint>,
    key: &SigningKey,
    connection: &Connection,
) -> rusqlite::Result<Result<Checkpoint, String>> {
    let unfit = |why: &str| Ok(Err(format!("its checkpoint of {} records {why}", row.size)));
    let (checkpoint, note) = match Checkpoint::parse(row.note.as_bytes()) {
        Ok(read) => read,
        Err(error) => return unfit(&format!("is {error}")),
    };
    if checkpoint.size != row.size {
        return unfit("is one of another size");
    }
    match seen {
        Some(seen) if seen.size == checkpoint.size && seen.root != checkpoint.root => {
            unfit("is not the one that was signed")
        }
        Some(seen)
            if seen.size < checkpoint.size
                && !handed_down(connection, &key.verify_key(), &note, checkpoint.size)? =>
        {
            unfit("is not signed by our key")
        }
        _ => Ok(Ok(checkpoint)),
    }
}

impl BuiltTree {
    /// The newest checkpoint that was signed.
    pub(crate) fn newest(&self) -> Option<&SignedNote> {
        self.signed.last().map(|(_, note)| note)
    }

    /// Size of the tree.
    pub(crate) fn size(&self) -> u64 {
        self.tree.edge.size()
    }

    /// The caller holds the writer lock and has begun a transaction.
    pub(crate) fn store(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.tree.store(connection, &self.completed)?;
        self.signed.iter().try_for_each(|(size, note)| checkpoints::insert(connection, *size, self.at, note))
    }
}
