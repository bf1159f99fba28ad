//! A witness: another party that signs our checkpoints and remembers how far we were. Which party that is, and
//! how it is reached, is not known here. A witness that has signed more than we have proves that the directory
//! was rolled back.

use std::time::{Duration, Instant};

use vambrace_ledger::{Digest, SignedNote};

use crate::error::StoreError;

/// Delay before the witness is asked again after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// What a witness sees of a ledger.
pub trait LedgerView {
    /// The newest checkpoint, if there is one.
    fn checkpoint(&self) -> Result<Option<SignedNote>, StoreError>;
    /// The proof that the first `old` records are a prefix of the first `new`.
    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError>;
}

/// The reply of a witness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessReply {
    /// It signed; its signature line.
    Signed(String),
    /// It has signed a ledger of this size that ours does not continue.
    RolledBack(u64),
    /// No usable reply, and why.
    Inconclusive(String),
}

/// Signs checkpoints. Takes a few seconds at most.
pub trait CheckpointWitness: Send + Sync {
    /// Submits the newest checkpoint.
    fn submit(&self, ledger: &dyn LedgerView) -> WitnessReply;
}

/// When to ask the witness again.
#[derive(Debug, Default)]
pub(crate) struct WitnessSchedule {
    not_before: Option<Instant>,
}

impl WitnessSchedule {
    pub(crate) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    pub(crate) fn update(&mut self, reply: &WitnessReply) {
        let failed = matches!(reply, WitnessReply::Inconclusive(_));
        self.not_before = failed.then(|| Instant::now() + RETRY_DELAY);
    }
}
