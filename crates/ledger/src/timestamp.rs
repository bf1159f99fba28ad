//! Timestamps are the words of `core`.

pub use vambrace_core::timestamp::{BadTimestamp, Timestamp};
