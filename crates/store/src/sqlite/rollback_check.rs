//! Checks a state directory before it is used: table, tree, segments and checkpoints must agree. A table that
//! is shorter than a checkpoint, a segment or the tree was rolled back; one with another root was rewritten.
//! Such a directory is not opened unless a person acknowledges it, which the ledger records.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{
    ChainHead, Checkpoint, Digest, Entry, Frontier, Id, LedgerLine, MAX_LINE_BYTES, Op, RecordLevel,
    SegmentName, SignatureStatus, SignedNote, Timestamp, leaf,
};

use crate::checkpoints::{CheckpointFiles, CheckpointRow};
use crate::error::StoreError;
use crate::segment_files::SegmentFiles;
use crate::sqlite::append::append;
use crate::sqlite::merkle_tree::{self, MerkleTree};
use crate::sqlite::rows::{checkpoints, ledger_keys, signed};
use crate::sqlite::segment_writer::{self, SegmentCursor};
use crate::sqlite::sync_state::SyncState;
use crate::sqlite::table_view::TableView;

/// Records that span more than this have had a checkpoint, since one is signed every second.
const OVERDUE_MS: i64 = 60_000;

/// Something outside the table that does not agree with it.
#[derive(Debug)]
pub(crate) struct Contradiction {
    /// What contradicts the table, and how, for people.
    reason: String,
    /// The checkpoint, if we signed it.
    signed: Option<(Checkpoint, SignedNote)>,
    /// Its file, which has to make way for the next.
    file: Option<PathBuf>,
}

/// The table, and what it is compared with.
pub(crate) struct RollbackCheck<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Path,
    pub(crate) files: &'a mut dyn SegmentFiles,
    pub(crate) checkpoint_files: &'a CheckpointFiles,
    pub(crate) head: ChainHead,
    /// Syncs what was committed.
    pub(crate) sync_state: &'a SyncState,
}

