//! What a program changed in its view of the workspace.
//!
//! Names come from the upper layer, facts from comparing the merged view with the workspace itself: the overlay's own
//! marks mislead (a rename carries the origin of another file, an opaque folder holds no whiteouts).
//!
//! **Invariant.** Nothing here writes. What must not be taken over is in `withheld`, with the reason, and never in
//! `list`; of a file that is in both, its attributes or its other names are withheld.

mod collect;
mod diff;
mod facts;
mod folder;
mod link;
mod listing;
mod rename;
mod repository;
mod setting;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::sys::mounting::open_within;
use crate::task::Task;

pub(crate) use collect::{Collect, collect};
pub use diff::Diffs;
pub(crate) use facts::digest;
pub use facts::{EntryKind, Facts};
pub use listing::Listing;

/// What a program changed.
#[derive(Debug, Clone)]
pub struct Changes {
    /// What can be taken over, by path.
    pub list: Vec<Change>,
    /// What cannot.
    pub withheld: Vec<Withheld>,
    pub(crate) base: Arc<OwnedFd>,
    pub(crate) view: Arc<OwnedFd>,
    /// The folder that the view lies in, where it is one of the host; removed with the last of the changes.
    pub(crate) _folder: Option<Arc<Task>>,
    /// When the run began (CLOCK_REALTIME, nanoseconds).
    pub(crate) since: i128,
}

/// One entry that is different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// As it was in the workspace.
    pub before: Option<Facts>,
    /// As the program left it.
    pub after: Option<Facts>,
}

/// What happened to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there.
    Created,
    /// Its content is another, or it is something else than it was.
    Modified,
    /// It is gone.
    Deleted,
    /// The same file under another name.
    Renamed {
        /// Relative to the workspace.
        from: PathBuf,
    },
    /// Only who may do what with it.
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

/// An entry that the program changed and that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why a change is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A secret's name.
    Masked,
    /// It would run or configure something without being asked.
    Protected,
    /// Mode `write` makes new files only.
    Exists,
    /// A device, pipe or socket.
    Special,
    /// A link that leads out of the workspace.
    LeadsOutside,
    /// The program left it unreadable.
    Unreadable,
    /// It was changed by somebody else while the program ran.
    StaleBase,
    /// A folder with something in it that stays.
    NotEmpty,
    /// Another file system is mounted there, which the program did not see.
    Mounted,
    /// What is in a build folder, such as the project's own dependencies.
    BuildFolder,
    /// Its path is longer than the kernel takes.
    TooDeep,
    /// The file's other names: they keep its content, and its mode is theirs too.
    OtherNames,
    /// Its extended attributes only: they stay, or are a new file's.
    Attributes,
}

impl Why {
    /// Its name, by which programs know it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Masked => "Masked",
            Self::Protected => "Protected",
            Self::Exists => "Exists",
            Self::Special => "Special",
            Self::LeadsOutside => "LeadsOutside",
            Self::Unreadable => "Unreadable",
            Self::StaleBase => "StaleBase",
            Self::NotEmpty => "NotEmpty",
            Self::Mounted => "Mounted",
            Self::BuildFolder => "BuildFolder",
            Self::TooDeep => "TooDeep",
            Self::OtherNames => "OtherNames",
            Self::Attributes => "Attributes",
        }
    }

    /// As shown to people and programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Masked => "secret name",
            Self::Protected => "protected name",
            Self::Exists => "exists already",
            Self::Special => "neither file, folder nor link",
            Self::LeadsOutside => "link out of the workspace",
            Self::Unreadable => "unreadable",
            Self::StaleBase => "changed meanwhile",
            Self::NotEmpty => "something in it stays",
            Self::Mounted => "another file system is mounted there",
            Self::BuildFolder => "a build folder",
            Self::TooDeep => "too deep: its path is too long",
            Self::OtherNames => "its other names (hard links) stay as they were",
            Self::Attributes => "extended attributes",
        }
    }
}

impl Changes {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.withheld.is_empty()
    }

    /// Whether some of it would be taken over, had nobody else changed the workspace meanwhile.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.withheld.iter().any(|one| one.why == Why::StaleBase)
    }

    /// The file as it is in the workspace.
    pub fn open_before(&self, path: &std::path::Path) -> Result<OwnedFd, Errno> {
        open(self.base.as_fd(), path)
    }

    /// The file as the program left it.
    pub fn open_after(&self, path: &std::path::Path) -> Result<OwnedFd, Errno> {
        open(self.view.as_fd(), path)
    }

    /// What of it is told where not everything is asked for: a bounded part.
    #[must_use]
    pub fn listing(&self) -> Listing<'_> {
        Listing::of(&self.list, &self.withheld)
    }

    /// The changes in words.
    #[must_use]
    pub fn diffs(&self) -> Diffs<'_> {
        Diffs::of(self)
    }
}

fn open(root: BorrowedFd<'_>, path: &std::path::Path) -> Result<OwnedFd, Errno> {
    open_within(root, path.as_os_str().as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK)
}
