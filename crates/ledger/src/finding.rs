//! What a check found: where, of which kind, and in words.

use std::fmt;

use crate::segment::SegmentName;
use crate::words;

/// Findings past this number are counted and not kept.
const MOST: usize = 1000;

words! {
    /// The kind of a finding.
    pub enum Kind {
        /// Not a ledger line.
        Malformed = "malformed",
        /// A line version that is not known here.
        UnknownVersion = "unknown_version",
        /// The content does not have the hash that the line says.
        WrongHash = "wrong_hash",
        /// The line does not name the hash of the one before.
        BrokenLink = "broken_link",
        /// Records are missing in between.
        Gap = "gap",
        /// The same record twice.
        Duplicate = "duplicate",
        /// A record that belongs elsewhere.
        Reordered = "reordered",
        /// Nobody knows whose records these are.
        WriterMissing = "writer_missing",
        /// The time of a record is before that of its predecessor.
        ClockWentBack = "clock_went_back",
        /// A segment does not say what the table says.
        SegmentDiffers = "segment_differs",
        /// A segment lacks records that were written to it.
        SegmentShort = "segment_short",
        /// A segment is missing.
        SegmentMissing = "segment_missing",
        /// A segment holds records that the table lacks.
        ExtraLines = "extra_lines",
        /// A segment ends in the middle of a line, as after a crash.
        TornTail = "torn_tail",
        /// A segment does not end with its seal.
        Unsealed = "unsealed",
        /// A checkpoint cannot be read.
        BadCheckpoint = "bad_checkpoint",
        /// A checkpoint is not signed by the key of the ledger.
        Unsigned = "unsigned",
        /// A checkpoint carries a signature that is not right.
        WrongSignature = "wrong_signature",
        /// The records do not have the root that a checkpoint says.
        WrongRoot = "wrong_root",
        /// There are fewer records than a checkpoint says.
        ShorterThanCheckpoint = "shorter_than_checkpoint",
        /// A checkpoint of another ledger.
        OtherLedger = "other_ledger",
        /// Records behind the last checkpoint, older than one should be.
        UnanchoredTail = "unanchored_tail",
        /// The key of the ledger is not the one that its records name.
        WrongKey = "wrong_key",
        /// A key took over without the signatures of both.
        BadHandover = "bad_handover",
        /// A decision that nobody signed who could decide, or that says something else than its record.
        BadDecision = "bad_decision",
        /// Another key decides from here on, without the signature of the one before.
        NewApprover = "new_approver",
        /// Somebody acknowledged that the ledger was set back.
        Rollback = "rollback",
        /// What is kept of the tree is not what the records give.
        TreeDiffers = "tree_differs",
        /// The database cannot be read.
        DatabaseDamaged = "database_damaged",
        /// A payload is not the one that its record commits to.
        PayloadDiffers = "payload_differs",
        /// A payload is missing, and nobody has forgotten it.
        PayloadMissing = "payload_missing",
        /// A payload that no record names, or that was forgotten.
        PayloadUnknown = "payload_unknown",
    }
}

/// Where something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A record of the table.
    Record(u64),
    /// A line of a segment, counted from one.
    Segment(SegmentName, u64),
    /// Who writes.
    Writer,
    /// A checkpoint: where it was found, and its size.
    Checkpoint(String, u64),
    /// The key of the ledger.
    Key,
    /// What is kept of the tree.
    Tree,
    /// The database as a whole.
    Database,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(seq) => write!(f, "record {seq}"),
            Self::Segment(name, line) => write!(f, "segment {name} line {line}"),
            Self::Writer => f.write_str("writer row"),
            Self::Checkpoint(from, size) => write!(f, "checkpoint at {size} ({from})"),
            Self::Key => f.write_str("key"),
            Self::Tree => f.write_str("tree"),
            Self::Database => f.write_str("database"),
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// Of which kind.
    pub kind: Kind,
    /// In words, one line.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.place, self.detail, self.kind)
    }
}

/// What was found, in order. Faults mean that the ledger is not what was written; notes are worth knowing
/// and happen in honest use: a clock that was set back, a tail that a crash left and the next start repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    faults: Vec<Finding>,
    notes: Vec<Finding>,
    count: u64,
}

impl Findings {
    /// Adds a fault.
    pub fn fault(&mut self, place: Place, kind: Kind, detail: impl Into<String>) {
        self.count += 1;
        if self.faults.len() < MOST {
            self.faults.push(Finding { place, kind, detail: detail.into() });
        }
    }

    /// Adds a note.
    pub fn note(&mut self, place: Place, kind: Kind, detail: impl Into<String>) {
        if self.notes.len() < MOST {
            self.notes.push(Finding { place, kind, detail: detail.into() });
        }
    }

    /// The faults, the first thousand of them.
    #[must_use]
    pub fn faults(&self) -> &[Finding] {
        &self.faults
    }

    /// The notes, the first thousand of them.
    #[must_use]
    pub fn notes(&self) -> &[Finding] {
        &self.notes
    }

    /// Adds what another check found behind ours.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.faults.extend(other.faults);
        self.notes.extend(other.notes);
        self.faults.truncate(MOST);
        self.notes.truncate(MOST);
    }

    /// How many faults there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no fault.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count == 0
    }
}
