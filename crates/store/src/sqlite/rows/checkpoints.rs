//! SQL of signed checkpoints.

use rusqlite::{Connection, OptionalExtension, Row};
use vambrace_ledger::{SignedNote, Timestamp};

use super::{signed, stamp};
use crate::checkpoints::{CheckpointRow, MAX_CHECKPOINT_GAP};

/// The newest checkpoint.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<Option<CheckpointRow>> {
    let sql = "SELECT size, at, sealed, note FROM checkpoints ORDER BY size DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row((), read).optional()
}

/// The checkpoint of this size.
pub(crate) fn of_size(connection: &Connection, size: u64) -> rusqlite::Result<Option<CheckpointRow>> {
    let sql = "SELECT size, at, sealed, note FROM checkpoints WHERE size = ?1";
    connection.prepare_cached(sql)?.query_row([signed(size)], read).optional()
}

/// All checkpoints, by size.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<CheckpointRow>> {
    let mut statement =
        connection.prepare_cached("SELECT size, at, sealed, note FROM checkpoints ORDER BY size")?;
    statement.query_map((), read)?.collect()
}

/// Inserts a checkpoint, and deletes the previous one if it is not needed: stored checkpoints are never further
/// apart than [`MAX_CHECKPOINT_GAP`]. The caller holds the writer lock.
pub(crate) fn insert(
    connection: &Connection,
    size: u64,
    at: Timestamp,
    note: &SignedNote,
) -> rusqlite::Result<()> {
    let sql = "SELECT size, sealed FROM checkpoints WHERE size < ?1 ORDER BY size DESC LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    let before: Vec<(i64, bool)> = statement
        .query_map([signed(size)], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    if let Some((last, false)) = before.first().copied() {
        let kept = before.get(1).map_or(0, |(size, _)| *size);
        if signed(size) - kept <= signed(MAX_CHECKPOINT_GAP) {
            connection.prepare_cached("DELETE FROM checkpoints WHERE size = ?1")?.execute([last])?;
        }
    }
    let sql = "INSERT INTO checkpoints (size, at, note) VALUES (?1, ?2, ?3) ON CONFLICT (size) DO NOTHING";
    connection.prepare_cached(sql)?.execute((signed(size), at.millis(), note.to_string())).map(drop)
}

/// Marks the checkpoint that a segment was sealed with.
pub(crate) fn mark_sealed(connection: &Connection, size: u64) -> rusqlite::Result<()> {
    connection.execute("UPDATE checkpoints SET sealed = 1 WHERE size = ?1", [signed(size)]).map(drop)
}

fn read(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    Ok(CheckpointRow {
        size: row.get::<_, i64>(0)?.unsigned_abs(),
        at: stamp(row, 1)?,
        sealed: row.get(2)?,
        note: row.get(3)?,
    })
}
