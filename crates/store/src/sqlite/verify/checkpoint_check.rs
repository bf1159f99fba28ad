//! Verifies every checkpoint that was found against the tree of the records.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{
    Checkpoint, Digest, FindingKind, FindingLocation, Findings, LedgerLine, SignatureStatus, SignedNote,
    Timestamp, VerifyKey,
};

use super::keyring::{Keyring, SelfRecord};
use super::scan::Scanned;
use crate::checkpoints::{self, CheckpointRow};
use crate::sqlite::rows::signed;

/// A checkpoint, and where it was found.
#[derive(Debug)]
pub(super) struct FoundCheckpoint {
    from: String,
    checkpoint: Checkpoint,
    note: SignedNote,
}

impl FoundCheckpoint {
    pub(super) fn row(row: &CheckpointRow, findings: &mut Findings) -> Option<Self> {
        let source = Self::text("table", row.note.as_bytes(), findings)?;
        if source.checkpoint.size != row.size {
            let detail = format!("the row of size {} holds a checkpoint of another size", row.size);
            findings.fault(source.place(), FindingKind::BadCheckpoint, detail);
        }
        Some(source)
    }

    pub(super) fn file(from: &str, path: &Path, findings: &mut Findings) -> Option<Self> {
        match checkpoints::read_file(path) {
            Ok(read) => read.map(|(checkpoint, note)| Self { from: from.to_owned(), checkpoint, note }),
            Err(why) => {
                findings.fault(
                    FindingLocation::Checkpoint(from.to_owned(), 0),
                    FindingKind::BadCheckpoint,
                    why,
                );
                None
            }
        }
    }

    pub(super) fn text(from: &str, text: &[u8], findings: &mut Findings) -> Option<Self> {
        match Checkpoint::parse(text) {
            Ok((checkpoint, note)) => Some(Self { from: from.to_owned(), checkpoint, note }),
            Err(error) => {
                let place = FindingLocation::Checkpoint(from.to_owned(), 0);
                findings.fault(place, FindingKind::BadCheckpoint, error.to_string());
                None
            }
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.checkpoint.size
    }

    pub(super) fn root(&self) -> Digest {
        self.checkpoint.root
    }

    pub(super) fn is_signed_by_any(&self, keys: &[VerifyKey]) -> bool {
        keys.iter().any(|key| matches!(self.note.signed_by(key), SignatureStatus::Valid(_)))
    }

    fn place(&self) -> FindingLocation {
        FindingLocation::Checkpoint(self.from.clone(), self.checkpoint.size)
    }
}

/// What the checkpoints are verified against.
pub(super) struct CheckpointCheck<'a> {
    pub(super) writer: &'a str,
    pub(super) keyring: &'a Keyring,
    pub(super) scanned: &'a Scanned,
    /// How many records there were when the checkpoints were read; a running store seals more meanwhile.
    pub(super) upto: u64,
    /// How many records the largest valid checkpoint covers.
    pub(super) anchored: u64,
}

