//! Exports against golden files, and against readers that know nothing of the converters.
//!
//! `VAMBRACE_BLESS=1 cargo nextest run -p vambrace-ledger --test export` writes the files anew; look at the difference.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: a fault ends them, and they read their own files"
)]

#[path = "export/cef.rs"]
mod cef;
#[path = "export/given.rs"]
mod given;
#[path = "export/golden.rs"]
mod golden;
#[path = "export/ocsf.rs"]
mod ocsf;
#[path = "export/otlp.rs"]
mod otlp;
