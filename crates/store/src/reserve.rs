//! Room that is kept back for the day the disk is full: then nothing starts any more, and that it did not start, and
//! how what had started ended, is still put on record. The file holds nothing; cutting it gives its room to the
//! database. Ordinary work is accepted only while the reserve is whole, in every process of the folder.
//!
//! The caller holds the writer lock.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::StoreError;
use crate::files::{Disk, DiskFile, OpenFor};

/// A refusal writes about ten pages to the log, and a kilobyte to the database when the log is copied back, which
/// is done early when the disk is full. This is room for a log of 2 MiB, the rows and lines of more than a thousand
/// refusals, and their checkpoints.
const SIZE: u64 = 4 << 20;
/// A folder with less room than this cannot be opened: SQLite needs 32 KiB for the index of its log and a few pages.
const FULL: u64 = 256 << 10;

/// The reserve of a state folder.
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

    /// Sees to it that the reserve is whole, as far as there is room.
    pub(crate) fn ensure(&mut self) -> Result<(), StoreError> {
        self.make().map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full(format!("no room for the reserve of {} MiB: {error}", SIZE >> 20))
            }
            _ => StoreError::folder(&self.path, error),
        })
    }

    fn make(&mut self) -> io::Result<()> {
        let file = self.file()?;
        if file.length()? == SIZE {
            return Ok(());
        }
        let made = file.allocate(SIZE).or_else(|error| match error.kind() {
            io::ErrorKind::Unsupported => fill(file),
            _ => Err(error),
        });
        made.inspect_err(|_| {
            // What was taken of too little room is given back.
            let _ = file.set_len(0);
        })
    }

    /// Gives the room away; false when there is nothing to give.
    pub(crate) fn release(&mut self) -> bool {
        let Ok(file) = self.file() else { return false };
        file.length().is_ok_and(|length| length > 0) && file.set_len(0).is_ok()
    }

    /// Gives the room away if the disk is full.
    pub(crate) fn release_if_full(&mut self) -> bool {
        let folder = self.path.parent().map(|folder| self.disk.room(folder));
        folder.is_some_and(|room| room.is_ok_and(|room| room < FULL)) && self.release()
    }

    fn file(&mut self) -> io::Result<&dyn DiskFile> {
        match &mut self.file {
            Some(file) => Ok(&**file),
            empty => Ok(&**empty.insert(self.disk.open(&self.path, OpenFor::Making)?)),
        }
    }
}

/// Where room cannot be asked for it is written, with bytes that no disk can make smaller.
fn fill(file: &dyn DiskFile) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let mut offset = 0;
    while offset < SIZE {
        getrandom::fill(&mut piece).map_err(io::Error::other)?;
        file.write_all_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
