//! What can go wrong with the state folder. Every variant means: nothing was promised, so nothing may run.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode as Sqlite;
use vambrace_ledger::SealError;

/// A store that could not be opened, written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be used as it is.
    #[error("cannot use the state folder `{path}`: {reason}")]
    Folder {
        /// Which folder or file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Somebody other than the owner could write the folder.
    #[error("the state folder `{path}` can be written by others (mode {mode:03o})")]
    Exposed {
        /// Which folder or file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Somebody other than the owner could read a key, or it is somebody else's.
    #[error("the key `{path}` can be read by others or is not yours (mode {mode:03o})")]
    KeyExposed {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file in its place is no database of ours, or a damaged one.
    #[error("the database `{path}` is damaged or not ours: {reason}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What is kept elsewhere says that the ledger was set back or rewritten.
    #[error("the ledger `{path}` was set back or rewritten: {reason}")]
    RolledBack {
        /// Which database.
        path: PathBuf,
        /// What contradicts it.
        reason: String,
    },
    /// A newer program has been here.
    #[error("the database has schema version {found}, this program knows up to {known}")]
    NewerSchema {
        /// The version of the file.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// Only a program that signed nothing has been here: there is nothing that it could be held against.
    #[error("the ledger was written before there were checkpoints, and no newer program has opened it")]
    Unsigned,
    /// Checkpoints cannot be signed.
    #[error("the ledger's key: {0}")]
    Key(String),
    /// Somebody else holds the database for too long.
    #[error("the database is held by another program: {0}")]
    Locked(String),
    /// No room.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Writing or syncing failed.
    #[error("the ledger cannot be written: {0}")]
    Io(String),
    /// A sync failed: what is on the disk is not known, and asking again may wrongly be told that all is well.
    #[error("the ledger cannot be brought to the disk: {0}")]
    Unsynced(String),
    /// An earlier write or sync failed; what is on the disk is not known.
    #[error("the ledger is closed after a failed write: {0}")]
    Poisoned(String),
    /// This batch contradicts the state: an id that exists, a call that ended already.
    #[error("the state refuses the change: {0}")]
    Conflict(String),
    /// A record that cannot be a line.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// What a person can do about it.
    #[must_use]
    pub fn suggestion(&self) -> &'static str {
        match self {
            Self::Folder { .. } => {
                "check that VAMBRACE_HOME names a folder of yours that can be written, then run `vambrace doctor`"
            }
            Self::Exposed { .. } => "run `chmod 700` on the folder after checking who changed it",
            Self::KeyExposed { .. } => {
                "run `chmod 600` on the file after checking who changed it, and `vambrace audit rotate-key` if others could read it"
            }
            Self::Damaged { .. } => {
                "keep a copy, run `vambrace audit verify` on it, and restore the file from a backup"
            }
            Self::RolledBack { .. } => {
                "run `vambrace audit verify`; if the folder was restored on purpose, say so once with `--acknowledge-rollback`, which is put on record"
            }
            Self::NewerSchema { .. } => "use the newer program, or another VAMBRACE_HOME",
            Self::Unsigned => {
                "open it once, with `vambrace doctor` and its folder as VAMBRACE_HOME; then verify it"
            }
            Self::Key(_) => "restore the file from a backup of the state folder, then start again",
            Self::Locked(_) => "close the program that holds the database, then try again",
            Self::Full(_) => "free some space on the disk of VAMBRACE_HOME, then try again",
            Self::Io(_) | Self::Unsynced(_) | Self::Poisoned(_) => {
                "check the disk and the folder of VAMBRACE_HOME, then start again"
            }
            Self::Conflict(_) => "look at the state before repeating it",
            Self::Seal(_) => "record less at once",
            Self::Closed => "start again",
        }
    }

    /// Whether only the one batch is at fault and the store itself is well.
    #[must_use]
    pub fn concerns_batch_only(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Seal(_))
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

    pub(crate) fn folder(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Folder { path: path.to_owned(), reason: error.into().to_string() }
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

    /// Sorts an error of SQLite by what it means for us.
    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            _ if is_failed_sync(error) => Self::Unsynced(text),
            Some(Sqlite::ConstraintViolation) => Self::Conflict(text),
            Some(Sqlite::DatabaseBusy | Sqlite::DatabaseLocked) => Self::Locked(text),
            Some(Sqlite::DiskFull) => Self::Full(text),
            Some(Sqlite::NotADatabase | Sqlite::DatabaseCorrupt) => {
                Self::Damaged { path: path.to_owned(), reason: text }
            }
            Some(Sqlite::CannotOpen | Sqlite::ReadOnly | Sqlite::PermissionDenied) => {
                Self::Folder { path: path.to_owned(), reason: text }
            }
            _ => Self::Io(text),
        }
    }
}

/// Whether SQLite was told by the system that a sync failed.
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC)
}

impl From<&StoreError> for vambrace_core::CallError {
    /// Whatever is wrong with the store, the caller may not go on.
    fn from(error: &StoreError) -> Self {
        Self::new(vambrace_core::ErrorCode::AuditUnavailable, error.to_string()).suggest(error.suggestion())
    }
}
