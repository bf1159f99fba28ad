//! Metadata of a file, directory or symlink, for comparing the workspace with the program's view of it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::attributes;
use crate::sys::mount::open_within;

/// Metadata of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryMetadata {
    /// File, directory, symlink or special file.
    pub kind: FileKind,
    /// Permission bits without setuid, setgid and sticky.
    pub mode: u32,
    /// Whether the setuid or setgid bit is set.
    pub set_id: bool,
    /// Size of the content in bytes; 0 for a directory.
    pub size: u64,
    /// SHA-256 of a file's content, once it was read.
    pub hash: Option<[u8; 32]>,
    /// Hash of its extended attributes (`user.*`), once it was opened; `None` when it has none.
    pub attributes: Option<[u8; 32]>,
    /// The target of a symlink.
    pub target: Option<PathBuf>,
    /// Time of the last change of content, name or mode (ctime; nanoseconds of CLOCK_REALTIME).
    pub changed: i128,
    /// Inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u64,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Special,
}

impl EntryMetadata {
    /// Reads the metadata of an entry beneath a directory; `None` if it does not exist, `XDEV` if it is on another mount.
    pub(crate) fn stat(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Self>, Errno> {
        let (facts, target) = match stat_entry(root, path) {
            Ok(found) => found,
            // A symlink or a file where the path needs a directory: the path does not exist.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let kind = match FileType::from_raw_mode(facts.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Special,
        };
        let changed =
            i128::from(facts.stx_ctime.tv_sec) * 1_000_000_000 + i128::from(facts.stx_ctime.tv_nsec);
        Ok(Some(Self {
            kind,
            mode: u32::from(facts.stx_mode) & 0o777,
            set_id: u32::from(facts.stx_mode) & 0o6000 != 0,
            size: if kind == FileKind::Directory { 0 } else { facts.stx_size },
            hash: None,
            attributes: None,
            target,
            changed,
            inode: facts.stx_ino,
            links: facts.stx_nlink.into(),
        }))
    }

    /// Adds the hash of the extended attributes of a file or directory.
    pub(crate) fn with_attributes(mut self, root: BorrowedFd<'_>, path: &[u8]) -> Result<Self, Errno> {
        match self.kind {
            FileKind::File => self.attributes = attributes::digest(&open_file(root, path)?)?,
            // A directory that even its owner cannot open is written back all the same.
            FileKind::Directory => {
                self.attributes =
                    open_file(root, path).and_then(|file| attributes::digest(&file)).ok().flatten()
            }
            _ => {}
        }
        Ok(self)
    }

    /// Adds the hash of a file's content.
    pub(crate) fn with_hash(self, root: BorrowedFd<'_>, path: &[u8]) -> Result<Self, Errno> {
        Ok(Self { hash: Some(digest(open_file(root, path)?)?), ..self })
    }
}

/// The statx of an entry, and the target if it is a symlink.
fn stat_entry(root: BorrowedFd<'_>, path: &[u8]) -> Result<(Statx, Option<PathBuf>), Errno> {
    let is_link = |facts: &Statx| FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Symlink;
    // A single name has no intermediate component that could be a symlink.
    if !path.contains(&b'/') && path != b".." {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let facts = rustix::fs::statx(root, path, flags, StatxFlags::BASIC_STATS)?;
        if path != b"." && facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(Errno::XDEV);
        }
        if !is_link(&facts) {
            return Ok((facts, None));
        }
    }
    // Through a handle: another process may replace the symlink before it is read.
    let handle = open_within(root, path, OFlags::PATH)?;
    let facts = rustix::fs::statx(&handle, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let target = if is_link(&facts) {
        let target = rustix::fs::readlinkat(&handle, c"", Vec::new())?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    } else {
        None
    };
    Ok((facts, target))
}

fn open_file(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_within(root, path, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Whether two files of the same size have the same content. Ranges that are holes in both are not read.
pub(super) fn same_content(
    size: u64,
    (one, its_name): (BorrowedFd<'_>, &[u8]),
    (other, others_name): (BorrowedFd<'_>, &[u8]),
) -> Result<bool, Errno> {
    let (one, other) = (File::from(open_file(one, its_name)?), File::from(open_file(other, others_name)?));
    let data = |file: &File, at: u64| match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => size,
        // A file system without SEEK_DATA reports no holes.
        found => found.unwrap_or(at),
    };
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        at = data(&one, at).min(data(&other, at));
        if at >= size {
            return Ok(true);
        }
        let length = (size - at).min(64 << 10);
        here.resize(length as usize, 0);
        there.resize(length as usize, 0);
        let read = one.read_exact_at(&mut here, at).and_then(|()| other.read_exact_at(&mut there, at));
        match read {
            // Another process truncated it meanwhile.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read.map_err(errno)?,
        }
        if here != there {
            return Ok(false);
        }
        at += length;
    }
}

/// SHA-256 of a file from its current position to its end.
pub(crate) fn digest(file: impl AsFd) -> Result<[u8; 32], Errno> {
    let mut digest = Sha256::new();
    let mut piece = Vec::with_capacity(32 << 10);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut piece)) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(_) => digest.update(&piece),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        piece.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make files")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn metadata_of_a_symlink_that_is_being_replaced_is_consistent() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("a")).unwrap();
        std::os::unix::fs::symlink("elsewhere", place.path().join("b")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open(place.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                while !done.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(&root, "a", &root, "b", exchange).unwrap();
                }
            });
            let looks: Vec<_> = (0..20_000).map(|_| EntryMetadata::stat(root.as_fd(), b"a")).collect();
            done.store(true, Ordering::Relaxed);
            for looked in looks {
                let looked = looked.unwrap().unwrap();
                assert_eq!(looked.target.is_some(), looked.kind == FileKind::Symlink);
            }
        });
    }
}
