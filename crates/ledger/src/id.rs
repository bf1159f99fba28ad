//! Ids are the words of `core`.

pub use vambrace_core::id::{BadId, Id};
