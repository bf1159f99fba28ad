//! Parses `git status --porcelain=v2 --branch -z`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::git_path::{GitPath, Pathspec};
use crate::records::{GitOutputError, MAX_ENTRIES, NulRecords, number, text};

const EXPECTED: &str = "a status in porcelain format 2";

/// The state of the working tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitStatus {
    /// The branch that is checked out.
    pub branch: BranchStatus,
    /// How many stashes there are.
    pub stashes: u64,
    /// What differs.
    pub entries: Vec<StatusEntry>,
    /// Whether the list is not complete.
    pub truncated: bool,
}

/// The branch that is checked out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BranchStatus {
    /// The commit; `None` before the first one.
    pub commit: Option<String>,
    /// The branch; `None` if no branch is checked out.
    pub name: Option<String>,
    /// The branch that it follows.
    pub upstream: Option<String>,
    /// Commits that the upstream does not have; `None` if there is no upstream.
    pub ahead: Option<u64>,
    /// Commits that only the upstream has.
    pub behind: Option<u64>,
}

/// How a file differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileState {
    /// It does not differ.
    Unmodified,
    /// Its content or mode.
    Modified,
    /// It is another kind of file.
    TypeChanged,
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It has another name.
    Renamed,
    /// It is a copy.
    Copied,
    /// It has conflicts.
    Unmerged,
}

/// Which kind of entry it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusKind {
    /// Git knows the file.
    Tracked,
    /// It has conflicts.
    Unmerged,
    /// Git does not know it. A path that ends with `/` is a repository of its own, or a folded directory.
    Untracked,
    /// It is ignored.
    Ignored,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusEntry {
    /// The path.
    pub path: GitPath,
    /// The path before a rename or copy.
    pub original: Option<GitPath>,
    /// Which kind of entry it is.
    pub kind: StatusKind,
    /// How the index differs from the commit.
    pub staged: FileState,
    /// How the working tree differs from the index.
    pub unstaged: FileState,
    /// Whether it is a submodule.
    pub submodule: bool,
}

impl FileState {
    /// The word in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unmodified => "unmodified",
            Self::Modified => "modified",
            Self::TypeChanged => "type_changed",
            Self::Added => "added",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
            Self::Copied => "copied",
            Self::Unmerged => "unmerged",
        }
    }

    pub(crate) fn from_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'.' => Self::Unmodified,
            b'M' => Self::Modified,
            b'T' => Self::TypeChanged,
            b'A' => Self::Added,
            b'D' => Self::Deleted,
            b'R' => Self::Renamed,
            b'C' => Self::Copied,
            b'U' => Self::Unmerged,
            _ => return None,
        })
    }
}

impl StatusKind {
    /// The word in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tracked => "tracked",
            Self::Unmerged => "unmerged",
            Self::Untracked => "untracked",
            Self::Ignored => "ignored",
        }
    }
}

impl GitStatus {
    /// Parses the output; output that was cut gives what is complete.
    pub fn parse(output: &[u8]) -> Result<Self, GitOutputError> {
        let mut status = Self::default();
        let mut records = NulRecords::new(output);
        while let Some(record) = records.next() {
            if let Some(header) = record.strip_prefix(b"# ") {
                status.header(header);
                continue;
            }
            if status.entries.len() == MAX_ENTRIES {
                status.truncated = true;
                return Ok(status);
            }
            let mut entry = entry(record).ok_or_else(|| records.error(EXPECTED))?;
            if record.starts_with(b"2 ") {
                // The original path is a record of its own.
                let Some(original) = records.next() else {
                    status.truncated = true;
                    return Ok(status);
                };
                entry.original = Some(GitPath::new(original));
            }
            status.entries.push(entry);
        }
        status.truncated = records.is_cut();
        Ok(status)
    }

    /// The files that staging these paths would touch, one by one, so that each can be judged. Repositories inside this one
    /// are not among them. Needs a status with [`UntrackedFiles::All`](crate::UntrackedFiles::All).
    #[must_use]
    pub fn files_below(&self, paths: &[Pathspec]) -> Vec<&GitPath> {
        let changed = |entry: &&StatusEntry| {
            entry.kind != StatusKind::Ignored
                && (entry.kind != StatusKind::Tracked || entry.unstaged != FileState::Unmodified)
                && !entry.path.as_bytes().ends_with(b"/")
        };
        let named: HashSet<&[u8]> = paths.iter().map(Pathspec::as_bytes).collect();
        let is_named = |path: &&GitPath| {
            let path = path.as_bytes();
            let ends = (0..path.len()).filter(|end| path.get(*end) == Some(&b'/')).chain([path.len()]);
            ends.filter_map(|end| path.get(..end)).any(|directory| named.contains(directory))
        };
        self.entries.iter().filter(changed).map(|entry| &entry.path).filter(is_named).collect()
    }

    /// For a result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "branch": {
                "name": self.branch.name,
                "commit": self.branch.commit,
                "upstream": self.branch.upstream,
                "ahead": self.branch.ahead,
                "behind": self.branch.behind,
            },
            "stashes": self.stashes,
            "entries": self.entries.iter().map(StatusEntry::to_json).collect::<Vec<_>>(),
            "truncated": self.truncated,
        })
    }

    /// Unknown headers are left out, as the format's description asks.
    fn header(&mut self, header: &[u8]) {
        let space = header.iter().position(|byte| *byte == b' ').unwrap_or(header.len());
        let (name, value) = header.split_at_checked(space).unwrap_or((header, b""));
        let value = value.get(1..).unwrap_or_default();
        match name {
            b"branch.oid" if value != b"(initial)" => self.branch.commit = Some(text(value)),
            b"branch.head" if value != b"(detached)" => self.branch.name = Some(text(value)),
            b"branch.upstream" => self.branch.upstream = Some(text(value)),
            b"branch.ab" => {
                let mut counts = value.split(|byte| *byte == b' ');
                let mut count = |sign: &[u8]| number(counts.next()?.strip_prefix(sign)?);
                (self.branch.ahead, self.branch.behind) = (count(b"+"), count(b"-"));
            }
            b"stash" => self.stashes = number(value).unwrap_or_default(),
            _ => {}
        }
    }
}

