//! Errors of the state directory. Every variant means: nothing was committed, so nothing may run.

use std::io;
use std::path::{Path, PathBuf};

use vambrace_ledger::{Id, SealError};

/// A store that could not be opened, written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be used as it is.
    #[error("cannot use the state directory `{path}`: {reason}")]
    Directory {
        /// Directory or file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A user other than the owner could write the directory.
    #[error("the state directory `{path}` can be written by others (mode {mode:03o})")]
    Exposed {
        /// Directory or file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A user other than the owner could read a key, or owns it.
    #[error("the key `{path}` can be read by others or is not yours (mode {mode:03o})")]
    KeyExposed {
        /// File.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is not a database of ours, or is damaged.
    #[error("the database `{path}` is damaged or not ours: {reason}")]
    Damaged {
        /// File.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A checkpoint, segment or witness shows that the ledger was rolled back or rewritten.
    #[error("the ledger `{path}` was rolled back or rewritten: {reason}")]
    RolledBack {
        /// Database.
        path: PathBuf,
        /// What contradicts it.
        reason: String,
    },
    /// A newer program has migrated the database.
    #[error("the database has schema version {found}, this program knows up to {known}")]
    NewerSchema {
        /// Schema version of the file.
        found: i64,
        /// Newest version that this program knows.
        known: i64,
    },
    /// Only a program that signed nothing has written the directory: there is no checkpoint to verify it
    /// against.
    #[error("the ledger was written before there were checkpoints, and no newer program has opened it")]
    Unsigned,
    /// Checkpoints cannot be signed.
    #[error("the ledger's key: {0}")]
    Key(String),
    /// Another program holds the database for too long.
    #[error("the database is held by another program: {0}")]
    Locked(String),
    /// No disk space.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Writing or syncing failed.
    #[error("the ledger cannot be written: {0}")]
    Io(String),
    /// A sync failed: the content of the disk is unknown, and another sync may wrongly succeed.
    #[error("the ledger cannot be synced to disk: {0}")]
    Unsynced(String),
    /// An earlier write or sync failed; the content of the disk is unknown.
    #[error("the ledger is closed after a failed write: {0}")]
    Poisoned(String),
    /// The batch contradicts the state: an id that exists, a call that has already ended.
    #[error("the change conflicts with the state: {0}")]
    Conflict(String),
    /// The session of the batch belongs to another tenant, user or project.
    #[error("session `{0}` belongs to another user or project")]
    ForeignSession(Id),
    /// A record that does not fit into a line.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// What the user can do about it.
    #[must_use]
    pub fn suggestion(&self) -> &'static str {
        match self {
            Self::Directory { .. } => {
                "check that VAMBRACE_HOME names a directory that you own and can write, then run `vambrace doctor`"
            }
            Self::Exposed { .. } => {
                "find out who changed the permissions, then run `chmod 700` on the directory"
            }
            Self::KeyExposed { .. } => {
                "find out who changed the permissions, run `chmod 600` on the file, and `vambrace audit rotate-key` if others could read it"
            }
            Self::Damaged { .. } => {
                "keep a copy, run `vambrace audit verify` on it, and restore the file from a backup"
            }
            Self::RolledBack { .. } => {
                "run `vambrace audit verify`; if you restored the directory on purpose, pass `--acknowledge-rollback` once; the ledger records it"
            }
            Self::NewerSchema { .. } => "use the newer program, or another VAMBRACE_HOME",
            Self::Unsigned => {
                "run `vambrace doctor` once with that directory as VAMBRACE_HOME, then verify again"
            }
            Self::Key(_) => "restore the file from a backup of the state directory, then start again",
            Self::Locked(_) => "close the program that holds the database, then try again",
            Self::Full(_) => "free some space on the disk of VAMBRACE_HOME, then try again",
            Self::Io(_) | Self::Unsynced(_) | Self::Poisoned(_) => {
                "check the disk and the directory of VAMBRACE_HOME, then start again"
            }
            Self::Conflict(_) => "check the current state before trying again",
            Self::ForeignSession(_) => "use a session of your own in this project",
            Self::Seal(_) => "record less at once",
            Self::Closed => "start again",
        }
    }

    /// Whether only this batch is wrong and the store itself is fine.
    #[must_use]
    pub fn concerns_batch_only(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::ForeignSession(_) | Self::Seal(_))
    }

    /// Whether the store must not be written any more.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Io(_)
                | Self::Unsynced(_)
                | Self::Damaged { .. }
                | Self::RolledBack { .. }
                | Self::Poisoned(_)
        )
    }

    pub(crate) fn directory(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Directory { path: path.to_owned(), reason: error.into().to_string() }
    }

    pub(crate) fn io(what: &str, error: impl Into<io::Error>) -> Self {
        let error: io::Error = error.into();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(format!("{what}: {error}"))
            }
            _ => Self::Io(format!("{what}: {error}")),
        }
    }
}

impl From<&StoreError> for vambrace_core::CallError {
    /// Whatever is wrong with the store, the call is denied.
    fn from(error: &StoreError) -> Self {
        let code = match error {
            StoreError::ForeignSession(_) => vambrace_core::ErrorCode::PermissionDenied,
            _ => vambrace_core::ErrorCode::AuditUnavailable,
        };
        Self::new(code, error.to_string()).suggest(error.suggestion())
    }
}
