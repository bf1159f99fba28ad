//! Errors of file access, and how they are reported to a caller. Where the caller may not learn whether a file exists,
//! the message is the same in both cases.

use rustix::io::Errno;
use vambrace_core::{CallError, ErrorCode};

/// Why the scope denies a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeDenial {
    OutOfScope,
    Blocked,
}

impl ScopeDenial {
    pub(crate) fn into_error(self, path: &str) -> FileError {
        match self {
            Self::OutOfScope => FileError::OutOfScope { path: display_path(path) },
            Self::Blocked => FileError::Blocked { path: display_path(path) },
        }
    }
}

/// Why a workspace cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The project root.
    #[error("project root `{path}` cannot be opened: {why}")]
    Root {
        /// As given.
        path: String,
        /// The system's error message.
        why: String,
    },
    /// A kernel before 5.6, or a seccomp filter that hides the call.
    #[error("this kernel does not provide `openat2`, which is required to open files safely")]
    NoOpenat2,
    /// The service root.
    #[error("service root `{0}` is not a directory inside the project that can be reached without symlinks")]
    ServiceRoot(String),
    /// The service root is a blocked name.
    #[error("service root `{0}` is a blocked path")]
    ServiceRootBlocked(String),
    /// A directory in the rules.
    #[error("directory `{0}` must be relative to the project root and without `..`")]
    BadDirectory(String),
}

/// Why a file or directory cannot be accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Nothing is there.
    #[error("there is no `{path}`")]
    NotFound {
        /// As asked.
        path: String,
        /// Similar names, none of them blocked.
        suggestions: Vec<String>,
    },
    /// Outside the scope, by name or by symlink.
    #[error("`{path}` leads outside the service's scope")]
    OutOfScope {
        /// As asked.
        path: String,
    },
    /// A loop or a chain of more than 40 symlinks.
    #[error("`{path}` follows more than 40 symlinks")]
    TooManySymlinks {
        /// As asked.
        path: String,
    },
    /// A blocked path, by name or by symlink.
    #[error("`{path}` is a blocked path")]
    Blocked {
        /// As asked.
        path: String,
    },
    /// Runs in or configures a git repository, or would create one around such files.
    #[error(
        "`{path}` belongs to a git repository (a directory with `objects` and `refs`), whose hooks and settings cannot be written"
    )]
    Repository {
        /// As asked.
        path: String,
    },
    /// Another device or mount.
    #[error("`{path}` crosses onto another device or mount")]
    CrossDevice {
        /// As asked.
        path: String,
    },
    /// Not the kind of file that the operation needs.
    #[error("`{path}` is {what}")]
    NotAFile {
        /// As asked.
        path: String,
        /// `a directory`, `a pipe`, ...
        what: &'static str,
    },
    /// A file with hard links that were not found in scope.
    #[error("`{path}` has {links} hard links and only {found} of them are in scope and not blocked")]
    HardLinked {
        /// As asked.
        path: String,
        /// Hard links of the file.
        links: u64,
        /// Hard links found inside the scope.
        found: u64,
    },
    /// The operating system denies access.
    #[error("the operating system does not let this process read `{path}`")]
    Unreadable {
        /// As asked.
        path: String,
    },
    /// Not text.
    #[error("`{path}` is not text")]
    Binary {
        /// As asked.
        path: String,
    },
    /// Text in another encoding.
    #[error("`{path}` is not valid UTF-8: {why}")]
    NotUtf8 {
        /// As asked.
        path: String,
        /// The position or the encoding.
        why: String,
    },
    /// Over the size limit.
    #[error("`{path}` has {size} bytes, over the cap of {cap}")]
    TooLarge {
        /// As asked.
        path: String,
        /// Size of the file in bytes.
        size: u64,
        /// Limit in bytes.
        cap: u64,
    },
    /// Arguments that contradict each other.
    #[error("{why}")]
    BadRequest {
        /// Which argument and why.
        why: String,
    },
    /// Changed during every attempt to open or read it.
    #[error("`{path}` keeps changing while it is opened")]
    Unstable {
        /// As asked.
        path: String,
    },
    /// The process is out of file descriptors or memory.
    #[error("`{path}` cannot be opened now: {why}")]
    Exhausted {
        /// As asked.
        path: String,
        /// The system's error message.
        why: String,
    },
    /// Any other system error.
    #[error("`{path}` cannot be read: {why}")]
    Io {
        /// As asked.
        path: String,
        /// The system's error message.
        why: String,
    },
}

