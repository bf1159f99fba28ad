//! Lists directories. Every entry is listed, ignored by git or not, except blocked names and hidden names that the pattern
//! does not ask for. A symlink is listed as its target when that is in scope; one that resolves to a blocked name is not
//! listed at all, so that a listing reveals nothing about blocked files.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::FileType;
use vambrace_core::path::ScopedPath;

use crate::entries::EntryBuffer;
use crate::error::FileError;
use crate::handle::{file_type, open_entry_path};
use crate::masking::SecretFinder;
use crate::path_filter::PathFilter;
use crate::resolve::{Resolved, ResolvedKind, time};
use crate::scope::join;
use crate::workspace::Workspace;

/// Matches counted; further ones are not.
const MAX_COUNTED: usize = 100_000;
/// Entries visited; the walk ends there.
const MAX_VISITED: usize = 2_000_000;

/// What to list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// Also list subdirectories; symlinks to directories are not followed.
    pub recursive: bool,
    /// A glob over names or, if it contains a slash, over paths relative to the listed directory.
    pub pattern: Option<String>,
    /// Maximum number of entries returned.
    pub max_entries: usize,
    /// Only paths that it admits are listed; all when left out.
    pub path_filter: Option<PathFilter>,
    /// Finds secrets in names; the pattern is matched against names with their secrets masked.
    pub secrets: Option<SecretFinder>,
}

impl Default for ListRequest {
    fn default() -> Self {
        Self { recursive: false, pattern: None, max_entries: 1000, path_filter: None, secrets: None }
    }
}

/// Kind of a listed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEntryKind {
    /// A file, or a symlink to one.
    File,
    /// A directory, or a symlink to one.
    Directory,
    /// A symlink that is broken or leads outside the scope.
    Symlink,
}

impl ListEntryKind {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
        }
    }
}

/// One listed entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// File name; bytes that are not UTF-8 are replaced, and such an entry cannot be opened.
    pub name: String,
    /// The canonical path.
    pub path: String,
    /// File, directory or symlink.
    pub kind: ListEntryKind,
    /// In bytes; 0 for directories and broken symlinks.
    pub size: u64,
    /// ISO 8601 in UTC; `None` when it is on another mount or vanished meanwhile.
    pub modified: Option<String>,
}

/// The result of listing a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryListing {
    /// Sorted by path.
    pub files: Vec<ListEntry>,
    /// Number of matches, counted up to 100,000.
    pub total_count: usize,
    /// Whether there are more matches than are listed.
    pub truncated: bool,
}

impl Workspace {
    /// Lists a directory, or the one file that the path names.
    pub fn list(&self, path: &ScopedPath, request: &ListRequest) -> Result<DirectoryListing, FileError> {
        let pattern = request.pattern.as_deref().map(ListPattern::new).transpose()?;
        let start = self.resolve(path)?;
        if start.kind == ResolvedKind::File {
            self.check_path_filter(&start, request.path_filter.as_ref())?;
            let entry = self.entry_of(&start, &start.rel_path);
            return Ok(DirectoryListing { files: vec![entry], total_count: 1, truncated: false });
        }
        let base = start.rel_path.clone();
        let mut gather = ListWalk { ws: self, request, pattern, found: BTreeMap::new(), ended: false };
        gather.dirs(&base, start.into_handle());
        let total_count = gather.found.len();
        let truncated = gather.ended || total_count > request.max_entries;
        let files = self.describe_all(gather.found, request);
        Ok(DirectoryListing { files, total_count, truncated })
    }

    /// Stats the first `max_entries` matches, opening each directory once.
    fn describe_all(&self, found: BTreeMap<String, FoundEntry>, request: &ListRequest) -> Vec<ListEntry> {
        let most = request.max_entries;
        let mut open: Option<(String, OwnedFd)> = None;
        let mut files = Vec::with_capacity(found.len().min(most));
        for (rel_path, found) in found.into_iter().take(most) {
            let dir = rel_path.rsplit_once('/').map_or("", |(dir, _)| dir);
            if open.as_ref().is_none_or(|(at, _)| at != dir) {
                open = self.root().open_dir(dir).ok().map(|fd| (dir.to_owned(), fd));
            }
            let entry = open
                .as_ref()
                .and_then(|(_, fd)| self.describe_entry(fd, &rel_path, &found, request.path_filter.as_ref()));
            files.extend(entry);
        }
        files
    }

