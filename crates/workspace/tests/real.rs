//! The workspace against a real kernel: scope, links, races, mounts, odd names, hostile patterns. Every test
//! has a tree of its own and asserts what was denied as well as what was given.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "tests: they make the trees they look at, and say loudly what they skip"
)]

#[path = "real/bench.rs"]
mod bench;
#[path = "real/child.rs"]
mod child;
#[path = "real/tree.rs"]
mod tree;

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
