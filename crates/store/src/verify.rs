//! The check of a state folder: the chain of the table, the segments against the table byte for byte,
//! the tree over the records, and every checkpoint that can be found against that tree. It only reads, goes on after
//! what it finds, and works on a copy and on a damaged database.
//!
//! What the folder cannot show by itself: somebody who has the key can write another history and sign it. Only a
//! checkpoint that is kept elsewhere (an anchor, a witness, a file, any answer to an agent) contradicts that.

mod anchored;
mod decisions;
mod keyring;
mod payloads;
mod scan;

use std::path::PathBuf;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{
    Digest, Findings, Frontier, Head, Kind, Line, Note, Place, SegmentName, Signed, Timestamp, VerifyKey,
};

use self::anchored::{Evidence, Source};
use self::keyring::Keyring;
use self::scan::{Scan, Scanned};
use crate::checkpoints::{self, CheckpointRow, Copies};
use crate::disk::{DiskSegments, SegmentFiles};
use crate::error::StoreError;
use crate::keys::{self, KeyFiles};
use crate::mirror::Mirror;
use crate::projection::Cursor;
use crate::read::newest_seq;
use crate::schema;
use crate::state_dir::StateDir;
use crate::statements::signed;
use crate::tree::{self, Node, Tree};

/// A checkpoint is signed every second; records that are not much older may still wait for one.
const GRACE_MS: i64 = 10_000;

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Records that were checked.
    pub records: u64,
    /// Records that there are, as the table says.
    pub total: u64,
}

/// What is to be checked, and against what.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Only what came after the last checkpoint before this moment.
    pub since: Option<Timestamp>,
    /// Checkpoints that were kept elsewhere: what they are called, and their text.
    pub checkpoints: Vec<(String, Vec<u8>)>,
    /// A key that is known from elsewhere to be one of this ledger.
    pub key: Option<VerifyKey>,
    /// Where copies of the newest checkpoint are kept, outside the state folder.
    pub anchors: Option<PathBuf>,
    /// How many cores to use.
    pub jobs: usize,
    /// Whether every record is hashed by itself as well, also where a signed root vouches for it.
    pub thorough: bool,
    /// The time.
    pub now: Timestamp,
}

impl VerifyOptions {
    /// Everything in the folder, with one core.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { since: None, checkpoints: Vec::new(), key: None, anchors: None, jobs: 1, thorough: false, now }
    }
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// How many records were checked.
    pub records: u64,
    /// Records before these were not looked at; their checkpoint was.
    pub skipped: u64,
    /// How many segments there are.
    pub segments: u64,
    /// How many checkpoints were checked.
    pub checkpoints: u64,
    /// How many records the largest good checkpoint covers.
    pub anchored: u64,
    /// Faults and notes.
    pub findings: Findings,
    /// The newest record, as the chain has it.
    pub head: Head,
    /// The root over all records.
    pub root: Digest,
    /// Whether the table could be read; if not, the segments were checked on their own.
    pub table_read: bool,
    /// What could not be checked, in words.
    pub unchecked: Vec<String>,
}

/// Checks a state folder.
pub fn verify(
    dir: &StateDir,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<VerifyReport, StoreError> {
    let files = DiskSegments::new(&dir.ledger());
    let began = Instant::now();
    // The cursor first, then sizes, then rows: a running store writes the table, then the segments, then the cursor.
    // So what the cursor says now must be in a segment then, and what is in a segment then in the table afterwards.
    let database = dir.database();
    let cursor = open(dir).and_then(|connection| {
        refuse_unsigned(&connection).map_err(|error| StoreError::sqlite(&database, &error))??;
        let cursor = Cursor::read(&connection).map_err(|error| StoreError::sqlite(&database, &error))?;
        Ok((connection, cursor))
    });
    let segments = files.list().map_err(|error| StoreError::folder(&dir.ledger(), error))?;
    let check = Check { dir, options, files: &files, segments: &segments, began };
    let table = cursor.and_then(|(connection, cursor)| {
        let signed = if options.thorough { 0 } else { check.signed(&connection) };
        let report = check.table(&connection, cursor, signed, progress)?;
        // Whoever signed a root had checked every hash under it. Without that, everything is looked at, to say what.
        if signed == 0 || (report.findings.is_clean() && report.anchored >= signed) {
            return Ok(report);
        }
        check.table(&connection, cursor, 0, progress)
    });
    match table {
        Ok(report) => Ok(report),
        Err(error @ StoreError::Unsigned) => Err(error),
        Err(error) => Ok(check.segments_alone(&error)),
    }
}

struct Check<'a> {
    dir: &'a StateDir,
    options: &'a VerifyOptions,
    files: &'a DiskSegments,
    segments: &'a [(SegmentName, u64)],
    began: Instant,
}