impl RollbackCheck<'_> {
    /// Everything that contradicts the table. The caller holds the writer lock.
    pub(crate) fn find_contradictions(&self) -> Result<Vec<Contradiction>, StoreError> {
        let mut found = Vec::new();
        self.check_tree(&mut found).map_err(|error| self.sqlite(&error))?;
        self.check_rows(&mut found).map_err(|error| self.sqlite(&error))?;
        self.check_signed(&mut found).map_err(|error| self.sqlite(&error))?;
        self.check_segments(&mut found)?;
        let mut copies = vec![("the newest checkpoint", self.checkpoint_files.latest())];
        copies.extend(self.checkpoint_files.anchor().map(|anchor| ("the anchor", anchor)));
        for (what, path) in copies {
            self.check_copy(what, path, &mut found).map_err(|error| self.sqlite(&error))?;
        }
        if let Some((marker, checkpoint)) = self.checkpoint_files.previous_ledger() {
            let (origin, size) = (&checkpoint.0.origin, checkpoint.0.size);
            let reason = format!(
                "this directory held the ledger `{origin}` with {size} records, and now holds another one"
            );
            found.push(Contradiction { reason, signed: Some(checkpoint), file: Some(marker.to_owned()) });
        }
        Ok(found)
    }

    /// Rejects a table that is contradicted.
    pub(crate) fn reject(&self, found: &[Contradiction]) -> Result<(), StoreError> {
        let Some(first) = found.first() else { return Ok(()) };
        Err(StoreError::RolledBack { path: self.database.to_owned(), reason: first.reason.clone() })
    }

    /// Continues anyway: a record names the contradicted checkpoint, files that do not agree are set aside, and
    /// the tree is rebuilt.
    pub(crate) fn acknowledge(
        &mut self,
        found: &[Contradiction],
        writer: &Id,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let checkpoint = found.iter().find_map(|contradiction| contradiction.signed.as_ref());
        let entry = Entry {
            event_type: Some("rollback.acknowledged"),
            level: RecordLevel::Critical,
            message: Some(Redacted::literal(
                "the ledger does not match its checkpoints or segments; a user acknowledged it",
            )),
            tree: checkpoint.map(|(checkpoint, _)| (checkpoint.size, checkpoint.root)),
            note: checkpoint.map(|(_, note)| note.clone()),
            ..Entry::new(Op::Recovery, at)
        };
        let size = signed(self.head.seq);
        // Signed for another history: kept as files, not as ours. Valid ones stay, and so do the seals that
        // name them.
        let foreign = self.foreign_checkpoints().map_err(|error| self.sqlite(&error))?;
        for row in &foreign {
            let path = self.checkpoint_files.latest().with_file_name(format!("checkpoint.{}", row.size));
            let kept = self.checkpoint_files.store_set_aside(&path, self.head.seq, &row.note);
            kept.map_err(|error| StoreError::directory(&path, error))?;
        }
        append(self.connection, self.database, writer, &[entry], |_| {
            self.connection.execute_batch("DELETE FROM tree; DELETE FROM tree_nodes;")?;
            for row in &foreign {
                self.connection.execute("DELETE FROM checkpoints WHERE size = ?1", [signed(row.size)])?;
            }
            self.connection.execute("DELETE FROM projection WHERE seq > ?1", [size]).map(drop)
        })?;
        // The evidence is moved only when its record is durable.
        self.sync_state.flush()?;
        let cursor = SegmentCursor::read(self.connection).map_err(|error| self.sqlite(&error))?;
        segment_writer::set_aside_after(self.files, cursor)?;
        for path in found.iter().filter_map(|contradiction| contradiction.file.as_ref()) {
            let moved = self.checkpoint_files.set_aside(path, self.head.seq);
            moved.map_err(|error| StoreError::directory(path, error))?;
        }
        Ok(())
    }

    /// The checkpoints of the table that do not match its records; computes every root again.
    fn foreign_checkpoints(&self) -> rusqlite::Result<Vec<CheckpointRow>> {
        let keys = ledger_keys::all(self.connection)?;
        let mut rows = checkpoints::all(self.connection)?.into_iter().peekable();
        let (mut tree, mut foreign) = (Frontier::new(), Vec::new());
        let mut statement = self.connection.prepare("SELECT line FROM ledger ORDER BY seq")?;
        let mut lines = statement.query(())?;
        while let Some(line) = lines.next()? {
            tree.push(leaf(line.get_ref(0)?.as_bytes()?));
            while let Some(row) = rows.next_if(|row| row.size <= tree.size()) {
                let holds = Checkpoint::parse(row.note.as_bytes()).is_ok_and(|(checkpoint, note)| {
                    (checkpoint.size, checkpoint.root) == (tree.size(), tree.root())
                        && keys.iter().any(|key| matches!(note.signed_by(key), SignatureStatus::Valid(_)))
                });
                foreign.extend((!holds).then_some(row));
            }
        }
        foreign.extend(rows);
        Ok(foreign)
    }

    /// No checkpoint of the table may be ahead of it.
    fn check_rows(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let newest = checkpoints::newest(self.connection)?.map_or(0, |row| row.size);
        if newest > self.head.seq {
            let have = self.head.seq;
            found.push(plain(format!("it holds a checkpoint of {newest} records and only {have} records")));
        }
        Ok(())
    }

    /// The last record of the tree must still be there.
    fn check_tree(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let Some(tree) = MerkleTree::read(self.connection)? else {
            found.push(plain("its stored tree is damaged"));
            return Ok(());
        };
        let size = tree.head().seq;
        if size == 0 {
            return Ok(());
        }
        let sql = "SELECT line FROM ledger WHERE seq = ?1";
        let line: Option<String> =
            self.connection.query_row(sql, [signed(size)], |row| row.get(0)).optional()?;
        let there = line.and_then(|line| LedgerLine::claimed_hash(line.as_bytes()));
        if size > self.head.seq || there != Some(tree.hash) {
            found.push(plain(format!(
                "its tree ends at record {size}, but the table ends at {} or has another record there",
                self.head.seq
            )));
        }
        Ok(())
    }

    /// The tree that the next start continues must be signed; otherwise a rewritten table would get signed.
    fn check_signed(&self, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let tree = MerkleTree::read(self.connection)?.unwrap_or(MerkleTree::new());
        let Some(row) = checkpoints::newest(self.connection)? else {
            if tree.head().seq > 0 || self.is_overdue()? {
                found.push(plain("it has no checkpoint although one is signed every second"));
            }
            return Ok(());
        };
        let fits = if row.size > tree.head().seq {
            // The tree has to be rebuilt: every checkpoint must still match.
            row.size > self.head.seq || self.foreign_checkpoints()?.is_empty()
        } else {
            let keys = ledger_keys::all(self.connection)?;
            Checkpoint::parse(row.note.as_bytes()).is_ok_and(|(checkpoint, note)| {
                (checkpoint.size, checkpoint.root) == (tree.head().seq, tree.edge.root())
                    && keys.iter().any(|key| matches!(note.signed_by(key), SignatureStatus::Valid(_)))
            })
        };
        if !fits {
            found.push(plain(format!("its checkpoint of {} records does not match its tree", row.size)));
        }
        Ok(())
    }

    /// Whether the records span more time than a ledger is ever without a checkpoint. A ledger of an older
    /// program has none until its first key, whose record is then the last.
    fn is_overdue(&self) -> rusqlite::Result<bool> {
        let time = |seq: u64| -> rusqlite::Result<Option<Timestamp>> {
            let sql = "SELECT line FROM ledger WHERE seq = ?1";
            let line: Option<String> =
                self.connection.query_row(sql, [signed(seq)], |row| row.get(0)).optional()?;
            let ts =
                line.as_ref().and_then(|line| LedgerLine::read(line.as_bytes()).ok()).map(|line| line.ts);
            Ok(ts.and_then(|ts| Timestamp::parse(ts).ok()))
        };
        if ledger_keys::rows(self.connection)?.first().is_none_or(|(seq, _)| *seq == self.head.seq) {
            return Ok(false);
        }
        let spanned = time(1)?.zip(time(self.head.seq)?);
        Ok(spanned.is_none_or(|(first, last)| last > first.later(OVERDUE_MS)))
    }

    /// No segment may hold a record that the table lacks: segments are written from the table after it is
    /// durable.
    fn check_segments(&self, found: &mut Vec<Contradiction>) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("listing the segments", error);
        let segments = self.files.list().map_err(fault)?;
        let Some((name, size)) = segments.into_iter().rfind(|(_, size)| *size > 0) else { return Ok(()) };
        let newest = last_record(self.files, name, size).map_err(fault)?;
        if let Some(seq) = newest.filter(|seq| *seq > self.head.seq) {
            let have = self.head.seq;
            found.push(plain(format!("segment {name} holds record {seq}, but the table ends at {have}")));
        }
        Ok(())
    }

    /// Compares a checkpoint file with the table.
    fn check_copy(&self, what: &str, path: &Path, found: &mut Vec<Contradiction>) -> rusqlite::Result<()> {
        let file = Some(path.to_owned());
        let (checkpoint, note) = match self.checkpoint_files.read(path) {
            Ok(None) => return Ok(()),
            Ok(Some(read)) => read,
            Err(reason) => {
                let reason = format!("{what} in `{}` cannot be read: {reason}", path.display());
                found.push(Contradiction { reason, signed: None, file });
                return Ok(());
            }
        };
        let size = checkpoint.size;
        let newest = checkpoints::newest(self.connection)?;
        if newest.is_some_and(|row| row.size == size && row.note.starts_with(note.text())) {
            return Ok(());
        }
        let keys = ledger_keys::all(self.connection)?;
        let reason = if size > self.head.seq {
            format!("it covers {size} records, but the table has {}", self.head.seq)
        } else if !keys.iter().any(|key| matches!(note.signed_by(key), SignatureStatus::Valid(_))) {
            "it is signed by a key that this ledger never had".to_owned()
        } else if merkle_tree::root(self.connection, 0..size)? != Some(checkpoint.root) {
            format!("the first {size} records have another root")
        } else {
            return Ok(());
        };
        let reason = format!("{what} in `{}` contradicts it: {reason}", path.display());
        found.push(Contradiction { reason, signed: Some((checkpoint, note)), file });
        Ok(())
    }

    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(self.database, error)
    }
}

