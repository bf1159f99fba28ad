//! Reads the records once: one part per segment, on several threads. Each part is verified from the hash that
//! the previous record claims, which the previous part verifies; the trees of the parts are then joined.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{
    BATCH_HEIGHT, ChainHead, Digest, FindingKind, FindingLocation, Findings, Frontier, LedgerLine,
    PartialTree, SegmentName, Verifier, leaf, leaves,
};

use super::payloads::PayloadChecker;
use super::{decisions, open};
use crate::error::StoreError;
use crate::segment_files::DiskSegments;
use crate::segment_reader::SegmentReader;
use crate::sqlite::merkle_tree::{MIN_STORED_HEIGHT, TreeNode};
use crate::sqlite::rows::signed;
use crate::sqlite::segment_seal;
use crate::sqlite::segment_writer::SegmentCursor;
use crate::state_dir::StateDir;
use crate::verify_report::VerifyProgress;

/// Rows are read in chunks, so that no long read keeps the WAL of a running store from restarting.
const CHUNK_ROWS: i64 = 4096;

/// SQLite page cache; a negative number means KiB.
const CACHE_SIZE: i64 = -512;

/// Leaves added to the tree at a time.
const LEAVES_PER_BATCH: usize = 256;

const _: () = assert!(MIN_STORED_HEIGHT > BATCH_HEIGHT, "stored subtrees must be reported");

/// What to read.
pub(super) struct Scan<'a> {
    pub(super) dir: &'a StateDir,
    pub(super) segments: &'a [(SegmentName, u64)],
    /// The writer of the ledger.
    pub(super) writer: &'a str,
    pub(super) cursor: SegmentCursor,
    /// Records of this tree are skipped.
    pub(super) start: Frontier,
    /// Sizes at which the tree is needed.
    pub(super) wanted: BTreeSet<u64>,
    pub(super) total: u64,
    /// Up to here only the leaves are hashed, because a signature covers the rest.
    pub(super) signed: u64,
}

/// The result of reading all parts.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) records: u64,
    pub(super) head: ChainHead,
    pub(super) tree: Frontier,
    /// The tree (`None` if records are missing) and the hash of the last record, at the requested sizes.
    snapshots: Vec<(u64, Option<Frontier>, Digest)>,
    /// Roots of the subtrees that the table stores.
    pub(super) nodes: Vec<TreeNode>,
    /// Bytes of the records from the cursor's segment up to the cursor.
    pub(super) written: u64,
    /// Records of the ledger about itself.
    pub(super) special: Vec<(u64, String)>,
    pub(super) payloads: PayloadChecker,
    pub(super) findings: Findings,
}

impl Scanned {
    pub(super) fn tree_at(&self, size: u64) -> Option<Frontier> {
        if size == 0 {
            return Some(Frontier::new());
        }
        self.snapshot(size).and_then(|(_, tree, _)| tree.clone())
    }

    pub(super) fn hash_at(&self, size: u64) -> Option<Digest> {
        self.snapshot(size).map(|(_, _, hash)| *hash)
    }

    fn snapshot(&self, size: u64) -> Option<&(u64, Option<Frontier>, Digest)> {
        let at = self.snapshots.binary_search_by_key(&size, |(size, ..)| *size).ok()?;
        self.snapshots.get(at)
    }
}

/// The rows of one segment, or of the end of the table.
struct ScanPart {
    /// After this record, up to that one.
    rows: (i64, i64),
    segment: Option<(SegmentName, u64)>,
    is_last: bool,
}

/// The result of reading a part.
struct PartResult {
    records: u64,
    head: Option<ChainHead>,
    leaves: LeafHasher,
    snapshots: Vec<(u64, PartialTree, Digest)>,
    written: u64,
    special: Vec<(u64, String)>,
    payloads: PayloadChecker,
    findings: Findings,
}