/// What the table says about itself, read before its records.
struct Said {
    writer: String,
    size: u64,
    tree: Option<Tree>,
    nodes: Vec<Node>,
    rows: Vec<CheckpointRow>,
    keys: Vec<(u64, String)>,
}

impl Said {
    /// All of one moment.
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let moment = connection.unchecked_transaction()?;
        // Where no newer program has opened the folder, the name stands beside the head.
        let older = schema::has_table(&moment, "head")? && !schema::has_table(&moment, "writer")?;
        let writer = if older { "SELECT writer FROM head" } else { "SELECT name FROM writer" };
        Ok(Self {
            writer: moment.query_row(writer, (), |row| row.get(0)).optional()?.unwrap_or_default(),
            size: newest_seq(&moment)?,
            tree: Tree::read(&moment)?,
            nodes: tree::nodes(&moment)?,
            rows: checkpoints::all(&moment)?,
            keys: keys::rows(&moment)?,
        })
    }
}

impl Check<'_> {
    /// How many records the newest checkpoint of the table says it covers.
    fn signed(&self, connection: &Connection) -> u64 {
        checkpoints::newest(connection).ok().flatten().map_or(0, |row| row.size)
    }

    /// The whole check, with the table as the truth that everything else is held against. Up to `signed` the tree
    /// stands for the hashes of the records.
    fn table(
        &self,
        connection: &Connection,
        cursor: Cursor,
        signed: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<VerifyReport, StoreError> {
        let database = self.dir.database();
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&database, &error);
        let said = Said::read(connection).map_err(sqlite)?;
        let mut findings = Findings::default();
        if said.writer.is_empty() {
            findings.fault(Place::Writer, Kind::WriterMissing, "it is missing");
        }
        let (sources, mut unchecked) = self.sources(&said, &mut findings);
        let start = self.start(connection, &said, &mut findings).map_err(sqlite)?;
        let sizes =
            sources.iter().map(|source| source.size()).chain(said.tree.as_ref().map(|t| t.head().seq));
        let scan = Scan {
            dir: self.dir,
            segments: self.segments,
            writer: &said.writer,
            cursor,
            start: start.clone(),
            wanted: sizes.chain([said.size]).collect(),
            total: said.size,
            signed,
        };
        let mut scanned = scan.run(self.options.jobs, progress)?;
        findings.append(std::mem::take(&mut scanned.findings));
        std::mem::take(&mut scanned.payloads).finish(connection, &mut findings).map_err(sqlite)?;
        self.cursor_segment(cursor, start.size(), &scanned, &mut findings);
        tree_kept(&said, start.size(), &scanned, &mut findings);

        // Records about keys are looked at however old they are: each stands on signatures of its own.
        let before =
            lines(connection, said.keys.iter().map(|(seq, _)| *seq), start.size()).map_err(sqlite)?;
        let keyring = Keyring::of(&said.writer, before.iter().chain(&scanned.special), &mut findings);
        keyring.repeated(&said.keys, said.size, &mut findings);
        let newer = || {
            let rows = keys::rows(connection)?.into_iter();
            Ok(rows.filter(|(seq, _)| *seq > scanned.head.seq).map(|(_, key)| key).collect())
        };
        let (known, files) = (self.options.key.as_ref(), KeyFiles::of(self.dir));
        keyring.held(&files, newer, known, &mut findings, &mut unchecked).map_err(sqlite)?;
        let mut evidence = Evidence {
            writer: &said.writer,
            keyring: &keyring,
            scanned: &scanned,
            upto: said.size,
            anchored: start.size(),
        };
        let skipped = evidence.check(&sources, &said.rows, start.size(), &mut findings);
        if skipped > 0 {
            unchecked.push(format!("{skipped} checkpoints before `--since`"));
        }
        let anchored = evidence.anchored;
        evidence.tail(&|at| self.is_young(at), connection, &mut findings).map_err(sqlite)?;
        if start.size() == 0 {
            decisions::check(&scanned.special, &mut findings);
        } else {
            unchecked.push("decisions: the keys that sign them may stand before `--since`".to_owned());
        }
        unchecked.push("the tables beside the ledger (sessions, calls, timeline, trust)".to_owned());
        Ok(VerifyReport {
            records: scanned.records,
            skipped: start.size(),
            segments: self.segments.len() as u64,
            checkpoints: sources.len() as u64 - skipped,
            anchored,
            findings,
            head: scanned.head,
            root: scanned.tree.root(),
            table_read: true,
            unchecked,
        })
    }

    /// Whether something may still wait for its checkpoint. A running store adds records while we look; but a moment
    /// in the future is not a young one.
    fn is_young(&self, at: Timestamp) -> bool {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = self.options.now;
        at >= now.earlier(GRACE_MS) && at <= now.later(elapsed).later(GRACE_MS)
    }

    /// Every checkpoint that can be found.
    fn sources(&self, said: &Said, findings: &mut Findings) -> (Vec<Source>, Vec<String>) {
        let mut unchecked = Vec::new();
        let mut sources: Vec<Source> =
            said.rows.iter().filter_map(|row| Source::row(row, findings)).collect();
        let latest = self.dir.latest_checkpoint();
        match Source::file("newest", &latest, findings) {
            Some(source) => sources.push(source),
            // The very first is in the table a moment before it is a file.
            None if said.rows.last().is_some_and(|row| !self.is_young(row.at)) && !latest.exists() => {
                let place = Place::Checkpoint("newest".to_owned(), 0);
                findings.fault(place, Kind::BadCheckpoint, "the file of the newest checkpoint is missing");
            }
            None => {}
        }
        let anchors = self.options.anchors.as_deref();
        let anchor = vambrace_ledger::Id::new(&said.writer)
            .ok()
            .and_then(|writer| Copies::of(self.dir, anchors, &writer).anchor().map(ToOwned::to_owned));
        match anchor.as_ref().and_then(|path| Source::file("anchor", path, findings)) {
            Some(source) => sources.push(source),
            None => {
                unchecked.push("an anchor: no copy of a checkpoint outside the folder was found".to_owned())
            }
        }
        for (name, text) in &self.options.checkpoints {
            sources.extend(Source::text(name, text, findings));
        }
        (sources, unchecked)
    }

    /// The tree from which on records are looked at: empty, or the one of a checkpoint before a moment.
    fn start(
        &self,
        connection: &Connection,
        said: &Said,
        findings: &mut Findings,
    ) -> rusqlite::Result<Frontier> {
        let Some(since) = self.options.since else { return Ok(Frontier::new()) };
        let keys = keys::all(connection)?;
        for row in said.rows.iter().rev().filter(|row| row.at <= since) {
            let Some(source) = Source::row(row, findings) else { continue };
            // The row says when it was signed, and nothing covers that; the record before it is covered by the chain.
            let last = lines(connection, [row.size].into_iter(), u64::MAX)?;
            let last = last.first().and_then(|(_, line)| Line::read(line.as_bytes()).ok());
            if last.is_none_or(|last| Timestamp::parse(last.ts).is_ok_and(|ts| ts > since)) {
                continue;
            }
            let edge = tree::edge(connection, 0..row.size)?;
            if let Some(edge) =
                edge.filter(|edge| edge.root() == source.root() && source.is_signed_by_any(&keys))
            {
                return Ok(edge);
            }
            let place = Place::Checkpoint("table".to_owned(), row.size);
            findings.fault(
                place,
                Kind::WrongRoot,
                "the records before it do not have its root, or it is not signed",
            );
        }
        Ok(Frontier::new())
    }

    /// The segment of the cursor, looked at now: it may have grown since the sizes were taken, never shrunk. The
    /// cursor stands where the table says that its record ends.
    fn cursor_segment(&self, cursor: Cursor, start: u64, scanned: &Scanned, found: &mut Findings) {
        let name = SegmentName::starting(cursor.segment);
        let place = Place::Segment(name, 1);
        let stands = cursor.seq <= scanned.head.seq
            && cursor.segment <= cursor.seq.saturating_add(1)
            && (cursor.segment > 0 || (cursor.seq, cursor.offset) == (0, 0));
        // Its beginning was not read.
        let unseen = start > 0 && cursor.segment <= start;
        // When records were changed, they are what is told.
        let stands = stands && (unseen || cursor.segment == 0 || cursor.offset == scanned.written);
        if !stands && found.is_clean() {
            let detail = "what is kept of how far it was written is not the end of a record";
            found.fault(place.clone(), Kind::SegmentDiffers, detail);
        }
        if cursor.segment == 0 || cursor.offset == 0 {
            return;
        }
        match self.files.size(name) {
            Ok(Some(size)) if size >= cursor.offset => {}
            Ok(Some(size)) => {
                let detail = format!("has {size} bytes, {} were written", cursor.offset);
                found.fault(place, Kind::SegmentShort, detail);
            }
            Ok(None) => found.fault(place, Kind::SegmentMissing, "the newest segment is missing"),
            Err(error) => found.fault(place, Kind::SegmentMissing, format!("cannot be read: {error}")),
        }
    }

    /// Without a table: the chain of the segments by itself.
    fn segments_alone(&self, error: &StoreError) -> VerifyReport {
        let mut findings = Findings::default();
        // With a log that nobody has indexed, SQLite has to write beside it.
        let hint = match error {
            StoreError::Folder { .. } if self.dir.database().is_file() => {
                "; a copy of the folder that you can write may be opened"
            }
            _ => "",
        };
        let detail = format!("{error}{hint}; the segments are checked on their own");
        findings.fault(Place::Database, Kind::DatabaseDamaged, detail);
        let mut verifier = vambrace_ledger::Verifier::new();
        Mirror::new(self.files, self.segments.to_vec()).alone(&mut verifier, &mut findings);
        VerifyReport {
            records: verifier.records(),
            skipped: 0,
            segments: self.segments.len() as u64,
            checkpoints: 0,
            anchored: 0,
            findings,
            head: verifier.head(),
            root: Frontier::new().root(),
            table_read: false,
            unchecked: vec!["checkpoints, keys and the tree: the table cannot be read".to_owned()],
        }
    }
}