impl CheckpointCheck<'_> {
    /// Verifies all checkpoints, and the seals of the segments; returns how many were too old.
    pub(super) fn check(
        &mut self,
        sources: &[FoundCheckpoint],
        rows: &[CheckpointRow],
        start: u64,
        findings: &mut Findings,
    ) -> u64 {
        let mut skipped = 0;
        for source in sources {
            if source.size() < start {
                skipped += 1;
            } else if self.check_one(source, start, findings) {
                self.anchored = self.anchored.max(source.size());
            }
        }
        let mut seals = BTreeSet::new();
        for (seq, line) in self.scanned.special.iter().filter(|(seq, _)| *seq <= self.upto) {
            seals.extend(self.check_self_record(*seq, line, sources, start, findings));
        }
        let marked: BTreeSet<u64> = rows.iter().filter(|row| row.sealed).map(|row| row.size).collect();
        for size in marked.symmetric_difference(&seals).filter(|size| **size >= start) {
            let place = FindingLocation::Checkpoint("table".to_owned(), *size);
            findings.fault(place, FindingKind::BadCheckpoint, "the mark for a sealed segment is wrong");
        }
        skipped
    }

    fn check_one(&self, source: &FoundCheckpoint, start: u64, findings: &mut Findings) -> bool {
        let Checkpoint { origin, size, root } = &source.checkpoint;
        let mut fault = |kind, detail: String| {
            findings.fault(source.place(), kind, detail);
            false
        };
        if *origin != format!("vambrace/{}", self.writer) {
            return fault(
                FindingKind::OtherLedger,
                format!("it belongs to `{origin}`, this ledger is `vambrace/{}`", self.writer),
            );
        }
        match self.keyring.signed(&source.note, *size) {
            SignatureStatus::Valid(_) => {}
            SignatureStatus::Invalid => {
                return fault(FindingKind::WrongSignature, "its signature is invalid".to_owned());
            }
            SignatureStatus::Missing => {
                let detail = "it is not signed by the key that was valid then".to_owned();
                return fault(FindingKind::Unsigned, detail);
            }
        }
        if *size > self.scanned.head.seq {
            let detail = format!(
                "it covers {size} records, but there are {}: the ledger was truncated or rolled back",
                self.scanned.head.seq
            );
            return fault(FindingKind::ShorterThanCheckpoint, detail);
        }
        if *size == start && start > 0 {
            // Verification began here and compared this root.
            return true;
        }
        match self.scanned.tree_at(*size) {
            Some(tree) if tree.root() == *root => true,
            _ => fault(FindingKind::WrongRoot, format!("the first {size} records do not have its root")),
        }
    }

    /// Checks a record of the ledger about itself: a seal must repeat a stored checkpoint, whose size is
    /// returned.
    fn check_self_record(
        &self,
        seq: u64,
        line: &str,
        sources: &[FoundCheckpoint],
        start: u64,
        findings: &mut Findings,
    ) -> Option<u64> {
        let record = SelfRecord::read(line)?;
        if record.is("rollback.acknowledged") {
            let detail =
                "a user acknowledged that the ledger was rolled back or rewritten before this record";
            findings.note(FindingLocation::Record(seq), FindingKind::Rollback, detail);
        }
        if !record.is("segment.seal") {
            return None;
        }
        let note = record.note.and_then(|note| Some((Checkpoint::of(&note).ok()?, note)));
        let Some((checkpoint, note)) = note else {
            findings.fault(
                FindingLocation::Record(seq),
                FindingKind::BadCheckpoint,
                "the seal has no checkpoint",
            );
            return None;
        };
        let repeats = Some((checkpoint.size, checkpoint.root)) == record.tree
            && (checkpoint.size < start || sources.iter().any(|source| source.note.text() == note.text()));
        let source = FoundCheckpoint { from: format!("seal in record {seq}"), checkpoint, note };
        if !repeats || source.size() >= seq {
            let detail = "the seal names a checkpoint that is stored nowhere";
            findings.fault(source.place(), FindingKind::BadCheckpoint, detail);
        } else if source.size() >= start {
            self.check_one(&source, start, findings);
        }
        Some(source.size())
    }

    /// Reports records that no checkpoint covers.
    pub(super) fn check_uncovered_tail(
        &self,
        is_young: &dyn Fn(Timestamp) -> bool,
        connection: &Connection,
        findings: &mut Findings,
    ) -> rusqlite::Result<()> {
        let (from, to) = (self.anchored + 1, self.scanned.head.seq);
        if from > to {
            return Ok(());
        }
        let sql = "SELECT line FROM ledger WHERE seq = ?1";
        let line: Option<String> = connection.query_row(sql, [signed(from)], |row| row.get(0)).optional()?;
        let since = line.as_ref().and_then(|line| LedgerLine::read(line.as_bytes()).ok().map(|line| line.ts));
        let since = since.and_then(|ts| Timestamp::parse(ts).ok());
        let place = FindingLocation::Record(from);
        let detail = format!("records {from} to {to} are not covered by a checkpoint");
        if since.is_some_and(is_young) {
            findings.note(place, FindingKind::UnanchoredTail, format!("{detail} yet"));
        } else {
            let detail = format!("{detail}; after a crash, `vambrace audit checkpoint` signs them");
            findings.fault(place, FindingKind::UnanchoredTail, detail);
        }
        Ok(())
    }
}
