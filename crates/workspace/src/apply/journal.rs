//! The redo journal of a change of several files. It is in the state directory and holds the whole ChangeSet. Once it is
//! durable the change will be completed, also after a crash; before that nothing has changed. If a file cannot be changed
//! after all, the journal is replaced atomically by an undo journal. A process locks the journal that it works on, so a
//! process that starts meanwhile leaves it alone; its name starts with the workspace id, so other projects that share the
//! state directory do too.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::change::ChangeSet;

use super::apply_file::PendingSyncs;
use super::target_entry::temporary_name;
use crate::edit::read_all;

const MAGIC: &[u8] = b"vambrace-journal-1\n";
/// Larger than any ChangeSet.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
const JOURNAL_SUFFIX: &str = ".journal";
const TEMPORARY_SUFFIX: &str = ".new";

/// How recovery completes a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryDirection {
    /// Apply the rest of the change.
    Redo,
    /// Undo the part that was applied.
    Undo,
}

/// The content of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalEntry {
    /// The caller's name for it.
    pub(crate) tag: String,
    pub(crate) direction: RecoveryDirection,
    /// The change to complete, for either direction.
    pub(crate) changes: ChangeSet,
}

/// A journal on disk, locked by us.
#[derive(Debug)]
pub(crate) struct ApplyJournal {
    dir: Arc<OwnedFd>,
    stem: String,
    /// Held open for its lock.
    locked: OwnedFd,
}

impl ApplyJournal {
    /// Writes a journal; after this returns, the change will be completed.
    pub(crate) fn write(
        dir: &Arc<OwnedFd>,
        owner: &str,
        entry: &JournalEntry,
        syncs: &mut PendingSyncs,
    ) -> rustix::io::Result<Self> {
        let name = temporary_name();
        let stem = format!("{owner}{}", name.trim_start_matches('.').trim_end_matches(".tmp"));
        let locked = put(dir, &stem, entry, syncs).inspect_err(|_| {
            // The caller sees an error, so recovery at the next start must not apply the change.
            let _ =
                rustix::fs::unlinkat(&**dir, format!("{stem}{JOURNAL_SUFFIX}").as_str(), AtFlags::empty());
        })?;
        Ok(Self { dir: Arc::clone(dir), stem, locked })
    }

    /// Replaces the entry atomically.
    pub(crate) fn replace(
        &mut self,
        entry: &JournalEntry,
        syncs: &mut PendingSyncs,
    ) -> rustix::io::Result<()> {
        self.locked = put(&self.dir, &self.stem, entry, syncs)?;
        Ok(())
    }

    /// Removes the journal of a completed change. This need not be durable: completing twice changes nothing.
    pub(crate) fn remove(self) {
        let _ = rustix::fs::unlinkat(
            &*self.dir,
            format!("{}{JOURNAL_SUFFIX}", self.stem).as_str(),
            AtFlags::empty(),
        );
        drop(self.locked);
    }

    /// Locks a journal that its process left; `None` when it is not one, or another process works on it.
    pub(crate) fn take_over(dir: &Arc<OwnedFd>, name: &str) -> Option<(Self, Option<JournalEntry>)> {
        let stem = name.strip_suffix(JOURNAL_SUFFIX)?.to_owned();
        let locked = open_locked(dir, name)?;
        let stat = rustix::fs::fstat(&locked).ok()?;
        // Its process may have finished or replaced it between reading the directory and locking.
        let named = rustix::fs::statat(&**dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if (named.st_dev, named.st_ino) != (stat.st_dev, stat.st_ino) {
            return None;
        }
        let size = u64::try_from(stat.st_size).ok()?;
        let entry = read_all(locked.as_fd(), size, MAX_BYTES)
            .ok()
            .flatten()
            .and_then(|bytes| JournalEntry::read(&bytes));
        Some((Self { dir: Arc::clone(dir), stem, locked }, entry))
    }

    /// Removes a journal whose writing was interrupted.
    pub(crate) fn discard(dir: &Arc<OwnedFd>, name: &str) {
        if name.ends_with(TEMPORARY_SUFFIX) && open_locked(dir, name).is_some() {
            let _ = rustix::fs::unlinkat(&**dir, name, AtFlags::empty());
        }
    }
}

/// Writes an entry to a temporary file and renames it into place; the returned handle holds the lock.
fn put(
    dir: &Arc<OwnedFd>,
    stem: &str,
    entry: &JournalEntry,
    syncs: &mut PendingSyncs,
) -> rustix::io::Result<OwnedFd> {
    let (new, name) = (format!("{stem}{TEMPORARY_SUFFIX}"), format!("{stem}{JOURNAL_SUFFIX}"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**dir, new.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let written = (|| {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        write_all(&file, &entry.to_bytes())?;
        syncs.now(&file)?;
        rustix::fs::renameat(&**dir, new.as_str(), &**dir, name.as_str())
    })();
    if let Err(errno) = written {
        let _ = rustix::fs::unlinkat(&**dir, new.as_str(), AtFlags::empty());
        return Err(errno);
    }
    syncs.now(&**dir)?;
    Ok(file)
}

fn open_locked(dir: &Arc<OwnedFd>, name: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&**dir, name, flags, Mode::empty()).ok()?;
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

impl JournalEntry {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let direction: &[u8] = match self.direction {
            RecoveryDirection::Redo => b"redo",
            RecoveryDirection::Undo => b"undo",
        };
        for part in [self.tag.as_bytes(), direction, &self.changes.to_bytes()] {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut part = || {
            let (length, tail) = rest.split_at_checked(8)?;
            let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
            let (part, tail) = tail.split_at_checked(length)?;
            rest = tail;
            Some(part)
        };
        let (tag, direction, changes) = (part()?, part()?, part()?);
        let direction = match direction {
            b"redo" => RecoveryDirection::Redo,
            b"undo" => RecoveryDirection::Undo,
            _ => return None,
        };
        let tag = String::from_utf8(tag.to_vec()).ok()?;
        rest.is_empty().then_some(Self { tag, direction, changes: ChangeSet::from_bytes(changes).ok()? })
    }
}
