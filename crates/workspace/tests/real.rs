//! The workspace on a real kernel: scope, symlinks and hard links, races, mounts, unusual names, hostile patterns. Every
//! test has a directory tree of its own and asserts what was denied as well as what was returned.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests create their own directory trees and report what they skip"
)]

#[path = "real/child_process.rs"]
mod child_process;
#[path = "real/fixtures.rs"]
mod fixtures;
#[path = "real/harness.rs"]
mod harness;

#[path = "real/applying.rs"]
mod applying;
#[path = "real/crash.rs"]
mod crash;
#[path = "real/diffing.rs"]
mod diffing;
#[path = "real/editing.rs"]
mod editing;
#[path = "real/links.rs"]
mod links;
#[path = "real/listing.rs"]
mod listing;
#[path = "real/mounts.rs"]
mod mounts;
#[path = "real/patterns.rs"]
mod patterns;
#[path = "real/races.rs"]
mod races;
#[path = "real/reading.rs"]
mod reading;
#[path = "real/scope.rs"]
mod scope;
#[path = "real/searching.rs"]
mod searching;
