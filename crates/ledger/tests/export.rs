//! Exports against golden files, and against parsers that share no code with the converters.
//!
//! `VAMBRACE_BLESS=1 cargo nextest run -p vambrace-ledger --test export` rewrites the golden files; review the diff.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests panic on errors and read their own files"
)]

#[path = "export/cef.rs"]
mod cef;
#[path = "export/fixtures.rs"]
mod fixtures;
#[path = "export/golden.rs"]
mod golden;
#[path = "export/ocsf.rs"]
mod ocsf;
#[path = "export/otlp.rs"]
mod otlp;
