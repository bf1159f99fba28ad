//! The segments as a projection of the table: lines behind the cursor are appended, synced, and only then
//! does the cursor move. After a crash a segment may hold more than the cursor says: pieces of what the table says
//! there are written over; anything else is left for `verify` to report.

use std::io;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{MAX_LINE_BYTES, SegmentName};

use crate::disk::SegmentFiles;
use crate::error::StoreError;
use crate::remains::Remains;
use crate::seal;
use crate::statements::signed;

/// Lines are written in pieces of about this size.
const PIECE: usize = 1 << 20;

/// How far the segments have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The last record that is in a segment.
    pub(crate) seq: u64,
    /// That segment; 0 when there is none yet.
    pub(crate) segment: u64,
    /// Where in it the record ends.
    pub(crate) offset: u64,
}

impl Cursor {
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

/// Somebody else who has use for the lines: the number of each, and the line.
pub(crate) type Show<'s> = dyn FnMut(u64, &[u8]) -> Result<(), StoreError> + 's;

/// What writes the segments. The caller holds the mirror lock.
pub(crate) struct Projection<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: PathBuf,
    pub(crate) files: &'a mut dyn SegmentFiles,
    /// The last record that is on the disk.
    pub(crate) upto: u64,
}

impl Projection<'_> {
    /// Appends what the segments lack and returns the new cursor, which the caller stores; none when there is
    /// nothing to do. Every line is shown before it is written.
    pub(crate) fn advance(&mut self, show: &mut Show<'_>) -> Result<Option<Cursor>, StoreError> {
        let mut cursor = Cursor::read(self.connection).map_err(|error| self.sqlite(&error))?;
        let mut lines = Lines::default();
        self.read(cursor.seq, &mut lines, show)?;
        if lines.is_empty() {
            return Ok(None);
        }
        cursor = self.place(cursor)?;
        while !lines.is_empty() {
            let name = SegmentName::starting(cursor.segment);
            self.files.write(name, cursor.offset, &lines.bytes).map_err(fault)?;
            cursor.seq = lines.last;
            cursor.offset += lines.bytes.len() as u64;
            if lines.sealed {
                self.sync(cursor.segment)?;
                self.files.close(name).map_err(fault)?;
                cursor = self.fresh(cursor.seq)?;
            }
            self.read(cursor.seq, &mut lines, show)?;
        }
        self.sync(cursor.segment)?;
        Ok(Some(cursor))
    }

    /// Where to go on: behind the cursor when the segment is as the cursor says, else in a new segment, so
    /// that what somebody did to the old one stays to be found.
    fn place(&mut self, cursor: Cursor) -> Result<Cursor, StoreError> {
        if cursor.segment == 0 {
            return self.fresh(cursor.seq);
        }
        let name = SegmentName::starting(cursor.segment);
        match self.files.size(name).map_err(fault)? {
            Some(size) if size == cursor.offset => Ok(cursor),
            Some(size) if size > cursor.offset && self.is_ours(name, cursor, size)? => Ok(cursor),
            _ => self.fresh(cursor.seq),
        }
    }

    /// A new segment behind a record. A crash may have left one of that name.
    fn fresh(&mut self, seq: u64) -> Result<Cursor, StoreError> {
        let cursor = Cursor { seq, segment: seq + 1, offset: 0 };
        let name = SegmentName::starting(cursor.segment);
        match self.files.size(name).map_err(fault)? {
            None | Some(0) => Ok(cursor),
            Some(size) if self.is_ours(name, cursor, size)? => Ok(cursor),
            Some(_) => Err(StoreError::Io(format!("segment {name} holds something else than the table"))),
        }
    }

    /// Whether what stands behind the cursor is what a crash leaves of the lines that the table has there.
    fn is_ours(&self, name: SegmentName, cursor: Cursor, size: u64) -> Result<bool, StoreError> {
        let (mut seq, mut remains) = (cursor.seq, Remains::at(cursor.offset));
        let mut lines = Lines::default();
        while remains.offset() < size {
            // Nothing follows a seal.
            if lines.sealed {
                return Ok(false);
            }
            self.read(seq, &mut lines, &mut |_, _| Ok(()))?;
            let mut there = vec![0; lines.bytes.len()];
            let read = self.files.read(name, remains.offset(), &mut there).map_err(fault)?;
            let pairs = there.iter().take(read).zip(&lines.bytes);
            if read == 0 || !remains.fit(pairs.map(|(there, line)| (*there, *line))) {
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

    /// Some lines behind a record, each with its newline.
    fn read(&self, after: u64, lines: &mut Lines, show: &mut Show<'_>) -> Result<(), StoreError> {
        let sqlite = |error: rusqlite::Error| self.sqlite(&error);
        lines.bytes.clear();
        lines.last = after;
        lines.sealed = false;
        let sql = "SELECT seq, line FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
        let mut statement = self.connection.prepare_cached(sql).map_err(sqlite)?;
        let mut rows = statement.query((signed(after), signed(self.upto))).map_err(sqlite)?;
        while lines.bytes.len() < PIECE
            && !lines.sealed
            && let Some(row) = rows.next().map_err(sqlite)?
        {
            lines.last = row.get::<_, i64>(0).map_err(sqlite)?.unsigned_abs();
            let line = row.get_ref(1).map_err(sqlite)?.as_bytes().map_err(|error| sqlite(error.into()))?;
            show(lines.last, line)?;
            lines.sealed = seal::is_seal(line);
            lines.bytes.extend_from_slice(line);
            lines.bytes.push(b'\n');
        }
        Ok(())
    }

    fn sqlite(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.database, error)
    }
}

const _: () = assert!(PIECE > MAX_LINE_BYTES);

#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    last: u64,
    /// The last of them closes its segment.
    sealed: bool,
}

impl Lines {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Moves whatever stands behind the cursor out of the segments.
pub(crate) fn set_aside_behind(files: &mut dyn SegmentFiles, cursor: Cursor) -> Result<(), StoreError> {
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
