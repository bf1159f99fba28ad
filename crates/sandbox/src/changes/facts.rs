//! What an entry is, so that two of them can be compared.

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
use crate::sys::mounting::open_within;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// File, folder, link.
    pub kind: EntryKind,
    /// Who may do what, without set-id bits.
    pub mode: u32,
    /// Whether it has a set-id bit besides.
    pub set_id: bool,
    /// Bytes of content; 0 of a folder.
    pub size: u64,
    /// SHA-256 of a file's content, once it was read for that.
    pub hash: Option<[u8; 32]>,
    /// Hash of its extended attributes (`user.*`), once it was opened; nothing when it has none.
    pub attributes: Option<[u8; 32]>,
    /// Where a link leads.
    pub target: Option<PathBuf>,
    /// Last change of content, name or mode (nanoseconds of the real-time clock).
    pub changed: i128,
    /// Its number on its device.
    pub inode: u64,
    /// How many names it has.
    pub links: u64,
}

/// What kind of thing an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Special,
}

impl Facts {
    /// Looks at an entry beneath a folder; `None` when it is not there, `XDEV` when it is not on the folder's mount.
    pub(crate) fn look(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Self>, Errno> {
        let (facts, target) = match found(root, path) {
            Ok(found) => found,
            // A link or a file where the path wants a folder: the path is not there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let kind = match FileType::from_raw_mode(facts.stx_mode.into()) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Special,
        };
        let changed =
            i128::from(facts.stx_ctime.tv_sec) * 1_000_000_000 + i128::from(facts.stx_ctime.tv_nsec);
        Ok(Some(Self {
            kind,
            mode: u32::from(facts.stx_mode) & 0o777,
            set_id: u32::from(facts.stx_mode) & 0o6000 != 0,
            size: if kind == EntryKind::Folder { 0 } else { facts.stx_size },
            hash: None,
            attributes: None,
            target,
            changed,
            inode: facts.stx_ino,
            links: facts.stx_nlink.into(),
        }))
    }

    /// Opens a file, or a folder, for what attributes it has.
    pub(crate) fn with_attributes(mut self, root: BorrowedFd<'_>, path: &[u8]) -> Result<Self, Errno> {
        match self.kind {
            EntryKind::File => self.attributes = attributes::digest(&opened(root, path)?)?,
            // One that is closed to its owner too is taken over all the same.
            EntryKind::Folder => {
                self.attributes = opened(root, path).and_then(|file| attributes::digest(&file)).ok().flatten()
            }
            _ => {}
        }
        Ok(self)
    }

    /// Reads the content of a file.
    pub(crate) fn with_hash(self, root: BorrowedFd<'_>, path: &[u8]) -> Result<Self, Errno> {
        Ok(Self { hash: Some(digest(opened(root, path)?)?), ..self })
    }
}

/// What the kernel says of an entry, and where it leads if it is a link.
fn found(root: BorrowedFd<'_>, path: &[u8]) -> Result<(Statx, Option<PathBuf>), Errno> {
    let is_link = |facts: &Statx| FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Symlink;
    // A single name needs no way that could be led astray.
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
    // By a handle: somebody may put another thing in the place of a link before it is read.
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

fn opened(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_within(root, path, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Whether two files of a size have the same content. What is a hole in both is not read, however long.
pub(super) fn alike(
    size: u64,
    (one, its_name): (BorrowedFd<'_>, &[u8]),
    (other, others_name): (BorrowedFd<'_>, &[u8]),
) -> Result<bool, Errno> {
    let (one, other) = (File::from(opened(one, its_name)?), File::from(opened(other, others_name)?));
    let data = |file: &File, at: u64| match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Err(Errno::NXIO) => size,
        // Where no holes are known, there are none.
        found => found.unwrap_or(at),
    };
    let fault = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
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
            // Somebody cut it meanwhile.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read.map_err(fault)?,
        }
        if here != there {
            return Ok(false);
        }
        at += length;
    }
}

/// SHA-256 of what is left to read of a file.
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
    fn a_link_that_becomes_something_else_while_it_is_looked_at_is_one_or_the_other() {
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
            let looks: Vec<_> = (0..20_000).map(|_| Facts::look(root.as_fd(), b"a")).collect();
            done.store(true, Ordering::Relaxed);
            for looked in looks {
                let looked = looked.unwrap().unwrap();
                assert_eq!(looked.target.is_some(), looked.kind == EntryKind::Link);
            }
        });
    }
}
