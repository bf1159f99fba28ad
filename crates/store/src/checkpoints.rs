//! Signed checkpoints: the rows of the table, the newest one as a file in `ledger/`, and a copy outside the state
//! folder (the anchor), so that a folder that is set back as a whole is contradicted from elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use vambrace_ledger::{Checkpoint, Digest, Id, Note, Timestamp};

use crate::error::StoreError;
use crate::files::{self, Disk, OsDisk};
use crate::state_dir::StateDir;
use crate::statements::signed;

/// Checkpoints are no further apart.
pub(crate) const APART: u64 = 4096;
/// The longest checkpoint file.
const MOST: usize = 64 << 10;

/// A checkpoint of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// How many records it covers.
    pub size: u64,
    /// When it was signed.
    pub at: Timestamp,
    /// Whether a segment was sealed with it.
    pub sealed: bool,
    /// The signed note, as it is kept.
    pub note: String,
}

impl CheckpointRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            size: row.get::<_, i64>(0)?.unsigned_abs(),
            at: Timestamp::from_millis(row.get(1)?),
            sealed: row.get(2)?,
            note: row.get(3)?,
        })
    }
}

/// The newest.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<Option<CheckpointRow>> {
    let sql = "SELECT size, at, sealed, note FROM checkpoints ORDER BY size DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row((), CheckpointRow::read).optional()
}

/// The one of a size.
pub(crate) fn of_size(connection: &Connection, size: u64) -> rusqlite::Result<Option<CheckpointRow>> {
    let sql = "SELECT size, at, sealed, note FROM checkpoints WHERE size = ?1";
    connection.prepare_cached(sql)?.query_row([signed(size)], CheckpointRow::read).optional()
}

/// All of them, by size.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<CheckpointRow>> {
    let mut statement =
        connection.prepare_cached("SELECT size, at, sealed, note FROM checkpoints ORDER BY size")?;
    statement.query_map((), CheckpointRow::read)?.collect()
}

