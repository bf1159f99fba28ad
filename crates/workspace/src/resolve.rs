//! Resolves a path to an open handle. The path is opened with symlinks forbidden. If it contains one, the path is
//! rewritten without it, component by component, each checked against the scope before it is touched, and then opened
//! with symlinks forbidden again. The last step is always an open that cannot be redirected.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use vambrace_core::path::ScopedPath;

use crate::error::{FileError, display_path};
use crate::handle::{file_type, link_count, symlink_target};
use crate::path_filter::PathFilter;
use crate::workspace::Workspace;

/// The kernel's own limit.
const MAX_SYMLINKS: usize = 40;
/// How often a component may become a symlink between rewriting and opening.
const MAX_ATTEMPTS: usize = 16;

/// What a path can resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// A path that was opened.
#[derive(Debug)]
pub struct Resolved {
    /// The canonical path, symlinks followed.
    pub path: ScopedPath,
    /// File or directory.
    pub kind: ResolvedKind,
    /// In bytes.
    pub size: u64,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Number of hard links.
    pub links: u64,
    /// Modification time of the content.
    pub modified: SystemTime,
    pub(crate) rel_path: String,
    pub(crate) stat: Stat,
    handle: OwnedFd,
}

impl Resolved {
    /// The open file or directory.
    #[must_use]
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Consumes this and returns the handle.
    #[must_use]
    pub fn into_handle(self) -> OwnedFd {
        self.handle
    }
}

impl Workspace {
    /// Denies a path that the filter does not admit.
    pub(crate) fn check_path_filter(
        &self,
        found: &Resolved,
        path_filter: Option<&PathFilter>,
    ) -> Result<(), FileError> {
        match path_filter {
            Some(path_filter) if !path_filter.admits(&found.path) => {
                Err(FileError::Blocked { path: display_path(&found.path.to_string()) })
            }
            _ => Ok(()),
        }
    }

    /// Opens a path, following symlinks inside the scope.
    pub fn resolve(&self, asked: &ScopedPath) -> Result<Resolved, FileError> {
        let found = self.resolve_without_suggestions(asked);
        match found {
            Err(FileError::NotFound { path, .. }) => {
                let suggestions = self.suggest_names(&self.scope().rel_path(asked));
                Err(FileError::NotFound { path, suggestions })
            }
            found => found,
        }
    }

    /// Like [`resolve`](Self::resolve), but a `NotFound` carries no suggestions.
    pub(crate) fn resolve_without_suggestions(&self, asked: &ScopedPath) -> Result<Resolved, FileError> {
        self.resolve_place(&self.scope().rel_path(asked), &asked.to_string())
    }

    /// Opens a project-relative path; `asked` is the path that messages show.
    pub(crate) fn resolve_place(&self, rel_path: &str, asked: &str) -> Result<Resolved, FileError> {
        self.scope().admit(rel_path).map_err(|denial| denial.into_error(asked))?;
        match self.root().open(rel_path) {
            Ok(handle) => return self.describe(rel_path, handle, asked),
            Err(Errno::LOOP) => {}
            Err(errno) => return Err(FileError::from_errno(errno, asked)),
        }
        for _ in 0..MAX_ATTEMPTS {
            let resolved = self.resolve_symlinks(rel_path, asked)?;
            match self.root().open(&resolved) {
                Ok(handle) => return self.describe(&resolved, handle, asked),
                Err(Errno::LOOP) => {}
                Err(errno) => return Err(FileError::from_errno(errno, asked)),
            }
        }
        Err(FileError::Unstable { path: display_path(asked) })
    }

    /// Rewrites a path so that no component is a symlink at this moment. The scope admits the result.
    pub(crate) fn resolve_symlinks(&self, rel_path: &str, asked: &str) -> Result<String, FileError> {
        let file_error = |errno| FileError::from_errno(errno, asked);
        let outside = || FileError::OutOfScope { path: display_path(asked) };
        let mut components: Vec<String> = Vec::new();
        let mut remaining: Vec<String> = names_reversed(rel_path);
        let mut links = 0;
        while let Some(name) = remaining.pop() {
            if name == ".." {
                components.pop().ok_or_else(outside)?;
                continue;
            }
            components.push(name);
            let step = components.join("/");
            self.scope().admit_traversal(&step).map_err(|denial| denial.into_error(asked))?;
            let entry = self.root().open_path(&step).map_err(file_error)?;
            if file_type(&rustix::fs::fstat(&entry).map_err(file_error)?) != FileType::Symlink {
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(FileError::TooManySymlinks { path: display_path(asked) });
            }
            let target = symlink_target(&entry).map_err(file_error)?.ok_or_else(outside)?;
            components.pop();
            if target.starts_with('/') {
                components.clear();
                remaining.extend(names_reversed(self.strip_root(&target).ok_or_else(outside)?));
            } else {
                remaining.extend(names_reversed(&target));
            }
        }
        let resolved = components.join("/");
        self.scope().admit(&resolved).map_err(|denial| denial.into_error(asked))?;
        Ok(resolved)
    }

    fn describe(&self, rel_path: &str, handle: OwnedFd, asked: &str) -> Result<Resolved, FileError> {
        let stat = rustix::fs::fstat(&handle).map_err(|errno| FileError::from_errno(errno, asked))?;
        if !self.root().is_on_volume(&stat) {
            return Err(FileError::CrossDevice { path: display_path(asked) });
        }
        let not_a_file = |what| Err(FileError::NotAFile { path: display_path(asked), what });
        let kind = match file_type(&stat) {
            FileType::RegularFile => ResolvedKind::File,
            FileType::Directory => ResolvedKind::Directory,
            FileType::Fifo => return not_a_file("a pipe"),
            FileType::Socket => return not_a_file("a socket"),
            _ => return not_a_file("a device"),
        };
        if kind == ResolvedKind::File && self.scope().is_sibling_root(rel_path) {
            return Err(FileError::OutOfScope { path: display_path(asked) });
        }
        Ok(Resolved {
            path: self.scope().scoped_path(rel_path),
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            links: link_count(&stat),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            rel_path: rel_path.to_owned(),
            stat,
            handle,
        })
    }
}

/// Converts a kernel timestamp.
pub(crate) fn time(seconds: i64, nanos: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanos))).unwrap_or(UNIX_EPOCH)
}

fn names_reversed(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect()
}
