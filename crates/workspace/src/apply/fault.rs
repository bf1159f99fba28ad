//! Why a ChangeSet was not applied. Each check of applying has its own variant and code, so whoever reads the record
//! knows which one refused.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use vambrace_core::change::{BadChange, BadSplice};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;
use vambrace_core::{CallError, ErrorCode};

use crate::fault::{FileFault, shown};

/// Why nothing was changed; except for [`Unknown`](Self::Unknown), where that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyFault {
    /// Check 4 and others: a blocked name, outside the scope, not a file.
    #[error(transparent)]
    File(#[from] FileFault),
    /// Outside the service's own folder.
    #[error("`{path}` can only be read")]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// Check 5: the path leads elsewhere than when the change was proposed.
    #[error("`{path}` does not lead to the same place any more: a name on the way is a link now")]
    Moved {
        /// The file.
        path: String,
    },
    /// Check 6: it has other names now.
    #[error("`{path}` has {links} names; a file with several names is not changed")]
    Linked {
        /// The file.
        path: String,
        /// How many.
        links: u64,
    },
    /// Checks 7 and 8: it is not what the change was made from.
    #[error("`{path}` changed since the change was proposed: {}", stale(.expected, .now))]
    Stale {
        /// The file.
        path: String,
        /// What it was; `None` when nothing was there.
        expected: Option<Digest>,
        /// What it is; `None` when nothing is there.
        now: Option<Digest>,
    },
    /// Somebody else holds the file.
    #[error("`{path}` is held by {holder} for {} s", .held.as_secs())]
    Busy {
        /// The file.
        path: String,
        /// The process, as far as known.
        holder: String,
        /// As far as known.
        held: Duration,
    },
    /// The system does not let us keep what the file has.
    #[error("`{path}` cannot be changed: {why}")]
    NotAllowed {
        /// The file.
        path: String,
        /// What and why.
        why: String,
    },
    /// The disk, the state folder.
    #[error("`{path}` cannot be changed: {what}: {why}")]
    Io {
        /// The file.
        path: String,
        /// What was tried.
        what: &'static str,
        /// The system's words.
        why: String,
    },
    /// A ChangeSet that does not fit together.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// Part of it may be done; the journal is still there and the next start settles it.
    #[error("it is not known whether the change was made: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
}

impl ApplyFault {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(fault) => fault.code(),
            Self::ReadOnly { .. } | Self::Moved { .. } | Self::Linked { .. } => ErrorCode::ScopeViolation,
            Self::Stale { .. } => ErrorCode::StaleBase,
            Self::Busy { .. } => ErrorCode::ResourceBusy,
            Self::NotAllowed { .. } => ErrorCode::FileProtected,
            Self::Io { .. } => ErrorCode::Internal,
            Self::Change(bad) => CallError::from(bad.clone()).code,
            Self::Unknown { .. } => ErrorCode::OutcomeUnknown,
        }
    }

    pub(crate) fn stale(path: &ScopedPath, expected: Option<Digest>, now: Option<Digest>) -> Self {
        Self::Stale { path: shown(&path.to_string()), expected, now }
    }

    pub(crate) fn io(path: &ScopedPath, what: &'static str, errno: Errno) -> Self {
        let path = shown(&path.to_string());
        let why = io::Error::from(errno).to_string();
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => {
                Self::NotAllowed { path, why: format!("{what}: {why}") }
            }
            _ => Self::Io { path, what, why },
        }
    }
}

impl From<BadSplice> for ApplyFault {
    fn from(bad: BadSplice) -> Self {
        Self::Change(bad.into())
    }
}

impl From<ApplyFault> for CallError {
    fn from(fault: ApplyFault) -> Self {
        let error = Self::new(fault.code(), fault.to_string());
        match fault {
            ApplyFault::File(fault) => fault.into(),
            ApplyFault::Change(bad) => bad.into(),
            ApplyFault::Linked { .. } => error.suggest("ask the user to replace the file by a copy"),
            ApplyFault::Moved { .. } => error.suggest("propose the change again for the file that is meant"),
            ApplyFault::Io { .. } => error.suggest("nothing was changed; look at the disk and try again"),
            _ => error,
        }
    }
}

fn stale(expected: &Option<Digest>, now: &Option<Digest>) -> String {
    match (expected, now) {
        (None, _) => "there is a file now where none was".to_owned(),
        (Some(_), None) => "it is gone".to_owned(),
        (Some(expected), Some(now)) => format!("it was {expected} and is {now}"),
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::path::AskedPath;

    use super::*;

    // B3: a file that the system protects is a file all the same
    #[test]
    fn what_the_system_does_not_let_us_change_is_called_so() {
        let path = AskedPath::new("kept.txt").parse().unwrap();
        for errno in [Errno::ACCESS, Errno::PERM, Errno::ROFS] {
            let error = CallError::from(ApplyFault::io(&path, "removing the file", errno));
            assert_eq!(error.code, ErrorCode::FileProtected, "{error:?}");
            assert!(error.message.contains("`kept.txt`") && error.suggestion.contains("permissions"));
            assert_eq!(error.code.violation(), None);
        }
    }
}
