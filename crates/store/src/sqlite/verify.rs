//! Verifies a state directory: the chain of the table, the segments against the table byte for byte, the tree
//! over the records, and every checkpoint that can be found against that tree. It only reads, continues after a
//! finding, and works on a copy and on a damaged database.
//!
//! What the directory alone cannot show: the holder of the key can write another history and sign it. Only a
//! checkpoint that is kept elsewhere (an anchor, a witness, a file, any answer to an agent) contradicts that.

mod checkpoint_check;
mod decisions;
mod keyring;
mod payloads;
mod scan;

use std::time::Instant;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{
    Digest, FindingKind, FindingLocation, Findings, Frontier, LedgerLine, SegmentName, SignatureStatus,
    SignedNote, Timestamp, VerifyKey,
};

use self::checkpoint_check::{CheckpointCheck, FoundCheckpoint};
use self::keyring::Keyring;
use self::scan::{Scan, Scanned};
use crate::checkpoints::{CheckpointFiles, CheckpointRow};
use crate::error::StoreError;
use crate::ledger_keys::LedgerKeyFiles;
use crate::segment_files::{DiskSegments, SegmentFiles};
use crate::segment_reader::SegmentReader;
use crate::sqlite::merkle_tree::{self, MerkleTree, TreeNode};
use crate::sqlite::rows::record::newest_seq;
use crate::sqlite::rows::{checkpoints, ledger_keys, record, signed};
use crate::sqlite::schema;
use crate::sqlite::segment_writer::SegmentCursor;
use crate::state_dir::StateDir;
use crate::verify_report::{VerifyOptions, VerifyProgress, VerifyReport};

/// A checkpoint is signed every second; records this young may still wait for one.
const CHECKPOINT_GRACE_MS: i64 = 10_000;

/// Verifies a state directory.
pub fn verify(
    dir: &StateDir,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let files = DiskSegments::new(&dir.ledger());
    let began = Instant::now();
    // The cursor first, then sizes, then rows: a running store writes the table, then the segments, then the
    // cursor. So what the cursor covers now is in a segment later, and what is in a segment later is in the
    // table afterwards.
    let database = dir.database();
    let cursor = open(dir).and_then(|connection| {
        reject_unsigned(&connection).map_err(|error| StoreError::sqlite(&database, &error))??;
        let cursor =
            SegmentCursor::read(&connection).map_err(|error| StoreError::sqlite(&database, &error))?;
        Ok((connection, cursor))
    });
    let segments = files.list().map_err(|error| StoreError::directory(&dir.ledger(), error))?;
    let check = VerifyRun { dir, options, files: &files, segments: &segments, began };
    let table = cursor.and_then(|(connection, cursor)| {
        let signed = if options.thorough { 0 } else { check.signed(&connection) };
        let report = check.verify_table(&connection, cursor, signed, progress)?;
        // The signer of a root had verified every hash under it. Without a valid root everything is hashed, to
        // name the fault.
        if signed == 0 || (report.findings.is_clean() && report.anchored >= signed) {
            return Ok(report);
        }
        check.verify_table(&connection, cursor, 0, progress)
    });
    match table {
        Ok(report) => Ok(report),
        Err(error @ StoreError::Unsigned) => Err(error),
        Err(error) => Ok(check.verify_segments_only(&error)),
    }
}

struct VerifyRun<'a> {
    dir: &'a StateDir,
    options: &'a VerifyOptions,
    files: &'a DiskSegments,
    segments: &'a [(SegmentName, u64)],
    began: Instant,
}

/// What the table says about itself, read before its records.
struct TableSummary {
    writer: String,
    size: u64,
    tree: Option<MerkleTree>,
    nodes: Vec<TreeNode>,
    rows: Vec<CheckpointRow>,
    keys: Vec<(u64, String)>,
}

