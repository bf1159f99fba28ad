//! Classifies errors of SQLite.

use std::path::Path;

use rusqlite::ErrorCode as Sqlite;

use crate::error::StoreError;

impl StoreError {
    /// Classifies an error of SQLite.
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
                Self::Directory { path: path.to_owned(), reason: text }
            }
            _ => Self::Io(text),
        }
    }
}

/// Whether the operating system reported a failed sync to SQLite.
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC)
}
