//! Decides which checkpoints are signed. The order of the checks and their status codes are those of C2SP tlog-witness.
//!
//! INVARIANT: per origin, the in-memory state of a [`Witness`] equals the record on disk, and a signature is sent only after
//! both are updated. The origin's lock is held from the comparison of the sizes until the record is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{
    Checkpoint, Digest, Frontier, SignatureStatus, SignedNote, SigningKey, VerifyKey, is_consistent,
};

use crate::add_checkpoint::AddCheckpointRequest;
use crate::known_logs::KnownLogs;
use crate::witness_dir::{LockedWitnessDir, WitnessDir, WitnessDirError};

/// A witness.
pub struct Witness {
    key: SigningKey,
    dir: LockedWitnessDir,
    clock: Arc<dyn Clock>,
    origins: BTreeMap<String, OriginState>,
    /// A sync failed: nothing is signed until the witness is restarted.
    broken: AtomicBool,
}

/// A log that the witness signs for.
struct OriginState {
    keys: Vec<VerifyKey>,
    last: Mutex<SignedTree>,
}

/// The tree that was signed last; the empty tree if none was.
#[derive(Clone, Copy)]
struct SignedTree {
    size: u64,
    root: Digest,
}

/// The answer of a witness, with its HTTP status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessAnswer {
    /// 200: the signature line.
    Cosigned(String),
    /// 400: not a valid request.
    Malformed(String),
    /// 403: no valid signature of a key of this origin.
    Unsigned,
    /// 404: the origin is not configured.
    UnknownOrigin,
    /// 409: the last signed size is this one, not the request's old size.
    Conflict(u64),
    /// 409: a checkpoint of the same size with another root was signed. The log has two histories.
    Forked {
        /// Which log.
        origin: String,
        /// The size.
        size: u64,
    },
    /// 422: the proof does not show that the log only grew.
    Inconsistent {
        /// Which log.
        origin: String,
        /// The size that was signed last.
        size: u64,
    },
    /// 500: the checkpoint could not be stored, so it is not signed.
    Failed(String),
}

impl Witness {
    /// A witness for these logs. Reads the record of each; a damaged one is an error.
    pub fn open(
        dir: WitnessDir,
        key: SigningKey,
        logs: KnownLogs,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WitnessDirError> {
        let dir = dir.lock()?;
        let mut origins = BTreeMap::new();
        for (origin, keys) in logs.into_origins() {
            let last = Mutex::new(SignedTree::of(dir.last_checkpoint(&origin, &key)?));
            origins.insert(origin, OriginState { keys, last });
        }
        Ok(Self { key, dir, clock, origins, broken: AtomicBool::new(false) })
    }

    /// The key that verifies its signatures.
    #[must_use]
    pub fn verify_key(&self) -> VerifyKey {
        self.key.verify_key()
    }

    /// Handles the body of an `add-checkpoint` request. Blocks on disk I/O.
    #[must_use]
    pub fn add_checkpoint(&self, body: &[u8]) -> WitnessAnswer {
        let request = match AddCheckpointRequest::parse(body) {
            Ok(request) => request,
            Err(bad) => return WitnessAnswer::Malformed(bad.to_string()),
        };
        let Some(origin) = self.origins.get(&request.checkpoint.origin) else {
            return WitnessAnswer::UnknownOrigin;
        };
        let signed = |key: &&VerifyKey| matches!(request.note.signed_by(key), SignatureStatus::Valid(_));
        let Some(signer) = origin.keys.iter().find(signed) else { return WitnessAnswer::Unsigned };
        if request.old_size > request.checkpoint.size {
            return WitnessAnswer::Malformed("the old size is larger than the checkpoint's".to_owned());
        }
        self.decide(&request, signer, &mut origin.last.lock())
    }

    /// Called with the origin's lock held.
    fn decide(
        &self,
        request: &AddCheckpointRequest,
        signer: &VerifyKey,
        last: &mut SignedTree,
    ) -> WitnessAnswer {
        if self.broken.load(Ordering::Acquire) {
            return WitnessAnswer::Failed("an earlier sync failed: restart the witness".to_owned());
        }
        let AddCheckpointRequest { old_size: old, proof, checkpoint, note } = request;
        let new = SignedTree { size: checkpoint.size, root: checkpoint.root };
        if *old != last.size {
            return WitnessAnswer::Conflict(last.size);
        }
        let same = new.size == last.size;
        if same && new.root != last.root {
            return WitnessAnswer::Forked { origin: checkpoint.origin.clone(), size: last.size };
        }
        if !is_consistent((last.size, last.root), (new.size, new.root), proof) {
            return WitnessAnswer::Inconsistent { origin: checkpoint.origin.clone(), size: last.size };
        }
        // Other signatures are dropped: an attacker could add so many that the record cannot be parsed again.
        let signed = note.clone().only(signer).cosign(&self.key, self.clock.now());
        if SignedNote::parse(signed.to_string().as_bytes()).as_ref() != Ok(&signed) {
            return WitnessAnswer::Malformed("the checkpoint is too long to be stored".to_owned());
        }
        // A tree that is signed again is stored already.
        if !same {
            if let Err(error) = self.dir.store(&checkpoint.origin, &signed) {
                // After a failed sync the record may be on disk or not: the in-memory state cannot be trusted any more.
                if matches!(error, WitnessDirError::Sync { .. }) {
                    self.broken.store(true, Ordering::Release);
                }
                return WitnessAnswer::Failed(error.to_string());
            }
            *last = new;
        }
        WitnessAnswer::Cosigned(signed.last_line())
    }
}

impl SignedTree {
    fn of(checkpoint: Option<Checkpoint>) -> Self {
        match checkpoint {
            Some(checkpoint) => Self { size: checkpoint.size, root: checkpoint.root },
            None => Self { size: 0, root: Frontier::new().root() },
        }
    }
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("key", &self.key.verify_key().to_string()).finish_non_exhaustive()
    }
}