/// Adds one, and drops the one before when nothing is lost by it: those that stay are never further apart than
/// [`APART`]. The caller holds the writer lock.
pub(crate) fn insert(connection: &Connection, size: u64, at: Timestamp, note: &Note) -> rusqlite::Result<()> {
    let sql = "SELECT size, sealed FROM checkpoints WHERE size < ?1 ORDER BY size DESC LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    let before: Vec<(i64, bool)> = statement
        .query_map([signed(size)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    if let Some((last, false)) = before.first().copied() {
        let kept = before.get(1).map_or(0, |(size, _)| *size);
        if signed(size) - kept <= signed(APART) {
            connection.prepare_cached("DELETE FROM checkpoints WHERE size = ?1")?.execute([last])?;
        }
    }
    let sql = "INSERT INTO checkpoints (size, at, note) VALUES (?1, ?2, ?3) ON CONFLICT (size) DO NOTHING";
    connection.prepare_cached(sql)?.execute((signed(size), at.millis(), note.to_string())).map(drop)
}

/// A segment was sealed with this one.
pub(crate) fn keep(connection: &Connection, size: u64) -> rusqlite::Result<()> {
    connection.execute("UPDATE checkpoints SET sealed = 1 WHERE size = ?1", [signed(size)]).map(drop)
}

/// The newest checkpoint as files: in the state folder, and outside of it where a place is known.
#[derive(Debug, Clone)]
pub(crate) struct Copies {
    disk: Arc<dyn Disk>,
    latest: PathBuf,
    anchor: Option<PathBuf>,
    /// Which ledger a state folder has: a file beside the anchors, so that a folder that was emptied is not new.
    place: Option<PathBuf>,
    writer: String,
}

impl Copies {
    pub(crate) fn of(dir: &StateDir, anchors: Option<&Path>, writer: &Id) -> Self {
        Self::on(OsDisk::shared(), dir.latest_checkpoint(), anchors, writer)
    }

    pub(crate) fn on(disk: Arc<dyn Disk>, latest: PathBuf, anchors: Option<&Path>, writer: &Id) -> Self {
        let anchor = anchors.map(|folder| folder.join(format!("{writer}.checkpoint")));
        let name = Digest::of(latest.as_os_str().as_encoded_bytes()).hex();
        let name = name.first_chunk::<16>().map(|name| String::from_utf8_lossy(name).into_owned());
        let place = anchors.zip(name).map(|(folder, name)| folder.join(format!("{name}.place")));
        Self { disk, latest, anchor, place, writer: writer.to_string() }
    }

    pub(crate) fn latest(&self) -> &Path {
        &self.latest
    }

    pub(crate) fn anchor(&self) -> Option<&Path> {
        self.anchor.as_deref()
    }

    /// Writes both in place of older ones. A copy that is ahead of us, or has another root at our size, was written for
    /// another history, and stays.
    pub(crate) fn replace(
        &self,
        signed: &Checkpoint,
        note: &Note,
        database: &Path,
    ) -> Result<(), StoreError> {
        for path in [Some(&self.latest), self.anchor.as_ref()].into_iter().flatten() {
            let Ok(Some((there, _))) = self.read(path) else { continue };
            if there.size > signed.size || (there.size == signed.size && there.root != signed.root) {
                let (file, size) = (path.display(), there.size);
                let reason =
                    format!("`{file}` holds a checkpoint of {size} records that it does not continue");
                return Err(StoreError::Damaged { path: database.to_owned(), reason });
            }
        }
        self.publish(&note.to_string())
    }

    /// Writes both. An anchor that cannot be written is told and stops nothing.
    pub(crate) fn publish(&self, note: &str) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("writing the newest checkpoint", error);
        files::replace(&*self.disk, &self.latest, note.as_bytes()).map_err(fault)?;
        let Some(anchor) = &self.anchor else { return Ok(()) };
        let folder = anchor.parent().map_or(Ok(()), |folder| self.disk.make_folder(folder));
        folder
            .and_then(|()| files::replace(&*self.disk, anchor, note.as_bytes()))
            .and_then(|()| self.mark_place())
            .map_err(|error| StoreError::Io(format!("the anchor `{}`: {error}", anchor.display())))
    }

    fn mark_place(&self) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        if files::read(&*self.disk, place, MOST)?.is_some_and(|there| there == self.writer.as_bytes()) {
            return Ok(());
        }
        files::replace(&*self.disk, place, self.writer.as_bytes())
    }

    /// The file that says which ledger was here, and the last checkpoint of that one; none when it is ours.
    pub(crate) fn other_here(&self) -> Option<(&Path, (Checkpoint, Note))> {
        let place = self.place.as_deref()?;
        let there = files::read(&*self.disk, place, MOST).ok().flatten()?;
        // The name of a ledger is one of a file, and nothing else.
        let other = Id::new(std::str::from_utf8(&there).ok()?).ok()?;
        if other.as_str() == self.writer || other.as_str().contains(['/', '.']) {
            return None;
        }
        let anchor = place.with_file_name(format!("{other}.checkpoint"));
        Some((place, self.read(&anchor).ok().flatten()?))
    }

    /// One of the two.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<(Checkpoint, Note)>, String> {
        let bytes = files::read(&*self.disk, path, MOST).map_err(|error| error.to_string())?;
        bytes.map(|bytes| Checkpoint::parse(&bytes).map_err(|error| error.to_string())).transpose()
    }

    /// Puts a copy that is contradicted out of the way.
    pub(crate) fn set_aside(&self, path: &Path, seq: u64) -> io::Result<()> {
        self.disk.rename(path, &Self::aside(path, seq))?;
        path.parent().map_or(Ok(()), |folder| self.disk.sync_folder(folder))
    }

    /// Keeps a checkpoint that has no file yet where those are kept that were put out of the way.
    pub(crate) fn keep_aside(&self, path: &Path, seq: u64, note: &str) -> io::Result<()> {
        files::replace(&*self.disk, &Self::aside(path, seq), note.as_bytes())
    }

    /// The name that it gets.
    pub(crate) fn aside(path: &Path, seq: u64) -> PathBuf {
        path.with_added_extension(format!("set-aside-{seq}"))
    }
}

/// Reads a checkpoint file: none when there is none, an error in words when it is no checkpoint.
pub(crate) fn read_file(path: &Path) -> Result<Option<(Checkpoint, Note)>, String> {
    let disk = OsDisk::shared();
    Copies { disk, latest: path.to_owned(), anchor: None, place: None, writer: String::new() }.read(path)
}
