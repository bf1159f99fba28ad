//! Digests are the words of `core`.

pub use vambrace_core::digest::{BadDigest, Digest};
