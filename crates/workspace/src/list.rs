//! Listing folders. Everything that is there is listed, ignored by git or not, except hidden names nobody asked
//! for and blocked names. A link is listed as what it ends in when that is in scope; one that ends in a
//! blocked name is not listed at all, so that listing tells nothing about blocked files.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::FileType;
use vambrace_core::path::ScopedPath;

use crate::entries::EntryBuffer;
use crate::fault::FileFault;
use crate::handle::{file_type, look_at_entry};
use crate::resolve::{Kind, Resolved, time};
use crate::scope::join;
use crate::search::SecretFinder;
use crate::visible::Visible;
use crate::workspace::Workspace;

/// Matches are counted up to here.
const MAX_COUNTED: usize = 100_000;
/// Entries are looked at up to here.
const MAX_VISITED: usize = 2_000_000;

/// What to list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// Also what is in folders below; links to folders are not followed.
    pub recursive: bool,
    /// A glob: of names, or with a slash of paths relative to the listed folder.
    pub pattern: Option<String>,
    /// Entries returned at most.
    pub max_entries: usize,
    /// Only these are listed; all of them when left out.
    pub visible: Option<Visible>,
    /// Finds secrets, which a pattern is not compared with. Without it names are as they are.
    pub secrets: Option<SecretFinder>,
}

impl Default for ListRequest {
    fn default() -> Self {
        Self { recursive: false, pattern: None, max_entries: 1000, visible: None, secrets: None }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file, or a link that ends in one.
    File,
    /// A folder, or a link that ends in one.
    Folder,
    /// A link that ends nowhere, or outside the scope.
    Link,
}

impl EntryKind {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "directory",
            Self::Link => "symlink",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// Its name; what is not UTF-8 in it is replaced, and such an entry cannot be opened.
    pub name: String,
    /// Its spelling as a path.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// In bytes; 0 for folders and for links that lead nowhere.
    pub size: u64,
    /// ISO 8601 in UTC; `None` when it is on another mount or vanished meanwhile.
    pub modified: Option<String>,
}

/// A folder, listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their paths.
    pub files: Vec<ListEntry>,
    /// All that match, counted up to 100,000.
    pub total_count: usize,
    /// Whether there are more than are listed.
    pub truncated: bool,
}

impl Workspace {
    /// Lists a folder, or the one file that a path names.
    pub fn list(&self, path: &ScopedPath, want: &ListRequest) -> Result<Listing, FileFault> {
        let pattern = want.pattern.as_deref().map(Pattern::new).transpose()?;
        let start = self.resolve(path)?;
        if start.kind == Kind::File {
            self.check_visible(&start, want.visible.as_ref())?;
            let entry = self.entry_of(&start, &start.place);
            return Ok(Listing { files: vec![entry], total_count: 1, truncated: false });
        }
        let base = start.place.clone();
        let mut gather = Gather { ws: self, want, pattern, found: BTreeMap::new(), ended: false };
        gather.folders(&base, start.into_handle());
        let total_count = gather.found.len();
        let truncated = gather.ended || total_count > want.max_entries;
        let files = self.describe_all(gather.found, want);
        Ok(Listing { files, total_count, truncated })
    }

    /// Looks at the first entries of what was found, folder by folder.
    fn describe_all(&self, found: BTreeMap<String, Found>, want: &ListRequest) -> Vec<ListEntry> {
        let most = want.max_entries;
        let mut open: Option<(String, OwnedFd)> = None;
        let mut files = Vec::with_capacity(found.len().min(most));
        for (place, found) in found.into_iter().take(most) {
            let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
            if open.as_ref().is_none_or(|(at, _)| at != folder) {
                open = self.root().open_folder(folder).ok().map(|fd| (folder.to_owned(), fd));
            }
            let entry = open
                .as_ref()
                .and_then(|(_, fd)| self.describe_entry(fd, &place, &found, want.visible.as_ref()));
            files.extend(entry);
        }
        files
    }

    /// `None` when the entry vanished or became something that is not listed.
    fn describe_entry(
        &self,
        folder: &OwnedFd,
        place: &str,
        found: &Found,
        visible: Option<&Visible>,
    ) -> Option<ListEntry> {
        let bare = |kind| ListEntry {
            name: file_name(place).to_owned(),
            path: self.scope().spell_text(place),
            kind,
            size: 0,
            modified: None,
        };
        let looked = match look_at_entry(folder.as_fd(), &found.name) {
            Ok(looked) => looked,
            // A mount point: it is seen, and not crossed.
            Err(rustix::io::Errno::XDEV) => return Some(bare(EntryKind::Folder)),
            Err(_) => return None,
        };
        let facts = rustix::fs::fstat(&looked).ok()?;
        let (kind, size) = match file_type(&facts) {
            FileType::RegularFile => (EntryKind::File, u64::try_from(facts.st_size).unwrap_or(0)),
            FileType::Directory => (EntryKind::Folder, 0),
            // A name that is not UTF-8 was spelled lossily; what that spelling names is something else.
            FileType::Symlink if found.name.to_str().is_err() => (EntryKind::Link, 0),
            FileType::Symlink => match self.link_end(place) {
                LinkEnd::Blocked => return None,
                LinkEnd::Inside(end) if self.check_visible(&end, visible).is_err() => return None,
                LinkEnd::Inside(end) => return Some(self.entry_of(&end, place)),
                LinkEnd::Nowhere => (EntryKind::Link, 0),
            },
            _ => return None,
        };
        let modified = iso(time(facts.st_mtime, facts.st_mtime_nsec));
        Some(ListEntry { kind, size, modified, ..bare(kind) })
    }

