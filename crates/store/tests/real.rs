//! The store on a real disk with real processes: what is acknowledged is there, whoever is killed; what is
//! altered is found; what cannot be written is refused. One binary, which also starts itself as a child.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: a fault ends them, and they own the folders and processes they make"
)]

#[path = "real/child.rs"]
mod child;
#[path = "real/conformance.rs"]
mod conformance;
#[path = "real/crash.rs"]
mod crash;
#[path = "real/decisions.rs"]
mod decisions;
#[path = "real/given.rs"]
mod given;
#[path = "real/segments.rs"]
mod segments;
#[path = "real/tamper.rs"]
mod tamper;
#[path = "real/unusable.rs"]
mod unusable;
