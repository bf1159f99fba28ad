//! Writes what a program changed back to the workspace: the ChangeSet by the workspace's applier, the rest by the sandbox's
//! own write-back, both under the same file locks.
//!
//! All changes are made or none, also after a crash: everything is checked, locked and staged first. Then one record makes
//! both parts certain, and [`recover`] completes them after a crash.

use std::path::PathBuf;

use vambrace_core::change::ChangeSet;
use vambrace_sandbox::{JournaledWriteBack, RunChanges, StagedWriteBack, StateDirs, WriteBackError};
use vambrace_workspace::{AppliedFile, Applier, PreparedChange};

use crate::change_set::{SplitChanges, locked_entries, split_changes};
use crate::error::WriteBackFailure;

/// Changes that are checked, locked and staged.
#[derive(Debug)]
pub struct PreparedWriteBack {
    set: ChangeSet,
    prepared: PreparedChange,
    /// The entries that are not in the ChangeSet.
    staged: Option<StagedWriteBack>,
    others: Vec<PathBuf>,
    count: usize,
}

/// Changes that were written back.
#[derive(Debug)]
pub struct WrittenBack {
    /// Number of changed entries.
    pub changes: usize,
    /// The files of the ChangeSet.
    pub files: Vec<AppliedFile>,
    /// The other entries: directories, symlinks, and all of a bulk change.
    pub others: Vec<PathBuf>,
}

/// Prepares the changes of a run for the workspace that the applier changes. `umask` is the one of this process. Changes
/// nothing, and holds the file locks until it is committed or dropped.
pub fn prepare_write_back(
    changes: &RunChanges,
    applier: &Applier,
    places: &StateDirs,
    umask: u32,
) -> Result<PreparedWriteBack, WriteBackFailure> {
    let SplitChanges { set, rest } = split_changes(changes, applier.workspace(), umask)?;
    let locked = locked_entries(&rest);
    let prepared = applier.prepare_beside(&set, &locked.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    // Checked under the locks: what another process wrote before it released them is stale now.
    changes
        .list
        .iter()
        .try_for_each(|change| changes.check_base(change))
        .map_err(WriteBackFailure::StaleBase)?;
    let others = rest.iter().map(|change| change.path.clone()).collect();
    let staged = match rest.is_empty() {
        true => None,
        false => {
            let workspace = |why| WriteBackError::Write { path: ".".into(), why, written: 0 };
            let rest = changes.with_only(rest);
            Some(JournaledWriteBack::new(&rest, places).map_err(workspace)?.stage(&rest)?)
        }
    };
    Ok(PreparedWriteBack { set, prepared, staged, others, count: changes.list.len() })
}

impl PreparedWriteBack {
    /// The part that is a ChangeSet.
    #[must_use]
    pub fn change_set(&self) -> &ChangeSet {
        &self.set
    }

    /// The change that undoes the ChangeSet, to be stored with the record of the run. `None` if the old content is too large.
    #[must_use]
    pub fn reverse(&self) -> Option<&ChangeSet> {
        self.prepared.reverse()
    }

    /// Whether entries change that the reverse change does not restore: symlinks, directories and others.
    #[must_use]
    pub fn has_other_entries(&self) -> bool {
        self.staged.is_some()
    }

    /// Changes the workspace. `tag` names the change in the applier's journal.
    pub fn commit(self, tag: &str) -> Result<WrittenBack, WriteBackFailure> {
        let Self { set, mut prepared, mut staged, others, count } = self;
        let _locks = prepared.take_further_locks();
        if let Some(staged) = &mut staged {
            let companion = if set.is_empty() { Vec::new() } else { set.to_bytes() };
            staged.record(&companion)?;
        }
        let applied = prepared.commit(tag)?;
        if let Some(staged) = staged {
            staged.apply()?;
        }
        Ok(WrittenBack { changes: count, files: applied.files, others })
    }
}

/// Completes write-backs that a crash interrupted, or removes what they staged; returns the number of completed ones beside a
/// ChangeSet. Those with a ChangeSet wait for the applier of their workspace.
pub fn recover(places: &StateDirs, applier: Option<&Applier>) -> usize {
    if let Some(applier) = applier {
        // What cannot be completed stays in its journal.
        drop(applier.recover());
    }
    JournaledWriteBack::recover(places, &mut |recorded| {
        let applier = applier.filter(|applier| applier.workspace().is_project_at(recorded.workspace));
        let set = ChangeSet::from_bytes(recorded.bytes).ok();
        // Files that another program changed since then stay as they are.
        applier.zip(set).is_some_and(|(applier, set)| applier.complete(&set).is_ok())
    })
}
