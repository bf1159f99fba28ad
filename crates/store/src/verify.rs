//! The check of a state folder: the chain of the table, the head row, and the segments against the table byte
//! for byte. It only reads, goes on after what it finds, and works on a copy and on a damaged database.
//!
//! What it cannot find: somebody who deletes the newest records from the table and from the segments and
//! corrects the head row and the cursor leaves a folder that is right in itself. Only a hash that is kept
//! elsewhere (every answer to an agent carries one) contradicts it.

mod payloads;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{Digest, Findings, Head, Kind, Line, Place, Verifier};

use crate::disk::{DiskSegments, SegmentFiles};
use crate::error::StoreError;
use crate::mirror::Mirror;
use crate::projection::Cursor;
use crate::schema;
use crate::state_dir::StateDir;
use crate::statements::signed;
use payloads::Payloads;

/// Rows are read in pieces, so that no long read keeps the log of a running store from starting over.
const PIECE: i64 = 4096;

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Records that were checked.
    pub records: u64,
    /// Records that there are, as the head row says.
    pub total: u64,
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// How many records were checked.
    pub records: u64,
    /// How many segments there are.
    pub segments: u64,
    /// Faults and notes.
    pub findings: Findings,
    /// The newest record, as the chain has it.
    pub head: Head,
    /// Whether the table could be read; if not, the segments were checked on their own.
    pub table_read: bool,
}

/// Checks a state folder.
pub fn verify(dir: &StateDir, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport, StoreError> {
    let files = DiskSegments::new(&dir.ledger());
    // Sizes first, rows afterwards: a running store writes the table before the segments, so whatever is in
    // a segment now must be in the table then.
    let segments = files.list().map_err(|error| StoreError::folder(&dir.ledger(), error))?;
    let mut check = Check {
        mirror: Mirror::new(&files, segments.clone()),
        verifier: Verifier::new(),
        findings: Findings::default(),
        payloads: Payloads::default(),
    };
    let table = open(dir).and_then(|connection| {
        check.table(&connection, progress).map_err(|error| StoreError::sqlite(&dir.database(), &error))
    });
    let table_read = table.is_ok();
    match table {
        Ok(cursor) => check.mirror.finish(cursor, &mut check.findings),
        Err(error) => {
            let detail = format!("{error}; the segments are checked on their own");
            check.findings.fault(Place::Database, Kind::DatabaseDamaged, detail);
            check.verifier = Verifier::new();
            check.mirror = Mirror::new(&files, segments.clone());
            check.mirror.alone(&mut check.verifier, &mut check.findings);
        }
    }
    Ok(VerifyReport {
        records: check.verifier.records(),
        segments: segments.len() as u64,
        findings: check.findings,
        head: check.verifier.head(),
        table_read,
    })
}

fn open(dir: &StateDir) -> Result<Connection, StoreError> {
    let path = dir.database();
    let read = |connection: &Connection| {
        let count = "SELECT count(*) FROM head";
        connection.query_row(count, (), |row| row.get::<_, i64>(0)).map_err(|e| StoreError::sqlite(&path, &e))
    };
    let connection = schema::open_for_reading(&path)?;
    match read(&connection) {
        Ok(_) => Ok(connection),
        // A folder that cannot be written: SQLite needs a place for the index of its log.
        Err(StoreError::Folder { .. }) if !StateDir::holds(&dir.wal()) => {
            let connection = schema::open_immutable(&path)?;
            read(&connection).map(|_| connection)
        }
        Err(error) => Err(error),
    }
}

struct Check<'a> {
    mirror: Mirror<'a>,
    verifier: Verifier,
    findings: Findings,
    payloads: Payloads,
}

impl Check<'_> {
    /// Every row of the table, and the lines of the segments beside them.
    fn table(
        &mut self,
        connection: &Connection,
        progress: &mut dyn FnMut(Progress),
    ) -> rusqlite::Result<Cursor> {
        // The head is read before the rows and after them: a running store may add some in between.
        let before = self.head_row(connection)?;
        let cursor = Cursor::read(connection)?;
        let total = before.map_or(0, |head| head.seq);
        let mut statement =
            connection.prepare("SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
        let mut last = i64::MIN;
        let mut at_head = before.filter(|head| head.seq == 0);
        loop {
            let mut rows = statement.query((last, PIECE))?;
            let mut some = false;
            while let Some(row) = rows.next()? {
                some = true;
                last = row.get(0)?;
                self.row(last, row.get_ref(1)?.as_bytes()?);
                if before.is_some_and(|head| signed(head.seq) == last) {
                    at_head = Some(self.verifier.head());
                }
            }
            progress(Progress { records: self.verifier.records(), total });
            if !some {
                break;
            }
        }
        let after = self.head_row(connection)?;
        self.heads(before, at_head, after);
        std::mem::take(&mut self.payloads).finish(connection, &mut self.findings)?;
        Ok(cursor)
    }

    fn head_row(&mut self, connection: &Connection) -> rusqlite::Result<Option<Head>> {
        let sql = "SELECT seq, event_hash FROM head WHERE id = 1";
        let row = connection
            .query_row(sql, (), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
            .optional()?;
        let head = row.and_then(|(seq, hash)| {
            let hash: Digest = hash.parse().ok()?;
            Some(Head { seq: u64::try_from(seq).ok()?, hash })
        });
        Ok(head)
    }

    fn row(&mut self, seq: i64, line: &[u8]) {
        let place = Place::Record(seq.unsigned_abs());
        if let Some(claimed) = Line::claimed_seq(line)
            && signed(claimed) != seq
        {
            let detail = format!("row {seq} holds record {claimed}");
            self.findings.fault(place.clone(), Kind::Reordered, detail);
        }
        self.verifier.feed(&place, line, &mut self.findings);
        self.payloads.feed(seq.unsigned_abs(), line);
        self.mirror.compare(seq.unsigned_abs(), line, &mut self.findings);
    }

    /// What the head row says against what the table has.
    fn heads(&mut self, before: Option<Head>, at_head: Option<Head>, after: Option<Head>) {
        let last = self.verifier.head();
        let (Some(before), Some(after)) = (before, after) else {
            self.findings.fault(Place::Head, Kind::HeadMismatch, "it is missing or damaged");
            return;
        };
        let detail = match at_head {
            None => format!(
                "it names record {} as the newest, the table ends at record {}: records were cut off",
                before.seq, last.seq
            ),
            Some(there) if there.hash != before.hash => {
                format!("it names `{}`, record {} has `{}`", before.hash, before.seq, there.hash)
            }
            Some(_) if last.seq > after.seq => {
                format!("it names record {}, the table goes on to record {}", after.seq, last.seq)
            }
            Some(_) => return,
        };
        self.findings.fault(Place::Head, Kind::HeadMismatch, detail);
    }
}
