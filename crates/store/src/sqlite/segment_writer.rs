//! Writes the segments from the table: lines after the cursor are appended and synced, and only then does the
//! cursor move. After a crash a segment may be longer than the cursor says: parts of the table's own lines are
//! overwritten; anything else is left for `verify` to report.

use std::io;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{MAX_LINE_BYTES, SegmentName};

use crate::error::StoreError;
use crate::segment_files::SegmentFiles;
use crate::sqlite::rows::signed;
use crate::sqlite::segment_seal;
use crate::torn_tail::TornTail;

/// Lines are written in chunks of about this size.
const CHUNK_BYTES: usize = 1 << 20;

/// How far the segments have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentCursor {
    /// The last record that is in a segment.
    pub(crate) seq: u64,
    /// First record of that segment; 0 if there is none yet.
    pub(crate) segment: u64,
    /// Where in the segment the record ends.
    pub(crate) offset: u64,
}

impl SegmentCursor {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT seq, segment, offset FROM projection WHERE name = 'segments'";
        let cursor = connection.prepare_cached(sql)?.query_row((), |row| {
            let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            Ok(Self { seq: number(0)?, segment: number(1)?, offset: number(2)? })
        });
        Ok(cursor.optional()?.unwrap_or(Self { seq: 0, segment: 0, offset: 0 }))
    }

    /// The caller holds the writer lock.
    pub(crate) fn store(self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT INTO projection (name, seq, segment, offset) VALUES ('segments', ?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET seq = ?1, segment = ?2, offset = ?3";
        let row = (signed(self.seq), signed(self.segment), signed(self.offset));
        connection.prepare_cached(sql)?.execute(row).map(drop)
    }
}

/// Also sees every line: its number and its bytes.
pub(crate) type LineVisitor<'s> = dyn FnMut(u64, &[u8]) -> Result<(), StoreError> + 's;

/// Writes the segments. The caller holds the segment lock.
pub(crate) struct SegmentWriter<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: PathBuf,
    pub(crate) files: &'a mut dyn SegmentFiles,
    /// The last durable record.
    pub(crate) upto: u64,
}

