//! Applies a ChangeSet completely, if every file is still as it was when the change was proposed, or not at all. Checks, in
//! order: the name is not denied and does not configure a repository (4), the path is resolved again (5), the content is
//! hashed again (6) and compared (7, 8). Checks 1 to 3, about the proposal itself, are in `vambrace_core::change`.
//!
//! [`Applier::prepare`] makes the checks and holds the locks; the caller then records what is about to happen, with the
//! reverse change, and [`PreparedChange::commit`] applies it. One file needs two fsyncs and no journal; several files go
//! through a journal in the state directory. [`Applier::recover`], called at start, completes what a crash interrupted.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::change::{ChangeSet, FileChange};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use crate::error::{FileError, display_path};
use crate::workspace::Workspace;

mod apply_file;
mod attributes;
mod error;
mod journal;
mod lock;
mod recover;
mod target_entry;

use apply_file::{PendingSyncs, PreparedFile};
pub use error::ApplyError;
use journal::{ApplyJournal, JournalEntry, RecoveryDirection};
pub use lock::LockHolder;
use lock::{FileLock, LockError, LockKey, LockOptions, OVERDUE_AFTER};
pub use recover::{ChangeSetState, Recovered, RecoveryOutcome};
use target_entry::TargetEntry;

/// T9: how long to wait for the lock of a file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum old content of all files of one ChangeSet.
const MAX_OLD_BYTES: u64 = 512 * 1024 * 1024;
/// Maximum old content of one file.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Applies ChangeSets to one workspace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Applier {
    ws: Workspace,
    locks: Arc<OwnedFd>,
    journals: Arc<OwnedFd>,
    lock_options: LockOptions,
}

/// A lock that another process held for more than 30 s; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverdueLock {
    /// The file.
    pub path: ScopedPath,
    /// The process that held it.
    pub holder: LockHolder,
}

/// The applied change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedFile {
    /// Its path now; for a deleted file its last path.
    pub path: ScopedPath,
    /// `None` for a new file.
    pub before_hash: Option<Digest>,
    /// `None` for a deleted file.
    pub after_hash: Option<Digest>,
}

/// A ChangeSet that was applied.
#[derive(Debug)]
pub struct Applied {
    /// In the order of the ChangeSet.
    pub files: Vec<AppliedFile>,
    /// Number of fsync calls.
    pub syncs: u32,
}

/// Checked and locked: the files are still as proposed, and no other process that honours the locks can change them.
#[derive(Debug)]
pub struct PreparedChange {
    applier: Applier,
    changes: ChangeSet,
    items: Vec<PreparedFile>,
    reverse: Option<ChangeSet>,
    overdue: Vec<OverdueLock>,
    further: Vec<FileLock>,
}

