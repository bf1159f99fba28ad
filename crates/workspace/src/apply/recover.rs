//! Recovery after a crash: completes journals, removes temporary files and stale lock files. Each file of a journal is
//! compared with its change: a file already in its target state stays, one in its base state is changed; a file in neither
//! state was changed by another program, is left alone and reported.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::AtFlags;
use vambrace_core::ErrorCode;
use vambrace_core::change::{ChangeSet, FileChange, FileChangeKind};

use super::error::ApplyError;
use super::journal::{ApplyJournal, RecoveryDirection};
use super::lock::{FileLock, take_abandoned};
use super::target_entry::{TargetEntry, is_temporary};
use super::{Applier, MAX_FILE_BYTES};
use crate::entries::EntryBuffer;

/// What became of a change that a crash interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// It was applied completely.
    Applied,
    /// It was undone completely.
    Undone,
    /// These files were changed by another program and were left alone; the journal is kept.
    Conflict(Vec<String>),
    /// It could not be completed, for this reason; the journal is kept.
    Failed(String),
}

/// A journal that was found at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The tag passed to [`PreparedChange::commit`](super::PreparedChange::commit).
    pub tag: String,
    /// How recovery ended.
    pub outcome: RecoveryOutcome,
}

/// How far a ChangeSet is applied on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeSetState {
    /// All files are in their base state.
    Before,
    /// All files are in their target state.
    After,
    /// Neither, or some of each.
    Between,
}

impl Applier {
    /// Completes what a crash interrupted. Called at start; safe at any other time and in several processes at once.
    pub fn recover(&self) -> Vec<Recovered> {
        self.clean_up_locks();
        let mut recovered = Vec::new();
        for name in self.journal_names() {
            ApplyJournal::discard(&self.journals, &name);
            let Some((journal, entry)) = ApplyJournal::take_over(&self.journals, &name) else { continue };
            let Some(entry) = entry else {
                let outcome = RecoveryOutcome::Failed(format!("the journal `{name}` cannot be read"));
                recovered.push(Recovered { tag: String::new(), outcome });
                continue;
            };
            let outcome = match entry.direction {
                RecoveryDirection::Redo => RecoveryOutcome::Applied,
                RecoveryDirection::Undo => RecoveryOutcome::Undone,
            };
            let outcome = match self.complete(&entry.changes) {
                Ok(left) if left.is_empty() => {
                    journal.remove();
                    outcome
                }
                Ok(left) => RecoveryOutcome::Conflict(left),
                Err(error) => RecoveryOutcome::Failed(error.to_string()),
            };
            recovered.push(Recovered { tag: entry.tag, outcome });
        }
        recovered
    }

    /// How far a ChangeSet is applied: for a record that has a start and no end.
    pub fn state(&self, changes: &ChangeSet) -> Result<ChangeSetState, ApplyError> {
        let mut all = (true, true);
        for change in changes.files() {
            let file_state = self.file_state(change)?;
            all = (
                all.0 && file_state == FileChangeState::Before,
                all.1 && file_state == FileChangeState::After,
            );
        }
        Ok(match all {
            (_, true) => ChangeSetState::After,
            (true, _) => ChangeSetState::Before,
            _ => ChangeSetState::Between,
        })
    }

    /// Brings every file to its target state, whatever part is already done; returns those that another program changed. For
    /// a change that was recorded as begun.
    pub fn complete(&self, changes: &ChangeSet) -> Result<Vec<String>, ApplyError> {
        let mut left = Vec::new();
        for change in changes.files() {
            match self.file_state(change).or_else(foreign_if_blocked)? {
                FileChangeState::After => {}
                FileChangeState::Before => self.complete_one(change)?,
                FileChangeState::Copied => {
                    // The new path has the new content; only the old path is left.
                    if let Some(before) = change.before() {
                        self.complete_one(&FileChange::delete(change.path().clone(), *before)?)?;
                    }
                }
                FileChangeState::Foreign => left.push(change.path().to_string()),
            }
        }
        Ok(left)
    }

