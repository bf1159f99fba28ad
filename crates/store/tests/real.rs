//! The store on a real disk with real processes: acknowledged records survive every kill; changed data is
//! found; an unusable directory is rejected. One binary, which also starts itself as a child.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and own the directories and processes they create"
)]

#[path = "real/attacks.rs"]
mod attacks;
#[path = "real/backends.rs"]
mod backends;
#[path = "real/child_process.rs"]
mod child_process;
#[path = "real/conformance.rs"]
mod conformance;
#[path = "real/crash.rs"]
mod crash;
#[path = "real/deciders.rs"]
mod deciders;
#[path = "real/decisions.rs"]
mod decisions;
#[path = "real/failed_sync.rs"]
mod failed_sync;
#[path = "real/fixtures.rs"]
mod fixtures;
#[path = "real/forge.rs"]
mod forge;
#[path = "real/full_disk.rs"]
mod full_disk;
#[path = "real/independent_verifier.rs"]
mod independent_verifier;
#[path = "real/mutations.rs"]
mod mutations;
#[path = "real/owners.rs"]
mod owners;
#[path = "real/payloads.rs"]
mod payloads;
#[path = "real/rollback.rs"]
mod rollback;
#[path = "real/segments.rs"]
mod segments;
#[path = "real/tamper.rs"]
mod tamper;
#[path = "real/unusable_state_dir.rs"]
mod unusable_state_dir;
#[path = "real/verify_scope.rs"]
mod verify_scope;