/// Continues although a witness has signed a longer or another ledger. The caller holds the writer lock.
pub(crate) fn acknowledge_witness(
    view: &TableView<'_>,
    writer: &Id,
    size: u64,
    at: Timestamp,
) -> Result<(), StoreError> {
    let entry = Entry {
        event_type: Some("rollback.acknowledged"),
        level: RecordLevel::Critical,
        message: Some(Redacted::literal(
            "a witness has signed a longer or another ledger; a user acknowledged it",
        )),
        // Its root is not known here.
        tree: Some((size, Digest::ZERO)),
        ..Entry::new(Op::Recovery, at)
    };
    append(view.connection, view.database, writer, &[entry], |written| {
        written.iter().try_for_each(|link| view.acknowledge(size, link.seq))
    })?;
    Ok(())
}

fn plain(reason: impl Into<String>) -> Contradiction {
    Contradiction { reason: reason.into(), signed: None, file: None }
}

/// The number of the last complete line of a segment.
fn last_record(files: &dyn SegmentFiles, name: SegmentName, size: u64) -> std::io::Result<Option<u64>> {
    let length = size.min(2 * MAX_LINE_BYTES as u64 + 2);
    let mut end = vec![0; usize::try_from(length).unwrap_or(0)];
    let read = files.read(name, size - length, &mut end)?;
    end.truncate(read);
    let mut lines = end.rsplit(|byte| *byte == b'\n');
    // The bytes after the last newline are an incomplete line.
    lines.next();
    Ok(lines.find_map(LedgerLine::claimed_seq))
}
