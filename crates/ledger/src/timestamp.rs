//! Re-exports the timestamp types of `core`.

pub use vambrace_core::timestamp::{BadTimestamp, Timestamp};
