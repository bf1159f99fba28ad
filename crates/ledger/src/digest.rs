//! Re-exports the digest types of `core`.

pub use vambrace_core::digest::{BadDigest, Digest};
