//! The records, read once: by segment, on several cores. Each part is checked on its own from the hash that the
//! record before it claims, which the part before checks; trees of the parts are put behind each other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{
    BUNCH_HEIGHT, Digest, Findings, Frontier, Head, Kind, Line, Place, SegmentName, Stretch, Verifier, leaf,
    leaves,
};

use super::payloads::Payloads;
use super::{Progress, decisions, open};
use crate::disk::DiskSegments;
use crate::error::StoreError;
use crate::mirror::Mirror;
use crate::projection::Cursor;
use crate::seal;
use crate::state_dir::StateDir;
use crate::statements::signed;
use crate::tree::{KEPT_FROM, Node};

/// Rows are read in pieces, so that no long read keeps the log of a running store from starting over.
const PIECE: i64 = 4096;

/// In the units of SQLite, where less than zero means KiB.
const CACHE_KIB: i64 = -512;

/// So many leaves are put into the tree together.
const GATHERED: usize = 256;

const _: () = assert!(KEPT_FROM > BUNCH_HEIGHT, "subtrees that are kept must be told of");

/// What to read.
pub(super) struct Scan<'a> {
    pub(super) dir: &'a StateDir,
    pub(super) segments: &'a [(SegmentName, u64)],
    /// Whose ledger it is.
    pub(super) writer: &'a str,
    pub(super) cursor: Cursor,
    /// Records of this tree are passed over.
    pub(super) start: Frontier,
    /// Sizes at which the tree is wanted.
    pub(super) wanted: BTreeSet<u64>,
    pub(super) total: u64,
    /// Up to here the leaves alone are hashed, because a signature is to vouch for the rest.
    pub(super) signed: u64,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) records: u64,
    pub(super) head: Head,
    pub(super) tree: Frontier,
    /// The tree (none where records are missing) and the hash of the last record, at the sizes that were wanted.
    moments: Vec<(u64, Option<Frontier>, Digest)>,
    /// Roots of subtrees that the table keeps.
    pub(super) nodes: Vec<Node>,
    /// How many bytes the records from the cursor's segment up to the cursor are long.
    pub(super) written: u64,
    /// Records of the ledger about itself.
    pub(super) special: Vec<(u64, String)>,
    pub(super) payloads: Payloads,
    pub(super) findings: Findings,
}

impl Scanned {
    pub(super) fn tree_at(&self, size: u64) -> Option<Frontier> {
        if size == 0 {
            return Some(Frontier::new());
        }
        self.moment(size).and_then(|(_, tree, _)| tree.clone())
    }

    pub(super) fn hash_at(&self, size: u64) -> Option<Digest> {
        self.moment(size).map(|(_, _, hash)| *hash)
    }

    fn moment(&self, size: u64) -> Option<&(u64, Option<Frontier>, Digest)> {
        let at = self.moments.binary_search_by_key(&size, |(size, ..)| *size).ok()?;
        self.moments.get(at)
    }
}

/// The rows of one segment, or of the end of the table.
struct Part {
    /// Behind this record, up to that one.
    rows: (i64, i64),
    segment: Option<(SegmentName, u64)>,
    is_last: bool,
}

/// What was read of a part.
struct Read {
    records: u64,
    head: Option<Head>,
    leaves: Leaves,
    moments: Vec<(u64, Stretch, Digest)>,
    written: u64,
    special: Vec<(u64, String)>,
    payloads: Payloads,
    findings: Findings,
}

/// The leaves of a part. Two lines are hashed at a time and some leaves put together at once, which is faster.
struct Leaves {
    stretch: Stretch,
    /// Leaves that are not in the stretch yet.
    fresh: Vec<Digest>,
    /// Roots of subtrees that the table keeps.
    nodes: Vec<Node>,
    /// A line that waits for the next one.
    held: Vec<u8>,
    holds: bool,
}

impl Leaves {
    fn behind(before: u64) -> Self {
        Self {
            stretch: Stretch::starting(before),
            fresh: Vec::new(),
            nodes: Vec::new(),
            held: Vec::new(),
            holds: false,
        }
    }

    fn line(&mut self, line: &[u8]) {
        if self.holds {
            let (first, second) = leaves(&self.held, line);
            self.holds = false;
            self.fresh.push(first);
            self.push(second);
        } else {
            self.held.clear();
            self.held.extend_from_slice(line);
            self.holds = true;
        }
    }

    /// Takes a leaf that is known already.
    fn leaf(&mut self, leaf: Digest) {
        self.hash_held();
        self.push(leaf);
    }

    fn push(&mut self, leaf: Digest) {
        self.fresh.push(leaf);
        if self.fresh.len() >= GATHERED {
            self.gather();
        }
    }