/// Locks of entries that the caller changes itself; dropping them releases them.
#[derive(Debug, Default)]
pub struct FurtherLocks(#[expect(dead_code, reason = "held until dropped")] Vec<FileLock>);

impl Applier {
    /// `locks` and `journals` are directories outside every workspace, accessible only to the owner. All processes that use
    /// the same state directory share them, also for different projects.
    #[must_use]
    pub fn new(ws: Workspace, locks: OwnedFd, journals: OwnedFd) -> Self {
        let lock_options = LockOptions {
            owner: ws.identity(),
            lock_timeout: LOCK_TIMEOUT,
            overdue: OVERDUE_AFTER,
            worker: false,
        };
        Self { ws, locks: Arc::new(locks), journals: Arc::new(journals), lock_options }
    }

    /// The workspace that it changes.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.ws
    }

    /// How long to wait for a locked file; 5 s by default.
    #[must_use]
    pub fn lock_timeout(mut self, lock_timeout: Duration) -> Self {
        self.lock_options.lock_timeout = lock_timeout;
        self
    }

    /// After which time a lock holder is overdue; 30 s by default.
    #[must_use]
    pub fn overdue_after(mut self, held: Duration) -> Self {
        self.lock_options.overdue = held;
        self
    }

    /// Declares that this process serves one call only: a process that waits for an overdue lock may kill it.
    #[must_use]
    pub fn as_worker(mut self) -> Self {
        self.lock_options.worker = true;
        self
    }

    /// Locks the files and makes checks 4 to 8. Changes nothing.
    pub fn prepare(&self, changes: &ChangeSet) -> Result<PreparedChange, ApplyError> {
        self.prepare_beside(changes, &[])
    }

    /// The same, and locks further entries of the project, which the caller changes itself under
    /// [`PreparedChange::take_further_locks`]. Only their paths are checked: their parent directories stay the same.
    pub fn prepare_beside(
        &self,
        changes: &ChangeSet,
        further: &[&Path],
    ) -> Result<PreparedChange, ApplyError> {
        self.ws.deny_repository_settings_in(changes)?;
        let mut overdue = Vec::new();
        let mut locks = self.lock_all(changes, further, &mut overdue)?;
        let mut items = Vec::new();
        let mut reverses = Some(Vec::new());
        let mut old_bytes = 0;
        for change in changes.files() {
            let item = self.check(change, &mut locks)?;
            let base = item.old.as_ref().map_or(&[][..], |old| &old.bytes);
            old_bytes += base.len() as u64;
            if old_bytes > MAX_OLD_BYTES {
                let (size, cap) = (old_bytes, MAX_OLD_BYTES);
                return Err(FileError::TooLarge {
                    path: display_path(&change.path().to_string()),
                    size,
                    cap,
                }
                .into());
            }
            let target = item.to.as_ref().map_or(&item.target, |(target, _)| target);
            let dirs = u32::try_from(target.missing.len()).unwrap_or(0);
            let made = item.old.as_ref().map_or(0o644, |old| old.stat.st_mode & 0o7777);
            // Permission bits may have changed since the proposal; the reverse change restores the current ones.
            let reverse = with_current_mode(change, &item)?.reverse(base, dirs, made)?;
            if let Some(reverses) = &mut reverses {
                reverses.push(reverse);
            }
            items.push(item);
        }
        // Old content too large to keep does not prevent the change; the caller sees that there is no reverse change.
        let reverse = reverses.and_then(|reverses| ChangeSet::rollback(reverses).ok());
        let held: BTreeSet<&LockKey> = locks.iter().map(|(key, _)| key).collect();
        for entry in further {
            if !held.contains(&self.entry_key(entry)?) {
                return Err(FileError::Unstable { path: display_path(&entry.to_string_lossy()) }.into());
            }
        }
        let further = locks.into_iter().map(|(_, lock)| lock).collect();
        let (applier, changes) = (self.clone(), changes.clone());
        Ok(PreparedChange { applier, changes, items, reverse, overdue, further })
    }

    /// Prepares and commits, for callers that record nothing in between.
    pub fn apply(&self, changes: &ChangeSet) -> Result<(Applied, Option<ChangeSet>), ApplyError> {
        let prepared = self.prepare(changes)?;
        let reverse = prepared.reverse.clone();
        Ok((prepared.commit("")?, reverse))
    }

    /// Locks every path, always in the same order, so that two change sets never deadlock.
    fn lock_all(
        &self,
        changes: &ChangeSet,
        further: &[&Path],
        overdue: &mut Vec<OverdueLock>,
    ) -> Result<Vec<(LockKey, FileLock)>, ApplyError> {
        let mut keys = Vec::new();
        for change in changes.files() {
            for path in paths(change) {
                keys.push((TargetEntry::find(&self.ws, path)?.key(), path.clone()));
            }
        }
        for entry in further {
            let path = self.ws.scope().scoped_path(&entry.to_string_lossy());
            keys.push((self.entry_key(entry)?, path));
        }
        keys.sort();
        keys.dedup_by(|a, b| a.0 == b.0);
        let mut locks = Vec::new();
        for (key, path) in keys {
            match FileLock::acquire(&self.locks, &key, &self.lock_options) {
                Ok((lock, late)) => {
                    overdue.extend(late.map(|holder| OverdueLock { path: path.clone(), holder }));
                    self.remove_leftover(&lock);
                    locks.push((key, lock));
                }
                Err(LockError::Busy(LockHolder { process, held, ended })) => {
                    let late = match (held > self.lock_options.overdue, ended) {
                        (_, true) => ", now killed",
                        (true, false) => ", overdue",
                        (false, false) => "",
                    };
                    let holder = format!("process {process}{late}");
                    return Err(ApplyError::Busy { path: display_path(&path.to_string()), holder, held });
                }
                Err(LockError::Io(errno)) => return Err(ApplyError::io(&path, "locking it", errno)),
            }
        }
        Ok(locks)
    }

    /// The key of an entry that is not necessarily a file of the service: its deepest existing directory, and the rest.
    fn entry_key(&self, entry: &Path) -> Result<LockKey, ApplyError> {
        let path_text = entry.to_string_lossy();
        let file_error = |errno| ApplyError::from(FileError::from_errno(errno, &path_text));
        let mut dir = entry.parent().and_then(Path::to_str).unwrap_or_default();
        let handle = loop {
            match self.ws.root().open_dir(dir) {
                Ok(handle) => break handle,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) if !dir.is_empty() => {
                    dir = dir.rsplit_once('/').map_or("", |(above, _)| above);
                }
                Err(errno) => return Err(file_error(errno)),
            }
        };
        let stat = rustix::fs::fstat(&handle).map_err(file_error)?;
        let rest = entry.strip_prefix(dir).unwrap_or(entry);
        Ok(LockKey::new(stat.st_dev, stat.st_ino, rest.as_os_str().as_bytes()))
    }

    fn check(
        &self,
        change: &FileChange,
        locks: &mut Vec<(LockKey, FileLock)>,
    ) -> Result<PreparedFile, ApplyError> {
        // Resolved again under the lock: the directory may have been replaced meanwhile.
        let mut locked_target = |path: &ScopedPath| -> Result<(TargetEntry, FileLock), ApplyError> {
            let target = TargetEntry::find(&self.ws, path)?;
            let key = target.key();
            let at = locks.iter().position(|(own, _)| *own == key);
            match at {
                Some(at) => Ok((target, locks.swap_remove(at).1)),
                None => Err(FileError::Unstable { path: display_path(&path.to_string()) }.into()),
            }
        };
        let (target, lock) = locked_target(change.path())?;
        let old = target.open_old(&self.ws, MAX_FILE_BYTES)?;
        let (expected, now) = (change.before().map(|before| before.hash), old.as_ref().map(|old| old.hash));
        if expected != now {
            return Err(ApplyError::stale(change.path(), expected, now));
        }
        let to = match change.after().filter(|after| after.path != *change.path()) {
            Some(after) => {
                let (target, lock) = locked_target(&after.path)?;
                if let Some(there) = target.open_old(&self.ws, MAX_FILE_BYTES)? {
                    return Err(ApplyError::stale(&after.path, None, Some(there.hash)));
                }
                Some((target, lock))
            }
            None => None,
        };
        Ok(PreparedFile { change: change.clone(), target, lock, to, old, staged: None })
    }

    /// Removes up to `dirs` directories above a path, as long as they are empty.
    fn remove_empty_dirs(&self, path: &ScopedPath, dirs: u32) {
        let rel_path = self.ws.scope().rel_path(path);
        let mut dir = rel_path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for _ in 0..dirs {
            let (above, name) = dir.rsplit_once('/').unwrap_or(("", dir));
            let Ok(handle) = self.ws.root().open_dir(above) else { return };
            if name.is_empty() || rustix::fs::unlinkat(&handle, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
            dir = above;
        }
    }
}

