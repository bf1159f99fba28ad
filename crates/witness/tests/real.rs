//! The witness and its client with real directories, real connections and hostile peers.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and own the directories and connections that they create"
)]

#[path = "real/attacks.rs"]
mod attacks;
#[path = "real/client.rs"]
mod client;
#[path = "real/fixtures.rs"]
mod fixtures;
#[path = "real/hostile_witness.rs"]
mod hostile_witness;
#[path = "real/protocol.rs"]
mod protocol;
#[path = "real/witness_dir.rs"]
mod witness_dir;
