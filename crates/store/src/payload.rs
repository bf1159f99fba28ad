//! Payloads beside the chain: stored in the transaction of their record, checked against the commitment in its
//! line when read, deleted permanently on request. The line says which payloads exist; the table only holds the
//! bytes.

use vambrace_ledger::{
    Digest, Entry, ForgottenPayload, NamedPayload, Op, RecordStatus, RedactedText, Salt, Timestamp,
    commitment,
};

use crate::batch::StateChange;
use crate::record_id::RecordId;

/// A payload and its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadRow {
    /// The record that it belongs to.
    pub record: RecordId,
    /// Time of that record.
    pub ts: Timestamp,
    /// What its line says about the payload.
    pub named: NamedPayload,
    /// Whether it is stored.
    pub state: PayloadState,
}

/// Whether a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadState {
    /// It is stored.
    Present,
    /// It is not.
    Absent,
}

impl PayloadRow {
    /// What deletes it: the record of who deleted it, and the deletion, for one batch.
    #[must_use]
    pub fn forget(&self, ts: Timestamp, by: RedactedText) -> (Entry, StateChange) {
        let mut entry = Entry::new(Op::PayloadForgotten, ts);
        entry.status = Some(RecordStatus::Success);
        entry.user = Some(by);
        entry.forgotten = Some(ForgottenPayload { seq: self.record.seq, commitment: self.named.commitment });
        (entry, StateChange::ForgetPayload { record: self.record.clone(), field: self.named.field.clone() })
    }
}

/// Whether a stored payload matches the recorded commitment.
pub(crate) fn matches_commitment(salt: &[u8], content: &[u8], said: Digest) -> bool {
    Salt::try_from(salt).is_ok_and(|salt| commitment(&salt, content) == said)
}
