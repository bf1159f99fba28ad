//! Violations: attempts that policy does not allow. The ledger has the whole record; this table serves counting
//! and reviewing.

use rusqlite::Row;
use vambrace_ledger::{Id, RedactedText, Timestamp};

use crate::read_pool::{id, id_or_none, stamp};

/// A violation. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct ViolationRow<T = RedactedText> {
    /// When.
    pub ts: Timestamp,
    /// Session id.
    pub session: Id,
    /// Call id.
    pub call: Option<Id>,
    /// What was violated.
    pub violation_type: T,
    /// Target of the attempt.
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
