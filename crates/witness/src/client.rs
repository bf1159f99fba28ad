//! Asking a witness to sign our newest checkpoint, and understanding its answer. A witness that has seen more of
//! our log than we have, or another one, is how a rolled-back state folder is found.
//!
//! Only a signature is proof. Everything else a witness says (a size, a refusal) is believed to our own
//! disadvantage only: it can stop us, never reassure us. A signature must also be fresh, or somebody on the way
//! could answer a rolled-back log with what the witness said then.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{BadCheckpoint, Checkpoint, Digest, KeyKind, Note, Signed, VerifyKey};

use crate::exchange::{Endpoint, Reply};
use crate::submission::Submission;

/// For all exchanges of one submission together.
const PATIENCE: Duration = Duration::from_secs(2);
/// By how much the clocks of witness and log may differ.
const SKEW_SECONDS: u64 = 300;
/// Others may submit for the same log at the same time.
const TRIES: usize = 4;

/// What the client needs of a log. A checkpoint that is handed out must be durable, and seen by every process of
/// the log, before a witness hears of it; else an honest neighbour looks like a rollback.
pub trait Log {
    /// The newest signed checkpoint; none where nothing was signed yet.
    fn checkpoint(&self) -> Result<Option<Note>, LogFault>;

    /// The proof from one size to another.
    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogFault>;
}

/// The log itself could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogFault(pub String);

/// What came of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is no checkpoint to show. A log that may have been emptied signs one first, of size zero if need be.
    Nothing,
    /// The witness signed.
    Cosigned {
        /// What it signed.
        checkpoint: Checkpoint,
        /// The line of its signature, checked, to be kept beside the checkpoint.
        line: String,
        /// When it signed, in seconds since 1970.
        at: u64,
    },
    /// The witness has seen another log than ours: longer, or with another content. The state was rolled back,
    /// or rewritten, or its key is used twice.
    Rollback {
        /// The size that the witness has signed.
        witness_size: u64,
        /// The size that we have.
        size: u64,
    },
    /// It answered, but does not sign for us: it does not know our log or key, or is none of ours.
    Refused(String),
    /// No answer.
    Unreachable(String),
}

/// A witness that cannot be asked as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWitness {
    /// The address.
    #[error("`{0}` is not the address of a witness: expected `https://host/path` or `http://host:port`")]
    Url(String),
    /// The key.
    #[error("`{0}` is the key of a log, not of a witness")]
    Key(String),
    /// https without anybody to trust.
    #[error("no certificates are trusted on this machine: {0}")]
    Certificates(String),
}

/// A witness as its log sees it. Plain blocking calls, from any thread.
pub struct Client {
    endpoint: Arc<Endpoint>,
    key: VerifyKey,
    clock: Arc<dyn Clock>,
    /// The size that the witness signed last, as far as we know.
    acknowledged: Mutex<u64>,
}

impl Client {
    /// A witness by its address and key. Nothing is sent yet.
    pub fn new(url: &str, key: VerifyKey, clock: Arc<dyn Clock>) -> Result<Self, BadWitness> {
        Self::over(Endpoint::new(url)?, key, clock)
    }

    /// The same, trusting these certificates (DER) instead of the machine's.
    pub fn trusting(
        url: &str,
        key: VerifyKey,
        clock: Arc<dyn Clock>,
        certificates: Vec<Vec<u8>>,
    ) -> Result<Self, BadWitness> {
        Self::over(Endpoint::trusting(url, certificates)?, key, clock)
    }

    fn over(endpoint: Endpoint, key: VerifyKey, clock: Arc<dyn Clock>) -> Result<Self, BadWitness> {
        if key.kind() != KeyKind::Witness {
            return Err(BadWitness::Key(key.to_string()));
        }
        Ok(Self { endpoint: Arc::new(endpoint), key, clock, acknowledged: Mutex::new(0) })
    }

    /// Whose signatures it takes.
    #[must_use]
    pub fn key(&self) -> &VerifyKey {
        &self.key
    }

    /// Takes up what was acknowledged before, from a kept signature; saves a question, and is no more than a hint.
    pub fn recall(&self, size: u64) {
        *self.acknowledged.lock() = size;
    }

    /// Sends the newest checkpoint with the proof from what the witness has. Takes about two seconds at most,
    /// besides what the log takes for its proofs.
    pub fn submit(&self, log: &dyn Log) -> Result<Outcome, LogFault> {
        let mut left = PATIENCE;
        let mut told = None;
        for _ in 0..TRIES {
            // Anew each time: another process of this log may have signed and sent more in the meantime.
            let Some(note) = log.checkpoint()? else { return Ok(Outcome::Nothing) };
            let size = Checkpoint::of(&note).map_err(log_fault)?.size;
            let old = match told {
                Some(witness_size) if witness_size > size => {
                    return Ok(Outcome::Rollback { witness_size, size });
                }
                Some(told) => told,
                None => Some(*self.acknowledged.lock()).filter(|known| *known <= size).unwrap_or_default(),
            };
            let proof = if old == 0 || old == size { Vec::new() } else { log.consistency(old, size)? };
            let submission = Submission::new(old, proof, note).map_err(log_fault)?;
            let reply = match Endpoint::post(&self.endpoint, submission.to_string(), &mut left) {
                Ok(reply) => reply,
                Err(why) => return Ok(Outcome::Unreachable(why)),
            };
            match (reply.status, reply.size()) {
                (200, _) => return Ok(self.signed(submission, &reply)),
                (409, Some(theirs)) if theirs != old => told = Some(theirs),
                (409, Some(_)) if old == size => return Ok(Outcome::Rollback { witness_size: old, size }),
                (422, _) if old > 0 => return Ok(Outcome::Rollback { witness_size: old, size }),
                _ => return Ok(Outcome::Refused(reply.to_string())),
            }
        }
        Ok(Outcome::Unreachable("the witness keeps naming other sizes".to_owned()))
    }

    /// Looks for our witness's signature of what we sent; signatures of others are passed over.
    fn signed(&self, submission: Submission, reply: &Reply) -> Outcome {
        let Submission { checkpoint, note, .. } = submission;
        let now = self.clock.now().millis().unsigned_abs() / 1000;
        for line in reply.text().lines() {
            let Ok(seen) = Note::new(note.text()).and_then(|text| text.add_lines(line)) else { continue };
            let Signed::Yes(Some(at)) = seen.signed_by(&self.key) else { continue };
            if at.abs_diff(now) > SKEW_SECONDS {
                let seconds = at.abs_diff(now);
                return Outcome::Refused(format!(
                    "its signature is {seconds} s away from our clock: an old answer, or a clock that is wrong"
                ));
            }
            *self.acknowledged.lock() = checkpoint.size;
            return Outcome::Cosigned { checkpoint, line: seen.last_line(), at };
        }
        Outcome::Refused("its answer has no valid signature of the configured key".to_owned())
    }
}

fn log_fault(bad: BadCheckpoint) -> LogFault {
    LogFault(bad.to_string())
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