impl PreparedChange {
    /// The reverse change, to be stored with the record of what is about to happen. `None` when the old content is too large.
    #[must_use]
    pub fn reverse(&self) -> Option<&ChangeSet> {
        self.reverse.as_ref()
    }

    /// Locks that were overdue; for the log.
    #[must_use]
    pub fn overdue(&self) -> &[OverdueLock] {
        &self.overdue
    }

    /// The locks of the further entries, which otherwise end with the commit.
    pub fn take_further_locks(&mut self) -> FurtherLocks {
        FurtherLocks(std::mem::take(&mut self.further))
    }

    /// Applies the change. `tag` names it in the journal, so that recovery after a crash can report it.
    pub fn commit(mut self, tag: &str) -> Result<Applied, ApplyError> {
        let mut syncs = PendingSyncs::default();
        let journaled = self.items.len() > 1 || self.items.iter().any(PreparedFile::takes_two_steps);
        if let Err(error) = self.items.iter_mut().try_for_each(|item| item.stage(&mut syncs)) {
            self.remove_created_dirs();
            return Err(error);
        }
        let unknown = |why: &dyn std::fmt::Display| ApplyError::Unknown { why: why.to_string() };
        if journaled {
            self.commit_journaled(tag, &mut syncs)?;
        } else {
            for item in &mut self.items {
                item.commit(&mut syncs)?;
            }
            syncs.sync_dirs().map_err(|errno| unknown(&errno))?;
        }
        for item in &self.items {
            self.applier.remove_empty_dirs(item.change.path(), item.change.empty_dirs());
        }
        let file = |item: &PreparedFile| {
            let after = item.change.after();
            AppliedFile {
                path: after.map_or(item.change.path(), |after| &after.path).clone(),
                before_hash: item.change.before().map(|before| before.hash),
                after_hash: after.map(|after| after.hash),
            }
        };
        Ok(Applied { files: self.items.iter().map(file).collect(), syncs: syncs.count })
    }