impl StatusEntry {
    fn to_json(&self) -> Value {
        let mut entry = json!({ "path": self.path.to_string(), "kind": self.kind.as_str() });
        let Some(fields) = entry.as_object_mut() else { return entry };
        if let Some(original) = &self.original {
            fields.insert("original_path".to_owned(), original.to_string().into());
        }
        if matches!(self.kind, StatusKind::Tracked | StatusKind::Unmerged) {
            fields.insert("staged".to_owned(), self.staged.as_str().into());
            fields.insert("unstaged".to_owned(), self.unstaged.as_str().into());
        }
        if self.submodule {
            fields.insert("submodule".to_owned(), true.into());
        }
        entry
    }
}

fn entry(record: &[u8]) -> Option<StatusEntry> {
    let (kind, count) = match record.get(..2)? {
        b"1 " => (StatusKind::Tracked, 9),
        b"2 " => (StatusKind::Tracked, 10),
        b"u " => (StatusKind::Unmerged, 11),
        b"? " => (StatusKind::Untracked, 2),
        b"! " => (StatusKind::Ignored, 2),
        _ => return None,
    };
    let fields: Vec<&[u8]> = record.splitn(count, |byte| *byte == b' ').collect();
    let path = fields.last().filter(|path| fields.len() == count && !path.is_empty())?;
    let mut entry = StatusEntry {
        path: GitPath::new(path),
        original: None,
        kind,
        staged: FileState::Unmodified,
        unstaged: FileState::Unmodified,
        submodule: false,
    };
    if let [_, [staged, unstaged], submodule, _, ..] = fields.as_slice() {
        entry.staged = FileState::from_letter(*staged)?;
        entry.unstaged = FileState::from_letter(*unstaged)?;
        entry.submodule = submodule.starts_with(b"S");
    } else if matches!(kind, StatusKind::Tracked | StatusKind::Unmerged) {
        return None;
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

    fn sample() -> String {
        format!(
            "# branch.oid {HASH}\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0# stash 3\0\
             1 .M N... 100644 100644 100644 {HASH} {HASH} a b\0\
             2 R. N... 100644 100644 100644 {HASH} {HASH} R100 new name\0old name\0\
             u UU N... 100644 100644 100644 100644 {HASH} {HASH} {HASH} both\0\
             1 AM SC.. 000000 160000 160000 {HASH} {HASH} sub\0\
             ? new\ttab\0? nested/\0! ignored\0"
        )
    }

    #[test]
    fn status_is_parsed_and_shown() {
        let status = GitStatus::parse(sample().as_bytes()).unwrap();
        assert!(!status.truncated);
        assert_eq!((status.stashes, status.branch.ahead, status.branch.behind), (3, Some(2), Some(1)));
        let json = status.to_json();
        assert_eq!(json["branch"]["name"], "main");
        assert_eq!(
            json["entries"][0],
            json!({"path": "a b", "kind": "tracked", "staged": "unmodified", "unstaged": "modified"})
        );
        assert_eq!(json["entries"][1]["original_path"], "old name");
        assert_eq!(json["entries"][2]["kind"], "unmerged");
        assert_eq!(json["entries"][3]["submodule"], true);
        assert_eq!(json["entries"][4], json!({"path": "\"new\\ttab\"", "kind": "untracked"}));
        let initial =
            GitStatus::parse(b"# branch.oid (initial)\0# branch.head (detached)\0# future x\0").unwrap();
        assert_eq!(initial, GitStatus::default());
    }

    #[test]
    fn files_below_a_path_are_listed_one_by_one() {
        let status = GitStatus::parse(b"? src/a\0? src/nested/\0? b\0! src/i\0").unwrap();
        let below = |path: &str| status.files_below(&[Pathspec::new(path).unwrap()]);
        assert_eq!(below("src"), [&GitPath::new(b"src/a")]);
        assert_eq!(below("b"), [&GitPath::new(b"b")]);
        assert!(below("sr").is_empty());
    }

    #[test]
    fn output_that_was_cut_gives_what_is_complete() {
        let whole = sample();
        let complete = GitStatus::parse(whole.as_bytes()).unwrap();
        for end in 0..whole.len() {
            let status = GitStatus::parse(&whole.as_bytes()[..end]).unwrap();
            assert!(complete.entries.starts_with(&status.entries));
            assert!(status.truncated || whole.as_bytes()[..end].ends_with(&[0]) || end == 0);
        }
        assert!(GitStatus::parse(b"hello\0").is_err());
        assert!(GitStatus::parse(b"1 XY N... 1 1 1 1 1 a\0").is_err());
        let many = "? a\0".repeat(MAX_ENTRIES + 1);
        assert!(GitStatus::parse(many.as_bytes()).unwrap().truncated);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(output: Vec<u8>) {
            let _ = GitStatus::parse(&output).map(|status| status.to_json());
        }

        #[test]
        fn arbitrary_records_never_panic(output in "([12u?!#] ?[.MADRCUNS0-9a \\x00]{0,40}\\x00){0,6}") {
            let _ = GitStatus::parse(output.as_bytes()).map(|status| status.to_json());
        }
    }
}
