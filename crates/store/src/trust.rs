//! Trust in a project's configuration, pinned to its digest. The project is identified by the digest of its
//! path, so that two paths never become equal because a redactor masked both.

use rusqlite::Row;
use vambrace_ledger::{Digest, RedactedText, Timestamp};

use crate::read_pool::{required_digest, stamp};

/// What was trusted. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustRow<T = RedactedText> {
    /// The digest of the project's path.
    pub project: Digest,
    /// The path, for display.
    pub path: T,
    /// The digest of the configuration.
    pub digest: Digest,
    /// User who trusted it.
    pub by: T,
    /// When.
    pub at: Timestamp,
}

pub(crate) const SET: &str = "INSERT INTO trust (project, path, digest, by, at) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT (project) DO UPDATE SET path = ?2, digest = ?3, by = ?4, at = ?5";
pub(crate) const REMOVE: &str = "DELETE FROM trust WHERE project = ?1";
pub(crate) const OF_PROJECT: &str = "SELECT project, path, digest, by, at FROM trust WHERE project = ?1";

impl TrustRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            project: required_digest(row, 0)?,
            path: row.get(1)?,
            digest: required_digest(row, 2)?,
            by: row.get(3)?,
            at: stamp(row, 4)?,
        })
    }
}
