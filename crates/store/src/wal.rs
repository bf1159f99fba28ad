//! The write-ahead log as a file: how long it is, and keeping its blocks allocated. Syncing it is the
//! business of `tide.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal as Log;

use crate::error::StoreError;
use crate::files::{Disk, DiskFile, OpenFor};

const HEADER: u64 = 32;
const FRAME: u64 = 24 + 4096;
/// Zeros are written in pieces of this size, so that no caller waits long for one.
const PIECE: usize = 1 << 20;
/// Another piece is added when less than this is left.
const LOW: u64 = 192 << 10;
/// A log longer than this grows by itself.
const MOST: u64 = 26 << 20;

/// The log of one connection.
#[derive(Debug)]
pub(crate) struct Wal {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    frames: Arc<AtomicU32>,
    length: u64,
}

impl Wal {
    /// Watches the log of a connection.
    pub(crate) fn of(
        connection: &mut Connection,
        disk: Arc<dyn Disk>,
        path: PathBuf,
    ) -> rusqlite::Result<Self> {
        let frames = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&frames);
        connection.wal_hook(Some(move |_: &mut Log, pages: std::ffi::c_int| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { disk, path, file: None, frames, length: 0 })
    }

    /// How many pages the log held after our last commit.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether the log will soon be longer than its allocated blocks.
    pub(crate) fn is_low(&self) -> bool {
        let used = HEADER + u64::from(self.frames()) * FRAME;
        used < MOST && used + LOW > self.length
    }

    /// Writes zeros behind the end of the log. A sync that has to allocate blocks takes half as long again.
    /// SQLite stops reading a log at the first frame without a valid checksum, so zeros mean nothing to it.
    /// The caller is inside a write transaction: nobody else may lengthen the log meanwhile.
    pub(crate) fn lengthen(&mut self) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("lengthening the log", error);
        let used = HEADER + u64::from(self.frames()) * FRAME;
        let file = self.file()?;
        let mut length = file.length().map_err(fault)?;
        if length < MOST && used + LOW > length {
            file.write_all_at(&vec![0; PIECE], length).map_err(fault)?;
            file.sync().map_err(|error| StoreError::Unsynced(format!("the longer log: {error}")))?;
            length += PIECE as u64;
        }
        self.length = length;
        Ok(())
    }

    fn file(&mut self) -> Result<&dyn DiskFile, StoreError> {
        match &mut self.file {
            Some(file) => Ok(&**file),
            empty => {
                let file = self.disk.open(&self.path, OpenFor::Writing);
                Ok(&**empty.insert(file.map_err(|error| StoreError::io("opening the log", error))?))
            }
        }
    }
}
