//! The write-ahead log as a file: its length, and keeping its blocks allocated. Syncing it is the task of
//! `sync_state.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal as SqliteWal;

use crate::disk::{Disk, DiskFile, OpenFor};
use crate::error::StoreError;

const HEADER_BYTES: u64 = 32;
const FRAME_BYTES: u64 = 24 + 4096;
/// Zeros are written in chunks of this size, so that no caller waits long for one.
const EXTEND_BYTES: usize = 1 << 20;
/// Another chunk is added when less than this is left.
const LOW_BYTES: u64 = 192 << 10;
/// A longer WAL is not extended.
const MAX_EXTENDED_BYTES: u64 = 26 << 20;

/// The WAL of one connection.
#[derive(Debug)]
pub(crate) struct Wal {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    frames: Arc<AtomicU32>,
    length: u64,
}

impl Wal {
    /// Watches the WAL of a connection.
    pub(crate) fn of(
        connection: &mut Connection,
        disk: Arc<dyn Disk>,
        path: PathBuf,
    ) -> rusqlite::Result<Self> {
        let frames = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&frames);
        connection.wal_hook(Some(move |_: &mut SqliteWal, pages: std::ffi::c_int| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { disk, path, file: None, frames, length: 0 })
    }

    /// Pages in the WAL after our last commit.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether the WAL will soon outgrow its allocated blocks.
    pub(crate) fn is_low(&self) -> bool {
        let used = HEADER_BYTES + u64::from(self.frames()) * FRAME_BYTES;
        used < MAX_EXTENDED_BYTES && used + LOW_BYTES > self.length
    }

    /// Writes zeros after the end of the WAL: a sync that has to allocate blocks takes half as long again.
    /// SQLite stops reading a WAL at the first frame without a valid checksum, so it ignores zeros. The caller
    /// is inside a write transaction, so no other process extends the WAL meanwhile.
    pub(crate) fn extend(&mut self) -> Result<(), StoreError> {
        let fault = |error| StoreError::io("extending the WAL", error);
        let used = HEADER_BYTES + u64::from(self.frames()) * FRAME_BYTES;
        let file = self.file()?;
        let mut length = file.length().map_err(fault)?;
        if length < MAX_EXTENDED_BYTES && used + LOW_BYTES > length {
            file.write_all_at(&vec![0; EXTEND_BYTES], length).map_err(fault)?;
            file.sync()
                .map_err(|error| StoreError::Unsynced(format!("syncing the extended WAL: {error}")))?;
            length += EXTEND_BYTES as u64;
        }
        self.length = length;
        Ok(())
    }

    fn file(&mut self) -> Result<&dyn DiskFile, StoreError> {
        match &mut self.file {
            Some(file) => Ok(&**file),
            empty => {
                let file = self.disk.open(&self.path, OpenFor::Writing);
                Ok(&**empty.insert(file.map_err(|error| StoreError::io("opening the WAL", error))?))
            }
        }
    }
}
