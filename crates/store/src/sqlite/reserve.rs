//! Disk space reserved for a full disk: then no call starts, but its denial and the end of every running call
//! are still recorded. The file has no content; truncating it gives its space to the database. Ordinary work is
//! accepted only while the reserve is complete, in every process of the directory.
//!
//! The caller holds the writer lock.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, OpenFor};
use crate::error::StoreError;

/// A denial writes about ten pages to the WAL, and a kilobyte to the database when the WAL is checkpointed,
/// which happens early on a full disk. This is space for a WAL of 2 MiB, the rows and lines of more than a
/// thousand denials, and their checkpoints.
const RESERVE_BYTES: u64 = 4 << 20;
/// A directory with less free space cannot be opened: SQLite needs 32 KiB for the index of its WAL and a few
/// pages.
const FULL_DISK_BYTES: u64 = 256 << 10;

/// The reserve of a state directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
}

impl Reserve {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Self {
        Self { disk, path, file: None }
    }

    /// Makes the reserve complete, as far as there is space.
    pub(crate) fn ensure(&mut self) -> Result<(), StoreError> {
        self.allocate_file().map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full(format!("no space for the reserve of {} MiB: {error}", RESERVE_BYTES >> 20))
            }
            _ => StoreError::directory(&self.path, error),
        })
    }

    fn allocate_file(&mut self) -> io::Result<()> {
        let file = self.file()?;
        if file.length()? == RESERVE_BYTES {
            return Ok(());
        }
        let made = file.allocate(RESERVE_BYTES).or_else(|error| match error.kind() {
            io::ErrorKind::Unsupported => fill(file),
            _ => Err(error),
        });
        made.inspect_err(|_| {
            // Gives back what was allocated of too little space.
            let _ = file.set_len(0);
        })
    }

    /// Frees the space; `false` if there is none to free.
    pub(crate) fn release(&mut self) -> bool {
        let Ok(file) = self.file() else { return false };
        file.length().is_ok_and(|length| length > 0) && file.set_len(0).is_ok()
    }

    /// Frees the space if the disk is full.
    pub(crate) fn release_if_full(&mut self) -> bool {
        let free = self.path.parent().map(|dir| self.disk.free_bytes(dir));
        free.is_some_and(|free| free.is_ok_and(|bytes| bytes < FULL_DISK_BYTES)) && self.release()
    }

    fn file(&mut self) -> io::Result<&dyn DiskFile> {
        match &mut self.file {
            Some(file) => Ok(&**file),
            empty => Ok(&**empty.insert(self.disk.open(&self.path, OpenFor::Creating)?)),
        }
    }
}

/// For file systems without `fallocate`: writes random bytes, which no disk can compress.
fn fill(file: &dyn DiskFile) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let mut offset = 0;
    while offset < RESERVE_BYTES {
        getrandom::fill(&mut piece).map_err(io::Error::other)?;
        file.write_all_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
