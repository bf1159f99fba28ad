//! A witness of ledgers, and the client that asks one (C2SP tlog-witness and tlog-cosignature, ed25519).
//!
//! Whoever holds a log's key and its folder can roll both back and go on from there; nothing inside the folder
//! shows it. A witness keeps, elsewhere, the newest checkpoint of each log that it has signed, and signs only
//! what provably continues it. **It never signs two checkpoints of one log that contradict each other**: the
//! check and the storing happen under one lock, and the storing is on disk before the signature leaves.
//!
//! `witness.rs` decides, `folder.rs` keeps, `serve.rs` speaks HTTP; `client.rs` asks, `exchange.rs` carries the
//! question over http or https. Not here: the log itself ([`Log`] is what the client needs of it), TLS for the
//! server (a reverse proxy's work), any clock or chance of its own.

mod client;
mod exchange;
mod folder;
mod known;
mod serve;
mod submission;
mod witness;

pub use client::{BadWitness, Client, Log, LogFault, Outcome};
pub use folder::{Folder, FolderError, Seen};
pub use known::{BadLogs, KnownLogs};
pub use serve::{Told, serve};
pub use submission::{BadSubmission, MAX_BYTES, Submission};
pub use witness::{Answer, Witness};
