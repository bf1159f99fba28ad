//! What verification reports: where, of which kind, and a description.

use std::fmt;

use crate::segment::SegmentName;
use crate::word_enum;

/// Maximum number of findings to keep; further ones are only counted.
const MAX_KEPT: usize = 1000;

word_enum! {
    /// The kind of a finding.
    pub enum FindingKind {
        /// Not a ledger line.
        Malformed = "malformed",
        /// A line version that this program does not know.
        UnknownVersion = "unknown_version",
        /// The content does not have the hash that the line states.
        WrongHash = "wrong_hash",
        /// The line does not name the hash of the line before.
        BrokenLink = "broken_link",
        /// Records are missing.
        Gap = "gap",
        /// The same record twice.
        Duplicate = "duplicate",
        /// A record at the wrong place.
        Reordered = "reordered",
        /// The row that names the ledger's writer is missing.
        WriterMissing = "writer_missing",
        /// A record is older than the one before.
        ClockWentBack = "clock_went_back",
        /// A segment differs from the table.
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
        /// A checkpoint cannot be parsed.
        BadCheckpoint = "bad_checkpoint",
        /// The ledger's key did not sign a checkpoint.
        Unsigned = "unsigned",
        /// A checkpoint has an invalid signature.
        WrongSignature = "wrong_signature",
        /// The records do not have the root that a checkpoint states.
        WrongRoot = "wrong_root",
        /// There are fewer records than a checkpoint states.
        ShorterThanCheckpoint = "shorter_than_checkpoint",
        /// A checkpoint of another ledger.
        OtherLedger = "other_ledger",
        /// Records after the last checkpoint are old enough to need a new one.
        UnanchoredTail = "unanchored_tail",
        /// The ledger's key is not the one that its records name.
        WrongKey = "wrong_key",
        /// A key change without the signatures of both keys.
        BadHandover = "bad_handover",
        /// A decision that no valid approver key signed, or that differs from its record.
        BadDecision = "bad_decision",
        /// A new approver key, without the signature of the one before.
        NewApprover = "new_approver",
        /// A person acknowledged that the ledger was rolled back.
        Rollback = "rollback",
        /// The stored tree does not match the records.
        TreeDiffers = "tree_differs",
        /// The database cannot be read.
        DatabaseDamaged = "database_damaged",
        /// A payload does not match its commitment.
        PayloadDiffers = "payload_differs",
        /// A payload is missing, and no record says that it was forgotten.
        PayloadMissing = "payload_missing",
        /// A payload that no record names, or that was forgotten.
        PayloadUnknown = "payload_unknown",
    }
}

/// Where something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingLocation {
    /// A record of the table.
    Record(u64),
    /// A line of a segment, counted from one.
    Segment(SegmentName, u64),
    /// The row that names the ledger's writer.
    Writer,
    /// A checkpoint: its source, and its size.
    Checkpoint(String, u64),
    /// The key of the ledger.
    Key,
    /// The stored tree.
    Tree,
    /// The database as a whole.
    Database,
}

impl fmt::Display for FindingLocation {
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

/// One problem, or one fact worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub location: FindingLocation,
    /// Of which kind.
    pub kind: FindingKind,
    /// One line that describes it.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.location, self.detail, self.kind)
    }
}

/// What was found, in order. Faults mean that the ledger is not what was written. Notes are worth knowing and occur in
/// honest use: a clock that was set back, a torn tail that a crash left and the next start repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    faults: Vec<Finding>,
    notes: Vec<Finding>,
    count: u64,
}

impl Findings {
    /// Adds a fault.
    pub fn fault(&mut self, place: FindingLocation, kind: FindingKind, detail: impl Into<String>) {
        self.count += 1;
        if self.faults.len() < MAX_KEPT {
            self.faults.push(Finding { location: place, kind, detail: detail.into() });
        }
    }

    /// Adds a note.
    pub fn note(&mut self, place: FindingLocation, kind: FindingKind, detail: impl Into<String>) {
        if self.notes.len() < MAX_KEPT {
            self.notes.push(Finding { location: place, kind, detail: detail.into() });
        }
    }

    /// The first thousand faults.
    #[must_use]
    pub fn faults(&self) -> &[Finding] {
        &self.faults
    }

    /// The first thousand notes.
    #[must_use]
    pub fn notes(&self) -> &[Finding] {
        &self.notes
    }

    /// Appends the findings of another check.
    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.faults.extend(other.faults);
        self.notes.extend(other.notes);
        self.faults.truncate(MAX_KEPT);
        self.notes.truncate(MAX_KEPT);
    }

    /// Number of faults, including those that were not kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there are no faults.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.count == 0
    }
}
