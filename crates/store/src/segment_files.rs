//! The files of the segments, behind a small trait. They are written to a [`Disk`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_ledger::SegmentName;

use crate::disk::{Disk, DiskFile, OpenFor, OsDisk};

/// Storage of segments.
pub trait SegmentFiles: Send {
    /// The existing segments, in order, with their sizes.
    fn list(&self) -> io::Result<Vec<(SegmentName, u64)>>;
    /// The size of a segment, or `None` if it is missing.
    fn size(&self, name: SegmentName) -> io::Result<Option<u64>>;
    /// Reads from an offset; returns fewer bytes only at the end.
    fn read(&self, name: SegmentName, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes at an offset; creates the segment if it is missing.
    fn write(&mut self, name: SegmentName, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Syncs a segment and its directory entry. After a failure the segment is opened again.
    fn sync(&mut self, name: SegmentName) -> io::Result<()>;
    /// The segment is complete: it becomes read-only.
    fn close(&mut self, name: SegmentName) -> io::Result<()>;
    /// Moves the content after an offset out of the segments and keeps it in a file beside them.
    fn set_aside(&mut self, name: SegmentName, offset: u64) -> io::Result<()>;
}

/// Segments in a directory.
#[derive(Debug)]
pub struct DiskSegments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The segment that is being written.
    open: Option<(SegmentName, Box<dyn DiskFile>)>,
    /// Whether its directory entry is synced.
    name_synced: bool,
}

impl DiskSegments {
    /// The segments of a directory, which need not exist.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self::on(OsDisk::shared(), dir)
    }

    /// The segments of a directory on this disk.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, dir: dir.to_owned(), open: None, name_synced: false }
    }

    fn path(&self, name: SegmentName) -> PathBuf {
        self.dir.join(name.file_name())
    }

    fn open(&mut self, name: SegmentName) -> io::Result<&dyn DiskFile> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != name) {
            let path = self.path(name);
            let file = match self.disk.open(&path, OpenFor::Creating) {
                // Closed, and then a crash came before the cursor was stored: write it again.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.disk.set_writable(&path, true)?;
                    self.disk.open(&path, OpenFor::Creating)
                }
                other => other,
            };
            (self.open, self.name_synced) = (Some((name, file?)), false);
        }
        self.open.as_ref().map(|(_, file)| &**file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl SegmentFiles for DiskSegments {
    fn list(&self) -> io::Result<Vec<(SegmentName, u64)>> {
        let files = self.disk.list(&self.dir)?;
        let mut segments: Vec<_> =
            files.iter().filter_map(|(name, size)| Some((SegmentName::parse(name)?, *size))).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    fn size(&self, name: SegmentName) -> io::Result<Option<u64>> {
        self.disk.size(&self.path(name))
    }

    fn read(&self, name: SegmentName, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.disk.open(&self.path(name), OpenFor::Reading)?.fill_from(buffer, offset)
    }

    fn write(&mut self, name: SegmentName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(name)?.write_all_at(bytes, offset)
    }

    fn sync(&mut self, name: SegmentName) -> io::Result<()> {
        let name_synced = self.name_synced && self.open.as_ref().is_some_and(|(open, _)| *open == name);
        let synced = self.open(name)?.sync().and_then(|()| match name_synced {
            true => Ok(()),
            false => self.disk.sync_dir(&self.dir),
        });
        self.name_synced = synced.is_ok();
        synced.inspect_err(|_| self.open = None)
    }

    fn close(&mut self, name: SegmentName) -> io::Result<()> {
        self.open = None;
        self.disk.set_writable(&self.path(name), false)
    }

    fn set_aside(&mut self, name: SegmentName, offset: u64) -> io::Result<()> {
        let path = self.path(name);
        self.open = None;
        let mut number = 0;
        let set_aside_path = loop {
            let set_aside_path = path.with_added_extension(format!("set-aside-{number}"));
            if self.disk.size(&set_aside_path)?.is_none() {
                break set_aside_path;
            }
            number += 1;
        };
        if offset > 0 {
            let whole = crate::disk::read(&*self.disk, &path, usize::MAX)?.unwrap_or_default();
            crate::disk::replace(&*self.disk, &set_aside_path, &whole)?;
            self.disk.set_writable(&path, true)?;
            let file = self.disk.open(&path, OpenFor::Writing)?;
            file.set_len(offset)?;
            return file.sync();
        }
        self.disk.rename(&path, &set_aside_path)?;
        self.disk.sync_dir(&self.dir)
    }
}