    /// Changes one file without a journal of its own: the journal being recovered covers it.
    fn complete_one(&self, change: &FileChange) -> Result<(), ApplyError> {
        let changes = ChangeSet::new(vec![change.clone()])?;
        let mut prepared = self.prepare(&changes)?;
        let mut syncs = super::PendingSyncs::default();
        for item in &mut prepared.items {
            item.stage(&mut syncs)?;
            item.commit(&mut syncs)?;
        }
        syncs.sync_dirs().map_err(|errno| ApplyError::io(change.path(), "syncing its directory", errno))?;
        self.remove_empty_dirs(change.path(), change.empty_dirs());
        Ok(())
    }

    fn file_state(&self, change: &FileChange) -> Result<FileChangeState, ApplyError> {
        let old = TargetEntry::find(&self.ws, change.path())?.open_old(&self.ws, MAX_FILE_BYTES)?;
        let hash = old.as_ref().map(|old| old.hash);
        let (before, after) = (change.before().map(|before| before.hash), change.after());
        let was = hash == before;
        let Some(after) = after else {
            return Ok(if hash.is_none() {
                FileChangeState::After
            } else if was {
                FileChangeState::Before
            } else {
                FileChangeState::Foreign
            });
        };
        if change.kind() == FileChangeKind::Rename {
            let there = TargetEntry::find(&self.ws, &after.path)?
                .open_old(&self.ws, MAX_FILE_BYTES)?
                .map(|old| old.hash);
            return Ok(match (hash.is_none(), was, there) {
                (true, _, Some(there)) if there == after.hash => FileChangeState::After,
                (_, true, None) => FileChangeState::Before,
                (_, true, Some(there)) if there == after.hash => FileChangeState::Copied,
                _ => FileChangeState::Foreign,
            });
        }
        let bits = old.as_ref().map(|old| old.stat.st_mode & 0o7777);
        let mode_set = after.mode.is_none() || after.mode.map(|mode| mode & 0o7777) == bits;
        Ok(match (hash == Some(after.hash) && mode_set, was) {
            (true, _) => FileChangeState::After,
            (false, true) => FileChangeState::Before,
            _ => FileChangeState::Foreign,
        })
    }

    /// Removes lock files that no process holds and the temporary files that their holders left.
    fn clean_up_locks(&self) {
        for name in names(&self.locks) {
            if let Some(lock) = take_abandoned(&self.locks, &name, &self.lock_options.owner) {
                self.remove_leftover(&lock);
            }
        }
    }

    /// Removes the temporary file that a killed lock holder left.
    pub(super) fn remove_leftover(&self, lock: &FileLock) {
        if let Some((rel_path, temporary)) = &lock.leftover
            && is_temporary(temporary)
            && self.ws.scope().is_service(rel_path)
            && let Ok(dir) = self.ws.root().open_dir(rel_path)
        {
            let _ = rustix::fs::unlinkat(&dir, temporary.as_str(), AtFlags::empty());
        }
    }

    fn journal_names(&self) -> Vec<String> {
        let mut names = names(&self.journals);
        names.retain(|name| name.starts_with(&self.lock_options.owner));
        // Approximately by time of writing, which is part of the name.
        names.sort();
        names
    }
}

/// How far the change of one file is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileChangeState {
    Before,
    After,
    /// A rename with new content of which only the new path was written.
    Copied,
    /// Changed by another program.
    Foreign,
}

/// A symlink or directory at the path of a file also means that another program changed it.
fn foreign_if_blocked(error: ApplyError) -> Result<FileChangeState, ApplyError> {
    match error.code() {
        ErrorCode::ScopeViolation
        | ErrorCode::NotAFile
        | ErrorCode::FileProtected
        | ErrorCode::BlockedPath => Ok(FileChangeState::Foreign),
        _ => Err(error),
    }
}

fn names(dir: &Arc<std::os::fd::OwnedFd>) -> Vec<String> {
    let mut names = Vec::new();
    // A new handle, because the read position of a directory belongs to the handle.
    let Ok(handle) = rustix::fs::openat(
        dir.as_fd(),
        ".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return names;
    };
    let _ = EntryBuffer::new().for_each(handle.as_fd(), |name, _, _| {
        names.extend(name.to_str().ok().map(str::to_owned));
        ControlFlow::Continue(())
    });
    names
}
