//! From a path to an open handle. The path is opened with links forbidden; when there is one, the path is
//! re-spelled without it, step by step, each step judged by the scope before it is touched, and then opened
//! with links forbidden again. So the last thing that happens is always an open that cannot be led astray.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use vambrace_core::path::ScopedPath;

use crate::fault::{FileFault, shown};
use crate::handle::{file_type, link_target, links};
use crate::visible::Visible;
use crate::workspace::Workspace;

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;
/// How often a path may turn into a link between re-spelling and opening.
const ATTEMPTS: usize = 16;

/// What a path can end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
}

/// A path that was opened.
#[derive(Debug)]
pub struct Resolved {
    /// Its one spelling, links followed.
    pub path: ScopedPath,
    /// What it is.
    pub kind: Kind,
    /// In bytes.
    pub size: u64,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of names.
    pub links: u64,
    /// Last change of the content.
    pub modified: SystemTime,
    pub(crate) place: String,
    pub(crate) facts: Stat,
    handle: OwnedFd,
}

impl Resolved {
    /// The open file or folder.
    #[must_use]
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Gives the handle away.
    #[must_use]
    pub fn into_handle(self) -> OwnedFd {
        self.handle
    }
}

impl Workspace {
    /// Refuses what whoever decided does not let be told.
    pub(crate) fn check_visible(&self, found: &Resolved, visible: Option<&Visible>) -> Result<(), FileFault> {
        match visible {
            Some(visible) if !visible.admits(&found.path) => {
                Err(FileFault::Blocked { path: shown(&found.path.to_string()) })
            }
            _ => Ok(()),
        }
    }

    /// Opens what a path names, following links inside the scope.
    pub fn resolve(&self, asked: &ScopedPath) -> Result<Resolved, FileFault> {
        let found = self.resolve_plain(asked);
        match found {
            Err(FileFault::NotFound { path, .. }) => {
                let near = self.near_names(&self.scope().place(asked));
                Err(FileFault::NotFound { path, near })
            }
            found => found,
        }
    }

    /// Without suggestions.
    pub(crate) fn resolve_plain(&self, asked: &ScopedPath) -> Result<Resolved, FileFault> {
        self.resolve_place(&self.scope().place(asked), &asked.to_string())
    }

    /// Opens a place; `asked` is what messages call it.
    pub(crate) fn resolve_place(&self, place: &str, asked: &str) -> Result<Resolved, FileFault> {
        self.scope().admit(place).map_err(|refusal| refusal.about(asked))?;
        match self.root().open(place) {
            Ok(handle) => return self.describe(place, handle, asked),
            Err(Errno::LOOP) => {}
            Err(errno) => return Err(FileFault::from_errno(errno, asked)),
        }
        for _ in 0..ATTEMPTS {
            let straight = self.without_links(place, asked)?;
            match self.root().open(&straight) {
                Ok(handle) => return self.describe(&straight, handle, asked),
                Err(Errno::LOOP) => {}
                Err(errno) => return Err(FileFault::from_errno(errno, asked)),
            }
        }
        Err(FileFault::Moving { path: shown(asked) })
    }

    /// Re-spells a place so that no name in it is a link, as far as we can see now; the result is admitted.
    pub(crate) fn without_links(&self, place: &str, asked: &str) -> Result<String, FileFault> {
        let fault = |errno| FileFault::from_errno(errno, asked);
        let outside = || FileFault::OutOfScope { path: shown(asked) };
        let mut here: Vec<String> = Vec::new();
        let mut ahead: Vec<String> = names_reversed(place);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                here.pop().ok_or_else(outside)?;
                continue;
            }
            here.push(name);
            let step = here.join("/");
            self.scope().admit_step(&step).map_err(|refusal| refusal.about(asked))?;
            let looked = self.root().look(&step).map_err(fault)?;
            if file_type(&rustix::fs::fstat(&looked).map_err(fault)?) != FileType::Symlink {
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(FileFault::TooManyLinks { path: shown(asked) });
            }
            let target = link_target(&looked).map_err(fault)?.ok_or_else(outside)?;
            here.pop();
            if target.starts_with('/') {
                here.clear();
                ahead.extend(names_reversed(self.below_root(&target).ok_or_else(outside)?));
            } else {
                ahead.extend(names_reversed(&target));
            }
        }
        let straight = here.join("/");
        self.scope().admit(&straight).map_err(|refusal| refusal.about(asked))?;
        Ok(straight)
    }

    fn describe(&self, place: &str, handle: OwnedFd, asked: &str) -> Result<Resolved, FileFault> {
        let facts = rustix::fs::fstat(&handle).map_err(|errno| FileFault::from_errno(errno, asked))?;
        if !self.root().holds(&facts) {
            return Err(FileFault::CrossDevice { path: shown(asked) });
        }
        let not_a_file = |what| Err(FileFault::NotAFile { path: shown(asked), what });
        let kind = match file_type(&facts) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Fifo => return not_a_file("a pipe"),
            FileType::Socket => return not_a_file("a socket"),
            _ => return not_a_file("a device"),
        };
        if kind == Kind::File && self.scope().is_sibling_root(place) {
            return Err(FileFault::OutOfScope { path: shown(asked) });
        }
        Ok(Resolved {
            path: self.scope().spell(place),
            kind,
            size: u64::try_from(facts.st_size).unwrap_or(0),
            device: facts.st_dev,
            inode: facts.st_ino,
            links: links(&facts),
            modified: time(facts.st_mtime, facts.st_mtime_nsec),
            place: place.to_owned(),
            facts,
            handle,
        })
    }
}

/// A point in time as the kernel tells it.
pub(crate) fn time(seconds: i64, nanos: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanos))).unwrap_or(UNIX_EPOCH)
}

fn names_reversed(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect()
}
