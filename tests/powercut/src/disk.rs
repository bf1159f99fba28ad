//! The real disk, with a write log and without syncs.

use std::io;
use std::path::{Path, PathBuf};

use vambrace_simdisk::{DiskOp, FileId};
use vambrace_store::{Disk, DiskFile, OpenFor, OsDisk};

use crate::{SharedLog, log_of};

/// A disk that logs writes below a directory passed to [`log_below`](crate::log_below).
#[derive(Debug, Clone, Copy, Default)]
pub struct LoggedDisk;

#[derive(Debug)]
struct LoggedFile {
    real: Box<dyn DiskFile>,
    log: Option<(SharedLog, FileId)>,
}

fn record(path: &Path, step: impl FnOnce(PathBuf) -> DiskOp) {
    if let Some(log) = log_of(path) {
        log.lock().record(step(path.to_owned()));
    }
}

impl Disk for LoggedDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let real = OsDisk.open(path, purpose)?;
        let log = if purpose == OpenFor::Reading { None } else { log_of(path) };
        let log = log.map(|log| {
            let mut locked = log.lock();
            let file = locked.file(path);
            if purpose == OpenFor::Replacing {
                locked.record(DiskOp::SetLen(file, 0));
            }
            drop(locked);
            (log, file)
        });
        Ok(Box::new(LoggedFile { real, log }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)?;
        record(from, |from| DiskOp::Rename(from, to.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        record(dir, DiskOp::SyncDir);
        Ok(())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        OsDisk.list(dir)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        OsDisk.size(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        OsDisk.free_bytes(dir)
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        OsDisk.set_writable(path, writable)
    }
}

impl LoggedFile {
    fn record(&self, step: impl FnOnce(FileId) -> DiskOp) {
        if let Some((log, file)) = &self.log {
            log.lock().record(step(*file));
        }
    }
}

impl DiskFile for LoggedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.real.write_at(bytes, offset)?;
        self.record(|file| DiskOp::Write(file, usize::try_from(offset).unwrap(), bytes[..written].to_vec()));
        Ok(written)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.real.set_len(length)?;
        self.record(|file| DiskOp::SetLen(file, usize::try_from(length).unwrap()));
        Ok(())
    }

    /// Not logged: it only concerns disk space.
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.real.allocate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.record(DiskOp::Sync);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.real.length()
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.real.is_linked()
    }
}
