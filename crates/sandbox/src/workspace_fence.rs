//! The paths of the workspace that policy lets a program read and change, besides masked and protected names. What it may
//! not read is masked; what it may not change is not written back.
//!
//! Deliberately absent: who decided. A fence is decided elsewhere, and enforced here.

use vambrace_core::fence::PathFence;
use vambrace_core::path::ScopedPath;

/// What policy lets a program do in the workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkspaceFence {
    /// What it may read.
    pub read: PathFence,
    /// What is written back.
    pub write: PathFence,
    /// The service root, relative to the workspace; empty for the workspace itself.
    pub service_root: String,
}

/// What a fence means for an entry of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAccess {
    /// It is visible.
    Visible,
    /// It is not listed, but something below it may be.
    Unlisted,
    /// It is excluded, with everything below it.
    Excluded,
}

impl WorkspaceFence {
    /// Whether a program may read everything that no name masks.
    pub(crate) fn shows_everything(&self) -> bool {
        self.read.is_open()
    }

    /// Whether a program may read an entry.
    pub(crate) fn read_access(&self, relative: &[u8]) -> ReadAccess {
        if self.read.is_open() {
            return ReadAccess::Visible;
        }
        match self.scoped(relative) {
            Some(path) if self.read.admits(&path) => ReadAccess::Visible,
            Some(path) if !self.read.excludes(&path) => ReadAccess::Unlisted,
            Some(_) | None => ReadAccess::Excluded,
        }
    }

    /// Whether a change of an entry may be written back.
    pub(crate) fn admits_change(&self, relative: &[u8]) -> bool {
        self.write.is_open() || self.scoped(relative).is_some_and(|path| self.write.admits(&path))
    }

    /// Whether changes of a whole directory are excluded, not only unlisted.
    pub(crate) fn excludes_changes(&self, relative: &[u8]) -> bool {
        self.scoped(relative).is_none_or(|path| self.write.excludes(&path))
    }

    /// Rules are about text: a name that is none is compared in its lossy form.
    fn scoped(&self, relative: &[u8]) -> Option<ScopedPath> {
        ScopedPath::in_project(&String::from_utf8_lossy(relative), &self.service_root)
    }
}
