//! The witness and its client with real folders, real connections and hostile other ends.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests: a fault ends them, and they own the folders and connections they make"
)]

#[path = "real/asking.rs"]
mod asking;
#[path = "real/attacks.rs"]
mod attacks;
#[path = "real/given.rs"]
mod given;
#[path = "real/hostile.rs"]
mod hostile;
#[path = "real/protocol.rs"]
mod protocol;
#[path = "real/storing.rs"]
mod storing;
