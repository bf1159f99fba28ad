//! The disk of the state folder, behind a small trait: whatever must survive a power cut goes through here (segments,
//! checkpoints, keys, the sync of the database's log, the reserve), so that a simulated disk can tear, lose and
//! reorder it under the real code. The database itself is SQLite's business.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

/// What a file is opened for. Nothing is written through a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFor {
    /// Reading; it must exist.
    Reading,
    /// Writing; it must exist.
    Writing,
    /// Writing; it is made for its owner only when it is missing.
    Making,
    /// As before, and what was there is gone.
    Replacing,
}

/// A disk.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Brings the names of a folder to the disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes a folder and those above it.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// The files of a folder, with their sizes; none when the folder is missing.
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>>;
    /// The size of a file, or none when it is missing.
    fn size(&self, path: &Path) -> io::Result<Option<u64>>;
    /// How many bytes can still be written below a folder.
    fn room(&self, folder: &Path) -> io::Result<u64>;
    /// Whether its owner may write a file.
    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send {
    /// Reads from an offset; may give less than asked.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset; may take less than given.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts or lengthens it.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Takes room for so many bytes, really.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Brings what was written to the disk, and the length. After a failure what is there is not known, and the
    /// next sync of the same file may wrongly succeed: nobody tries again.
    fn sync(&self) -> io::Result<()>;
    /// How long it is.
    fn length(&self) -> io::Result<u64>;
    /// Whether it still has a name.
    fn is_linked(&self) -> io::Result<bool>;
}

impl dyn DiskFile + '_ {
    /// Writes all of it.
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

/// Writes a file in one piece, for its owner only: after a power cut there is the old one or the new one.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let made = path.with_added_extension("new");
    let file = disk.open(&made, OpenFor::Replacing)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&made, path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// The beginning of a file; none when it is missing.
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

/// The disk of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

impl OsDisk {
    /// To be handed in.
    #[must_use]
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let no_follow = if purpose == OpenFor::Reading { OFlags::empty() } else { OFlags::NOFOLLOW };
        let makes = matches!(purpose, OpenFor::Making | OpenFor::Replacing);
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

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(facts) => found.push((name, facts.len())),
                // Another process has just renamed it: what is written beside takes the place of the old.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(facts) => Ok(Some(facts.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn room(&self, folder: &Path) -> io::Result<u64> {
        let facts = rustix::fs::statvfs(folder)?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
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
        self.metadata().map(|facts| facts.len())
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.metadata().map(|facts| facts.nlink() > 0)
    }
}
