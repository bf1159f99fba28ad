//! Looking at a state folder before it is used: what is kept of the ledger in several places must tell one story.
//! A table that is shorter than a checkpoint, a segment or the tree was set back; one that has another root was
//! rewritten. Then nothing is opened, unless a person acknowledges it, which is put on record.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{
    Checkpoint, Digest, Entry, Frontier, Head, Id, Level, Line, MAX_LINE_BYTES, Note, Op, SegmentName,
    Signed, Timestamp, leaf,
};

use crate::append::append;
use crate::checkpoints::{self, CheckpointRow, Copies};
use crate::disk::SegmentFiles;
use crate::error::StoreError;
use crate::projection::Cursor;
use crate::statements::signed;
use crate::tide::Tide;
use crate::tree::{self, Tree};
use crate::witness::View;
use crate::{keys, projection};

/// Records that span more have had a checkpoint; one is signed every second.
const OVERDUE_MS: i64 = 60_000;

/// Something that is kept elsewhere and does not fit the table.
#[derive(Debug)]
pub(crate) struct Contradiction {
    /// What contradicts, and how, in words.
    why: String,
    /// The checkpoint, when it is one that was signed by us.
    said: Option<(Checkpoint, Note)>,
    /// Its file, which has to make room for the next.
    file: Option<PathBuf>,
}

/// The table, and what it is compared with.
pub(crate) struct Guard<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Path,
    pub(crate) files: &'a mut dyn SegmentFiles,
    pub(crate) copies: &'a Copies,
    pub(crate) head: Head,
    /// Brings what was committed to the disk.
    pub(crate) tide: &'a Tide,
}

