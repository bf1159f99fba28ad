//! The redo journal of a change of several files. It lies in the state folder and holds the whole ChangeSet. Once it is
//! on disk the change will happen, whatever happens to us; before that nothing has. When something stands in the way
//! after all, it is replaced in one step by a journal of the way back. A journal that is being worked on is locked by its
//! process, so another process that starts meanwhile leaves it alone; its name starts with the workspace it belongs to, so
//! other projects that share the state folder do too.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::change::ChangeSet;

use super::seat::temporary_name;
use super::step::Syncs;
use crate::loom::read_all;

const MARK: &[u8] = b"vambrace-journal-1\n";
/// Larger than any ChangeSet.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
const WRITTEN: &str = ".journal";
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
    pub(crate) way: Way,
    /// What shall be, whichever way that is.
    pub(crate) changes: ChangeSet,
}

/// A journal on disk, locked by us.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Arc<OwnedFd>,
    stem: String,
    /// Held open for its lock.
    locked: OwnedFd,
}

impl Journal {
    /// Writes a journal; when this returns, the change will happen.
    pub(crate) fn write(
        folder: &Arc<OwnedFd>,
        owner: &str,
        entry: &Entry,
        syncs: &mut Syncs,
    ) -> rustix::io::Result<Self> {
        let name = temporary_name();
        let stem = format!("{owner}{}", name.trim_start_matches('.').trim_end_matches(".tmp"));
        let locked = put(folder, &stem, entry, syncs).inspect_err(|_| {
            // Whoever is told that it failed must not find it done after the next start.
            let _ = rustix::fs::unlinkat(&**folder, format!("{stem}{WRITTEN}").as_str(), AtFlags::empty());
        })?;
        Ok(Self { folder: Arc::clone(folder), stem, locked })
    }

    /// From here on something else shall be.
    pub(crate) fn replace(&mut self, entry: &Entry, syncs: &mut Syncs) -> rustix::io::Result<()> {
        self.locked = put(&self.folder, &self.stem, entry, syncs)?;
        Ok(())
    }

    /// Everything is done: forgotten. That this reaches the disk does not matter, settling twice changes nothing.
    pub(crate) fn remove(self) {
        let _ =
            rustix::fs::unlinkat(&*self.folder, format!("{}{WRITTEN}", self.stem).as_str(), AtFlags::empty());
        drop(self.locked);
    }

    /// Takes over a journal that its process left; `None` when it is not one, or is being worked on.
    pub(crate) fn take_over(folder: &Arc<OwnedFd>, name: &str) -> Option<(Self, Option<Entry>)> {
        let stem = name.strip_suffix(WRITTEN)?.to_owned();
        let locked = open_locked(folder, name)?;
        let facts = rustix::fs::fstat(&locked).ok()?;
        // Its process may have finished or replaced it between our look at the folder and the lock.
        let named = rustix::fs::statat(&**folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if (named.st_dev, named.st_ino) != (facts.st_dev, facts.st_ino) {
            return None;
        }
        let size = u64::try_from(facts.st_size).ok()?;
        let entry =
            read_all(locked.as_fd(), size, MAX_BYTES).ok().flatten().and_then(|bytes| Entry::read(&bytes));
        Some((Self { folder: Arc::clone(folder), stem, locked }, entry))
    }

    /// Removes what was left of a journal that was never finished.
    pub(crate) fn discard(folder: &Arc<OwnedFd>, name: &str) {
        if name.ends_with(NEW) && open_locked(folder, name).is_some() {
            let _ = rustix::fs::unlinkat(&**folder, name, AtFlags::empty());
        }
    }
}

/// Writes an entry beside and gives it its name in one step; the handle holds its lock.
fn put(folder: &Arc<OwnedFd>, stem: &str, entry: &Entry, syncs: &mut Syncs) -> rustix::io::Result<OwnedFd> {
    let (new, name) = (format!("{stem}{NEW}"), format!("{stem}{WRITTEN}"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**folder, new.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let written = (|| {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        write_all(&file, &entry.to_bytes())?;
        syncs.now(&file)?;
        rustix::fs::renameat(&**folder, new.as_str(), &**folder, name.as_str())
    })();
    if let Err(errno) = written {
        let _ = rustix::fs::unlinkat(&**folder, new.as_str(), AtFlags::empty());
        return Err(errno);
    }
    syncs.now(&**folder)?;
    Ok(file)
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
        let way: &[u8] = match self.way {
            Way::Redo => b"redo",
            Way::Undo => b"undo",
        };
        for part in [self.tag.as_bytes(), way, &self.changes.to_bytes()] {
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
        let (tag, way, changes) = (part()?, part()?, part()?);
        let way = match way {
            b"redo" => Way::Redo,
            b"undo" => Way::Undo,
            _ => return None,
        };
        let tag = String::from_utf8(tag.to_vec()).ok()?;
        rest.is_empty().then_some(Self { tag, way, changes: ChangeSet::from_bytes(changes).ok()? })
    }
}
