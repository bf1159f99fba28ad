//! A witness for ledgers, and its client (C2SP tlog-witness and tlog-cosignature, ed25519).
//!
//! An attacker who holds a log's key and its state directory can roll both back and continue from there; nothing in the
//! directory shows it. A witness on another machine stores the newest checkpoint of each log that it has signed, and signs
//! only checkpoints that provably extend it. **It never signs two checkpoints of one log that contradict each other**: check
//! and store happen under one lock, and the record is durable before the signature is sent.
//!
//! Server: `witness.rs` decides, `witness_dir.rs` stores, `server.rs` serves HTTP. Client: `client.rs` submits,
//! `http_client.rs` sends requests over http or https. `add_checkpoint.rs` is the request body. Not here: the log itself
//! ([`LogSource`] is what the client needs of it), TLS for the server (use a reverse proxy), a clock or randomness of its own.

mod add_checkpoint;
mod client;
mod http_client;
mod known_logs;
mod server;
mod witness;
mod witness_dir;

pub use add_checkpoint::{AddCheckpointRequest, BadAddCheckpoint, MAX_REQUEST_BYTES};
pub use client::{BadWitness, LogError, LogSource, SubmitOutcome, WitnessClient};
pub use known_logs::{BadLogList, KnownLogs};
pub use server::{OnAnswer, serve};
pub use witness::{Witness, WitnessAnswer};
pub use witness_dir::{SignedCheckpoint, WitnessDir, WitnessDirError};