    /// Removes the directories that were created for a change that was not applied.
    fn remove_created_dirs(&mut self) {
        // Temporary files first: their directories must be empty.
        self.items.clear();
        for reverse in self.reverse.iter().flat_map(ChangeSet::files) {
            self.applier.remove_empty_dirs(reverse.path(), reverse.empty_dirs());
        }
    }

    fn commit_journaled(&mut self, tag: &str, syncs: &mut PendingSyncs) -> Result<(), ApplyError> {
        let entry = |direction, changes| JournalEntry { tag: tag.to_owned(), direction, changes };
        let redo = entry(RecoveryDirection::Redo, self.changes.clone());
        let mut journal =
            ApplyJournal::write(&self.applier.journals, &self.applier.lock_options.owner, &redo, syncs)
                .map_err(|errno| {
                    let path = self.items.first().map(|item| item.change.path());
                    path.map_or_else(
                        || ApplyError::Unknown { why: errno.to_string() },
                        |path| ApplyError::io(path, "writing the journal", errno),
                    )
                })?;
        let mut done = Vec::new();
        let placed = self.items.iter_mut().try_for_each(|item| {
            item.commit(syncs)?;
            done.push(item.change.after().map_or(item.change.path(), |after| &after.path).clone());
            Ok(())
        });
        let Err(error) = placed else {
            // If this sync fails, the journal is durable: the next start completes the change.
            syncs.sync_dirs().map_err(|errno: Errno| ApplyError::Unknown { why: errno.to_string() })?;
            journal.remove();
            return Ok(());
        };
        // A file could not be changed: the journal is switched to undo first, then the completed files are restored.
        let unknown = |why: String| ApplyError::Unknown { why: format!("{error}; then {why}") };
        let reverse = self
            .reverse
            .as_ref()
            .ok_or_else(|| unknown("the old content was too large to keep".to_owned()))?;
        let reverse = reverse.filter(|change| done.contains(change.path()));
        journal
            .replace(&entry(RecoveryDirection::Undo, reverse.clone()), syncs)
            .map_err(|errno| unknown(errno.to_string()))?;
        // The reverse change takes the locks itself; directories created for the change are removed with it.
        self.remove_created_dirs();
        match self.applier.complete(&reverse) {
            Ok(left) if left.is_empty() => {
                journal.remove();
                Err(error)
            }
            Ok(left) => Err(unknown(format!("`{}` was changed by another program", left.join("`, `")))),
            Err(again) => Err(unknown(again.to_string())),
        }
    }
}

/// The change with the file's current permission bits.
fn with_current_mode(change: &FileChange, item: &PreparedFile) -> Result<FileChange, ApplyError> {
    let (Some(before), Some(old)) = (change.before(), &item.old) else { return Ok(change.clone()) };
    let now = vambrace_core::change::BaseFile { mode: old.stat.st_mode & 0o7777, ..*before };
    Ok(match change.after() {
        Some(after) => FileChange::modify(change.path().clone(), now, after.clone())?,
        None => FileChange::delete(change.path().clone(), now)?,
    })
}

fn paths(change: &FileChange) -> impl Iterator<Item = &ScopedPath> {
    let to = change.after().map(|after| &after.path).filter(|to| *to != change.path());
    std::iter::once(change.path()).chain(to)
}

/// Opens a directory for [`Applier::new`]; creates it with mode 0700 if it is missing.
pub fn open_state_dir(parent: impl AsFd, name: &str) -> std::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}