impl FileError {
    pub(crate) fn from_errno(errno: Errno, path: &str) -> Self {
        let why = || std::io::Error::from(errno).to_string();
        let path = display_path(path);
        match errno {
            // ENOTDIR: a file used as a directory. ESRCH, ESTALE: removed meanwhile.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::SRCH | Errno::STALE => {
                Self::NotFound { path, suggestions: Vec::new() }
            }
            Errno::XDEV => Self::CrossDevice { path },
            Errno::LOOP => Self::TooManySymlinks { path },
            Errno::ACCESS | Errno::PERM => Self::Unreadable { path },
            // Opening a socket, or a device without a driver.
            Errno::NXIO | Errno::NODEV => Self::NotAFile { path, what: "a socket or a device" },
            Errno::AGAIN => Self::Unstable { path },
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted { path, why: why() },
            _ => Self::Io { path, why: why() },
        }
    }

    /// The stable error code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::FileNotFound,
            Self::OutOfScope { .. } | Self::TooManySymlinks { .. } | Self::HardLinked { .. } => {
                ErrorCode::ScopeViolation
            }
            Self::Blocked { .. } | Self::Repository { .. } => ErrorCode::BlockedPath,
            Self::CrossDevice { .. } => ErrorCode::CrossDevice,
            Self::NotAFile { .. } => ErrorCode::NotAFile,
            // The system denies it, not our policy, so it is not a violation.
            Self::Unreadable { .. } => ErrorCode::NotAFile,
            Self::Binary { .. } => ErrorCode::BinaryFile,
            Self::NotUtf8 { .. } => ErrorCode::NotUtf8,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::BadRequest { .. } => ErrorCode::InvalidArguments,
            Self::Unstable { .. } | Self::Exhausted { .. } => ErrorCode::ResourceBusy,
            Self::Io { .. } => ErrorCode::Internal,
        }
    }
}

impl From<FileError> for CallError {
    fn from(error: FileError) -> Self {
        let call_error = Self::new(error.code(), error.to_string());
        match &error {
            FileError::NotFound { suggestions, .. } if !suggestions.is_empty() => {
                let suggestions: Vec<_> = suggestions.iter().map(|name| format!("`{name}`")).collect();
                call_error.suggest(format!("did you mean {}?", suggestions.join(" or ")))
            }
            FileError::HardLinked { .. } => call_error.suggest(
                "the file may be the same as a file outside the scope; ask the user to replace it with a copy",
            ),
            FileError::TooManySymlinks { .. } => {
                call_error.suggest("the symlinks form a loop; use list_files to find the real file")
            }
            FileError::Unreadable { .. } => {
                call_error.suggest("ask the user to change the permissions of the file")
            }
            FileError::NotAFile { what: "a directory", .. } => {
                call_error.suggest("use list_files to see what is in the directory")
            }
            FileError::BadRequest { .. } => call_error.suggest("correct the named argument"),
            FileError::Unstable { .. } => call_error.suggest("another program is changing it; try again"),
            FileError::Exhausted { .. } => call_error.suggest("wait a moment and try again"),
            _ => call_error,
        }
    }
}

/// A path for a message: one line, at most 300 characters, control characters replaced.
pub(crate) fn display_path(path: &str) -> String {
    path.chars().take(300).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line_and_suggest_similar_names() {
        let suggestions = vec!["src/main.rs".to_owned()];
        let not_found = FileError::NotFound { path: display_path("src/\nmian.rs"), suggestions };
        let error = CallError::from(not_found);
        assert_eq!(error.code, ErrorCode::FileNotFound);
        assert!(!error.message.contains('\n'));
        assert_eq!(error.suggestion, "did you mean `src/main.rs`?");
    }
}
