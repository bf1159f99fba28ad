//! SQL of violations.

use rusqlite::Row;

use super::{id, id_or_none, session_of_owner, stamp};
use crate::violation::ViolationRow;

pub(crate) const INSERT: &str =
    "INSERT INTO violations (ts, session, call, violation_type, target) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(crate) const COUNT: &str = "SELECT count(*) FROM violations WHERE session = ?1 AND ts >= ?2";

/// The newest violations. Parameters: the limit, then the owner.
pub(crate) fn newest() -> String {
    let owned = session_of_owner("session", 2);
    format!(
        "SELECT ts, session, call, violation_type, target FROM violations WHERE {owned} ORDER BY id DESC LIMIT ?1"
    )
}

/// The newest violations of a session. Parameters: the limit, the owner, then the session.
pub(crate) fn newest_of_session() -> String {
    let owned = session_of_owner("session", 2);
    format!(
        "SELECT ts, session, call, violation_type, target FROM violations
         WHERE session = ?5 AND {owned} ORDER BY id DESC LIMIT ?1"
    )
}

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<ViolationRow<String>> {
    Ok(ViolationRow {
        ts: stamp(row, 0)?,
        session: id(row, 1)?,
        call: id_or_none(row, 2)?,
        violation_type: row.get(3)?,
        target: row.get(4)?,
    })
}
