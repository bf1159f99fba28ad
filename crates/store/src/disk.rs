//! The files of the segments, behind a small trait: sealing, mirrors and simulated disks come in here.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use vambrace_ledger::SegmentName;

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
    /// Cuts a segment.
    fn cut(&mut self, name: SegmentName, size: u64) -> io::Result<()>;
    /// Brings a segment, and its name, to the disk.
    fn sync(&mut self, name: SegmentName) -> io::Result<()>;
    /// The segment is complete: nothing is written to it any more.
    fn close(&mut self, name: SegmentName) -> io::Result<()>;
    /// Moves what stands behind an offset out of the segments, and keeps it beside them.
    fn set_aside(&mut self, name: SegmentName, offset: u64) -> io::Result<()>;
}

/// Segments in a folder.
#[derive(Debug)]
pub struct DiskSegments {
    folder: PathBuf,
    /// The segment that is being written.
    open: Option<(SegmentName, File)>,
    /// Whether its name is on the disk.
    named: bool,
}

impl DiskSegments {
    /// The segments of a folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), open: None, named: false }
    }

    fn path(&self, name: SegmentName) -> PathBuf {
        self.folder.join(name.file_name())
    }

    fn open(&mut self, name: SegmentName) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != name) {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(self.path(name))?;
            (self.open, self.named) = (Some((name, file)), false);
        }
        self.open.as_ref().map(|(_, file)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl SegmentFiles for DiskSegments {
    fn list(&self) -> io::Result<Vec<(SegmentName, u64)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut segments = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str().and_then(SegmentName::parse) {
                segments.push((name, entry.metadata()?.len()));
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    fn size(&self, name: SegmentName) -> io::Result<Option<u64>> {
        match fs::metadata(self.path(name)) {
            Ok(facts) => Ok(Some(facts.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, name: SegmentName, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = File::open(self.path(name))?;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write(&mut self, name: SegmentName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open(name)?.write_all_at(bytes, offset)
    }

    fn cut(&mut self, name: SegmentName, size: u64) -> io::Result<()> {
        self.open(name)?.set_len(size)
    }

    fn sync(&mut self, name: SegmentName) -> io::Result<()> {
        self.open(name)?.sync_data()?;
        if !self.named {
            File::open(&self.folder)?.sync_all()?;
            self.named = true;
        }
        Ok(())
    }

    fn close(&mut self, name: SegmentName) -> io::Result<()> {
        self.open(name)?.set_permissions(fs::Permissions::from_mode(0o400))?;
        self.open = None;
        Ok(())
    }

    fn set_aside(&mut self, name: SegmentName, offset: u64) -> io::Result<()> {
        let path = self.path(name);
        self.open = None;
        let mut number = 0;
        let aside = loop {
            let aside = path.with_added_extension(format!("set-aside-{number}"));
            if !aside.try_exists()? {
                break aside;
            }
            number += 1;
        };
        if offset == 0 {
            return fs::rename(&path, aside);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        fs::copy(&path, &aside)?;
        OpenOptions::new().write(true).open(&path)?.set_len(offset)
    }
}