/// Hashes the leaves of a part. It hashes two lines at a time and adds leaves in batches, which is faster.
struct LeafHasher {
    tree: PartialTree,
    /// Leaves that are not in `tree` yet.
    pending: Vec<Digest>,
    /// Roots of the subtrees that the table stores.
    nodes: Vec<TreeNode>,
    /// A line that waits for the next one.
    held: Vec<u8>,
    holds: bool,
}

impl LeafHasher {
    fn after(before: u64) -> Self {
        Self {
            tree: PartialTree::starting(before),
            pending: Vec::new(),
            nodes: Vec::new(),
            held: Vec::new(),
            holds: false,
        }
    }

    fn line(&mut self, line: &[u8]) {
        if self.holds {
            let (first, second) = leaves(&self.held, line);
            self.holds = false;
            self.pending.push(first);
            self.push(second);
        } else {
            self.held.clear();
            self.held.extend_from_slice(line);
            self.holds = true;
        }
    }

    /// Adds a leaf that is already hashed.
    fn leaf(&mut self, leaf: Digest) {
        self.hash_held();
        self.push(leaf);
    }

    fn push(&mut self, leaf: Digest) {
        self.pending.push(leaf);
        if self.pending.len() >= LEAVES_PER_BATCH {
            self.flush();
        }
    }

    /// Adds everything that waits.
    fn finish_pending(&mut self) {
        self.hash_held();
        self.flush();
    }

    fn hash_held(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.push(leaf(&self.held));
        }
    }

    fn flush(&mut self) {
        self.tree.extend_with(&self.pending, |height, place, root| {
            if height >= MIN_STORED_HEIGHT {
                self.nodes.push((height, place, root));
            }
        });
        self.pending.clear();
    }
}

enum ScanMessage {
    Records(u64),
    Part(usize, Result<Box<PartResult>, StoreError>),
}

