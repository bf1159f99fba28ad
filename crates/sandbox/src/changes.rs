//! What a program changed in its view of the workspace.
//!
//! Names come from the overlay's upper layer, metadata from comparing the merged view with the workspace itself: the
//! overlay's own marks mislead (a rename carries the origin of another file, an opaque directory holds no whiteouts).
//!
//! **Invariant.** Nothing here writes. What must not be written back is in `withheld`, with the reason, and never in
//! `list`; if a file is in both, only its attributes or its other names are withheld.

mod collect;
mod diff;
mod directory;
mod git_config;
mod listing;
mod metadata;
mod protected_targets;
mod rename;
mod symlink;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::run_dirs::RunDirs;
use crate::sys::mount::open_within;

pub(crate) use collect::{CollectInput, collect};
pub use diff::Diffs;
pub use listing::ChangeListing;
pub(crate) use metadata::digest;
pub use metadata::{EntryMetadata, FileKind};

/// What a program changed.
#[derive(Debug, Clone)]
pub struct RunChanges {
    /// What can be written back, ordered by path.
    pub list: Vec<EntryChange>,
    /// What cannot.
    pub withheld: Vec<WithheldChange>,
    pub(crate) base: Arc<OwnedFd>,
    pub(crate) view: Arc<OwnedFd>,
    /// The host directory that contains the view, in tier no-userns; removed when the last clone is dropped.
    pub(crate) _run_dirs: Option<Arc<RunDirs>>,
    /// When the run began (CLOCK_REALTIME, nanoseconds).
    pub(crate) since: i128,
}

/// One changed file, directory or symlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// As it is in the workspace; `None` if it does not exist there.
    pub before: Option<EntryMetadata>,
    /// As the program left it; `None` if it was deleted.
    pub after: Option<EntryMetadata>,
}

/// What happened to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// It did not exist.
    Created,
    /// Its content or its type changed.
    Modified,
    /// It no longer exists.
    Deleted,
    /// The same file under another name.
    Renamed {
        /// Relative to the workspace.
        from: PathBuf,
    },
    /// Only its permission bits changed.
    Mode,
}

impl ChangeKind {
    /// As shown to people and programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Renamed { .. } => "renamed",
            Self::Mode => "mode",
        }
    }
}

/// A change that is not written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldChange {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Why.
    pub why: WithheldReason,
}

/// Why a change is not written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithheldReason {
    /// It is masked: a secret, a blocked path, or one that a rule denies.
    Masked,
    /// Policy does not let this program change it.
    Denied,
    /// It would run code or configure tools without the user's asking.
    Protected,
    /// Mode `write` creates new files only.
    Exists,
    /// A device, pipe or socket.
    Special,
    /// A symlink that leads out of the workspace.
    LeadsOutside,
    /// The program left it unreadable.
    Unreadable,
    /// Another process changed it while the program ran.
    StaleBase,
    /// A directory with an entry that is not deleted.
    NotEmpty,
    /// Another file system is mounted there, which the program did not see.
    Mounted,
    /// A build directory, such as the project's own dependencies, with everything in it.
    BuildDirectory,
    /// Its path is longer than the kernel accepts.
    TooDeep,
    /// The file's other hard links: they keep the old content, and its mode is theirs too.
    OtherNames,
    /// Its extended attributes only: the old ones stay, or a new file gets none.
    Attributes,
}

impl WithheldReason {
    /// The stable code for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Masked => "Masked",
            Self::Denied => "Denied",
            Self::Protected => "Protected",
            Self::Exists => "Exists",
            Self::Special => "Special",
            Self::LeadsOutside => "LeadsOutside",
            Self::Unreadable => "Unreadable",
            Self::StaleBase => "StaleBase",
            Self::NotEmpty => "NotEmpty",
            Self::Mounted => "Mounted",
            Self::BuildDirectory => "BuildFolder",
            Self::TooDeep => "TooDeep",
            Self::OtherNames => "OtherNames",
            Self::Attributes => "Attributes",
        }
    }

    /// As shown to people and programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Masked => "masked name",
            Self::Denied => "policy denies the change",
            Self::Protected => "protected name",
            Self::Exists => "exists already",
            Self::Special => "not a file, directory or symlink",
            Self::LeadsOutside => "symlink out of the workspace",
            Self::Unreadable => "unreadable",
            Self::StaleBase => "changed meanwhile",
            Self::NotEmpty => "not empty: some of its entries are not deleted",
            Self::Mounted => "another file system is mounted there",
            Self::BuildDirectory => "build directory",
            Self::TooDeep => "path too long",
            Self::OtherNames => "its other hard links keep the old content",
            Self::Attributes => "extended attributes",
        }
    }
}

impl RunChanges {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.withheld.is_empty()
    }

    /// Only some of the changes that can be written back.
    #[must_use]
    pub fn with_only(&self, list: Vec<EntryChange>) -> Self {
        Self { list, withheld: Vec::new(), ..self.clone() }
    }

    /// Whether the base of a change is still in place and unchanged. The path is the one that changed meanwhile.
    pub fn check_base(&self, change: &EntryChange) -> Result<(), PathBuf> {
        check_base(self.base.as_fd(), change, self.since)
    }

    /// Whether a change is withheld because another process changed the workspace during the run.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.withheld.iter().any(|one| one.why == WithheldReason::StaleBase)
    }

    /// The file as it is in the workspace.
    pub fn open_before(&self, path: &std::path::Path) -> Result<OwnedFd, Errno> {
        open(self.base.as_fd(), path)
    }

    /// The file as the program left it.
    pub fn open_after(&self, path: &std::path::Path) -> Result<OwnedFd, Errno> {
        open(self.view.as_fd(), path)
    }

    /// A bounded part of the changes, for a report.
    #[must_use]
    pub fn listing(&self) -> ChangeListing<'_> {
        ChangeListing::of(&self.list, &self.withheld)
    }

    /// The changes as diffs.
    #[must_use]
    pub fn diffs(&self) -> Diffs<'_> {
        Diffs::of(self)
    }
}

/// Checks that the base of a change is still what the program saw.
pub(crate) fn check_base(root: BorrowedFd<'_>, change: &EntryChange, since: i128) -> Result<(), PathBuf> {
    let stale = |path: &std::path::Path| path.to_owned();
    let look = |path: &std::path::Path| {
        EntryMetadata::stat(root, path.as_os_str().as_bytes()).map_err(|_| stale(path))
    };
    let now = look(&change.path)?;
    let expected = match &change.kind {
        ChangeKind::Created => None,
        ChangeKind::Renamed { from } => {
            let there = look(from)?;
            if !is_unchanged(there.as_ref(), change.before.as_ref(), since) {
                return Err(stale(from));
            }
            None
        }
        ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::Mode => change.before.as_ref(),
    };
    if is_unchanged(now.as_ref(), expected, since) { Ok(()) } else { Err(stale(&change.path)) }
}

fn is_unchanged(now: Option<&EntryMetadata>, expected: Option<&EntryMetadata>, since: i128) -> bool {
    match (now, expected) {
        (None, None) => true,
        (Some(now), Some(expected)) => {
            let dir = now.kind == FileKind::Directory;
            now.inode == expected.inode
                && now.kind == expected.kind
                // The ctime of a directory changes with its entries, also when we write them.
                && (dir || now.changed == expected.changed)
                && expected.changed <= since
        }
        _ => false,
    }
}

fn open(root: BorrowedFd<'_>, path: &std::path::Path) -> Result<OwnedFd, Errno> {
    open_within(root, path.as_os_str().as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK)
}
