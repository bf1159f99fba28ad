//! Why a ChangeSet was not applied. Each check of applying has its own variant and code, so the record shows which one
//! failed.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use vambrace_core::change::{BadChange, BadSplice};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;
use vambrace_core::{CallError, ErrorCode};

use crate::error::{FileError, display_path};

/// Why nothing was changed; except for [`Unknown`](Self::Unknown), where part of the change may be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Check 4 and others: a blocked name, outside the scope, not a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Outside the service root.
    #[error("`{path}` is read-only")]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// Check 5: the path resolves differently than when the change was proposed.
    #[error("`{path}` no longer resolves to the same file: a component of the path is now a symlink")]
    PathChanged {
        /// The file.
        path: String,
    },
    /// Check 6: it now has several hard links.
    #[error("`{path}` has {links} hard links; only files with one can be changed")]
    HardLinked {
        /// The file.
        path: String,
        /// Number of hard links.
        links: u64,
    },
    /// Checks 7 and 8: it is not the base of the change any more.
    #[error("`{path}` changed since the change was proposed: {}", stale(.expected, .now))]
    Stale {
        /// The file.
        path: String,
        /// Hash of the base; `None` when there was no file.
        expected: Option<Digest>,
        /// Current hash; `None` when there is no file.
        now: Option<Digest>,
    },
    /// Another process has locked the file.
    #[error("`{path}` has been locked by {holder} for {} s", .held.as_secs())]
    Busy {
        /// The file.
        path: String,
        /// The process, if known.
        holder: String,
        /// Time since it took the lock, if known.
        held: Duration,
    },
    /// The system denies the change or a file attribute that must be kept.
    #[error("`{path}` cannot be changed: {why}")]
    NotAllowed {
        /// The file.
        path: String,
        /// What and why.
        why: String,
    },
    /// An I/O error of the disk or the state directory.
    #[error("`{path}` cannot be changed: {what}: {why}")]
    Io {
        /// The file.
        path: String,
        /// What was tried.
        what: &'static str,
        /// The system's error message.
        why: String,
    },
    /// An inconsistent ChangeSet.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// Part of it may be applied; the journal is kept and recovery at the next start completes it.
    #[error("it is not known whether the change was made: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
}

impl ApplyError {
    /// The stable error code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::ReadOnly { .. } | Self::PathChanged { .. } | Self::HardLinked { .. } => {
                ErrorCode::ScopeViolation
            }
            Self::Stale { .. } => ErrorCode::StaleBase,
            Self::Busy { .. } => ErrorCode::ResourceBusy,
            Self::NotAllowed { .. } => ErrorCode::FileProtected,
            Self::Io { .. } => ErrorCode::Internal,
            Self::Change(bad) => CallError::from(bad.clone()).code,
            Self::Unknown { .. } => ErrorCode::OutcomeUnknown,
        }
    }

    pub(crate) fn stale(path: &ScopedPath, expected: Option<Digest>, now: Option<Digest>) -> Self {
        Self::Stale { path: display_path(&path.to_string()), expected, now }
    }

    pub(crate) fn io(path: &ScopedPath, what: &'static str, errno: Errno) -> Self {
        let path = display_path(&path.to_string());
        let why = io::Error::from(errno).to_string();
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => {
                Self::NotAllowed { path, why: format!("{what}: {why}") }
            }
            _ => Self::Io { path, what, why },
        }
    }
}

impl From<BadSplice> for ApplyError {
    fn from(bad: BadSplice) -> Self {
        Self::Change(bad.into())
    }
}

impl From<ApplyError> for CallError {
    fn from(error: ApplyError) -> Self {
        let call_error = Self::new(error.code(), error.to_string());
        match error {
            ApplyError::File(error) => error.into(),
            ApplyError::Change(bad) => bad.into(),
            ApplyError::HardLinked { .. } => {
                call_error.suggest("ask the user to replace the file with a copy")
            }
            ApplyError::PathChanged { .. } => {
                call_error.suggest("propose the change again for the intended file")
            }
            ApplyError::Io { .. } => call_error.suggest("nothing was changed; check the disk and try again"),
            _ => call_error,
        }
    }
}

fn stale(expected: &Option<Digest>, now: &Option<Digest>) -> String {
    match (expected, now) {
        (None, _) => "a file exists now where there was none".to_owned(),
        (Some(_), None) => "it was deleted".to_owned(),
        (Some(expected), Some(now)) => format!("it was {expected} and is {now}"),
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::path::AskedPath;

    use super::*;

    // B3: permission errors have a code of their own
    #[test]
    fn permission_errors_are_reported_as_file_protected() {
        let path = AskedPath::new("kept.txt").parse().unwrap();
        for errno in [Errno::ACCESS, Errno::PERM, Errno::ROFS] {
            let error = CallError::from(ApplyError::io(&path, "removing the file", errno));
            assert_eq!(error.code, ErrorCode::FileProtected, "{error:?}");
            assert!(error.message.contains("`kept.txt`") && error.suggestion.contains("permissions"));
            assert_eq!(error.code.violation(), None);
        }
    }
}
