//! SQL of trusted projects.

use rusqlite::Row;

use super::{required_digest, stamp};
use crate::trust::TrustRow;

pub(crate) const SET: &str = "INSERT INTO trust (project, path, digest, by, at) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT (project) DO UPDATE SET path = ?2, digest = ?3, by = ?4, at = ?5";
pub(crate) const REMOVE: &str = "DELETE FROM trust WHERE project = ?1";
pub(crate) const OF_PROJECT: &str = "SELECT project, path, digest, by, at FROM trust WHERE project = ?1";

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<TrustRow<String>> {
    Ok(TrustRow {
        project: required_digest(row, 0)?,
        path: row.get(1)?,
        digest: required_digest(row, 2)?,
        by: row.get(3)?,
        at: stamp(row, 4)?,
    })
}