    /// `None` when the entry vanished or became a kind that is not listed.
    fn describe_entry(
        &self,
        dir: &OwnedFd,
        rel_path: &str,
        found: &FoundEntry,
        path_filter: Option<&PathFilter>,
    ) -> Option<ListEntry> {
        let without_metadata = |kind| ListEntry {
            name: file_name(rel_path).to_owned(),
            path: self.scope().path_text(rel_path),
            kind,
            size: 0,
            modified: None,
        };
        let entry = match open_entry_path(dir.as_fd(), &found.name) {
            Ok(entry) => entry,
            // A mount point is listed and not crossed.
            Err(rustix::io::Errno::XDEV) => return Some(without_metadata(ListEntryKind::Directory)),
            Err(_) => return None,
        };
        let stat = rustix::fs::fstat(&entry).ok()?;
        let (kind, size) = match file_type(&stat) {
            FileType::RegularFile => (ListEntryKind::File, u64::try_from(stat.st_size).unwrap_or(0)),
            FileType::Directory => (ListEntryKind::Directory, 0),
            // A name that is not UTF-8 was converted lossily; the converted name would resolve to another file.
            FileType::Symlink if found.name.to_str().is_err() => (ListEntryKind::Symlink, 0),
            FileType::Symlink => match self.symlink_target(rel_path) {
                SymlinkTarget::Blocked => return None,
                SymlinkTarget::Inside(end) if self.check_path_filter(&end, path_filter).is_err() => {
                    return None;
                }
                SymlinkTarget::Inside(end) => return Some(self.entry_of(&end, rel_path)),
                SymlinkTarget::Unresolved => (ListEntryKind::Symlink, 0),
            },
            _ => return None,
        };
        let modified = iso(time(stat.st_mtime, stat.st_mtime_nsec));
        Some(ListEntry { kind, size, modified, ..without_metadata(kind) })
    }

    fn entry_of(&self, end: &Resolved, rel_path: &str) -> ListEntry {
        let (kind, size) = match end.kind {
            ResolvedKind::File => (ListEntryKind::File, end.size),
            ResolvedKind::Directory => (ListEntryKind::Directory, 0),
        };
        let path = self.scope().path_text(rel_path);
        ListEntry { name: file_name(rel_path).to_owned(), path, kind, size, modified: iso(end.modified) }
    }

    fn symlink_target(&self, rel_path: &str) -> SymlinkTarget {
        match self.resolve_place(rel_path, rel_path) {
            Ok(end) => SymlinkTarget::Inside(Box::new(end)),
            Err(FileError::Blocked { .. }) => SymlinkTarget::Blocked,
            Err(_) => SymlinkTarget::Unresolved,
        }
    }
}

enum SymlinkTarget {
    Inside(Box<Resolved>),
    Blocked,
    Unresolved,
}

/// A match that is still to be described: the name in the kernel's bytes.
struct FoundEntry {
    name: CString,
}

/// Walks directories and collects the entries that match.
struct ListWalk<'a> {
    ws: &'a Workspace,
    request: &'a ListRequest,
    pattern: Option<ListPattern>,
    found: BTreeMap<String, FoundEntry>,
    ended: bool,
}

