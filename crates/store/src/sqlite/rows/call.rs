//! SQL of calls.

use rusqlite::Row;
use vambrace_ledger::Id;

use super::{digest, id, session_of_owner, stamp, stamp_or_none, word};
use crate::call::{CallRow, CallState};
use crate::record_id::RecordId;

pub(crate) const INSERT: &str =
    "INSERT INTO calls (id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq,
                        events)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
pub(crate) const SET: &str = "UPDATE calls SET state = ?2 WHERE id = ?1 AND finished IS NULL";
pub(crate) const FINISH: &str = "UPDATE calls SET state = ?2, finished = ?3, error = ?4, last_seq = ?5
     WHERE id = ?1 AND finished IS NULL";
pub(crate) const BY_ID: &str =
    "SELECT id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq
     FROM calls WHERE id = ?1";
pub(crate) const RECENT: &str = "SELECT count(*), min(started) FROM calls
     WHERE counted = 1 AND session = ?1 AND tool = ?2 AND started >= ?3";

/// The newest calls. Parameters: the limit, then the owner.
pub(crate) fn newest() -> String {
    let owned = session_of_owner("session", 2);
    format!(
        "SELECT id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq
         FROM calls WHERE {owned} ORDER BY id DESC LIMIT ?1"
    )
}

/// Whether a call is of an owner. Parameters: the call, then the owner.
pub(crate) fn of_owner() -> String {
    format!("SELECT 1 FROM calls WHERE id = ?1 AND {}", session_of_owner("session", 2))
}

/// Reads a row; its records are in the chain of `writer`.
pub(crate) fn read(writer: &Id, row: &Row<'_>) -> rusqlite::Result<CallRow<String>> {
    let record = |column: usize| {
        let seq: Option<i64> = row.get(column)?;
        Ok::<_, rusqlite::Error>(seq.map(|seq| RecordId::new(writer, seq.unsigned_abs())))
    };
    Ok(CallRow {
        id: id(row, 0)?,
        session: id(row, 1)?,
        tool: row.get(2)?,
        state: word(row, 3, CallState::parse)?,
        started: stamp(row, 4)?,
        counted: row.get(5)?,
        plan_digest: digest(row, 6)?,
        finished: stamp_or_none(row, 7)?,
        error: row.get(8)?,
        first_record: record(9)?,
        last_record: record(10)?,
        events: Vec::new(),
    })
}
