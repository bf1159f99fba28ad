//! Applying a ChangeSet: all of it, if everything is still as it was when it was proposed, or nothing. In order: the name
//! is not denied, nor does it configure a repository (4), the path is resolved again (5), the content is hashed again (6)
//! and compared (7, 8); checks 1 to 3, about the proposal itself, are `vambrace_core::change::check_standing`.
//!
//! [`Applier::prepare`] makes the checks and holds the locks; the caller then records what is about to happen, with the
//! way back, and [`Prepared::commit`] does it. One file needs two syncs and no journal; several go through a journal in
//! the state folder, and [`Applier::recover`], called at start, settles what a crash left.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::change::{ChangeSet, FileChange};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use crate::fault::{FileFault, shown};
use crate::workspace::Workspace;

mod attributes;
mod fault;
mod journal;
mod lock;
mod recover;
mod seat;
mod step;

pub use fault::ApplyFault;
use journal::{Entry, Journal, Way};
pub use lock::Holder;
use lock::{FileLock, LockKey, Manner, NoLock, OVERDUE};
pub use recover::{Outcome, Recovered, State};
use seat::Seat;
use step::{Item, Syncs};

/// T9: how long a file is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Old content of all files of one ChangeSet.
const MAX_OLD_BYTES: u64 = 512 * 1024 * 1024;
/// Old content of one file.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Applies ChangeSets to one workspace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Applier {
    ws: Workspace,
    locks: Arc<OwnedFd>,
    journals: Arc<OwnedFd>,
    manner: Manner,
}

/// A lock that somebody held for more than 30 s; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// The file.
    pub path: ScopedPath,
    /// Who held it.
    pub holder: Holder,
}

/// What happened to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedFile {
    /// Where it is now, or was.
    pub path: ScopedPath,
    /// `None` for a new file.
    pub before_hash: Option<Digest>,
    /// `None` for one that went.
    pub after_hash: Option<Digest>,
}

/// A ChangeSet that was applied.
#[derive(Debug)]
pub struct Applied {
    /// File by file, in the order of the ChangeSet.
    pub files: Vec<AppliedFile>,
    /// How often the disk was waited for.
    pub syncs: u32,
}

/// Checked and locked: everything is still as proposed, and nobody else who keeps to the locks can change it.
#[derive(Debug)]
pub struct Prepared {
    applier: Applier,
    changes: ChangeSet,
    items: Vec<Item>,
    back: Option<ChangeSet>,
    overdue: Vec<Overdue>,
}

impl Applier {
    /// `locks` and `journals` are folders outside every workspace, for the owner only; all processes that work on the
    /// same state share them, whatever their projects.
    #[must_use]
    pub fn new(ws: Workspace, locks: OwnedFd, journals: OwnedFd) -> Self {
        let manner = Manner { owner: ws.identity(), patience: PATIENCE, overdue: OVERDUE, worker: false };
        Self { ws, locks: Arc::new(locks), journals: Arc::new(journals), manner }
    }

