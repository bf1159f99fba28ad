//! Checkpoints, wherever they were found, against the tree of the records.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{Checkpoint, Digest, Findings, Kind, Line, Note, Place, Signed, Timestamp, VerifyKey};

use super::keyring::{Keyring, Said};
use super::scan::Scanned;
use crate::checkpoints::{self, CheckpointRow};
use crate::statements::signed;

/// A checkpoint, and where it was found.
#[derive(Debug)]
pub(super) struct Source {
    from: String,
    checkpoint: Checkpoint,
    note: Note,
}

impl Source {
    pub(super) fn row(row: &CheckpointRow, findings: &mut Findings) -> Option<Self> {
        let source = Self::text("table", row.note.as_bytes(), findings)?;
        if source.checkpoint.size != row.size {
            let detail = format!("the row of size {} holds the checkpoint of another size", row.size);
            findings.fault(source.place(), Kind::BadCheckpoint, detail);
        }
        Some(source)
    }

    pub(super) fn file(from: &str, path: &Path, findings: &mut Findings) -> Option<Self> {
        match checkpoints::read_file(path) {
            Ok(read) => read.map(|(checkpoint, note)| Self { from: from.to_owned(), checkpoint, note }),
            Err(why) => {
                findings.fault(Place::Checkpoint(from.to_owned(), 0), Kind::BadCheckpoint, why);
                None
            }
        }
    }

    pub(super) fn text(from: &str, text: &[u8], findings: &mut Findings) -> Option<Self> {
        match Checkpoint::parse(text) {
            Ok((checkpoint, note)) => Some(Self { from: from.to_owned(), checkpoint, note }),
            Err(error) => {
                let place = Place::Checkpoint(from.to_owned(), 0);
                findings.fault(place, Kind::BadCheckpoint, error.to_string());
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
        keys.iter().any(|key| matches!(self.note.signed_by(key), Signed::Yes(_)))
    }

    fn place(&self) -> Place {
        Place::Checkpoint(self.from.clone(), self.checkpoint.size)
    }
}

/// What the checkpoints are held against.
pub(super) struct Evidence<'a> {
    pub(super) writer: &'a str,
    pub(super) keyring: &'a Keyring,
    pub(super) scanned: &'a Scanned,
    /// How many records there were when the checkpoints were read; a running store seals more meanwhile.
    pub(super) upto: u64,
    /// How many records the largest good checkpoint covers.
    pub(super) anchored: u64,
}

impl Evidence<'_> {
    /// Checks them all, and the seals of the segments; returns how many were too old to be checked.
    pub(super) fn check(
        &mut self,
        sources: &[Source],
        rows: &[CheckpointRow],
        start: u64,
        findings: &mut Findings,
    ) -> u64 {
        let mut skipped = 0;
        for source in sources {
            if source.size() < start {
                skipped += 1;
            } else if self.holds(source, start, findings) {
                self.anchored = self.anchored.max(source.size());
            }
        }
        let mut seals = BTreeSet::new();
        for (seq, line) in self.scanned.special.iter().filter(|(seq, _)| *seq <= self.upto) {
            seals.extend(self.special(*seq, line, sources, start, findings));
        }
        let marked: BTreeSet<u64> = rows.iter().filter(|row| row.sealed).map(|row| row.size).collect();
        for size in marked.symmetric_difference(&seals).filter(|size| **size >= start) {
            let place = Place::Checkpoint("table".to_owned(), *size);
            findings.fault(
                place,
                Kind::BadCheckpoint,
                "the mark that a segment was sealed with it is not right",
            );
        }
        skipped
    }

    fn holds(&self, source: &Source, start: u64, findings: &mut Findings) -> bool {
        let Checkpoint { origin, size, root } = &source.checkpoint;
        let mut fault = |kind, detail: String| {
            findings.fault(source.place(), kind, detail);
            false
        };
        if *origin != format!("vambrace/{}", self.writer) {
            return fault(
                Kind::OtherLedger,
                format!("it is one of `{origin}`, this is `vambrace/{}`", self.writer),
            );
        }
        match self.keyring.signed(&source.note, *size) {
            Signed::Yes(_) => {}
            Signed::Wrong => {
                return fault(Kind::WrongSignature, "its signature is not right".to_owned());
            }
            Signed::Missing => {
                let detail = "it is not signed by the key that counted then".to_owned();
                return fault(Kind::Unsigned, detail);
            }
        }
        if *size > self.scanned.head.seq {
            let detail = format!(
                "it covers {size} records, there are {}: the ledger was cut or set back",
                self.scanned.head.seq
            );
            return fault(Kind::ShorterThanCheckpoint, detail);
        }
        if *size == start && start > 0 {
            // Where the check began: its root was compared there.
            return true;
        }
        match self.scanned.tree_at(*size) {
            Some(tree) if tree.root() == *root => true,
            _ => fault(Kind::WrongRoot, format!("the first {size} records do not have its root")),
        }
    }

    /// A record of the ledger about itself: a seal must repeat a checkpoint that is kept, whose size is returned.
    fn special(
        &self,
        seq: u64,
        line: &str,
        sources: &[Source],
        start: u64,
        findings: &mut Findings,
    ) -> Option<u64> {
        let said = Said::read(line)?;
        if said.is("rollback.acknowledged") {
            let detail = "somebody said to go on although the ledger was set back or rewritten before this";
            findings.note(Place::Record(seq), Kind::Rollback, detail);
        }
        if !said.is("segment.seal") {
            return None;
        }
        let note = said.note.and_then(|note| Some((Checkpoint::of(&note).ok()?, note)));
        let Some((checkpoint, note)) = note else {
            findings.fault(Place::Record(seq), Kind::BadCheckpoint, "the seal has no checkpoint");
            return None;
        };
        let repeats = Some((checkpoint.size, checkpoint.root)) == said.tree
            && (checkpoint.size < start || sources.iter().any(|source| source.note.text() == note.text()));
        let source = Source { from: format!("seal in record {seq}"), checkpoint, note };
        if !repeats || source.size() >= seq {
            let detail = "the seal names a checkpoint that is kept nowhere";
            findings.fault(source.place(), Kind::BadCheckpoint, detail);
        } else if source.size() >= start {
            self.holds(&source, start, findings);
        }
        Some(source.size())
    }

    /// What no checkpoint covers.
    pub(super) fn tail(
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
        let since = line.as_ref().and_then(|line| Line::read(line.as_bytes()).ok().map(|line| line.ts));
        let since = since.and_then(|ts| Timestamp::parse(ts).ok());
        let place = Place::Record(from);
        let detail = format!("records {from} to {to} are covered by no checkpoint");
        if since.is_some_and(is_young) {
            findings.note(place, Kind::UnanchoredTail, format!("{detail} yet"));
        } else {
            let detail = format!("{detail}; after a crash, `vambrace audit checkpoint` signs them");
            findings.fault(place, Kind::UnanchoredTail, detail);
        }
        Ok(())
    }
}
