//! After a crash: journals are settled, temporary files removed, lock files tidied. Settling looks at each file: what is
//! done stays, what is not done is done; a file that is neither as it was nor as it shall be was changed by somebody else
//! and is left alone and told.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::AtFlags;
use vambrace_core::ErrorCode;
use vambrace_core::change::{ChangeSet, FileChange, Kind};

use super::fault::ApplyFault;
use super::journal::{Journal, Way};
use super::lock::{FileLock, abandoned};
use super::seat::{Seat, is_temporary};
use super::{Applier, MAX_FILE_BYTES};
use crate::entries::EntryBuffer;

/// What became of a change that a crash interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was made.
    Applied,
    /// None of it was: it had been turned back.
    Undone,
    /// These files were changed by somebody else meanwhile and were left alone; the journal is kept.
    Conflict(Vec<String>),
    /// It could not be settled now, for this reason; the journal is kept.
    Failed(String),
}

/// A journal that was found at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// What [`Prepared::commit`](super::Prepared::commit) was given.
    pub tag: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// How the files stand to a ChangeSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All as they were.
    Before,
    /// All as they shall be.
    After,
    /// Neither, or some of each.
    Between,
}

impl Applier {
    /// Settles what a crash left behind. Called at start; harmless at any other time and in several processes at once.
    pub fn recover(&self) -> Vec<Recovered> {
        self.tidy_locks();
        let mut recovered = Vec::new();
        for name in self.names_in_journals() {
            Journal::discard(&self.journals, &name);
            let Some((journal, entry)) = Journal::take_over(&self.journals, &name) else { continue };
            let Some(entry) = entry else {
                let outcome = Outcome::Failed(format!("the journal `{name}` cannot be read"));
                recovered.push(Recovered { tag: String::new(), outcome });
                continue;
            };
            let outcome = match entry.way {
                Way::Redo => Outcome::Applied,
                Way::Undo => Outcome::Undone,
            };
            let outcome = match self.settle(&entry.changes) {
                Ok(left) if left.is_empty() => {
                    journal.remove();
                    outcome
                }
                Ok(left) => Outcome::Conflict(left),
                Err(fault) => Outcome::Failed(fault.to_string()),
            };
            recovered.push(Recovered { tag: entry.tag, outcome });
        }
        recovered
    }

    /// How the files stand to a ChangeSet: for a record that says it was started and not how it ended.
    pub fn state(&self, changes: &ChangeSet) -> Result<State, ApplyFault> {
        let mut all = (true, true);
        for change in changes.files() {
            let standing = self.standing(change)?;
            all = (all.0 && standing == Standing::Before, all.1 && standing == Standing::After);
        }
        Ok(match all {
            (_, true) => State::After,
            (true, _) => State::Before,
            _ => State::Between,
        })
    }

    /// Makes every file as the ChangeSet wants it, whatever of that is done already; returns those that were changed by
    /// somebody else.
    pub(super) fn settle(&self, changes: &ChangeSet) -> Result<Vec<String>, ApplyFault> {
        let mut left = Vec::new();
        for change in changes.files() {
            match self.standing(change).or_else(in_the_way)? {
                Standing::After => {}
                Standing::Before => self.settle_one(change)?,
                Standing::Copied => {
                    // The new place has the new content; only the old name is left.
                    if let Some(before) = change.before() {
                        self.settle_one(&FileChange::delete(change.path().clone(), *before)?)?;
                    }
                }
                Standing::Foreign => left.push(change.path().to_string()),
            }
        }
        Ok(left)
    }

    /// One file without a journal of its own: the one that is being settled stands for it.
    fn settle_one(&self, change: &FileChange) -> Result<(), ApplyFault> {
        let changes = ChangeSet::new(vec![change.clone()])?;
        let mut prepared = self.prepare(&changes)?;
        let mut syncs = super::Syncs::default();
        for item in &mut prepared.items {
            item.stage(&mut syncs)?;
            item.place(&mut syncs)?;
        }
        syncs.folders().map_err(|errno| ApplyFault::io(change.path(), "syncing its folder", errno))?;
        self.prune(change.path(), change.folders());
        Ok(())
    }

    fn standing(&self, change: &FileChange) -> Result<Standing, ApplyFault> {
        let old = Seat::find(&self.ws, change.path())?.old(&self.ws, MAX_FILE_BYTES)?;
        let hash = old.as_ref().map(|old| old.hash);
        let (before, after) = (change.before().map(|before| before.hash), change.after());
        let was = hash == before;
        let Some(after) = after else {
            return Ok(if hash.is_none() {
                Standing::After
            } else if was {
                Standing::Before
            } else {
                Standing::Foreign
            });
        };
        if change.kind() == Kind::Rename {
            let there = Seat::find(&self.ws, &after.path)?.old(&self.ws, MAX_FILE_BYTES)?.map(|old| old.hash);
            return Ok(match (hash.is_none(), was, there) {
                (true, _, Some(there)) if there == after.hash => Standing::After,
                (_, true, None) => Standing::Before,
                (_, true, Some(there)) if there == after.hash => Standing::Copied,
                _ => Standing::Foreign,
            });
        }
        let bits = old.as_ref().map(|old| old.facts.st_mode & 0o7777);
        let mode_set = after.mode.is_none() || after.mode.map(|mode| mode & 0o7777) == bits;
        Ok(match (hash == Some(after.hash) && mode_set, was) {
            (true, _) => Standing::After,
            (false, true) => Standing::Before,
            _ => Standing::Foreign,
        })
    }

    /// Removes lock files that nobody holds and the temporary files that their holders left.
    fn tidy_locks(&self) {
        for name in names(&self.locks) {
            if let Some(lock) = abandoned(&self.locks, &name, &self.manner.owner) {
                self.sweep(&lock);
            }
        }
    }

    /// Removes the temporary file that a killed holder of a lock has left.
    pub(super) fn sweep(&self, lock: &FileLock) {
        if let Some((place, temporary)) = &lock.left
            && is_temporary(temporary)
            && self.ws.scope().is_service(place)
            && let Ok(folder) = self.ws.root().open_folder(place)
        {
            let _ = rustix::fs::unlinkat(&folder, temporary.as_str(), AtFlags::empty());
        }
    }

    fn names_in_journals(&self) -> Vec<String> {
        let mut names = names(&self.journals);
        names.retain(|name| name.starts_with(&self.manner.owner));
        // By the moment they were written, as far as their names tell.
        names.sort();
        names
    }
}

/// How one file stands to its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Before,
    After,
    /// A rename with new content, half done.
    Copied,
    Foreign,
}

/// A link or a folder where a file should be is somebody else's doing too.
fn in_the_way(fault: ApplyFault) -> Result<Standing, ApplyFault> {
    match fault.code() {
        ErrorCode::ScopeViolation
        | ErrorCode::NotAFile
        | ErrorCode::FileProtected
        | ErrorCode::BlockedPath => Ok(Standing::Foreign),
        _ => Err(fault),
    }
}

fn names(folder: &Arc<std::os::fd::OwnedFd>) -> Vec<String> {
    let mut names = Vec::new();
    // A handle of its own: the position in a folder belongs to the handle.
    let Ok(handle) = rustix::fs::openat(
        folder.as_fd(),
        ".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return names;
    };
    let _ = EntryBuffer::new().each(handle.as_fd(), |name, _, _| {
        names.extend(name.to_str().ok().map(str::to_owned));
        ControlFlow::Continue(())
    });
    names
}
