//! Growing the tree and signing it. Lines are read from the table in the order of the chain, and only a line that
//! fits its hash and continues the one before is ever signed: whoever changes the table behind our back is not
//! helped by the next checkpoint.

use std::path::Path;

use rusqlite::Connection;
use vambrace_ledger::{Checkpoint, Digest, LineReader, Note, SigningKey, Timestamp};

use crate::checkpoints::{self, APART, CheckpointRow};
use crate::error::StoreError;
use crate::statements::signed;
use crate::tree::{Node, Tree};
use crate::verify::handed_down;

/// Records that are added before what was made of them is stored; few in tests, so that they see several pieces.
const PIECE: u64 = if cfg!(test) { 7 } else { 1 << 16 };

/// The tree while lines are added to it.
pub(crate) struct Growth<'a> {
    connection: &'a Connection,
    database: &'a Path,
    key: &'a SigningKey,
    reader: LineReader,
    grown: Grown,
    /// How large the tree was.
    start: u64,
    /// Up to here there is a checkpoint.
    covered: u64,
    /// A checkpoint that the tree has yet to grow to, and then must have the root of.
    ahead: Option<Checkpoint>,
    /// Up to here it shall grow.
    upto: u64,
}

/// What the tree has become.
#[derive(Debug)]
pub(crate) struct Grown {
    tree: Tree,
    completed: Vec<Node>,
    signed: Vec<(u64, Note)>,
    at: Timestamp,
}

impl<'a> Growth<'a> {
    /// From the tree as it is kept, up to a record or a good part of the way. What is kept must be what was signed
    /// last, and that must continue what this process has `seen`: else whoever rewrites the table has it signed.
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
        let tree = Tree::read(connection).map_err(sqlite)?;
        let tree = tree.ok_or_else(|| damaged("what it keeps of the tree cannot be read".to_owned()))?;
        let newest = checkpoints::newest(connection).map_err(sqlite)?;
        let newest = newest.map(|row| continued(&row, seen, key, connection)).transpose().map_err(sqlite)?;
        let newest = newest.transpose().map_err(damaged)?;
        let (start, covered) = (tree.edge.size(), newest.as_ref().map_or(0, |newest| newest.size));
        if covered > upto {
            return Err(damaged(format!("it holds a checkpoint of {covered} records and has {upto}")));
        }
        if let Some(seen) = seen.filter(|seen| seen.size > covered) {
            let reason = format!("a checkpoint of {} records was signed, and it holds {covered}", seen.size);
            return Err(damaged(reason));
        }
        let signed = newest.as_ref().map_or(Digest::of(b""), |newest| newest.root);
        if start > covered || (start == covered && tree.edge.root() != signed) {
            return Err(damaged(format!("its tree of {start} records is not the one that was signed")));
        }
        let upto = upto.min(start + PIECE);
        let grown = Grown { tree, completed: Vec::new(), signed: Vec::new(), at };
        let (reader, ahead) = (LineReader::default(), newest.filter(|_| covered > start));
        Ok(Self { connection, database, key, reader, grown, start, covered, ahead, upto })
    }

    /// How far it shall grow.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    /// Takes the line of a record, if it is the next.
    pub(crate) fn take(&mut self, seq: u64, line: &[u8]) -> Result<(), StoreError> {
        let Grown { tree, completed, .. } = &mut self.grown;
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
        if self.ahead.as_ref().is_some_and(|said| said.size == next && said.root != tree.edge.root()) {
            return Err(self.damaged(format!("its first {next} records are not those that were signed")));
        }
        if next.saturating_sub(self.covered) >= APART { self.sign() } else { Ok(()) }
    }

    /// Reads the lines that it was not given, and signs what it is now; none when it is as it was.
    pub(crate) fn finish(mut self) -> Result<Option<Grown>, StoreError> {
        let have = self.grown.size();
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
        let size = self.grown.size();
        if size < self.upto {
            return Err(self.damaged(format!("record {} is missing", size + 1)));
        }
        if self.covered < size {
            self.sign()?;
        }
        Ok((size > self.start).then_some(self.grown))
    }

    fn sign(&mut self) -> Result<(), StoreError> {
        let Tree { edge, .. } = &self.grown.tree;
        let origin = self.key.verify_key().name().to_owned();
        let note = Checkpoint { origin, size: edge.size(), root: edge.root() }.sign(self.key);
        // An origin of our own making has no control characters.
        let note = note.map_err(|error| self.damaged(format!("its tree cannot be signed: {error}")))?;
        self.covered = edge.size();
        self.grown.signed.push((self.covered, note));
        Ok(())
    }

    fn damaged(&self, reason: String) -> StoreError {
        StoreError::Damaged { path: self.database.to_owned(), reason }
    }
}

/// What a row of the table says, if it is the checkpoint that was seen last or one that has been signed since by our key
/// or by one that handed over to it.
fn continued(
    row: &CheckpointRow,
    seen: Option<&Checkpoint>,
    key: &SigningKey,
    connection: &Connection,
) -> rusqlite::Result<Result<Checkpoint, String>> {
    let unfit = |why: &str| Ok(Err(format!("its checkpoint of {} records {why}", row.size)));
    let (said, note) = match Checkpoint::parse(row.note.as_bytes()) {
        Ok(read) => read,
        Err(error) => return unfit(&format!("is {error}")),
    };
    if said.size != row.size {
        return unfit("is one of another size");
    }
    match seen {
        Some(seen) if seen.size == said.size && seen.root != said.root => {
            unfit("is not the one that was signed")
        }
        Some(seen)
            if seen.size < said.size && !handed_down(connection, &key.verify_key(), &note, said.size)? =>
        {
            unfit("is not signed by our key")
        }
        _ => Ok(Ok(said)),
    }
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
}
