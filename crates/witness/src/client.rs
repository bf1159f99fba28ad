//! The client of a witness: submits the log's newest checkpoint for a cosignature and interprets the response. A witness that
//! has signed a longer or a different log reveals that the state directory was rolled back.
//!
//! Only a signature is proof. Everything else in a response (a size, a rejection) can report a problem, never rule one out. A
//! signature must also be recent: otherwise an attacker on the path could replay an old response to a rolled-back log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{BadCheckpoint, Checkpoint, Digest, KeyKind, SignatureStatus, SignedNote, VerifyKey};

use crate::add_checkpoint::AddCheckpointRequest;
use crate::http_client::{WitnessEndpoint, WitnessResponse};

/// Timeout for all HTTP requests of one submission together.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum difference between the clocks of witness and log.
const MAX_CLOCK_SKEW_SECONDS: u64 = 300;
/// Retries are needed because other processes may submit for the same log at the same time.
const MAX_TRIES: usize = 4;

/// What the client needs of a log. A returned checkpoint must be durable and visible to every process of the log before it is
/// sent to a witness; otherwise another honest process looks like a rollback.
pub trait LogSource {
    /// The newest signed checkpoint; `None` if nothing was signed yet.
    fn checkpoint(&self) -> Result<Option<SignedNote>, LogError>;

    /// The consistency proof between two sizes.
    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogError>;
}

/// The log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The log has no checkpoint. A log that may have been emptied signs one first, of size zero if necessary.
    NoCheckpoint,
    /// The witness signed.
    Cosigned {
        /// What it signed.
        checkpoint: Checkpoint,
        /// The verified signature line, to be stored with the checkpoint.
        line: String,
        /// Time of the signature, in seconds since 1970.
        at: u64,
    },
    /// The witness has signed a different log: longer, or with different content. The state was rolled back or rewritten, or
    /// the key is used by two logs.
    Rollback {
        /// The size that the witness has signed.
        witness_size: u64,
        /// The size of this log.
        size: u64,
    },
    /// The witness answered without a valid signature: it does not know this log or key, or it is not the configured witness.
    Rejected(String),
    /// No response.
    Unreachable(String),
}

/// An invalid witness configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWitness {
    /// The URL is invalid.
    #[error("`{0}` is not the URL of a witness: expected `https://host/path` or `http://host:port`")]
    Url(String),
    /// The key is not a witness key.
    #[error("`{0}` is the key of a log, not of a witness")]
    Key(String),
    /// https without trusted certificates.
    #[error("this machine has no trusted certificates: {0}")]
    Certificates(String),
}

/// The client of one witness. Calls block, and work from any thread.
pub struct WitnessClient {
    endpoint: Arc<WitnessEndpoint>,
    key: VerifyKey,
    clock: Arc<dyn Clock>,
    /// The size that the witness signed last, as far as this client knows.
    acknowledged: Mutex<u64>,
}

impl WitnessClient {
    /// A client for a witness with this URL and key. Sends nothing yet.
    pub fn new(url: &str, key: VerifyKey, clock: Arc<dyn Clock>) -> Result<Self, BadWitness> {
        Self::over(WitnessEndpoint::new(url)?, key, clock)
    }

    /// The same, with these trusted certificates (DER) instead of the machine's.
    pub fn trusting(
        url: &str,
        key: VerifyKey,
        clock: Arc<dyn Clock>,
        certificates: Vec<Vec<u8>>,
    ) -> Result<Self, BadWitness> {
        Self::over(WitnessEndpoint::trusting(url, certificates)?, key, clock)
    }

    fn over(endpoint: WitnessEndpoint, key: VerifyKey, clock: Arc<dyn Clock>) -> Result<Self, BadWitness> {
        if key.kind() != KeyKind::Witness {
            return Err(BadWitness::Key(key.to_string()));
        }
        Ok(Self { endpoint: Arc::new(endpoint), key, clock, acknowledged: Mutex::new(0) })
    }

    /// The key that signatures are verified with.
    #[must_use]
    pub fn key(&self) -> &VerifyKey {
        &self.key
    }

    /// Sets the acknowledged size from a stored signature. A hint only: it saves a round trip.
    pub fn set_acknowledged(&self, size: u64) {
        *self.acknowledged.lock() = size;
    }

    /// Submits the newest checkpoint with the consistency proof from the size that the witness has. Takes at most about two
    /// seconds, plus the time for the log's proofs.
    pub fn submit(&self, log: &dyn LogSource) -> Result<SubmitOutcome, LogError> {
        let mut left = SUBMIT_TIMEOUT;
        let mut reported = None;
        for _ in 0..MAX_TRIES {
            // Read again in each try: another process of this log may have signed and submitted more in the meantime.
            let Some(note) = log.checkpoint()? else { return Ok(SubmitOutcome::NoCheckpoint) };
            let size = Checkpoint::of(&note).map_err(log_error)?.size;
            let old = match reported {
                Some(witness_size) if witness_size > size => {
                    return Ok(SubmitOutcome::Rollback { witness_size, size });
                }
                Some(reported) => reported,
                None => Some(*self.acknowledged.lock()).filter(|known| *known <= size).unwrap_or_default(),
            };
            let proof = if old == 0 || old == size { Vec::new() } else { log.consistency(old, size)? };
            let request = AddCheckpointRequest::new(old, proof, note).map_err(log_error)?;
            let reply = match WitnessEndpoint::post(&self.endpoint, request.to_string(), &mut left) {
                Ok(reply) => reply,
                Err(why) => return Ok(SubmitOutcome::Unreachable(why)),
            };
            match (reply.status, reply.size()) {
                (200, _) => return Ok(self.find_signature(request, &reply)),
                (409, Some(theirs)) if theirs != old => reported = Some(theirs),
                (409, Some(_)) if old == size => {
                    return Ok(SubmitOutcome::Rollback { witness_size: old, size });
                }
                (422, _) if old > 0 => return Ok(SubmitOutcome::Rollback { witness_size: old, size }),
                _ => return Ok(SubmitOutcome::Rejected(reply.to_string())),
            }
        }
        Ok(SubmitOutcome::Unreachable("the witness keeps returning different sizes".to_owned()))
    }

    /// Finds the witness's signature of the submitted checkpoint; other signatures are ignored.
    fn find_signature(&self, request: AddCheckpointRequest, reply: &WitnessResponse) -> SubmitOutcome {
        let AddCheckpointRequest { checkpoint, note, .. } = request;
        let now = self.clock.now().millis().unsigned_abs() / 1000;
        for line in reply.text().lines() {
            let Ok(seen) = SignedNote::new(note.text()).and_then(|text| text.add_lines(line)) else {
                continue;
            };
            let SignatureStatus::Valid(Some(at)) = seen.signed_by(&self.key) else { continue };
            if at.abs_diff(now) > MAX_CLOCK_SKEW_SECONDS {
                let seconds = at.abs_diff(now);
                return SubmitOutcome::Rejected(format!(
                    "its signature differs from the local clock by {seconds} s: a replayed response, or a wrong clock"
                ));
            }
            *self.acknowledged.lock() = checkpoint.size;
            return SubmitOutcome::Cosigned { checkpoint, line: seen.last_line(), at };
        }
        SubmitOutcome::Rejected("its response has no valid signature of the configured key".to_owned())
    }
}

fn log_error(bad: BadCheckpoint) -> LogError {
    LogError(bad.to_string())
}

impl std::fmt::Debug for WitnessClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WitnessClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