impl Guard<'_> {
    /// Whatever contradicts the table. The caller holds the writer lock.
    pub(crate) fn look(&self) -> Result<Vec<Contradiction>, StoreError> {
        let mut found = Vec::new();
        self.tree(&mut found).map_err(|error| self.sqlite(&error))?;
        self.rows(&mut found).map_err(|error| self.sqlite(&error))?;
        self.signed(&mut found).map_err(|error| self.sqlite(&error))?;
        self.segments(&mut found)?;
        let mut copies = vec![("the newest checkpoint", self.copies.latest())];
        copies.extend(self.copies.anchor().map(|anchor| ("the anchor", anchor)));
        for (what, path) in copies {
            self.copy(what, path, &mut found).map_err(|error| self.sqlite(&error))?;
        }
        if let Some((place, said)) = self.copies.other_here() {
            let (origin, size) = (&said.0.origin, said.0.size);
            let why =
                format!("the ledger of this folder was `{origin}` with {size} records, and this is another");
            found.push(Contradiction { why, said: Some(said), file: Some(place.to_owned()) });
        }
        Ok(found)
    }

    /// Refuses a table that is contradicted.
    pub(crate) fn refuse(&self, found: &[Contradiction]) -> Result<(), StoreError> {
        let Some(first) = found.first() else { return Ok(()) };
        Err(StoreError::RolledBack { path: self.database.to_owned(), reason: first.why.clone() })
    }

    /// Goes on all the same: the record says what was contradicted, by which checkpoint; what does not fit is
    /// put aside and the tree is grown anew.
    pub(crate) fn acknowledge(
        &mut self,
        found: &[Contradiction],
        writer: &Id,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let said = found.iter().find_map(|contradiction| contradiction.said.as_ref());
        let entry = Entry {
            event_type: Some("rollback.acknowledged"),
            level: Level::Critical,
            message: Some(Redacted::literal(
                "the ledger does not fit what is kept elsewhere; somebody said to go on",
            )),
            tree: said.map(|(checkpoint, _)| (checkpoint.size, checkpoint.root)),
            note: said.map(|(_, note)| note.clone()),
            ..Entry::new(Op::Recovery, at)
        };
        let size = signed(self.head.seq);
        // Signed for another history: kept as files, not as ours. Those that still hold stay, and so do the seals
        // that name them.
        let foreign = self.foreign().map_err(|error| self.sqlite(&error))?;
        for row in &foreign {
            let path = self.copies.latest().with_file_name(format!("checkpoint.{}", row.size));
            let kept = self.copies.keep_aside(&path, self.head.seq, &row.note);
            kept.map_err(|error| StoreError::folder(&path, error))?;
        }
        append(self.connection, self.database, writer, &[entry], |_| {
            self.connection.execute_batch("DELETE FROM tree; DELETE FROM tree_nodes;")?;
            for row in &foreign {
                self.connection.execute("DELETE FROM checkpoints WHERE size = ?1", [signed(row.size)])?;
            }
            self.connection.execute("DELETE FROM projection WHERE seq > ?1", [size]).map(drop)
        })?;
        // The evidence is moved only when the record of it cannot be lost any more.
        self.tide.flush()?;
        let cursor = Cursor::read(self.connection).map_err(|error| self.sqlite(&error))?;
        projection::set_aside_behind(self.files, cursor)?;
        for path in found.iter().filter_map(|contradiction| contradiction.file.as_ref()) {
            let moved = self.copies.set_aside(path, self.head.seq);
            moved.map_err(|error| StoreError::folder(path, error))?;
        }
        Ok(())
    }

    /// The checkpoints of the table that do not fit its records: every root is made anew for it.
    fn foreign(&self) -> rusqlite::Result<Vec<CheckpointRow>> {
        let keys = keys::all(self.connection)?;
        let mut rows = checkpoints::all(self.connection)?.into_iter().peekable();
        let (mut tree, mut foreign) = (Frontier::new(), Vec::new());
        let mut statement = self.connection.prepare("SELECT line FROM ledger ORDER BY seq")?;
        let mut lines = statement.query(())?;
        while let Some(line) = lines.next()? {
            tree.push(leaf(line.get_ref(0)?.as_bytes()?));
            while let Some(row) = rows.next_if(|row| row.size <= tree.size()) {
                let holds = Checkpoint::parse(row.note.as_bytes()).is_ok_and(|(said, note)| {
                    (said.size, said.root) == (tree.size(), tree.root())
                        && keys.iter().any(|key| matches!(note.signed_by(key), Signed::Yes(_)))
                });
                foreign.extend((!holds).then_some(row));
            }
        }
        foreign.extend(rows);
        Ok(foreign)
    }

    /// No checkpoint of the table is ahead of it.
    fn rows(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let newest = checkpoints::newest(self.connection)?.map_or(0, |row| row.size);
        if newest > self.head.seq {
            let have = self.head.seq;
            found.push(plain(format!("it holds a checkpoint of {newest} records and has {have}")));
        }
        Ok(())
    }

    /// The tree ends at a record that is still there.
    fn tree(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let Some(tree) = Tree::read(self.connection)? else {
            found.push(plain("what is kept of the tree is damaged"));
            return Ok(());
        };
        let size = tree.head().seq;
        if size == 0 {
            return Ok(());
        }
        let sql = "SELECT line FROM ledger WHERE seq = ?1";
        let line: Option<String> =
            self.connection.query_row(sql, [signed(size)], |row| row.get(0)).optional()?;
        let there = line.and_then(|line| Line::claimed_hash(line.as_bytes()));
        if size > self.head.seq || there != Some(tree.hash) {
            found.push(plain(format!(
                "the tree was grown to record {size}, the table ends at {} or has another record there",
                self.head.seq
            )));
        }
        Ok(())
    }

    /// What the tree goes on from was signed: else whoever rewrites the table has it signed by the next start.
    fn signed(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let tree = Tree::read(self.connection)?.unwrap_or(Tree::new());
        let Some(row) = checkpoints::newest(self.connection)? else {
            if tree.head().seq > 0 || self.is_overdue()? {
                found.push(plain("it has no checkpoint, and one is signed every second"));
            }
            return Ok(());
        };
        let fits = if row.size > tree.head().seq {
            // The tree is to be grown anew: every checkpoint must still hold.
            row.size > self.head.seq || self.foreign()?.is_empty()
        } else {
            let keys = keys::all(self.connection)?;
            Checkpoint::parse(row.note.as_bytes()).is_ok_and(|(said, note)| {
                (said.size, said.root) == (tree.head().seq, tree.edge.root())
                    && keys.iter().any(|key| matches!(note.signed_by(key), Signed::Yes(_)))
            })
        };
        if !fits {
            found.push(plain(format!("the checkpoint of {} records is not one of its tree", row.size)));
        }
        Ok(())
    }

    /// Whether the records span more time than a ledger is ever without a checkpoint. One that an older program wrote
    /// has none until its first key, which is then its last record.
    fn is_overdue(&self) -> rusqlite::Result<bool> {
        let time = |seq: u64| -> rusqlite::Result<Option<Timestamp>> {
            let sql = "SELECT line FROM ledger WHERE seq = ?1";
            let line: Option<String> =
                self.connection.query_row(sql, [signed(seq)], |row| row.get(0)).optional()?;
            let ts = line.as_ref().and_then(|line| Line::read(line.as_bytes()).ok()).map(|line| line.ts);
            Ok(ts.and_then(|ts| Timestamp::parse(ts).ok()))
        };
        if keys::rows(self.connection)?.first().is_none_or(|(seq, _)| *seq == self.head.seq) {
            return Ok(false);
        }
        let spanned = time(1)?.zip(time(self.head.seq)?);
        Ok(spanned.is_none_or(|(first, last)| last > first.later(OVERDUE_MS)))
    }

    /// No segment holds a record that the table lacks: they are written from the table, after it is on the disk.
    fn segments(&self, found: &mut Vec<Contradiction>) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("looking at the segments", error);
        let segments = self.files.list().map_err(fault)?;
        let Some((name, size)) = segments.into_iter().rfind(|(_, size)| *size > 0) else { return Ok(()) };
        let newest = last_record(self.files, name, size).map_err(fault)?;
        if let Some(seq) = newest.filter(|seq| *seq > self.head.seq) {
            let have = self.head.seq;
            found.push(plain(format!("segment {name} holds record {seq}, the table ends at {have}")));
        }
        Ok(())
    }

    /// A checkpoint that was kept as a file.
    fn copy(&self, what: &str, path: &Path, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let file = Some(path.to_owned());
        let (checkpoint, note) = match self.copies.read(path) {
            Ok(None) => return Ok(()),
            Ok(Some(read)) => read,
            Err(why) => {
                let why = format!("{what} in `{}` cannot be read: {why}", path.display());
                found.push(Contradiction { why, said: None, file });
                return Ok(());
            }
        };
        let size = checkpoint.size;
        let newest = checkpoints::newest(self.connection)?;
        if newest.is_some_and(|row| row.size == size && row.note.starts_with(note.text())) {
            return Ok(());
        }
        let keys = keys::all(self.connection)?;
        let why = if size > self.head.seq {
            format!("it covers {size} records, the table has {}", self.head.seq)
        } else if !keys.iter().any(|key| matches!(note.signed_by(key), Signed::Yes(_))) {
            "it is signed by a key that this ledger never had".to_owned()
        } else if tree::root(self.connection, 0..size)? != Some(checkpoint.root) {
            format!("the first {size} records have another root now")
        } else {
            return Ok(());
        };
        let why = format!("{what} in `{}` contradicts it: {why}", path.display());
        found.push(Contradiction { why, said: Some((checkpoint, note)), file });
        Ok(())
    }

    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(self.database, error)
    }
}