impl Scan<'_> {
    /// Reads all parts and joins them.
    pub(super) fn run(
        &self,
        jobs: usize,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<Scanned, StoreError> {
        let parts = self.parts();
        let next = AtomicUsize::new(0);
        let mut done: Vec<Option<Box<PartResult>>> = parts.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let (sender, messages) = channel();
            for _ in 0..jobs.clamp(1, parts.len()) {
                let (sender, parts, next) = (sender.clone(), &parts, &next);
                scope.spawn(move || self.work(parts, next, &sender));
            }
            drop(sender);
            let mut records = 0;
            for message in messages {
                match message {
                    ScanMessage::Records(more) => {
                        records += more;
                        progress(VerifyProgress { records, total: self.total });
                    }
                    ScanMessage::Part(number, read) => {
                        if let Some(place) = done.get_mut(number) {
                            *place = Some(read?);
                        }
                    }
                }
            }
            Ok::<(), StoreError>(())
        })?;
        let database = self.dir.database();
        let began = open(self.dir).and_then(|connection| {
            let claimed = claimed_head(&connection, self.start.size());
            claimed.map_err(|error| StoreError::sqlite(&database, &error))
        });
        Ok(self.join_parts(began?, done.into_iter().flatten()))
    }

    fn parts(&self) -> Vec<ScanPart> {
        let start = signed(self.start.size());
        let first = start;
        let mut parts = Vec::new();
        let mut from = first;
        for (number, (name, size)) in self.segments.iter().enumerate() {
            let next = self.segments.get(number + 1).map(|(name, _)| signed(name.first_seq()) - 1);
            let to = next.unwrap_or(i64::MAX);
            if to > from || next.is_none() {
                let is_last = next.is_none();
                parts.push(ScanPart { rows: (from, to.max(from)), segment: Some((*name, *size)), is_last });
                from = to.max(from);
            }
        }
        if parts.is_empty() {
            parts.push(ScanPart { rows: (first, i64::MAX), segment: None, is_last: true });
        }
        parts
    }

    fn work(&self, parts: &[ScanPart], next: &AtomicUsize, sender: &Sender<ScanMessage>) {
        let connection = open(self.dir).inspect(|connection| {
            // Each page is read once, so the cache only has to fit into the processor's cache.
            let _ = connection.pragma_update(None, "cache_size", CACHE_SIZE);
        });
        while let Some((number, part)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            parts.get(number).map(|part| (number, part))
        } {
            let read = connection.as_ref().map_err(Clone::clone).and_then(|connection| {
                self.part(connection, part, sender)
                    .map(Box::new)
                    .map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
            });
            if sender.send(ScanMessage::Part(number, read)).is_err() {
                return;
            }
        }
    }

    fn part(
        &self,
        connection: &Connection,
        part: &ScanPart,
        sender: &Sender<ScanMessage>,
    ) -> rusqlite::Result<PartResult> {
        let files = DiskSegments::new(&self.dir.ledger());
        let mut segment_reader = SegmentReader::new(&files, part.segment.into_iter().collect());
        let before = u64::try_from(part.rows.0).unwrap_or(0);
        let mut verifier = Verifier::after(claimed_head(connection, before)?);
        let mut read = PartResult {
            records: 0,
            head: None,
            leaves: LeafHasher::after(before),
            snapshots: Vec::new(),
            written: 0,
            special: Vec::new(),
            payloads: PayloadChecker::after(before),
            findings: Findings::default(),
        };
        // Only if verification starts in the middle of a segment. Lines before the first record of any other
        // segment do not belong there.
        if part.segment.is_some_and(|(name, _)| name.first_seq() <= before) {
            segment_reader.skip(before, &mut read.findings);
        }
        let mut wanted = self.wanted.range(before + 1..).copied().peekable();
        if before == 0 {
            check_rows_below_one(connection, &mut read.findings)?;
        }
        // As bytes: SQLite would copy a text to append the terminating zero.
        let sql =
            "SELECT seq, CAST(line AS BLOB) FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
        let mut statement = connection.prepare(sql)?;
        let (mut last, end) = part.rows;
        let mut sealed = false;
        loop {
            let mut rows = statement.query((last, end, CHUNK_ROWS))?;
            let mut some = 0;
            while let Some(row) = rows.next()? {
                some += 1;
                last = row.get(0)?;
                let line = row.get_ref(1)?.as_bytes()?;
                let seq = last.unsigned_abs();
                let place = FindingLocation::Record(seq);
                let claims = if seq <= self.signed {
                    read.leaves.line(line);
                    let claims = verifier.feed_signed(&place, line, &mut read.findings);
                    claims.map(|claims| (claims.seq, claims.writer, claims.op))
                } else {
                    let (claims, leaf) = verifier.feed(&place, line, &mut read.findings);
                    read.leaves.leaf(leaf);
                    claims.map(|claims| (claims.seq, claims.writer.as_bytes(), claims.op.as_bytes()))
                };
                let claimed =
                    claims.map_or_else(|| LedgerLine::claimed_seq(line), |(claimed, ..)| Some(claimed));
                if let Some(claimed) = claimed.filter(|claimed| signed(*claimed) != last) {
                    let detail = format!("row {last} holds record {claimed}");
                    read.findings.fault(place, FindingKind::Reordered, detail);
                }
                if seq >= self.cursor.segment && seq <= self.cursor.seq {
                    read.written += line.len() as u64 + 1;
                }
                read.payloads.feed(seq, line);
                sealed = false;
                if let Some((_, writer, op)) = claims {
                    // Without a writer row the writer is unknown.
                    if writer != self.writer.as_bytes() && !self.writer.is_empty() {
                        let detail = format!("it was written by `{}`", String::from_utf8_lossy(writer));
                        read.findings.fault(FindingLocation::Record(seq), FindingKind::OtherLedger, detail);
                    }
                    let of_itself = matches!(op, b"checkpoint" | b"ledger.key" | b"recovery");
                    sealed = of_itself && segment_seal::is_seal(line);
                    if of_itself || decisions::is_relevant(op, line) {
                        read.special.push((seq, String::from_utf8_lossy(line).into_owned()));
                    }
                }
                while wanted.next_if(|size| *size < seq).is_some() {}
                if wanted.next_if_eq(&seq).is_some() {
                    read.leaves.finish_pending();
                    read.snapshots.push((seq, read.leaves.tree.clone(), verifier.head().hash));
                }
                segment_reader.compare(seq, line, &mut read.findings);
            }
            let _ = sender.send(ScanMessage::Records(some));
            if some == 0 {
                break;
            }
        }
        read.leaves.finish_pending();
        read.records = verifier.records();
        read.head = (read.records > 0).then(|| verifier.head());
        let written = if part.is_last { self.cursor.seq } else { u64::MAX };
        segment_reader.finish(written, &mut read.findings);
        if let Some((name, _)) = part.segment.filter(|_| !part.is_last && !sealed) {
            let detail = "another segment follows, but it does not end with its seal";
            read.findings.fault(FindingLocation::Segment(name, 1), FindingKind::Unsealed, detail);
        }
        Ok(read)
    }

    /// Joins the parts, starting at the record where verification began.
    fn join_parts(&self, began: ChainHead, parts: impl Iterator<Item = Box<PartResult>>) -> Scanned {
        let mut all = Scanned {
            records: 0,
            head: began,
            tree: self.start.clone(),
            snapshots: match began.seq {
                0 => Vec::new(),
                size => vec![(size, Some(self.start.clone()), began.hash)],
            },
            nodes: Vec::new(),
            written: 0,
            special: Vec::new(),
            payloads: PayloadChecker::after(self.start.size()),
            findings: Findings::default(),
        };
        for part in parts {
            all.records += part.records;
            all.written += part.written;
            all.nodes.extend(part.leaves.nodes);
            all.head = part.head.unwrap_or(all.head);
            for (size, leaves, hash) in part.snapshots {
                let mut tree = all.tree.clone();
                let whole = leaves.join(&mut tree) && tree.size() == size;
                all.snapshots.push((size, whole.then_some(tree), hash));
            }
            let nodes = &mut all.nodes;
            let joined = part.leaves.tree.join_with(&mut all.tree, |height, place, root| {
                if height >= MIN_STORED_HEIGHT {
                    nodes.push((height, place, root));
                }
            });
            if !joined {
                let detail = "records are missing, so there is no tree over the records after them";
                all.findings.note(FindingLocation::Tree, FindingKind::TreeDiffers, detail);
            }
            all.special.extend(part.special);
            all.payloads.absorb(part.payloads);
            all.findings.append(part.findings);
        }
        all.nodes.sort_unstable_by_key(|(height, place, _)| (*height, *place));
        all
    }
}

/// Rows with numbers that no record can have.
fn check_rows_below_one(connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM ledger WHERE seq < 1";
    let rows: i64 = connection.query_row(sql, (), |row| row.get(0))?;
    if rows > 0 {
        let detail = format!("{rows} rows have a number below that of the first record");
        findings.fault(FindingLocation::Record(0), FindingKind::Reordered, detail);
    }
    Ok(())
}

/// The head before a part, as that record claims.
fn claimed_head(connection: &Connection, seq: u64) -> rusqlite::Result<ChainHead> {
    if seq == 0 {
        return Ok(ChainHead::EMPTY);
    }
    let sql = "SELECT line FROM ledger WHERE seq = ?1";
    let line: Option<String> = connection.query_row(sql, [signed(seq)], |row| row.get(0)).optional()?;
    let hash = line.and_then(|line| LedgerLine::claimed_hash(line.as_bytes())).unwrap_or(Digest::ZERO);
    Ok(ChainHead { seq, hash })
}
