//! What is signed and what is not. The order of the checks is that of C2SP tlog-witness; each has its status.
//!
//! INVARIANT: per origin, the memory of a [`Witness`] is what is on disk, and a signature leaves only after both
//! say so. The lock of the origin is held from the look at the size to the end of the storing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{Checkpoint, Digest, Frontier, Note, Signed, SigningKey, VerifyKey, is_consistent};

use crate::folder::{Claim, Folder, FolderError};
use crate::known::KnownLogs;
use crate::submission::Submission;

/// A witness.
pub struct Witness {
    key: SigningKey,
    claim: Claim,
    clock: Arc<dyn Clock>,
    origins: BTreeMap<String, Origin>,
    /// A sync failed: nothing is signed until somebody has looked and started anew.
    broken: AtomicBool,
}

/// A log that is signed for.
struct Origin {
    keys: Vec<VerifyKey>,
    last: Mutex<Last>,
}

/// The tree that was signed last; the empty one where none was.
#[derive(Clone, Copy)]
struct Last {
    size: u64,
    root: Digest,
}

/// What a witness answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// 200: the line of the signature.
    Cosigned(String),
    /// 400: not a submission.
    Malformed(String),
    /// 403: no signature of a key that this origin signs with.
    Unsigned,
    /// 404: an origin that nobody named.
    Unknown,
    /// 409: the last signed size is another.
    Conflict(u64),
    /// 409: the last signed size is this one, with another root. The log has two histories.
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
    /// 500: it could not be stored, so it is not signed.
    Failed(String),
}

impl Witness {
    /// A witness for these logs; every record is read, and a damaged one stops it.
    pub fn open(
        folder: Folder,
        key: SigningKey,
        logs: KnownLogs,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, FolderError> {
        let claim = folder.claim()?;
        let mut origins = BTreeMap::new();
        for (origin, keys) in logs.into_origins() {
            let last = Mutex::new(Last::of(claim.last(&origin, &key)?));
            origins.insert(origin, Origin { keys, last });
        }
        Ok(Self { key, claim, clock, origins, broken: AtomicBool::new(false) })
    }

    /// What others check its signatures with.
    #[must_use]
    pub fn verify_key(&self) -> VerifyKey {
        self.key.verify_key()
    }

    /// Looks at a body of `add-checkpoint`, and signs or refuses. Waits for the disk.
    #[must_use]
    pub fn add(&self, body: &[u8]) -> Answer {
        let submission = match Submission::parse(body) {
            Ok(submission) => submission,
            Err(bad) => return Answer::Malformed(bad.to_string()),
        };
        let Some(origin) = self.origins.get(&submission.checkpoint.origin) else { return Answer::Unknown };
        let signed = |key: &&VerifyKey| matches!(submission.note.signed_by(key), Signed::Yes(_));
        let Some(signer) = origin.keys.iter().find(signed) else { return Answer::Unsigned };
        if submission.old > submission.checkpoint.size {
            return Answer::Malformed("the old size is larger than the checkpoint's".to_owned());
        }
        self.decide(&submission, signer, &mut origin.last.lock())
    }

    /// Under the lock of the origin.
    fn decide(&self, submission: &Submission, signer: &VerifyKey, last: &mut Last) -> Answer {
        if self.broken.load(Ordering::Acquire) {
            return Answer::Failed("a sync failed earlier: start the witness anew".to_owned());
        }
        let Submission { old, proof, checkpoint, note } = submission;
        let new = Last { size: checkpoint.size, root: checkpoint.root };
        if *old != last.size {
            return Answer::Conflict(last.size);
        }
        let same = new.size == last.size;
        if same && new.root != last.root {
            return Answer::Forked { origin: checkpoint.origin.clone(), size: last.size };
        }
        if !is_consistent((last.size, last.root), (new.size, new.root), proof) {
            return Answer::Inconsistent { origin: checkpoint.origin.clone(), size: last.size };
        }
        // Only what counts is kept: others may have added signatures until the record could not be read again.
        let signed = note.clone().only(signer).cosign(&self.key, self.clock.now());
        if Note::parse(signed.to_string().as_bytes()).as_ref() != Ok(&signed) {
            return Answer::Malformed("the checkpoint is too long to be kept".to_owned());
        }
        // A tree that is signed again is on disk already.
        if !same {
            if let Err(error) = self.claim.keep(&checkpoint.origin, &signed) {
                // What cannot be synced may be on disk or not: no answer from memory is right any more.
                if matches!(error, FolderError::Sync { .. }) {
                    self.broken.store(true, Ordering::Release);
                }
                return Answer::Failed(error.to_string());
            }
            *last = new;
        }
        Answer::Cosigned(signed.last_line())
    }
}

impl Last {
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
