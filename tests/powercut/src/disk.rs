//! The machine's disk, with a log and without syncs.

use std::io;
use std::path::{Path, PathBuf};

use vambrace_simdisk::{FileId, Step};
use vambrace_store::{Disk, DiskFile, OpenFor, OsDisk};

use crate::{SharedLog, log_of};

/// A disk whose writes are logged where [`log_below`](crate::log_below) asked for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoggedDisk;

#[derive(Debug)]
struct LoggedFile {
    real: Box<dyn DiskFile>,
    log: Option<(SharedLog, FileId)>,
}

fn take(path: &Path, step: impl FnOnce(PathBuf) -> Step) {
    if let Some(log) = log_of(path) {
        log.lock().take(step(path.to_owned()));
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
                locked.take(Step::Length(file, 0));
            }
            drop(locked);
            (log, file)
        });
        Ok(Box::new(LoggedFile { real, log }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)?;
        take(from, |from| Step::Rename(from, to.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        take(folder, Step::SyncFolder);
        Ok(())
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        OsDisk.make_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>> {
        OsDisk.list(folder)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        OsDisk.size(path)
    }

    fn room(&self, folder: &Path) -> io::Result<u64> {
        OsDisk.room(folder)
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        OsDisk.set_writable(path, writable)
    }
}

impl LoggedFile {
    fn take(&self, step: impl FnOnce(FileId) -> Step) {
        if let Some((log, file)) = &self.log {
            log.lock().take(step(*file));
        }
    }
}

impl DiskFile for LoggedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.real.write_at(bytes, offset)?;
        self.take(|file| Step::Write(file, usize::try_from(offset).unwrap(), bytes[..written].to_vec()));
        Ok(written)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.real.set_len(length)?;
        self.take(|file| Step::Length(file, usize::try_from(length).unwrap()));
        Ok(())
    }

    /// Not logged: room is all that it is about.
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.real.allocate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.take(Step::Sync);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.real.length()
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.real.is_linked()
    }
}
