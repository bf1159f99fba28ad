//! Closing a segment: a record with the newest checkpoint ends it, and the next begins with a record that says
//! where it goes on. Both are records like any other, so the chain and the tree cover them.

use std::path::Path;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{Checkpoint, Entry, Id, Line, Note, Op, Timestamp, VerifyKey};

use crate::append::append;
use crate::checkpoints;
use crate::error::StoreError;
use crate::projection::Cursor;
use crate::statements::signed;

/// A segment that was begun so long ago is closed.
const DAY_MS: i64 = 24 * 3600 * 1000;

const SEAL: &str = "segment.seal";
const OPEN: &str = "segment.open";

/// What only the record of a seal has, behind its time.
static SEALED: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(b"Z\",\"op\":\"checkpoint\",\"event_type\":\"segment.seal\","));

/// Whether a line closes its segment.
pub(crate) fn is_seal(line: &[u8]) -> bool {
    // Its words stand before anything that an agent can say.
    SEALED.find(line.get(..256).unwrap_or(line)).is_some()
}

/// Whether the segment of the cursor is full or old.
pub(crate) fn is_due(
    connection: &Connection,
    cursor: Cursor,
    most: u64,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    // A segment with nothing but its first record is not closed again.
    if cursor.segment == 0 || cursor.seq <= cursor.segment {
        return Ok(false);
    }
    let sql = "SELECT line FROM ledger WHERE seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    if cursor.offset > most {
        return Ok(true);
    }
    let first: Option<String> = statement.query_row([signed(cursor.segment)], |row| row.get(0)).optional()?;
    let began = first.as_ref().and_then(|line| Line::read(line.as_bytes()).ok().map(|line| line.ts));
    let began = began.and_then(|ts| Timestamp::parse(ts).ok());
    Ok(began.is_some_and(|began| began < now.earlier(DAY_MS)))
}

/// Writes the two records. The caller holds the writer lock.
pub(crate) fn seal(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    key: &VerifyKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
    let Some(row) = checkpoints::newest(connection).map_err(sqlite)? else { return Ok(()) };
    let read =
        Note::parse(row.note.as_bytes()).ok().and_then(|note| Some((Checkpoint::of(&note).ok()?, note)));
    let Some((checkpoint, note)) = read else {
        let reason = format!("its checkpoint at {} cannot be read", row.size);
        return Err(StoreError::Damaged { path: database.to_owned(), reason });
    };
    let tree = Some((checkpoint.size, checkpoint.root));
    let entry = Entry { event_type: Some(SEAL), tree, note: Some(note), ..Entry::new(Op::Checkpoint, now) };
    let next =
        Entry { event_type: Some(OPEN), tree, key: Some(key.clone()), ..Entry::new(Op::Checkpoint, now) };
    append(connection, database, writer, &[entry, next], |_| checkpoints::keep(connection, checkpoint.size))?;
    Ok(())
}