/// Goes on although a witness has seen more than there is. The caller holds the writer lock.
pub(crate) fn acknowledge_witness(
    view: &View<'_>,
    writer: &Id,
    size: u64,
    at: Timestamp,
) -> Result<(), StoreError> {
    let entry = Entry {
        event_type: Some("rollback.acknowledged"),
        level: Level::Critical,
        message: Some(Redacted::literal(
            "a witness has signed a longer or another ledger; somebody said to go on",
        )),
        // The root is its own secret until it is shown.
        tree: Some((size, Digest::ZERO)),
        ..Entry::new(Op::Recovery, at)
    };
    append(view.connection, view.database, writer, &[entry], |written| {
        written.iter().try_for_each(|record| view.acknowledge(size, record.seq))
    })?;
    Ok(())
}

fn plain(why: impl Into<String>) -> Contradiction {
    Contradiction { why: why.into(), said: None, file: None }
}

/// The number of the last complete line of a segment.
fn last_record(files: &dyn SegmentFiles, name: SegmentName, size: u64) -> std::io::Result<Option<u64>> {
    let length = size.min(2 * MAX_LINE_BYTES as u64 + 2);
    let mut end = vec![0; usize::try_from(length).unwrap_or(0)];
    let read = files.read(name, size - length, &mut end)?;
    end.truncate(read);
    let mut lines = end.rsplit(|byte| *byte == b'\n');
    // What stands behind the last newline is not complete.
    lines.next();
    Ok(lines.find_map(Line::claimed_seq))
}
