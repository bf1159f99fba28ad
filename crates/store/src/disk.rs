//! The files of the segments, behind a small trait: sealing and mirrors come in here. What they are written to is a
//! [`Disk`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_ledger::SegmentName;

use crate::files::{Disk, DiskFile, OpenFor, OsDisk};

/// Where segments are kept.
pub trait SegmentFiles: Send {
    /// The segments that exist, in their order, with their sizes.
    fn list(&self) -> io::Result<Vec<(SegmentName, u64)>>;
    /// The size of a segment, or none when it is missing.
    fn size(&self, name: SegmentName) -> io::Result<Option<u64>>;
    /// Reads from an offset; fewer bytes only at the end.
    fn read(&self, name: SegmentName, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes at an offset, making the segment when it is missing.
    fn write(&mut self, name: SegmentName, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Brings a segment, and its name, to the disk. After a failure the segment is opened anew.
    fn sync(&mut self, name: SegmentName) -> io::Result<()>;
    /// The segment is complete: nothing is written to it any more.
    fn close(&mut self, name: SegmentName) -> io::Result<()>;
    /// Moves what stands behind an offset out of the segments, and keeps it beside them.
    fn set_aside(&mut self, name: SegmentName, offset: u64) -> io::Result<()>;
}

/// Segments in a folder.
#[derive(Debug)]
pub struct DiskSegments {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// The segment that is being written.
    open: Option<(SegmentName, Box<dyn DiskFile>)>,
    /// Whether its name is on the disk.
    named: bool,
}

impl DiskSegments {
    /// The segments of a folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self::on(OsDisk::shared(), folder)
    }

    /// The segments of a folder of this disk.
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>, folder: &Path) -> Self {
        Self { disk, folder: folder.to_owned(), open: None, named: false }
    }

    fn path(&self, name: SegmentName) -> PathBuf {
        self.folder.join(name.file_name())
    }

    fn open(&mut self, name: SegmentName) -> io::Result<&dyn DiskFile> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != name) {
            let path = self.path(name);
            let file = match self.disk.open(&path, OpenFor::Making) {
                // Closed, and then the end came before the cursor was stored: it is written again.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.disk.set_writable(&path, true)?;
                    self.disk.open(&path, OpenFor::Making)
                }
                other => other,
            };
            (self.open, self.named) = (Some((name, file?)), false);
        }
        self.open.as_ref().map(|(_, file)| &**file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl SegmentFiles for DiskSegments {
    fn list(&self) -> io::Result<Vec<(SegmentName, u64)>> {
        let files = self.disk.list(&self.folder)?;
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
        let named = self.named && self.open.as_ref().is_some_and(|(open, _)| *open == name);
        let synced = self.open(name)?.sync().and_then(|()| match named {
            true => Ok(()),
            false => self.disk.sync_folder(&self.folder),
        });
        self.named = synced.is_ok();
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
        let aside = loop {
            let aside = path.with_added_extension(format!("set-aside-{number}"));
            if self.disk.size(&aside)?.is_none() {
                break aside;
            }
            number += 1;
        };
        if offset > 0 {
            let whole = crate::files::read(&*self.disk, &path, usize::MAX)?.unwrap_or_default();
            crate::files::replace(&*self.disk, &aside, &whole)?;
            self.disk.set_writable(&path, true)?;
            let file = self.disk.open(&path, OpenFor::Writing)?;
            file.set_len(offset)?;
            return file.sync();
        }
        self.disk.rename(&path, &aside)?;
        self.disk.sync_folder(&self.folder)
    }
}
