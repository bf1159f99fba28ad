//! SQL of timeline events.

use rusqlite::Row;
use vambrace_core::ErrorCode;
use vambrace_ledger::RedactedText;

use super::{id, stamp, word};
use crate::timeline_event::{EventPhase, EventStatus, TimelineEvent};

// The number continues within the call: the rows of a call are adjacent, so this touches one page.
pub(crate) const INSERT: &str =
    "INSERT INTO events (call, n, ts, phase, action, tool, policy, verdict, violation_type, attempted_action,
                         status, error, message, attempt, duration_us)
     VALUES (?1, coalesce((SELECT max(n) FROM events WHERE call = ?1), 0) + 1,
             ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
pub(crate) const OF_CALL: &str =
    "SELECT call, ts, phase, action, tool, policy, verdict, violation_type, attempted_action,
            status, error, message, attempt, duration_us
     FROM events WHERE call = ?1 ORDER BY n";

// The same columns for events that are stored in the row of their call.
pub(crate) const IN_ROW: &str =
    "SELECT calls.id, value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7,
            value->>8, value->>9, value->>10, value->>11, value->>12
     FROM calls, json_each(calls.events) WHERE calls.id = ?1 ORDER BY key";

/// Events in the form of the call's row; `None` if there are none.
pub(crate) fn in_row(events: &[TimelineEvent<RedactedText>]) -> Option<String> {
    let columns = events.iter().map(|e| {
        (
            e.ts.millis(),
            e.phase.as_str(),
            e.action.get(),
            e.tool.get(),
            e.policy.as_ref().map(RedactedText::get),
            e.verdict.as_ref().map(RedactedText::get),
            e.violation_type.as_ref().map(RedactedText::get),
            e.attempted_action.as_ref().map(RedactedText::get),
            e.status.as_str(),
            e.error.map(ErrorCode::as_str),
            e.message.as_ref().map(RedactedText::get),
            e.attempt,
            e.duration_us,
        )
    });
    let rows: Vec<_> = columns.collect();
    if rows.is_empty() { None } else { serde_json::to_string(&rows).ok() }
}

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<TimelineEvent<String>> {
    let code = |text: &str| ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text);
    let error: Option<String> = row.get(10)?;
    Ok(TimelineEvent {
        call: id(row, 0)?,
        ts: stamp(row, 1)?,
        phase: word(row, 2, EventPhase::parse)?,
        action: row.get(3)?,
        tool: row.get(4)?,
        policy: row.get(5)?,
        verdict: row.get(6)?,
        violation_type: row.get(7)?,
        attempted_action: row.get(8)?,
        status: word(row, 9, EventStatus::parse)?,
        error: error.as_deref().and_then(code),
        message: row.get(11)?,
        attempt: row.get(12)?,
        duration_us: row.get::<_, i64>(13)?.unsigned_abs(),
    })
}
