//! What to verify in a ledger, and what a verification reports.

use std::path::PathBuf;

use vambrace_ledger::{ChainHead, Digest, Findings, Timestamp, VerifyKey};

/// Progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Records that were checked.
    pub records: u64,
    /// Records in the table.
    pub total: u64,
}

/// What to verify, and against what.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Only records after the last checkpoint before this time.
    pub since: Option<Timestamp>,
    /// Checkpoints that were kept elsewhere: name and text.
    pub checkpoints: Vec<(String, Vec<u8>)>,
    /// A key that is known from elsewhere to belong to this ledger.
    pub key: Option<VerifyKey>,
    /// Directory of the anchors, outside the state directory.
    pub anchors: Option<PathBuf>,
    /// Number of threads.
    pub jobs: usize,
    /// Whether every record is hashed on its own as well, even where a signed root covers it.
    pub thorough: bool,
    /// Current time.
    pub now: Timestamp,
}

impl VerifyOptions {
    /// Everything in the directory, with one thread.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { since: None, checkpoints: Vec::new(), key: None, anchors: None, jobs: 1, thorough: false, now }
    }
}

/// The result of a verification.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// How many records were checked.
    pub records: u64,
    /// Records that were skipped because of `since`; their checkpoint was verified.
    pub skipped: u64,
    /// How many segments there are.
    pub segments: u64,
    /// How many checkpoints were checked.
    pub checkpoints: u64,
    /// How many records the largest valid checkpoint covers.
    pub anchored: u64,
    /// Faults and notes.
    pub findings: Findings,
    /// The newest record of the chain.
    pub head: ChainHead,
    /// The root over all records.
    pub root: Digest,
    /// Whether the table could be read; if not, the segments were verified on their own.
    pub table_read: bool,
    /// What could not be verified, for people.
    pub unchecked: Vec<String>,
}