impl TableSummary {
    /// Reads everything in one transaction.
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let moment = connection.unchecked_transaction()?;
        Ok(Self {
            writer: record::writer_name(&moment)?.unwrap_or_default(),
            size: newest_seq(&moment)?,
            tree: MerkleTree::read(&moment)?,
            nodes: merkle_tree::nodes(&moment)?,
            rows: checkpoints::all(&moment)?,
            keys: ledger_keys::rows(&moment)?,
        })
    }
}

impl VerifyRun<'_> {
    /// How many records the newest checkpoint of the table claims to cover.
    fn signed(&self, connection: &Connection) -> u64 {
        checkpoints::newest(connection).ok().flatten().map_or(0, |row| row.size)
    }

    /// Verifies everything against the table as the source of truth. Up to `signed` the tree stands for the
    /// hashes of the records.
    fn verify_table(
        &self,
        connection: &Connection,
        cursor: SegmentCursor,
        signed: u64,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<VerifyReport, StoreError> {
        let database = self.dir.database();
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&database, &error);
        let summary = TableSummary::read(connection).map_err(sqlite)?;
        let mut findings = Findings::default();
        if summary.writer.is_empty() {
            findings.fault(FindingLocation::Writer, FindingKind::WriterMissing, "it is missing");
        }
        let (sources, mut unchecked) = self.sources(&summary, &mut findings);
        let start = self.start(connection, &summary, &mut findings).map_err(sqlite)?;
        let sizes =
            sources.iter().map(|source| source.size()).chain(summary.tree.as_ref().map(|t| t.head().seq));
        let scan = Scan {
            dir: self.dir,
            segments: self.segments,
            writer: &summary.writer,
            cursor,
            start: start.clone(),
            wanted: sizes.chain([summary.size]).collect(),
            total: summary.size,
            signed,
        };
        let mut scanned = scan.run(self.options.jobs, progress)?;
        findings.append(std::mem::take(&mut scanned.findings));
        std::mem::take(&mut scanned.payloads).finish(connection, &mut findings).map_err(sqlite)?;
        self.cursor_segment(cursor, start.size(), &scanned, &mut findings);
        check_stored_tree(&summary, start.size(), &scanned, &mut findings);

        // Records about keys are verified however old they are: each carries its own signatures.
        let before =
            lines(connection, summary.keys.iter().map(|(seq, _)| *seq), start.size()).map_err(sqlite)?;
        let keyring = Keyring::of(&summary.writer, before.iter().chain(&scanned.special), &mut findings);
        keyring.check_key_rows(&summary.keys, summary.size, &mut findings);
        let newer = || {
            let rows = ledger_keys::rows(connection)?.into_iter();
            Ok(rows.filter(|(seq, _)| *seq > scanned.head.seq).map(|(_, key)| key).collect())
        };
        let (known, files) = (self.options.key.as_ref(), LedgerKeyFiles::of(self.dir));
        keyring.check_key_file(&files, newer, known, &mut findings, &mut unchecked).map_err(sqlite)?;
        let mut evidence = CheckpointCheck {
            writer: &summary.writer,
            keyring: &keyring,
            scanned: &scanned,
            upto: summary.size,
            anchored: start.size(),
        };
        let skipped = evidence.check(&sources, &summary.rows, start.size(), &mut findings);
        if skipped > 0 {
            unchecked.push(format!("{skipped} checkpoints before `--since`"));
        }
        let anchored = evidence.anchored;
        evidence.check_uncovered_tail(&|at| self.is_young(at), connection, &mut findings).map_err(sqlite)?;
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

    /// Whether a record may still wait for its checkpoint. A running store adds records meanwhile; but a time
    /// in the future is not young.
    fn is_young(&self, at: Timestamp) -> bool {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = self.options.now;
        at >= now.earlier(CHECKPOINT_GRACE_MS) && at <= now.later(elapsed).later(CHECKPOINT_GRACE_MS)
    }

    /// Every checkpoint that can be found.
    fn sources(
        &self,
        summary: &TableSummary,
        findings: &mut Findings,
    ) -> (Vec<FoundCheckpoint>, Vec<String>) {
        let mut unchecked = Vec::new();
        let mut sources: Vec<FoundCheckpoint> =
            summary.rows.iter().filter_map(|row| FoundCheckpoint::row(row, findings)).collect();
        let latest = self.dir.latest_checkpoint();
        match FoundCheckpoint::file("newest", &latest, findings) {
            Some(source) => sources.push(source),
            // The very first one is in the table a moment before it is a file.
            None if summary.rows.last().is_some_and(|row| !self.is_young(row.at)) && !latest.exists() => {
                let place = FindingLocation::Checkpoint("newest".to_owned(), 0);
                findings.fault(
                    place,
                    FindingKind::BadCheckpoint,
                    "the file of the newest checkpoint is missing",
                );
            }
            None => {}
        }
        let anchors = self.options.anchors.as_deref();
        let anchor = vambrace_ledger::Id::new(&summary.writer).ok().and_then(|writer| {
            CheckpointFiles::of(self.dir, anchors, &writer).anchor().map(ToOwned::to_owned)
        });
        match anchor.as_ref().and_then(|path| FoundCheckpoint::file("anchor", path, findings)) {
            Some(source) => sources.push(source),
            None => unchecked
                .push("the anchor: no copy of a checkpoint was found outside the directory".to_owned()),
        }
        for (name, text) in &self.options.checkpoints {
            sources.extend(FoundCheckpoint::text(name, text, findings));
        }
        (sources, unchecked)
    }

    /// The tree at which verification starts: empty, or that of a checkpoint before `since`.
    fn start(
        &self,
        connection: &Connection,
        summary: &TableSummary,
        findings: &mut Findings,
    ) -> rusqlite::Result<Frontier> {
        let Some(since) = self.options.since else { return Ok(Frontier::new()) };
        let keys = ledger_keys::all(connection)?;
        for row in summary.rows.iter().rev().filter(|row| row.at <= since) {
            let Some(source) = FoundCheckpoint::row(row, findings) else { continue };
            // Nothing protects the time in the row; the chain protects the time of its last record.
            let last = lines(connection, [row.size].into_iter(), u64::MAX)?;
            let last = last.first().and_then(|(_, line)| LedgerLine::read(line.as_bytes()).ok());
            if last.is_none_or(|last| Timestamp::parse(last.ts).is_ok_and(|ts| ts > since)) {
                continue;
            }
            let edge = merkle_tree::edge(connection, 0..row.size)?;
            if let Some(edge) =
                edge.filter(|edge| edge.root() == source.root() && source.is_signed_by_any(&keys))
            {
                return Ok(edge);
            }
            let place = FindingLocation::Checkpoint("table".to_owned(), row.size);
            findings.fault(
                place,
                FindingKind::WrongRoot,
                "the records before it do not have its root, or it is not signed",
            );
        }
        Ok(Frontier::new())
    }

    /// Checks the segment of the cursor as it is now: it may have grown since the sizes were read, never
    /// shrunk. The cursor must be where, according to the table, its record ends.
    fn cursor_segment(&self, cursor: SegmentCursor, start: u64, scanned: &Scanned, found: &mut Findings) {
        let name = SegmentName::starting(cursor.segment);
        let place = FindingLocation::Segment(name, 1);
        let stands = cursor.seq <= scanned.head.seq
            && cursor.segment <= cursor.seq.saturating_add(1)
            && (cursor.segment > 0 || (cursor.seq, cursor.offset) == (0, 0));
        // Its beginning was not read.
        let unseen = start > 0 && cursor.segment <= start;
        // If records were changed, those findings are reported instead.
        let stands = stands && (unseen || cursor.segment == 0 || cursor.offset == scanned.written);
        if !stands && found.is_clean() {
            let detail = "the stored write position is not the end of a record";
            found.fault(place.clone(), FindingKind::SegmentDiffers, detail);
        }
        if cursor.segment == 0 || cursor.offset == 0 {
            return;
        }
        match self.files.size(name) {
            Ok(Some(size)) if size >= cursor.offset => {}
            Ok(Some(size)) => {
                let detail = format!("has {size} bytes, but {} were written", cursor.offset);
                found.fault(place, FindingKind::SegmentShort, detail);
            }
            Ok(None) => found.fault(place, FindingKind::SegmentMissing, "the newest segment is missing"),
            Err(error) => found.fault(place, FindingKind::SegmentMissing, format!("cannot be read: {error}")),
        }
    }

    /// Without a table: verifies the chain of the segments by itself.
    fn verify_segments_only(&self, error: &StoreError) -> VerifyReport {
        let mut findings = Findings::default();
        // With a WAL that has no index yet, SQLite has to write beside it.
        let hint = match error {
            StoreError::Directory { .. } if self.dir.database().is_file() => {
                "; copy the directory to a place that you can write, and verify the copy"
            }
            _ => "",
        };
        let detail = format!("{error}{hint}; the segments are verified on their own");
        findings.fault(FindingLocation::Database, FindingKind::DatabaseDamaged, detail);
        let mut verifier = vambrace_ledger::Verifier::new();
        SegmentReader::new(self.files, self.segments.to_vec()).verify_chain(&mut verifier, &mut findings);
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

/// The first layout of a directory: a chain, without tree and keys.
fn reject_unsigned(connection: &Connection) -> rusqlite::Result<Result<(), StoreError>> {
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
        // The directory cannot be written, but SQLite needs to create the index of its WAL.
        Err(StoreError::Directory { .. }) if !StateDir::is_nonempty(&dir.wal()) => {
            let connection = schema::open_immutable(&path)?;
            read(&connection).map(|_| connection)
        }
        Err(error) => Err(error),
    }
}

/// Whether a note about a ledger of this size is signed by `key`, or by a predecessor that handed over to it.
pub(crate) fn handed_down(
    connection: &Connection,
    key: &VerifyKey,
    note: &SignedNote,
    size: u64,
) -> rusqlite::Result<bool> {
    if matches!(note.signed_by(key), SignatureStatus::Valid(_)) {
        return Ok(true);
    }
    let records = ledger_keys::rows(connection)?;
    let records = lines(connection, records.iter().map(|(seq, _)| *seq), u64::MAX)?;
    let mut findings = Findings::default();
    let writer = key.name().strip_prefix("vambrace/").unwrap_or_default();
    let keyring = Keyring::of(writer, records.iter(), &mut findings);
    let ours = findings.is_clean() && keyring.ends_with(key);
    Ok(ours && matches!(keyring.signed(note, size), SignatureStatus::Valid(_)))
}

/// The lines of some records, up to `upto`.
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

/// Compares the stored tree with the tree of the records.
fn check_stored_tree(summary: &TableSummary, start: u64, scanned: &Scanned, findings: &mut Findings) {
    let size = summary.tree.as_ref().map_or(0, |tree| tree.head().seq);
    let end = |node: &TreeNode| node.1.saturating_add(1).checked_shl(node.0).unwrap_or(u64::MAX);
    let kept = summary.nodes.iter().filter(|node| end(node) > start || node.0 >= u64::BITS);
    if !kept.eq(scanned.nodes.iter().filter(|node| end(node) <= size)) {
        findings.fault(
            FindingLocation::Tree,
            FindingKind::TreeDiffers,
            "the stored roots of its subtrees do not match the records",
        );
    }
    let detail = match &summary.tree {
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
            None => format!("covers {} records, which are not there", tree.head().seq),
        },
    };
    findings.fault(FindingLocation::Tree, FindingKind::TreeDiffers, detail);
}