/// The very first form of a folder: a chain, and neither tree nor key.
fn refuse_unsigned(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
    let first = schema::has_table(connection, "head")? && !schema::has_table(connection, "tree")?;
    Ok(if first { Err(StoreError::Unsigned) } else { Ok(()) })
}

pub(crate) fn open(dir: &StateDir) -> Result<Connection, StoreError> {
    let path = dir.database();
    let read = |connection: &Connection| {
        let some = connection.query_row("SELECT 1 FROM ledger LIMIT 1", (), |_| Ok(())).optional();
        some.map_err(|error| StoreError::sqlite(&path, &error))
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

/// Whether a note about a ledger of this size is signed by this key, or by one that the records hand over to it.
pub(crate) fn handed_down(
    connection: &Connection,
    key: &VerifyKey,
    note: &Note,
    size: u64,
) -> rusqlite::Result<bool> {
    if matches!(note.signed_by(key), Signed::Yes(_)) {
        return Ok(true);
    }
    let records = keys::rows(connection)?;
    let records = lines(connection, records.iter().map(|(seq, _)| *seq), u64::MAX)?;
    let mut findings = Findings::default();
    let writer = key.name().strip_prefix("vambrace/").unwrap_or_default();
    let keyring = Keyring::of(writer, records.iter(), &mut findings);
    let ours = findings.is_clean() && keyring.ends_with(key);
    Ok(ours && matches!(keyring.signed(note, size), Signed::Yes(_)))
}

/// The lines of some records, but for those behind `upto`.
fn lines(
    connection: &Connection,
    seqs: impl Iterator<Item = u64>,
    upto: u64,
) -> rusqlite::Result<Vec<(u64, String)>> {
    let mut statement = connection.prepare_cached("SELECT line FROM ledger WHERE seq = ?1")?;
    let mut lines = Vec::new();
    for seq in seqs.filter(|seq| *seq <= upto) {
        lines
            .extend(statement.query_row([signed(seq)], |row| row.get(0)).optional()?.map(|line| (seq, line)));
    }
    Ok(lines)
}

/// What is kept of the tree against the tree of the records.
fn tree_kept(said: &Said, start: u64, scanned: &Scanned, findings: &mut Findings) {
    let size = said.tree.as_ref().map_or(0, |tree| tree.head().seq);
    let end = |node: &Node| node.1.saturating_add(1).checked_shl(node.0).unwrap_or(u64::MAX);
    let kept = said.nodes.iter().filter(|node| end(node) > start || node.0 >= u64::BITS);
    if !kept.eq(scanned.nodes.iter().filter(|node| end(node) <= size)) {
        findings.fault(
            Place::Tree,
            Kind::TreeDiffers,
            "the roots of its subtrees are not those of the records",
        );
    }
    let detail = match &said.tree {
        None => "cannot be read".to_owned(),
        Some(tree) if start > 0 && tree.head().seq <= start => return,
        Some(tree) => match scanned.tree_at(tree.head().seq) {
            Some(edge)
                if edge == tree.edge
                    && scanned.hash_at(tree.head().seq).unwrap_or(Digest::ZERO) == tree.hash =>
            {
                return;
            }
            Some(_) => format!("is not the tree of the first {} records", tree.head().seq),
            None => format!("was grown to {} records, which are not there", tree.head().seq),
        },
    };
    findings.fault(Place::Tree, Kind::TreeDiffers, detail);
}
