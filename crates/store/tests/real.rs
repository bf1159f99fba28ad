//! The store on a real disk with real processes: what is acknowledged is there, whoever is killed; what is
//! altered is found; what cannot be written is refused. One binary, which also starts itself as a child.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests: a fault ends them, and they own the folders and processes they make"
)]

#[path = "real/agreement.rs"]
mod agreement;
#[path = "real/attacks.rs"]
mod attacks;
#[path = "real/child.rs"]
mod child;
#[path = "real/conformance.rs"]
mod conformance;
#[path = "real/crash.rs"]
mod crash;
#[path = "real/decisions.rs"]
mod decisions;
#[path = "real/forge.rs"]
mod forge;
#[path = "real/full.rs"]
mod full;
#[path = "real/given.rs"]
mod given;
#[path = "real/live.rs"]
mod live;
#[path = "real/moves.rs"]
mod moves;
#[path = "real/payloads.rs"]
mod payloads;
#[path = "real/rollback.rs"]
mod rollback;
#[path = "real/segments.rs"]
mod segments;
#[path = "real/syncs.rs"]
mod syncs;
#[path = "real/tamper.rs"]
mod tamper;
#[path = "real/unusable.rs"]
mod unusable;