    fn entry_of(&self, end: &Resolved, place: &str) -> ListEntry {
        let (kind, size) = match end.kind {
            Kind::File => (EntryKind::File, end.size),
            Kind::Folder => (EntryKind::Folder, 0),
        };
        let path = self.scope().spell_text(place);
        ListEntry { name: file_name(place).to_owned(), path, kind, size, modified: iso(end.modified) }
    }

    fn link_end(&self, place: &str) -> LinkEnd {
        match self.resolve_place(place, place) {
            Ok(end) => LinkEnd::Inside(Box::new(end)),
            Err(FileFault::Blocked { .. }) => LinkEnd::Blocked,
            Err(_) => LinkEnd::Nowhere,
        }
    }
}

enum LinkEnd {
    Inside(Box<Resolved>),
    Blocked,
    Nowhere,
}

/// An entry to be looked at: the name as the kernel knows it.
struct Found {
    name: CString,
}

/// Walks and keeps what matches.
struct Gather<'a> {
    ws: &'a Workspace,
    want: &'a ListRequest,
    pattern: Option<Pattern>,
    found: BTreeMap<String, Found>,
    ended: bool,
}

impl Gather<'_> {
    fn folders(&mut self, base: &str, first: OwnedFd) {
        let mut buffer = EntryBuffer::new();
        let mut ahead = Vec::new();
        let mut visited = 0;
        let mut next = Some((base.to_owned(), first));
        while let Some((place, folder)) = next.take() {
            let _ = buffer.each(folder.as_fd(), |name, kind, _| {
                visited += 1;
                self.entry(base, &place, name, kind, &mut ahead);
                self.ended = visited >= MAX_VISITED || self.found.len() >= MAX_COUNTED;
                if self.ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if self.ended || !self.want.recursive {
                return;
            }
            // Folders that are on another mount or cannot be read are listed and not entered.
            while let Some(place) = ahead.pop() {
                if let Ok(folder) = self.ws.root().open_folder(&place) {
                    next = Some((place, folder));
                    break;
                }
            }
        }
    }

    fn entry(&mut self, base: &str, folder: &str, name: &CStr, kind: FileType, ahead: &mut Vec<String>) {
        let text = name.to_string_lossy();
        let place = join(folder, &text);
        let asks_hidden = self.pattern.as_ref().is_some_and(|pattern| pattern.asks_hidden);
        if text.starts_with('.') && !asks_hidden || self.ws.scope().blocks_entry(&place) {
            return;
        }
        let visible = self.want.visible.as_ref();
        let listed = match kind {
            FileType::RegularFile | FileType::Directory => true,
            FileType::Symlink if name.to_str().is_err() => true,
            FileType::Symlink => match self.ws.link_end(&place) {
                LinkEnd::Blocked => false,
                LinkEnd::Inside(end) => visible.is_none_or(|visible| visible.admits(&end.path)),
                LinkEnd::Nowhere => true,
            },
            _ => false,
        };
        let listed = listed && visible.is_none_or(|visible| visible.admits(&self.ws.scope().spell(&place)));
        let relative = place.get(base.len()..).unwrap_or(&place).trim_start_matches('/');
        if listed && self.matches(relative) {
            self.found.insert(place.clone(), Found { name: name.to_owned() });
        }
        if kind == FileType::Directory && name.to_str().is_ok() {
            ahead.push(place);
        }
    }
}

impl Gather<'_> {
    fn matches(&self, relative: &str) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        match self.want.secrets.as_ref().map(|finder| finder.blotted(relative)) {
            None => pattern.matches(relative),
            Some(Ok(blotted)) => pattern.matches(&blotted),
            // What cannot be looked at is not told.
            Some(Err(_)) => false,
        }
    }
}

/// A glob over names or relative paths.
struct Pattern {
    glob: GlobMatcher,
    over_paths: bool,
    asks_hidden: bool,
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self, FileFault> {
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
        let bad =
            |why: String| FileFault::BadRequest { why: format!("`pattern` is not a valid glob: {why}") };
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
            asks_hidden: pattern.split(['/', '{', ',']).any(|part| part.starts_with('.')),
        })
    }

    fn matches(&self, relative: &str) -> bool {
        self.glob.is_match(if self.over_paths { relative } else { file_name(relative) })
    }
}

fn file_name(place: &str) -> &str {
    place.rsplit_once('/').map_or(place, |(_, name)| name)
}

fn iso(time: SystemTime) -> Option<String> {
    let whole = jiff::Timestamp::try_from(time).ok()?.as_second();
    Some(jiff::Timestamp::from_second(whole).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let pattern = Pattern::new(pattern).unwrap();
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
    fn patterns_match_names_or_with_a_slash_paths() {
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
            assert_eq!(Pattern::new(pattern).unwrap().asks_hidden, asks, "{pattern}");
        }
        assert!(Pattern::new("a[").is_err());
    }

    #[test]
    fn times_are_told_in_utc_by_the_second() {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_900);
        assert_eq!(iso(at).as_deref(), Some("2023-11-14T22:13:20Z"));
    }
}
