//! The disk of the state directory, behind a small trait: whatever must survive a power cut goes through here
//! (segments, checkpoints, keys, the sync of the database's WAL, the reserve), so that a simulated disk can
//! tear, lose and reorder it under the real code. SQLite writes the database itself.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

/// Purpose of opening a file. Writing never follows a symlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFor {
    /// Reading; the file must exist.
    Reading,
    /// Writing; the file must exist.
    Writing,
    /// Writing; a missing file is created with mode 0600.
    Creating,
    /// The same, and the file is truncated.
    Replacing,
}

/// A disk.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Syncs a directory: the names of its files.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates a directory and its parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The files of a directory, with their sizes; empty if the directory is missing.
    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>>;
    /// The size of a file, or `None` if it is missing.
    fn size(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Free space below a directory, in bytes.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// Sets whether the owner may write a file.
    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send {
    /// Reads from an offset; may return fewer bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset; may write fewer bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Truncates or extends the file.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Allocates disk space for this many bytes.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Syncs content and length. After a failure the content of the disk is unknown, and the next sync of the
    /// same file may wrongly succeed, so callers never retry.
    fn sync(&self) -> io::Result<()>;
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Whether the file still has a name.
    fn is_linked(&self) -> io::Result<bool>;
}

impl dyn DiskFile + '_ {
    /// Writes all bytes.
    pub(crate) fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the buffer; less only at the end of the file.
    pub(crate) fn fill_from(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// Replaces a file atomically, with mode 0600: after a power cut it has the old content or the new.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let made = path.with_added_extension("new");
    let file = disk.open(&made, OpenFor::Replacing)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&made, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// The first `most` bytes of a file; `None` if it is missing.
pub(crate) fn read(disk: &dyn Disk, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenFor::Reading) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; usize::try_from(file.length()?).unwrap_or(most).min(most)];
    let read = file.fill_from(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// The real disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

impl OsDisk {
    /// The real disk as a trait object.
    #[must_use]
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let no_follow = if purpose == OpenFor::Reading { OFlags::empty() } else { OFlags::NOFOLLOW };
        let makes = matches!(purpose, OpenFor::Creating | OpenFor::Replacing);
        let file = OpenOptions::new()
            .read(purpose == OpenFor::Reading)
            .write(purpose != OpenFor::Reading)
            .create(makes)
            .truncate(purpose == OpenFor::Replacing)
            .mode(0o600)
            .custom_flags(no_follow.bits().cast_signed())
            .open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) => found.push((name, metadata.len())),
                // Another process has just renamed the temporary file into place.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let metadata = rustix::fs::statvfs(dir)?;
        Ok(metadata.f_bavail.saturating_mul(metadata.f_frsize))
    }

    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(if writable { 0o600 } else { 0o400 }))
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Self::set_len(self, length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, length)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(self)?)
    }

    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.metadata().map(|metadata| metadata.nlink() > 0)
    }
}