    /// How long a file that somebody holds is waited for, instead of 5 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.manner.patience = patience;
        self
    }

    /// When a holder is overdue, instead of after 30 s.
    #[must_use]
    pub fn overdue_after(mut self, held: Duration) -> Self {
        self.manner.overdue = held;
        self
    }

    /// This process lives for one call: whoever waits for a file that it holds for too long may end it.
    #[must_use]
    pub fn in_a_worker(mut self) -> Self {
        self.manner.worker = true;
        self
    }

    /// Locks the files and makes checks 4 to 8. Nothing is changed.
    pub fn prepare(&self, changes: &ChangeSet) -> Result<Prepared, ApplyFault> {
        self.ws.refuse_settings_in(changes)?;
        let mut overdue = Vec::new();
        let mut locks = self.lock_all(changes, &mut overdue)?;
        let mut items = Vec::new();
        let mut backs = Some(Vec::new());
        let mut old_bytes = 0;
        for change in changes.files() {
            let item = self.check(change, &mut locks)?;
            let base = item.old.as_ref().map_or(&[][..], |old| &old.bytes);
            old_bytes += base.len() as u64;
            if old_bytes > MAX_OLD_BYTES {
                let (size, cap) = (old_bytes, MAX_OLD_BYTES);
                return Err(FileFault::TooLarge { path: shown(&change.path().to_string()), size, cap }.into());
            }
            let target = item.to.as_ref().map_or(&item.seat, |(seat, _)| seat);
            let folders = u32::try_from(target.missing.len()).unwrap_or(0);
            let made = item.old.as_ref().map_or(0o644, |old| old.facts.st_mode & 0o7777);
            // Permission bits may have changed since; the way back leads to those of now.
            let back = refreshed(change, &item)?.reverse(base, folders, made)?;
            if let Some(backs) = &mut backs {
                backs.push(back);
            }
            items.push(item);
        }
        // Too large to keep is no reason not to apply; the caller sees that there is no way back.
        let back = backs.and_then(|backs| ChangeSet::back(backs).ok());
        Ok(Prepared { applier: self.clone(), changes: changes.clone(), items, back, overdue })
    }

    /// Both steps at once, for callers that record nothing in between.
    pub fn apply(&self, changes: &ChangeSet) -> Result<(Applied, Option<ChangeSet>), ApplyFault> {
        let prepared = self.prepare(changes)?;
        let back = prepared.back.clone();
        Ok((prepared.commit("")?, back))
    }

    /// Takes the lock of every name, always in the same order, so that two batches never wait for each other.
    fn lock_all(
        &self,
        changes: &ChangeSet,
        overdue: &mut Vec<Overdue>,
    ) -> Result<Vec<(LockKey, FileLock)>, ApplyFault> {
        let mut keys = Vec::new();
        for change in changes.files() {
            for path in paths(change) {
                keys.push((Seat::find(&self.ws, path)?.key(), path));
            }
        }
        keys.sort();
        keys.dedup_by(|a, b| a.0 == b.0);
        let mut locks = Vec::new();
        for (key, path) in keys {
            match FileLock::acquire(&self.locks, &key, &self.manner) {
                Ok((lock, late)) => {
                    overdue.extend(late.map(|holder| Overdue { path: path.clone(), holder }));
                    self.sweep(&lock);
                    locks.push((key, lock));
                }
                Err(NoLock::Busy(Holder { process, held, ended })) => {
                    let late = match (held > self.manner.overdue, ended) {
                        (_, true) => ", ended by us",
                        (true, false) => ", past its time",
                        (false, false) => "",
                    };
                    let holder = format!("process {process}{late}");
                    return Err(ApplyFault::Busy { path: shown(&path.to_string()), holder, held });
                }
                Err(NoLock::Io(errno)) => return Err(ApplyFault::io(path, "locking it", errno)),
            }
        }
        Ok(locks)
    }

    fn check(&self, change: &FileChange, locks: &mut Vec<(LockKey, FileLock)>) -> Result<Item, ApplyFault> {
        // Again, now that it is locked: the folder may have been another one.
        let mut seated = |path: &ScopedPath| -> Result<(Seat, FileLock), ApplyFault> {
            let seat = Seat::find(&self.ws, path)?;
            let key = seat.key();
            let at = locks.iter().position(|(own, _)| *own == key);
            match at {
                Some(at) => Ok((seat, locks.swap_remove(at).1)),
                None => Err(FileFault::Moving { path: shown(&path.to_string()) }.into()),
            }
        };
        let (seat, lock) = seated(change.path())?;
        let old = seat.old(&self.ws, MAX_FILE_BYTES)?;
        let (expected, now) = (change.before().map(|before| before.hash), old.as_ref().map(|old| old.hash));
        if expected != now {
            return Err(ApplyFault::stale(change.path(), expected, now));
        }
        let to = match change.after().filter(|after| after.path != *change.path()) {
            Some(after) => {
                let (seat, lock) = seated(&after.path)?;
                if let Some(there) = seat.old(&self.ws, MAX_FILE_BYTES)? {
                    return Err(ApplyFault::stale(&after.path, None, Some(there.hash)));
                }
                Some((seat, lock))
            }
            None => None,
        };
        Ok(Item { change: change.clone(), seat, lock, to, old, staged: None })
    }

    /// Removes so many folders above a path, as far as they are empty.
    fn prune(&self, path: &ScopedPath, folders: u32) {
        let place = self.ws.scope().place(path);
        let mut folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
        for _ in 0..folders {
            let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
            let Ok(handle) = self.ws.root().open_folder(above) else { return };
            if name.is_empty() || rustix::fs::unlinkat(&handle, name, AtFlags::REMOVEDIR).is_err() {
                return;
            }
            folder = above;
        }
    }
}

impl Prepared {
    /// What undoes it; to be kept with the record of what is about to happen. `None` when the old content is too large.
    #[must_use]
    pub fn reverse(&self) -> Option<&ChangeSet> {
        self.back.as_ref()
    }

    /// Locks that were held for too long; for the log.
    #[must_use]
    pub fn overdue(&self) -> &[Overdue] {
        &self.overdue
    }

