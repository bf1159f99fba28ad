//! Revisions that an agent may name: commits by name, hash or position, ranges of them, and a file in one.
//!
//! **Invariant.** A revision always means a commit: git gets it with `^{commit}`. An object named by its hash alone would show
//! content without a path, which no rule about paths could judge. Searches (`:/text`), the index (`:path`) and dates
//! (`@{yesterday}`) cannot be named.

use crate::git_path::{Pathspec, PathspecError};
use crate::ref_name::{RefNameError, check_ref_name};

/// Maximum length of a revision, in bytes.
const MAX_BYTES: usize = 300;
/// Maximum number of suffixes such as `~2` and `^`.
const MAX_SUFFIXES: usize = 20;
/// Maximum number of digits after `~`, `^` and in `@{}`.
const MAX_DIGITS: usize = 6;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision(String);

/// Commits reachable from one revision, or a range `a..b` or `a...b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RevisionRange(String);

/// A file in a commit: `revision:path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileAtRevision {
    /// The commit.
    pub revision: Revision,
    /// The path in it.
    pub path: Pathspec,
}

/// Why a revision cannot be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// Too long, or too many suffixes.
    #[error("the revision is too long")]
    TooLong,
    /// The name in it is not valid.
    #[error("the revision has no valid name: {0}")]
    Name(#[from] RefNameError),
    /// A suffix that is not accepted.
    #[error(
        "the revision may only use `~n`, `^n`, `^{{commit}}`, `@{{n}}` and `@{{upstream}}` after the name"
    )]
    Suffix,
    /// The path after the colon.
    #[error("{0}")]
    Path(#[from] PathspecError),
}

impl Revision {
    /// Checks a revision.
    pub fn new(text: &str) -> Result<Self, RevisionError> {
        if text.len() > MAX_BYTES {
            return Err(RevisionError::TooLong);
        }
        let name_end = [text.find('~'), text.find('^'), text.find("@{")].into_iter().flatten().min();
        let (name, mut suffixes) =
            text.split_at_checked(name_end.unwrap_or(text.len())).unwrap_or((text, ""));
        match name {
            "@" => {}
            "" if suffixes.starts_with("@{") => {}
            name => check_ref_name(name)?,
        }
        let mut count = 0;
        while !suffixes.is_empty() {
            count += 1;
            if count > MAX_SUFFIXES {
                return Err(RevisionError::TooLong);
            }
            suffixes = after_suffix(suffixes).ok_or(RevisionError::Suffix)?;
        }
        Ok(Self(text.to_owned()))
    }

    /// The commit that is checked out.
    #[must_use]
    pub fn head() -> Self {
        Self("HEAD".to_owned())
    }

    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For an argument: can only be a commit.
    pub(crate) fn as_commit(&self) -> String {
        format!("{}^{{commit}}", self.0)
    }
}

impl RevisionRange {
    /// Checks a revision or a range; a missing side is `HEAD`.
    pub fn new(text: &str) -> Result<Self, RevisionError> {
        if text.len() > 2 * MAX_BYTES {
            return Err(RevisionError::TooLong);
        }
        let Some((from, to)) = text.split_once("..") else {
            return Revision::new(text).map(|revision| Self(revision.as_commit()));
        };
        let (dots, to) = to.strip_prefix('.').map_or(("..", to), |to| ("...", to));
        let side = |side: &str| if side.is_empty() { Ok(Revision::head()) } else { Revision::new(side) };
        if from.is_empty() && to.is_empty() {
            return Err(RevisionError::Name(RefNameError::Empty));
        }
        Ok(Self(format!("{}{dots}{}", side(from)?.as_commit(), side(to)?.as_commit())))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Revision> for RevisionRange {
    fn from(revision: &Revision) -> Self {
        Self(revision.as_commit())
    }
}

impl FileAtRevision {
    /// Checks `revision:path`.
    pub fn new(text: &str) -> Result<Self, RevisionError> {
        let (revision, path) = text.split_once(':').ok_or(RevisionError::Suffix)?;
        Ok(Self { revision: Revision::new(revision)?, path: Pathspec::new(path)? })
    }
}

/// What follows the first suffix; `None` if that is not accepted.
fn after_suffix(text: &str) -> Option<&str> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(rest) = text.strip_prefix("@{") {
        let (inner, rest) = rest.split_once('}')?;
        let number = !inner.is_empty() && inner.len() <= MAX_DIGITS && digits(inner) == inner.len();
        return (number || matches!(inner, "u" | "upstream")).then_some(rest);
    }
    if let Some(rest) = text.strip_prefix("^{") {
        let (inner, rest) = rest.split_once('}')?;
        return matches!(inner, "" | "commit").then_some(rest);
    }
    let rest = text.strip_prefix(['~', '^'])?;
    let count = digits(rest);
    if count > MAX_DIGITS { None } else { rest.get(count..) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn revisions_name_commits_only() {
        for text in [
            "HEAD",
            "@",
            "main",
            "HEAD~3",
            "v1.0^{commit}",
            "a/b^2~1",
            "HEAD@{1}",
            "@{u}",
            "main@{upstream}",
            "abc123",
            "x^^{}",
        ] {
            assert!(Revision::new(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "-p",
            "--output=x",
            ":/fix",
            ":path",
            "HEAD:path",
            "HEAD^{/fix}",
            "HEAD^{tree}",
            "HEAD^{blob}",
            "@{-1}",
            "@{yesterday}",
            "HEAD@{push}",
            "a b",
            "a*",
            "^main",
            "main^!",
            "main^@",
            "HEAD~9999999",
            "a..b",
            "HEAD\n",
            "~",
            "@{",
        ] {
            assert!(Revision::new(text).is_err(), "{text}");
        }
        assert_eq!(Revision::new(&format!("HEAD{}", "^".repeat(21))), Err(RevisionError::TooLong));
        assert_eq!(Revision::new(&"a".repeat(301)), Err(RevisionError::TooLong));
    }

    #[test]
    fn ranges_and_files_are_made_of_commits() {
        let check =
            |text: &str, expected: &str| assert_eq!(RevisionRange::new(text).unwrap().as_str(), expected);
        check("main", "main^{commit}");
        check("a..b~1", "a^{commit}..b~1^{commit}");
        check("a...", "a^{commit}...HEAD^{commit}");
        check("@{u}..", "@{u}^{commit}..HEAD^{commit}");
        for text in ["..", "...", "a....b", "a..b..c", "..-x"] {
            assert!(RevisionRange::new(text).is_err(), "{text}");
        }
        let file = FileAtRevision::new("HEAD~1:src/a:b").unwrap();
        assert_eq!((file.revision.as_str(), file.path.as_bytes()), ("HEAD~1", &b"src/a:b"[..]));
        for text in ["HEAD", ":a", "HEAD:", "HEAD:../a", "HEAD:.git/config"] {
            assert!(FileAtRevision::new(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_revision_is_an_option_or_a_search(text in "[-a:/@{}~^.0-9 \\n]{0,12}") {
            if let Ok(revision) = Revision::new(&text) {
                let argument = revision.as_commit();
                prop_assert!(!argument.starts_with('-'));
                prop_assert!(!argument.contains([':', ' ', '\n']));
                prop_assert!(!argument.contains("^{/"), "{}", argument);
                prop_assert!(!argument.contains(".."));
            }
        }
    }
}
