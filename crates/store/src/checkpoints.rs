//! Signed checkpoints: the rows of the table, the newest one as a file in `ledger/`, and a copy outside the
//! state directory (the anchor), which contradicts a directory that was rolled back as a whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_ledger::{Checkpoint, Digest, Id, SignedNote, Timestamp};

use crate::disk::{self, Disk, OsDisk};
use crate::error::StoreError;
use crate::state_dir::StateDir;

/// Maximum records between two stored checkpoints.
pub(crate) const MAX_CHECKPOINT_GAP: u64 = 4096;
/// Maximum size of a checkpoint file.
const MAX_CHECKPOINT_FILE_BYTES: usize = 64 << 10;

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRow {
    /// How many records it covers.
    pub size: u64,
    /// When it was signed.
    pub at: Timestamp,
    /// Whether a segment was sealed with it.
    pub sealed: bool,
    /// The signed note.
    pub note: String,
}

/// The newest checkpoint as files: in the state directory, and outside of it if a directory for anchors is
/// configured.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointFiles {
    disk: Arc<dyn Disk>,
    latest: PathBuf,
    anchor: Option<PathBuf>,
    /// A file beside the anchors that names the ledger of a state directory, so that an emptied directory is
    /// not taken for a new one.
    marker: Option<PathBuf>,
    writer: String,
}

impl CheckpointFiles {
    pub(crate) fn of(dir: &StateDir, anchors: Option<&Path>, writer: &Id) -> Self {
        Self::on(OsDisk::shared(), dir.latest_checkpoint(), anchors, writer)
    }

    pub(crate) fn on(disk: Arc<dyn Disk>, latest: PathBuf, anchors: Option<&Path>, writer: &Id) -> Self {
        let anchor = anchors.map(|dir| dir.join(format!("{writer}.checkpoint")));
        let name = Digest::of(latest.as_os_str().as_encoded_bytes()).hex();
        let name = name.first_chunk::<16>().map(|name| String::from_utf8_lossy(name).into_owned());
        let marker = anchors.zip(name).map(|(dir, name)| dir.join(format!("{name}.place")));
        Self { disk, latest, anchor, marker, writer: writer.to_string() }
    }

    pub(crate) fn latest(&self) -> &Path {
        &self.latest
    }

    pub(crate) fn anchor(&self) -> Option<&Path> {
        self.anchor.as_deref()
    }

    /// Writes both files, replacing older ones. A copy that is ahead of us, or has another root at our size,
    /// belongs to another history and is kept.
    pub(crate) fn replace(
        &self,
        signed: &Checkpoint,
        note: &SignedNote,
        database: &Path,
    ) -> Result<(), StoreError> {
        for path in [Some(&self.latest), self.anchor.as_ref()].into_iter().flatten() {
            let Ok(Some((existing, _))) = self.read(path) else { continue };
            if existing.size > signed.size || (existing.size == signed.size && existing.root != signed.root) {
                let (file, size) = (path.display(), existing.size);
                let reason = format!(
                    "`{file}` holds a checkpoint of {size} records that the ledger does not continue"
                );
                return Err(StoreError::Damaged { path: database.to_owned(), reason });
            }
        }
        self.publish(&note.to_string())
    }

    /// Writes both files. If the anchor cannot be written, the error is reported and nothing stops.
    pub(crate) fn publish(&self, note: &str) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("writing the newest checkpoint", error);
        disk::replace(&*self.disk, &self.latest, note.as_bytes()).map_err(fault)?;
        let Some(anchor) = &self.anchor else { return Ok(()) };
        let dir = anchor.parent().map_or(Ok(()), |dir| self.disk.create_dir(dir));
        dir.and_then(|()| disk::replace(&*self.disk, anchor, note.as_bytes()))
            .and_then(|()| self.write_marker())
            .map_err(|error| StoreError::Io(format!("writing the anchor `{}`: {error}", anchor.display())))
    }

    fn write_marker(&self) -> io::Result<()> {
        let Some(marker) = &self.marker else { return Ok(()) };
        if disk::read(&*self.disk, marker, MAX_CHECKPOINT_FILE_BYTES)?
            .is_some_and(|existing| existing == self.writer.as_bytes())
        {
            return Ok(());
        }
        disk::replace(&*self.disk, marker, self.writer.as_bytes())
    }

    /// The marker file of a previous ledger in this directory, and its last checkpoint; `None` if the marker
    /// names this ledger.
    pub(crate) fn previous_ledger(&self) -> Option<(&Path, (Checkpoint, SignedNote))> {
        let marker = self.marker.as_deref()?;
        let existing = disk::read(&*self.disk, marker, MAX_CHECKPOINT_FILE_BYTES).ok().flatten()?;
        // The id is used as a file name, so it must not contain a path.
        let other = Id::new(std::str::from_utf8(&existing).ok()?).ok()?;
        if other.as_str() == self.writer || other.as_str().contains(['/', '.']) {
            return None;
        }
        let anchor = marker.with_file_name(format!("{other}.checkpoint"));
        Some((marker, self.read(&anchor).ok().flatten()?))
    }

    /// Reads one of the two files.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<(Checkpoint, SignedNote)>, String> {
        let bytes =
            disk::read(&*self.disk, path, MAX_CHECKPOINT_FILE_BYTES).map_err(|error| error.to_string())?;
        bytes.map(|bytes| Checkpoint::parse(&bytes).map_err(|error| error.to_string())).transpose()
    }

    /// Renames a contradicted copy out of the way.
    pub(crate) fn set_aside(&self, path: &Path, seq: u64) -> io::Result<()> {
        self.disk.rename(path, &Self::set_aside_path(path, seq))?;
        path.parent().map_or(Ok(()), |dir| self.disk.sync_dir(dir))
    }

    /// Stores a checkpoint that has no file yet under the name of a set-aside one.
    pub(crate) fn store_set_aside(&self, path: &Path, seq: u64, note: &str) -> io::Result<()> {
        disk::replace(&*self.disk, &Self::set_aside_path(path, seq), note.as_bytes())
    }

    /// The name of a set-aside file.
    pub(crate) fn set_aside_path(path: &Path, seq: u64) -> PathBuf {
        path.with_added_extension(format!("set-aside-{seq}"))
    }
}

/// Reads a checkpoint file: `None` if there is none, a message if it is not a checkpoint.
pub(crate) fn read_file(path: &Path) -> Result<Option<(Checkpoint, SignedNote)>, String> {
    let disk = OsDisk::shared();
    CheckpointFiles { disk, latest: path.to_owned(), anchor: None, marker: None, writer: String::new() }
        .read(path)
}
