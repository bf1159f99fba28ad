//! SQL of calls.

use rusqlite::Row;
use vambrace_ledger::Id;

use super::{digest, id, session_of_owner, stamp, stamp_or_none, word};
use crate::call::{CallRow, CallState, JudgedCall, RunningCall};
use crate::record_id::RecordId;

pub(crate) const INSERT: &str =
    "INSERT INTO calls (id, session, tool, state, started, counted, plan_digest, finished, error, first_seq, last_seq,
                        events, judged)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
pub(crate) const CLAIM: &str = "UPDATE calls SET life = ?2 WHERE id = ?1 AND finished IS NULL";
pub(crate) const JUDGE_CHANGE: &str = "UPDATE calls SET judged_change = ?2 WHERE id = ?1";
pub(crate) const SET: &str = "UPDATE calls SET state = ?2, life = NULL WHERE id = ?1 AND finished IS NULL";
pub(crate) const FINISH: &str =
    "UPDATE calls SET state = ?2, finished = ?3, error = ?4, last_seq = ?5, life = NULL
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

/// A page of judged calls. Parameters: the limit, the owner, the project, the time, the last call of the previous page.
pub(crate) fn judged() -> String {
    let owned = session_of_owner("session", 2);
    format!(
        "SELECT id, session, tool, started, judged, judged_change FROM calls
         WHERE id > ?7 AND (?6 IS NULL OR started >= ?6) AND {owned}
           AND session IN (SELECT id FROM sessions WHERE project = ?5)
         ORDER BY id LIMIT ?1"
    )
}

pub(crate) fn read_judged(row: &Row<'_>) -> rusqlite::Result<JudgedCall> {
    Ok(JudgedCall {
        id: id(row, 0)?,
        session: id(row, 1)?,
        tool: row.get(2)?,
        started: stamp(row, 3)?,
        judged: row.get(4)?,
        judged_change: row.get(5)?,
    })
}

/// The calls that run, or ran when their process died. Changes that were begun have a recovery of their own.
pub(crate) const RUNNING: &str = "SELECT c.id, c.session, c.tool, c.life, s.user, s.agent, s.role
     FROM calls AS c JOIN sessions AS s ON s.id = c.session
     WHERE c.life IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM proposals AS p WHERE p.call = c.id AND p.state = 'applying')";

pub(crate) fn read_running(row: &Row<'_>) -> rusqlite::Result<RunningCall> {
    Ok(RunningCall {
        id: id(row, 0)?,
        session: id(row, 1)?,
        tool: row.get(2)?,
        life: id(row, 3)?,
        user: row.get(4)?,
        agent: row.get(5)?,
        role: row.get(6)?,
    })
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
        judged: None,
        events: Vec::new(),
    })
}
