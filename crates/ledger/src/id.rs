//! Re-exports the id types of `core`.

pub use vambrace_core::id::{BadId, Id};