impl SegmentWriter<'_> {
    /// Appends missing lines and returns the new cursor, which the caller stores; `None` if there is nothing to
    /// do. Every line is passed to `visit` before it is written.
    pub(crate) fn advance(
        &mut self,
        visit: &mut LineVisitor<'_>,
    ) -> Result<Option<SegmentCursor>, StoreError> {
        let mut cursor = SegmentCursor::read(self.connection).map_err(|error| self.sqlite(&error))?;
        let mut lines = LineBatch::default();
        self.read(cursor.seq, &mut lines, visit)?;
        if lines.is_empty() {
            return Ok(None);
        }
        cursor = self.resume_at(cursor)?;
        while !lines.is_empty() {
            let name = SegmentName::starting(cursor.segment);
            self.files.write(name, cursor.offset, &lines.bytes).map_err(fault)?;
            cursor.seq = lines.last;
            cursor.offset += lines.bytes.len() as u64;
            if lines.sealed {
                self.sync(cursor.segment)?;
                self.files.close(name).map_err(fault)?;
                cursor = self.start_segment(cursor.seq)?;
            }
            self.read(cursor.seq, &mut lines, visit)?;
        }
        self.sync(cursor.segment)?;
        Ok(Some(cursor))
    }

    /// Where to continue: at the cursor if the segment matches it, else in a new segment, so that a change made
    /// from outside stays visible to `verify`.
    fn resume_at(&mut self, cursor: SegmentCursor) -> Result<SegmentCursor, StoreError> {
        if cursor.segment == 0 {
            return self.start_segment(cursor.seq);
        }
        let name = SegmentName::starting(cursor.segment);
        match self.files.size(name).map_err(fault)? {
            Some(size) if size == cursor.offset => Ok(cursor),
            Some(size) if size > cursor.offset && self.is_torn_tail(name, cursor, size)? => Ok(cursor),
            _ => self.start_segment(cursor.seq),
        }
    }

    /// A new segment after a record. A crash may have left one of that name.
    fn start_segment(&mut self, seq: u64) -> Result<SegmentCursor, StoreError> {
        let cursor = SegmentCursor { seq, segment: seq + 1, offset: 0 };
        let name = SegmentName::starting(cursor.segment);
        match self.files.size(name).map_err(fault)? {
            None | Some(0) => Ok(cursor),
            Some(size) if self.is_torn_tail(name, cursor, size)? => Ok(cursor),
            Some(_) => Err(StoreError::Io(format!("segment {name} does not match the table"))),
        }
    }

    /// Whether the bytes after the cursor can be what a crash leaves of the table's own lines.
    fn is_torn_tail(&self, name: SegmentName, cursor: SegmentCursor, size: u64) -> Result<bool, StoreError> {
        let (mut seq, mut torn_tail) = (cursor.seq, TornTail::at(cursor.offset));
        let mut lines = LineBatch::default();
        while torn_tail.offset() < size {
            // Nothing follows a seal.
            if lines.sealed {
                return Ok(false);
            }
            self.read(seq, &mut lines, &mut |_, _| Ok(()))?;
            let mut found = vec![0; lines.bytes.len()];
            let read = self.files.read(name, torn_tail.offset(), &mut found).map_err(fault)?;
            let pairs = found.iter().take(read).zip(&lines.bytes);
            if read == 0 || !torn_tail.matches(pairs.map(|(found, line)| (*found, *line))) {
                return Ok(false);
            }
            seq = lines.last;
        }
        Ok(true)
    }

    fn sync(&mut self, segment: u64) -> Result<(), StoreError> {
        let name = SegmentName::starting(segment);
        self.files.sync(name).map_err(|error| StoreError::Unsynced(format!("segment {name}: {error}")))
    }

    /// Some lines after a record, each with its newline.
    fn read(&self, after: u64, lines: &mut LineBatch, visit: &mut LineVisitor<'_>) -> Result<(), StoreError> {
        let sqlite = |error: rusqlite::Error| self.sqlite(&error);
        lines.bytes.clear();
        lines.last = after;
        lines.sealed = false;
        let sql = "SELECT seq, line FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
        let mut statement = self.connection.prepare_cached(sql).map_err(sqlite)?;
        let mut rows = statement.query((signed(after), signed(self.upto))).map_err(sqlite)?;
        while lines.bytes.len() < CHUNK_BYTES
            && !lines.sealed
            && let Some(row) = rows.next().map_err(sqlite)?
        {
            lines.last = row.get::<_, i64>(0).map_err(sqlite)?.unsigned_abs();
            let line = row.get_ref(1).map_err(sqlite)?.as_bytes().map_err(|error| sqlite(error.into()))?;
            visit(lines.last, line)?;
            lines.sealed = segment_seal::is_seal(line);
            lines.bytes.extend_from_slice(line);
            lines.bytes.push(b'\n');
        }
        Ok(())
    }

    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.database, error)
    }
}

const _: () = assert!(CHUNK_BYTES > MAX_LINE_BYTES);

#[derive(Default)]
struct LineBatch {
    bytes: Vec<u8>,
    last: u64,
    /// The last of them seals its segment.
    sealed: bool,
}

impl LineBatch {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Moves everything after the cursor out of the segments.
pub(crate) fn set_aside_after(files: &mut dyn SegmentFiles, cursor: SegmentCursor) -> Result<(), StoreError> {
    for (name, size) in files.list().map_err(fault)? {
        let from = if name.first_seq() == cursor.segment { cursor.offset } else { 0 };
        if name.first_seq() >= cursor.segment && size > from {
            files.set_aside(name, from).map_err(fault)?;
        }
    }
    Ok(())
}

fn fault(error: io::Error) -> StoreError {
    StoreError::io("writing a segment", error)
}
