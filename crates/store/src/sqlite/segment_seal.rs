//! Sealing a segment: a record with the newest checkpoint ends it, and the next segment begins with a record
//! that says where it continues. Both are ordinary records, so the chain and the tree cover them.

use std::path::Path;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{Checkpoint, Entry, Id, LedgerLine, Op, SignedNote, Timestamp, VerifyKey};

use crate::error::StoreError;
use crate::sqlite::append::append;
use crate::sqlite::rows::{checkpoints, signed};
use crate::sqlite::segment_writer::SegmentCursor;

/// Maximum age of a segment.
const MAX_SEGMENT_AGE_MS: i64 = 24 * 3600 * 1000;

const SEAL: &str = "segment.seal";
const OPEN: &str = "segment.open";

/// Occurs only in the record of a seal, after its timestamp.
static SEAL_PATTERN: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(b"Z\",\"op\":\"checkpoint\",\"event_type\":\"segment.seal\","));

/// Whether a line seals its segment.
pub(crate) fn is_seal(line: &[u8]) -> bool {
    // These fields come before anything that an agent can write.
    SEAL_PATTERN.find(line.get(..256).unwrap_or(line)).is_some()
}

/// Whether the segment of the cursor is full or old.
pub(crate) fn should_seal(
    connection: &Connection,
    cursor: SegmentCursor,
    max_bytes: u64,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    // A segment with only its first record is not sealed again.
    if cursor.segment == 0 || cursor.seq <= cursor.segment {
        return Ok(false);
    }
    let sql = "SELECT line FROM ledger WHERE seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    if cursor.offset > max_bytes {
        return Ok(true);
    }
    let first: Option<String> = statement.query_row([signed(cursor.segment)], |row| row.get(0)).optional()?;
    let began = first.as_ref().and_then(|line| LedgerLine::read(line.as_bytes()).ok().map(|line| line.ts));
    let began = began.and_then(|ts| Timestamp::parse(ts).ok());
    Ok(began.is_some_and(|began| began < now.earlier(MAX_SEGMENT_AGE_MS)))
}

/// Writes both records. The caller holds the writer lock.
pub(crate) fn seal(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    key: &VerifyKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
    let Some(row) = checkpoints::newest(connection).map_err(sqlite)? else { return Ok(()) };
    let read = SignedNote::parse(row.note.as_bytes())
        .ok()
        .and_then(|note| Some((Checkpoint::of(&note).ok()?, note)));
    let Some((checkpoint, note)) = read else {
        let reason = format!("its checkpoint of {} records cannot be read", row.size);
        return Err(StoreError::Damaged { path: database.to_owned(), reason });
    };
    let tree = Some((checkpoint.size, checkpoint.root));
    let entry = Entry { event_type: Some(SEAL), tree, note: Some(note), ..Entry::new(Op::Checkpoint, now) };
    let next =
        Entry { event_type: Some(OPEN), tree, key: Some(key.clone()), ..Entry::new(Op::Checkpoint, now) };
    append(connection, database, writer, &[entry, next], |_| {
        checkpoints::mark_sealed(connection, checkpoint.size)
    })?;
    Ok(())
}
