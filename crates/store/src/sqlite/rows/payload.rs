//! SQL of the payloads beside the chain.

use rusqlite::{Connection, OptionalExtension as _, Row};
use vambrace_ledger::{Id, NamedPayload, Timestamp, line_fields};

use super::signed;
use crate::payload::{PayloadRow, PayloadState};
use crate::record_id::RecordId;

pub(crate) const INSERT: &str = "INSERT INTO payloads (seq, field, salt, content) VALUES (?1, ?2, ?3, ?4)";
pub(crate) const FORGET: &str = "DELETE FROM payloads WHERE seq = ?1 AND field = ?2";
/// Salt and content of a payload.
pub(crate) const CONTENT: &str = "SELECT salt, content FROM payloads WHERE seq = ?1 AND field = ?2";

/// The payloads that a record names, stored or not.
pub(crate) fn of_record(connection: &Connection, writer: &Id, seq: u64) -> rusqlite::Result<Vec<PayloadRow>> {
    let sql = "SELECT seq, line FROM ledger WHERE seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([signed(seq)], |row| named(connection, writer, row)).optional()?;
    Ok(found.unwrap_or_default())
}

/// Every stored payload, oldest first.
pub(crate) fn stored(connection: &Connection, writer: &Id) -> rusqlite::Result<Vec<PayloadRow>> {
    let sql = "SELECT l.seq, l.line FROM ledger l
               WHERE l.seq IN (SELECT seq FROM payloads) ORDER BY l.seq";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let named = named(connection, writer, row)?;
        found.extend(named.into_iter().filter(|row| row.state == PayloadState::Present));
    }
    Ok(found)
}

fn named(connection: &Connection, writer: &Id, row: &Row<'_>) -> rusqlite::Result<Vec<PayloadRow>> {
    let seq: i64 = row.get(0)?;
    let line = row.get_ref(1)?.as_str()?;
    let named = NamedPayload::of_line(line);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let said = line_fields(line).and_then(|fields| Timestamp::parse(fields.get("ts")?.as_str()?).ok());
    let ts = said.unwrap_or(Timestamp::from_millis(0));
    let mut there = connection.prepare_cached("SELECT 1 FROM payloads WHERE seq = ?1 AND field = ?2")?;
    named
        .into_iter()
        .map(|named| {
            let kept = there.exists((seq, &named.field))?;
            let state = if kept { PayloadState::Present } else { PayloadState::Absent };
            let record = RecordId::new(writer, seq.unsigned_abs());
            Ok(PayloadRow { record, ts, named, state })
        })
        .collect()
}
