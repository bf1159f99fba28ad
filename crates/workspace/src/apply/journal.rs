//! The redo journal of a change of several files. It lies in the state folder and holds the whole ChangeSet and the way
//! back. Once it is on disk the change will happen, whatever happens to us; before that nothing has. A journal that is
//! being worked on is locked by its process, so another process that starts meanwhile leaves it alone.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::change::ChangeSet;

use super::seat::temporary_name;
use super::step::Syncs;
use crate::loom::read_all;

const MARK: &[u8] = b"vambrace-journal-1\n";
/// Larger than any ChangeSet and its way back.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
const REDO: &str = ".redo";
const UNDO: &str = ".undo";
const NEW: &str = ".new";

/// Which way a journal is to be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Do what is not done.
    Redo,
    /// Undo what is done.
    Undo,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The caller's name for it.
    pub(crate) tag: String,
    pub(crate) forward: ChangeSet,
    /// `None` where the way back was too large to keep.
    pub(crate) back: Option<ChangeSet>,
}

/// A journal on disk, locked by us.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Arc<OwnedFd>,
    stem: String,
    way: Way,
    _locked: OwnedFd,
}

impl Journal {
    /// Writes a journal; when this returns, the change will happen.
    pub(crate) fn write(folder: &Arc<OwnedFd>, entry: &Entry, syncs: &mut Syncs) -> rustix::io::Result<Self> {
        let stem = temporary_name();
        let stem = stem.trim_start_matches('.').trim_end_matches(".tmp").to_owned();
        let name = format!("{stem}{NEW}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&**folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let written = (|| {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            write_all(&file, &entry.to_bytes())?;
            syncs.now(&file)?;
            rustix::fs::renameat(&**folder, name.as_str(), &**folder, format!("{stem}{REDO}").as_str())?;
            syncs.now(&**folder)
        })();
        match written {
            Ok(()) => Ok(Self { folder: Arc::clone(folder), stem, way: Way::Redo, _locked: file }),
            Err(errno) => {
                for end in [NEW, REDO] {
                    let _ =
                        rustix::fs::unlinkat(&**folder, format!("{stem}{end}").as_str(), AtFlags::empty());
                }
                Err(errno)
            }
        }
    }

    /// From here on the change is undone instead.
    pub(crate) fn turn_back(&mut self, syncs: &mut Syncs) -> rustix::io::Result<()> {
        let from = self.name();
        self.way = Way::Undo;
        rustix::fs::renameat(&*self.folder, from.as_str(), &*self.folder, self.name().as_str())?;
        syncs.now(&*self.folder)
    }

    /// Everything is done: forgotten. That this reaches the disk does not matter, settling twice changes nothing.
    pub(crate) fn remove(self) {
        let _ = rustix::fs::unlinkat(&*self.folder, self.name().as_str(), AtFlags::empty());
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    fn name(&self) -> String {
        format!("{}{}", self.stem, if self.way == Way::Redo { REDO } else { UNDO })
    }

    /// Takes over a journal that its process left; `None` when it is not one, or is being worked on.
    pub(crate) fn take_over(folder: &Arc<OwnedFd>, name: &str) -> Option<(Self, Option<Entry>)> {
        let (stem, way) = match (name.strip_suffix(REDO), name.strip_suffix(UNDO)) {
            (Some(stem), _) => (stem, Way::Redo),
            (_, Some(stem)) => (stem, Way::Undo),
            _ => return None,
        };
        let locked = open_locked(folder, name)?;
        // Its process may have finished between our look at the folder and the lock.
        rustix::fs::statat(&**folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let size = u64::try_from(rustix::fs::fstat(&locked).ok()?.st_size).ok()?;
        let entry =
            read_all(locked.as_fd(), size, MAX_BYTES).ok().flatten().and_then(|bytes| Entry::read(&bytes));
        Some((Self { folder: Arc::clone(folder), stem: stem.to_owned(), way, _locked: locked }, entry))
    }

    /// Removes what was left of a journal that was never finished.
    pub(crate) fn discard(folder: &Arc<OwnedFd>, name: &str) {
        if name.ends_with(NEW) && open_locked(folder, name).is_some() {
            let _ = rustix::fs::unlinkat(&**folder, name, AtFlags::empty());
        }
    }
}

fn open_locked(folder: &Arc<OwnedFd>, name: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**folder, name, flags, Mode::empty()).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Entry {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        let back = self.back.as_ref().map(ChangeSet::to_bytes).unwrap_or_default();
        for part in [self.tag.as_bytes(), &self.forward.to_bytes(), &back] {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MARK)?;
        let mut part = || {
            let (length, tail) = rest.split_at_checked(8)?;
            let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
            let (part, tail) = tail.split_at_checked(length)?;
            rest = tail;
            Some(part)
        };
        let (tag, forward, back) = (part()?, part()?, part()?);
        let back = if back.is_empty() { None } else { Some(ChangeSet::from_bytes(back).ok()?) };
        let tag = String::from_utf8(tag.to_vec()).ok()?;
        rest.is_empty().then_some(Self { tag, forward: ChangeSet::from_bytes(forward).ok()?, back })
    }
}
