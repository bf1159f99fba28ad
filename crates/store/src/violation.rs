//! Violations: what was attempted and is not allowed. The ledger has the whole record; this is what counting
//! and reviewing needs.

use rusqlite::Row;
use vambrace_ledger::{Id, Text, Timestamp};

use crate::read::{id, id_or_none, stamp};

/// A violation. `T` is [`Text`] on the way in and `String` on the way out.
#[derive(Debug, Clone, PartialEq)]
pub struct ViolationRow<T = Text> {
    /// When.
    pub ts: Timestamp,
    /// In which session.
    pub session: Id,
    /// By which call.
    pub call: Option<Id>,
    /// What was violated.
    pub violation_type: T,
    /// On what.
    pub target: Option<T>,
}

pub(crate) const INSERT: &str =
    "INSERT INTO violations (ts, session, call, violation_type, target) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(crate) const COUNT: &str = "SELECT count(*) FROM violations WHERE session = ?1 AND ts >= ?2";
pub(crate) const NEWEST: &str =
    "SELECT ts, session, call, violation_type, target FROM violations ORDER BY id DESC LIMIT ?1";
pub(crate) const NEWEST_OF: &str = "SELECT ts, session, call, violation_type, target FROM violations
     WHERE session = ?2 ORDER BY id DESC LIMIT ?1";

impl ViolationRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            ts: stamp(row, 0)?,
            session: id(row, 1)?,
            call: id_or_none(row, 2)?,
            violation_type: row.get(3)?,
            target: row.get(4)?,
        })
    }
}