impl ListWalk<'_> {
    fn dirs(&mut self, base: &str, first: OwnedFd) {
        let mut buffer = EntryBuffer::new();
        let mut pending = Vec::new();
        let mut visited = 0;
        let mut next = Some((base.to_owned(), first));
        while let Some((rel_path, dir)) = next.take() {
            let _ = buffer.for_each(dir.as_fd(), |name, kind, _| {
                visited += 1;
                self.entry(base, &rel_path, name, kind, &mut pending);
                self.ended = visited >= MAX_VISITED || self.found.len() >= MAX_COUNTED;
                if self.ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if self.ended || !self.request.recursive {
                return;
            }
            // Directories that are on another mount or cannot be read are listed and not entered.
            while let Some(rel_path) = pending.pop() {
                if let Ok(dir) = self.ws.root().open_dir(&rel_path) {
                    next = Some((rel_path, dir));
                    break;
                }
            }
        }
    }

    fn entry(&mut self, base: &str, dir: &str, name: &CStr, kind: FileType, pending: &mut Vec<String>) {
        let text = name.to_string_lossy();
        let rel_path = join(dir, &text);
        let includes_hidden = self.pattern.as_ref().is_some_and(|pattern| pattern.includes_hidden);
        if text.starts_with('.') && !includes_hidden || self.ws.scope().blocks_entry(&rel_path) {
            return;
        }
        let path_filter = self.request.path_filter.as_ref();
        let listed = match kind {
            FileType::RegularFile | FileType::Directory => true,
            FileType::Symlink if name.to_str().is_err() => true,
            FileType::Symlink => match self.ws.symlink_target(&rel_path) {
                SymlinkTarget::Blocked => false,
                SymlinkTarget::Inside(end) => {
                    path_filter.is_none_or(|path_filter| path_filter.admits(&end.path))
                }
                SymlinkTarget::Unresolved => true,
            },
            _ => false,
        };
        let listed = listed
            && path_filter
                .is_none_or(|path_filter| path_filter.admits(&self.ws.scope().scoped_path(&rel_path)));
        let relative = rel_path.get(base.len()..).unwrap_or(&rel_path).trim_start_matches('/');
        if listed && self.matches(relative) {
            self.found.insert(rel_path.clone(), FoundEntry { name: name.to_owned() });
        }
        if kind == FileType::Directory && name.to_str().is_ok() {
            pending.push(rel_path);
        }
    }
}

impl ListWalk<'_> {
    fn matches(&self, relative: &str) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        match self.request.secrets.as_ref().map(|finder| finder.masked(relative)) {
            None => pattern.matches(relative),
            Some(Ok(masked)) => pattern.matches(&masked),
            // A name whose secrets cannot be detected is not listed.
            Some(Err(_)) => false,
        }
    }
}

/// A glob over names or relative paths.
struct ListPattern {
    glob: GlobMatcher,
    over_paths: bool,
    includes_hidden: bool,
}

impl ListPattern {
    fn new(pattern: &str) -> Result<Self, FileError> {
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
        let bad =
            |why: String| FileError::BadRequest { why: format!("`pattern` is not a valid glob: {why}") };
        if pattern.len() > 1024 {
            return Err(bad("it is longer than 1024 bytes".to_owned()));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| bad(error.kind().to_string()))?;
        Ok(Self {
            glob: glob.compile_matcher(),
            over_paths: pattern.contains('/'),
            includes_hidden: pattern.split(['/', '{', ',']).any(|part| part.starts_with('.')),
        })
    }

    fn matches(&self, relative: &str) -> bool {
        self.glob.is_match(if self.over_paths { relative } else { file_name(relative) })
    }
}

fn file_name(rel_path: &str) -> &str {
    rel_path.rsplit_once('/').map_or(rel_path, |(_, name)| name)
}

fn iso(time: SystemTime) -> Option<String> {
    let whole = jiff::Timestamp::try_from(time).ok()?.as_second();
    Some(jiff::Timestamp::from_second(whole).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let pattern = ListPattern::new(pattern).unwrap();
        let matches = |path: &str| pattern.matches(path);
        for path in matching {
            assert!(matches(path), "{path}");
        }
        for path in others {
            assert!(!matches(path), "{path}");
        }
    }

    // A4
    #[test]
    fn patterns_match_names_and_patterns_with_a_slash_match_paths() {
        check("*.rs", &["a.rs", "x/y/b.rs"], &["a.rsx", "rs"]);
        check("src/*.rs", &["src/a.rs"], &["src/x/a.rs", "a.rs"]);
        check("src/**/*.rs", &["src/a.rs", "src/x/y/a.rs"], &["b/src/a.rs"]);
        check("**/t?st", &["test", "a/b/tast"], &["teest"]);
        check("{a,b}.md", &["a.md", "x/b.md"], &["c.md"]);
        check("./x/", &["x", "a/x"], &["y"]);
    }

    #[test]
    fn only_a_pattern_with_a_dot_asks_for_hidden_names() {
        for (pattern, asks) in [("*", false), ("*.rs", false), (".*", true), ("a/.b", true), ("{a,.b}", true)]
        {
            assert_eq!(ListPattern::new(pattern).unwrap().includes_hidden, asks, "{pattern}");
        }
        assert!(ListPattern::new("a[").is_err());
    }

    #[test]
    fn times_are_reported_in_utc_with_second_precision() {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_900);
        assert_eq!(iso(at).as_deref(), Some("2023-11-14T22:13:20Z"));
    }
}
