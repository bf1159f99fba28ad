//! Vocabulary and decisions of Vambrace. No input or output, no clock, no randomness: the same input gives
//! the same verdict, so everything here can be tested as a table or a property.

pub mod block;
pub mod error;
pub mod path;
pub mod redacted;

pub use error::{CallError, ErrorCode};