    /// Makes the change. `tag` names it in the journal, so that a start after a crash can say what was settled.
    pub fn commit(mut self, tag: &str) -> Result<Applied, ApplyFault> {
        let mut syncs = Syncs::default();
        let together = self.items.len() > 1 || self.items.iter().any(Item::takes_two_steps);
        if let Err(fault) = self.items.iter_mut().try_for_each(|item| item.stage(&mut syncs)) {
            self.unmake_folders();
            return Err(fault);
        }
        let unknown = |why: &dyn std::fmt::Display| ApplyFault::Unknown { why: why.to_string() };
        if together {
            self.commit_journaled(tag, &mut syncs)?;
        } else {
            for item in &mut self.items {
                item.place(&mut syncs)?;
            }
            syncs.folders().map_err(|errno| unknown(&errno))?;
        }
        for item in &self.items {
            self.applier.prune(item.change.path(), item.change.folders());
        }
        let file = |item: &Item| {
            let after = item.change.after();
            AppliedFile {
                path: after.map_or(item.change.path(), |after| &after.path).clone(),
                before_hash: item.change.before().map(|before| before.hash),
                after_hash: after.map(|after| after.hash),
            }
        };
        Ok(Applied { files: self.items.iter().map(file).collect(), syncs: syncs.count })
    }

    /// Nothing was changed, so the folders that were made for it go again.
    fn unmake_folders(&mut self) {
        // Temporary files first: they keep their folders from being empty.
        self.items.clear();
        for back in self.back.iter().flat_map(ChangeSet::files) {
            self.applier.prune(back.path(), back.folders());
        }
    }

    fn commit_journaled(&mut self, tag: &str, syncs: &mut Syncs) -> Result<(), ApplyFault> {
        let entry = |way, changes| Entry { tag: tag.to_owned(), way, changes };
        let redo = entry(Way::Redo, self.changes.clone());
        let mut journal = Journal::write(&self.applier.journals, &self.applier.manner.owner, &redo, syncs)
            .map_err(|errno| {
                let path = self.items.first().map(|item| item.change.path());
                path.map_or_else(
                    || ApplyFault::Unknown { why: errno.to_string() },
                    |path| ApplyFault::io(path, "writing the journal", errno),
                )
            })?;
        let mut done = Vec::new();
        let placed = self.items.iter_mut().try_for_each(|item| {
            item.place(syncs)?;
            done.push(item.change.after().map_or(item.change.path(), |after| &after.path).clone());
            Ok(())
        });
        let Err(fault) = placed else {
            // Whatever is not synced now, the journal is: the next start sees to it.
            syncs.folders().map_err(|errno: Errno| ApplyFault::Unknown { why: errno.to_string() })?;
            journal.remove();
            return Ok(());
        };
        // Something stood in the way after all: what is done goes back, and the journal says so first.
        let unknown = |why: String| ApplyFault::Unknown { why: format!("{fault}; then {why}") };
        let back = self.back.as_ref().ok_or_else(|| unknown("there is no way back".to_owned()))?;
        let back = back.only(|change| done.contains(change.path()));
        journal
            .replace(&entry(Way::Undo, back.clone()), syncs)
            .map_err(|errno| unknown(errno.to_string()))?;
        // The way back takes the locks itself, and folders that were made go with the rest.
        self.unmake_folders();
        match self.applier.settle(&back) {
            Ok(left) if left.is_empty() => {
                journal.remove();
                Err(fault)
            }
            Ok(left) => Err(unknown(format!("`{}` is in the way", left.join("`, `")))),
            Err(again) => Err(unknown(again.to_string())),
        }
    }
}

/// The change with the permission bits that the file has now.
fn refreshed(change: &FileChange, item: &Item) -> Result<FileChange, ApplyFault> {
    let (Some(before), Some(old)) = (change.before(), &item.old) else { return Ok(change.clone()) };
    let now = vambrace_core::change::Facts { mode: old.facts.st_mode & 0o7777, ..*before };
    Ok(match change.after() {
        Some(after) => FileChange::modify(change.path().clone(), now, after.clone())?,
        None => FileChange::delete(change.path().clone(), now)?,
    })
}

fn paths(change: &FileChange) -> impl Iterator<Item = &ScopedPath> {
    let to = change.after().map(|after| &after.path).filter(|to| *to != change.path());
    std::iter::once(change.path()).chain(to)
}

/// Opens a folder for [`Applier::new`], made for its owner only when it is missing.
pub fn state_folder(parent: impl AsFd, name: &str) -> std::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}