    /// Nothing waits any more.
    fn settle(&mut self) {
        self.hash_held();
        self.gather();
    }

    fn hash_held(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.push(leaf(&self.held));
        }
    }

    fn gather(&mut self) {
        self.stretch.extend_telling(&self.fresh, |height, place, root| {
            if height >= KEPT_FROM {
                self.nodes.push((height, place, root));
            }
        });
        self.fresh.clear();
    }
}

enum Told {
    Records(u64),
    Part(usize, Result<Box<Read>, StoreError>),
}

impl Scan<'_> {
    /// Reads everything and puts it together.
    pub(super) fn run(&self, jobs: usize, progress: &mut dyn FnMut(Progress)) -> Result<Scanned, StoreError> {
        let parts = self.parts();
        let next = AtomicUsize::new(0);
        let mut done: Vec<Option<Box<Read>>> = parts.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            for _ in 0..jobs.clamp(1, parts.len()) {
                let (tell, parts, next) = (tell.clone(), &parts, &next);
                scope.spawn(move || self.work(parts, next, &tell));
            }
            drop(tell);
            let mut records = 0;
            for told in told {
                match told {
                    Told::Records(more) => {
                        records += more;
                        progress(Progress { records, total: self.total });
                    }
                    Told::Part(number, read) => {
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
        Ok(self.together(began?, done.into_iter().flatten()))
    }

    fn parts(&self) -> Vec<Part> {
        let start = signed(self.start.size());
        let first = start;
        let mut parts = Vec::new();
        let mut from = first;
        for (number, (name, size)) in self.segments.iter().enumerate() {
            let next = self.segments.get(number + 1).map(|(name, _)| signed(name.first_seq()) - 1);
            let to = next.unwrap_or(i64::MAX);
            if to > from || next.is_none() {
                let is_last = next.is_none();
                parts.push(Part { rows: (from, to.max(from)), segment: Some((*name, *size)), is_last });
                from = to.max(from);
            }
        }
        if parts.is_empty() {
            parts.push(Part { rows: (first, i64::MAX), segment: None, is_last: true });
        }
        parts
    }

    fn work(&self, parts: &[Part], next: &AtomicUsize, tell: &Sender<Told>) {
        let connection = open(self.dir).inspect(|connection| {
            // A page is read once, so only as many are kept as stay in the processor's own memory.
            let _ = connection.pragma_update(None, "cache_size", CACHE_KIB);
        });
        while let Some((number, part)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            parts.get(number).map(|part| (number, part))
        } {
            let read = connection.as_ref().map_err(Clone::clone).and_then(|connection| {
                self.part(connection, part, tell)
                    .map(Box::new)
                    .map_err(|error| StoreError::sqlite(&self.dir.database(), &error))
            });
            if tell.send(Told::Part(number, read)).is_err() {
                return;
            }
        }
    }

    fn part(&self, connection: &Connection, part: &Part, tell: &Sender<Told>) -> rusqlite::Result<Read> {
        let files = DiskSegments::new(&self.dir.ledger());
        let mut mirror = Mirror::new(&files, part.segment.into_iter().collect());
        let before = u64::try_from(part.rows.0).unwrap_or(0);
        let mut verifier = Verifier::after(claimed_head(connection, before)?);
        let mut read = Read {
            records: 0,
            head: None,
            leaves: Leaves::behind(before),
            moments: Vec::new(),
            written: 0,
            special: Vec::new(),
            payloads: Payloads::behind(before),
            findings: Findings::default(),
        };
        // Only where the check begins in the middle of a segment. What stands before the first record of any other
        // does not belong there.
        if part.segment.is_some_and(|(name, _)| name.first_seq() <= before) {
            mirror.skip(before, &mut read.findings);
        }
        let mut wanted = self.wanted.range(before + 1..).copied().peekable();
        if before == 0 {
            below(connection, &mut read.findings)?;
        }
        // As bytes: a text would be copied to get the zero behind it that C wants.
        let sql =
            "SELECT seq, CAST(line AS BLOB) FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
        let mut statement = connection.prepare(sql)?;
        let (mut last, end) = part.rows;
        let mut sealed = false;
        loop {
            let mut rows = statement.query((last, end, PIECE))?;
            let mut some = 0;
            while let Some(row) = rows.next()? {
                some += 1;
                last = row.get(0)?;
                let line = row.get_ref(1)?.as_bytes()?;
                let seq = last.unsigned_abs();
                let place = Place::Record(seq);
                let said = if seq <= self.signed {
                    read.leaves.line(line);
                    let said = verifier.feed_signed(&place, line, &mut read.findings);
                    said.map(|said| (said.seq, said.writer, said.op))
                } else {
                    let (said, leaf) = verifier.feed(&place, line, &mut read.findings);
                    read.leaves.leaf(leaf);
                    said.map(|said| (said.seq, said.writer.as_bytes(), said.op.as_bytes()))
                };
                let claimed = said.map_or_else(|| Line::claimed_seq(line), |(claimed, ..)| Some(claimed));
                if let Some(claimed) = claimed.filter(|claimed| signed(*claimed) != last) {
                    let detail = format!("row {last} holds record {claimed}");
                    read.findings.fault(place, Kind::Reordered, detail);
                }
                if seq >= self.cursor.segment && seq <= self.cursor.seq {
                    read.written += line.len() as u64 + 1;
                }
                read.payloads.feed(seq, line);
                sealed = false;
                if let Some((_, writer, op)) = said {
                    // Without a writer row nobody knows whose it is.
                    if writer != self.writer.as_bytes() && !self.writer.is_empty() {
                        let detail = format!("it was written by `{}`", String::from_utf8_lossy(writer));
                        read.findings.fault(Place::Record(seq), Kind::OtherLedger, detail);
                    }
                    let of_itself = matches!(op, b"checkpoint" | b"ledger.key" | b"recovery");
                    sealed = of_itself && seal::is_seal(line);
                    if of_itself || decisions::concerns(op, line) {
                        read.special.push((seq, String::from_utf8_lossy(line).into_owned()));
                    }
                }
                while wanted.next_if(|size| *size < seq).is_some() {}
                if wanted.next_if_eq(&seq).is_some() {
                    read.leaves.settle();
                    read.moments.push((seq, read.leaves.stretch.clone(), verifier.head().hash));
                }
                mirror.compare(seq, line, &mut read.findings);
            }
            let _ = tell.send(Told::Records(some));
            if some == 0 {
                break;
            }
        }
        read.leaves.settle();
        read.records = verifier.records();
        read.head = (read.records > 0).then(|| verifier.head());
        let written = if part.is_last { self.cursor.seq } else { u64::MAX };
        mirror.finish(written, &mut read.findings);
        if let Some((name, _)) = part.segment.filter(|_| !part.is_last && !sealed) {
            let detail = "it is followed by another and does not end with its seal";
            read.findings.fault(Place::Segment(name, 1), Kind::Unsealed, detail);
        }
        Ok(read)
    }

    /// Puts the parts behind the record where the check began.
    fn together(&self, began: Head, parts: impl Iterator<Item = Box<Read>>) -> Scanned {
        let mut all = Scanned {
            records: 0,
            head: began,
            tree: self.start.clone(),
            moments: match began.seq {
                0 => Vec::new(),
                size => vec![(size, Some(self.start.clone()), began.hash)],
            },
            nodes: Vec::new(),
            written: 0,
            special: Vec::new(),
            payloads: Payloads::behind(self.start.size()),
            findings: Findings::default(),
        };
        for part in parts {
            all.records += part.records;
            all.written += part.written;
            all.nodes.extend(part.leaves.nodes);
            all.head = part.head.unwrap_or(all.head);
            for (size, leaves, hash) in part.moments {
                let mut tree = all.tree.clone();
                let whole = leaves.join(&mut tree) && tree.size() == size;
                all.moments.push((size, whole.then_some(tree), hash));
            }
            let nodes = &mut all.nodes;
            let joined = part.leaves.stretch.join_telling(&mut all.tree, |height, place, root| {
                if height >= KEPT_FROM {
                    nodes.push((height, place, root));
                }
            });
            if !joined {
                let detail = "records are missing, so there is no tree over what follows";
                all.findings.note(Place::Tree, Kind::TreeDiffers, detail);
            }
            all.special.extend(part.special);
            all.payloads.absorb(part.payloads);
            all.findings.append(part.findings);
        }
        all.nodes.sort_unstable_by_key(|(height, place, _)| (*height, *place));
        all
    }
}

/// Rows where no record can be.
fn below(connection: &Connection, findings: &mut Findings) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM ledger WHERE seq < 1";
    let rows: i64 = connection.query_row(sql, (), |row| row.get(0))?;
    if rows > 0 {
        let detail = format!("{rows} rows stand before the first record");
        findings.fault(Place::Record(0), Kind::Reordered, detail);
    }
    Ok(())
}

/// The record before a part, as it claims to be.
fn claimed_head(connection: &Connection, seq: u64) -> rusqlite::Result<Head> {
    if seq == 0 {
        return Ok(Head::EMPTY);
    }
    let sql = "SELECT line FROM ledger WHERE seq = ?1";
    let line: Option<String> = connection.query_row(sql, [signed(seq)], |row| row.get(0)).optional()?;
    let hash = line.and_then(|line| Line::claimed_hash(line.as_bytes())).unwrap_or(Digest::ZERO);
    Ok(Head { seq, hash })
}
