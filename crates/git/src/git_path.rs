//! Paths in a repository: as git prints them, and as an agent may name them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use vambrace_core::quote::quoted;

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum length of a name in it, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A path as git printed it, relative to the root of the working tree. Shown in quotes if it has special characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GitPath(Vec<u8>);

impl GitPath {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// The bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path, if it is valid UTF-8.
    #[must_use]
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl std::fmt::Display for GitPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

/// A path that an invocation names: taken literally, relative to the root of the working tree, never in a git directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pathspec(Vec<u8>);

/// Why a path cannot be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathspecError {
    /// Empty: the whole tree is meant by naming no path.
    #[error("the path is empty")]
    Empty,
    /// Absolute.
    #[error("the path is absolute; give it relative to the root of the repository")]
    Absolute,
    /// Has `.`, `..` or an empty name.
    #[error("the path contains `.`, `..` or an empty name")]
    NotNormal,
    /// Has a NUL or a line break.
    #[error("the path contains a NUL character")]
    Nul,
    /// Longer than the system allows.
    #[error("the path is too long")]
    TooLong,
    /// In a git directory.
    #[error("the path is inside a git directory")]
    GitDirectory,
}

impl Pathspec {
    /// Checks a path. A trailing slash is dropped.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self, PathspecError> {
        let path = path.as_ref();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if path.is_empty() {
            return Err(PathspecError::Empty);
        }
        if path.starts_with(b"/") {
            return Err(PathspecError::Absolute);
        }
        if path.contains(&0) {
            return Err(PathspecError::Nul);
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(PathspecError::TooLong);
        }
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." | b".." => return Err(PathspecError::NotNormal),
                name if name.len() > MAX_NAME_BYTES => return Err(PathspecError::TooLong),
                name if is_git_directory(name) => return Err(PathspecError::GitDirectory),
                _ => {}
            }
        }
        Ok(Self(path.to_vec()))
    }

    /// The bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl TryFrom<&GitPath> for Pathspec {
    type Error = PathspecError;

    fn try_from(path: &GitPath) -> Result<Self, PathspecError> {
        Self::new(&path.0)
    }
}

impl std::fmt::Display for Pathspec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

/// Names that are `.git` to some file system: in any case, as a short name of NTFS, with an NTFS stream or trailing dots.
fn is_git_directory(name: &[u8]) -> bool {
    let stem = name.split(|byte| *byte == b':').next().unwrap_or_default();
    let end = stem.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    let stem = stem.get(..end).unwrap_or_default();
    stem.eq_ignore_ascii_case(b".git") || stem.eq_ignore_ascii_case(b"git~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_checked_before_git_sees_them() {
        let check = |path: &str, expected: Result<&str, PathspecError>| {
            let named = Pathspec::new(path);
            assert_eq!(named.map(|named| named.to_string()), expected.map(str::to_owned), "{path}");
        };
        check("src/main.rs", Ok("src/main.rs"));
        check("src/", Ok("src"));
        check(":(exclude)*", Ok(":(exclude)*"));
        check("--exec", Ok("--exec"));
        check(".github/x", Ok(".github/x"));
        check(".gitignore", Ok(".gitignore"));
        check("", Err(PathspecError::Empty));
        check("/", Err(PathspecError::Empty));
        check("/etc", Err(PathspecError::Absolute));
        check("a/../b", Err(PathspecError::NotNormal));
        check("a//b", Err(PathspecError::NotNormal));
        check("./a", Err(PathspecError::NotNormal));
        check("a\0b", Err(PathspecError::Nul));
        check("a/.GIT/config", Err(PathspecError::GitDirectory));
        check("git~1/config", Err(PathspecError::GitDirectory));
        check(".git. /x", Err(PathspecError::GitDirectory));
        check(".git::$INDEX_ALLOCATION/x", Err(PathspecError::GitDirectory));
        check(&"a".repeat(256), Err(PathspecError::TooLong));
        check(&"a/".repeat(3000), Err(PathspecError::TooLong));
    }
}
