//! Administration of the ledger: its keys, checkpoints, proofs and payloads, and how far the background work has come.
//! Checkpoints and proofs are about the chain that the store appends to ([`crate::Store::writer`]). Calls may block for
//! seconds, so a caller on a runtime uses a blocking thread.

use vambrace_ledger::{Digest, VerifyKey};

use crate::checkpoints::CheckpointRow;
use crate::error::StoreError;
use crate::payload::PayloadRow;
use crate::record_id::RecordId;
use crate::witness::WitnessReply;

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Transactions.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Syncs of the WAL.
    pub syncs: u64,
}

/// Administration of the ledger.
pub trait LedgerAdmin: Send + Sync {
    /// Waits until every committed record is in a segment and covered by a signed checkpoint.
    fn catch_up(&self) -> Result<(), StoreError>;

    /// Rotates the ledger key and returns the new one.
    fn rotate_key(&self) -> Result<VerifyKey, StoreError>;

    /// Every key that has signed checkpoints, oldest first.
    fn ledger_keys(&self) -> Result<Vec<VerifyKey>, StoreError>;

    /// The newest checkpoint.
    fn newest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError>;

    /// The checkpoint of exactly this size, if it is stored.
    fn checkpoint_of(&self, size: u64) -> Result<Option<CheckpointRow>, StoreError>;

    /// The root over the first `size` records.
    fn root_at(&self, size: u64) -> Result<Digest, StoreError>;

    /// The hashes that prove that a record is among the first `size`.
    fn inclusion_proof(&self, record: &RecordId, size: u64) -> Result<Vec<Digest>, StoreError>;

    /// The hashes that prove that the first `old` records are a prefix of the first `new`.
    fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError>;

    /// The payloads that a record names, stored or not.
    fn payloads_of(&self, record: &RecordId) -> Result<Vec<PayloadRow>, StoreError>;

    /// Every stored payload, oldest first.
    fn stored_payloads(&self) -> Result<Vec<PayloadRow>, StoreError>;

    /// The bytes of a payload, or an error if they are not what was recorded.
    fn payload(&self, row: &PayloadRow) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes deleted bytes from the log of the database. `false` if a reader of an older state keeps them.
    fn truncate_log(&self) -> Result<bool, StoreError>;

    /// Last reply of the witness; `None` if no witness is configured.
    fn witness_reply(&self) -> Option<WitnessReply>;

    /// Why the segments are not up to date, if they are not. Calls go on regardless.
    fn segment_error(&self) -> Option<String>;

    /// What the store has done since it was opened.
    fn counters(&self) -> StoreCounters;
}
