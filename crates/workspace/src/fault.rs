//! What can go wrong with a file, and how it is told to a caller. The same words whether or not the thing
//! exists, wherever existence is none of the caller's business.

use rustix::io::Errno;
use vambrace_core::{CallError, ErrorCode};

/// Why a lexical rule refuses a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    OutOfScope,
    Blocked,
}

impl Refusal {
    pub(crate) fn about(self, path: &str) -> FileFault {
        match self {
            Self::OutOfScope => FileFault::OutOfScope { path: shown(path) },
            Self::Blocked => FileFault::Blocked { path: shown(path) },
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
        /// The system's words.
        why: String,
    },
    /// A kernel before 5.6, or a seccomp filter that hides the call.
    #[error("this kernel does not offer `openat2`: files cannot be opened safely, so none will be")]
    NoOpenat2,
    /// The service root.
    #[error("service root `{0}` is not a folder inside the project that can be reached without links")]
    ServiceRoot(String),
    /// The service root is a blocked name.
    #[error("service root `{0}` lies in a blocked zone")]
    ServiceRootBlocked(String),
    /// A folder in the rules.
    #[error("folder `{0}` must be relative to the project root and without `..`")]
    BadFolder(String),
}

/// Why a file or folder is not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// Nothing there.
    #[error("there is no `{path}`")]
    NotFound {
        /// As asked.
        path: String,
        /// Names that may be meant, none of them blocked.
        near: Vec<String>,
    },
    /// Outside the scope, by name or by link.
    #[error("`{path}` leads outside the service's scope")]
    OutOfScope {
        /// As asked.
        path: String,
    },
    /// A circle or a chain of more than 40 links.
    #[error("`{path}` follows more than 40 links")]
    TooManyLinks {
        /// As asked.
        path: String,
    },
    /// A blocked name, by name or by link.
    #[error("`{path}` is in a blocked zone")]
    Blocked {
        /// As asked.
        path: String,
    },
    /// Runs or configures a repository, or would make one around such.
    #[error(
        "`{path}` is of a git repository (a folder with `objects` and `refs`), whose hooks and settings nobody writes"
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
    /// Not what the operation needs.
    #[error("`{path}` is {what}")]
    NotAFile {
        /// As asked.
        path: String,
        /// `a folder`, `a pipe`, ...
        what: &'static str,
    },
    /// A file with names that were not found in scope.
    #[error("`{path}` has {links} names and only {found} of them are in scope and not blocked")]
    HardLinked {
        /// As asked.
        path: String,
        /// Names of the file.
        links: u64,
        /// Names found inside the scope.
        found: u64,
    },
    /// The operating system refuses.
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
        /// Where or what.
        why: String,
    },
    /// Over the cap.
    #[error("`{path}` has {size} bytes, over the cap of {cap}")]
    TooLarge {
        /// As asked.
        path: String,
        /// Of the file.
        size: u64,
        /// What is allowed.
        cap: u64,
    },
    /// Arguments that make no sense together.
    #[error("{why}")]
    BadRequest {
        /// Which and why.
        why: String,
    },
    /// Swapped under our hands again and again.
    #[error("`{path}` keeps changing while it is opened")]
    Moving {
        /// As asked.
        path: String,
    },
    /// The process is out of something.
    #[error("`{path}` cannot be opened now: {why}")]
    Exhausted {
        /// As asked.
        path: String,
        /// The system's words.
        why: String,
    },
    /// Anything else the system says.
    #[error("`{path}` cannot be read: {why}")]
    Io {
        /// As asked.
        path: String,
        /// The system's words.
        why: String,
    },
}

impl FileFault {
    pub(crate) fn from_errno(errno: Errno, path: &str) -> Self {
        let why = || std::io::Error::from(errno).to_string();
        let path = shown(path);
        match errno {
            // ENOTDIR: a file used as a folder. ESRCH, ESTALE: gone while we looked.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::SRCH | Errno::STALE => {
                Self::NotFound { path, near: Vec::new() }
            }
            Errno::XDEV => Self::CrossDevice { path },
            Errno::LOOP => Self::TooManyLinks { path },
            Errno::ACCESS | Errno::PERM => Self::Unreadable { path },
            // Opening a socket, or a device without a driver.
            Errno::NXIO | Errno::NODEV => Self::NotAFile { path, what: "a socket or a device" },
            Errno::AGAIN => Self::Moving { path },
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted { path, why: why() },
            _ => Self::Io { path, why: why() },
        }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::FileNotFound,
            Self::OutOfScope { .. } | Self::TooManyLinks { .. } | Self::HardLinked { .. } => {
                ErrorCode::ScopeViolation
            }
            Self::Blocked { .. } | Self::Repository { .. } => ErrorCode::BlockedPath,
            Self::CrossDevice { .. } => ErrorCode::CrossDevice,
            Self::NotAFile { .. } => ErrorCode::NotAFile,
            // Nothing of ours denies it, so it is no violation.
            Self::Unreadable { .. } => ErrorCode::NotAFile,
            Self::Binary { .. } => ErrorCode::BinaryFile,
            Self::NotUtf8 { .. } => ErrorCode::NotUtf8,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::BadRequest { .. } => ErrorCode::InvalidArguments,
            Self::Moving { .. } | Self::Exhausted { .. } => ErrorCode::ResourceBusy,
            Self::Io { .. } => ErrorCode::Internal,
        }
    }
}

impl From<FileFault> for CallError {
    fn from(fault: FileFault) -> Self {
        let error = Self::new(fault.code(), fault.to_string());
        match &fault {
            FileFault::NotFound { near, .. } if !near.is_empty() => {
                let near: Vec<_> = near.iter().map(|name| format!("`{name}`")).collect();
                error.suggest(format!("did you mean {}?", near.join(" or ")))
            }
            FileFault::HardLinked { .. } => error.suggest(
                "the file may be another file under a second name; ask the user to replace it by a copy",
            ),
            FileFault::TooManyLinks { .. } => {
                error.suggest("the links form a circle; use list_files to find the real file")
            }
            FileFault::Unreadable { .. } => {
                error.suggest("ask the user to change the permissions of the file")
            }
            FileFault::NotAFile { what: "a folder", .. } => {
                error.suggest("use list_files to see what is in the folder")
            }
            FileFault::BadRequest { .. } => error.suggest("correct the named argument"),
            FileFault::Moving { .. } => error.suggest("another program is changing it; try again"),
            FileFault::Exhausted { .. } => error.suggest("wait a moment and try again"),
            _ => error,
        }
    }
}

/// A path for a message: one line, whatever it holds.
pub(crate) fn shown(path: &str) -> String {
    path.chars().take(300).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line_and_suggest_what_is_near() {
        let near = vec!["src/main.rs".to_owned()];
        let fault = FileFault::NotFound { path: shown("src/\nmian.rs"), near };
        let error = CallError::from(fault);
        assert_eq!(error.code, ErrorCode::FileNotFound);
        assert!(!error.message.contains('\n'));
        assert_eq!(error.suggestion, "did you mean `src/main.rs`?");
    }
}
