//! The hash-chained record: what one record says, how it becomes a line, how lines are checked.
//!
//! A line is hashed as the bytes that are written, so any language verifies it without canonical JSON:
//! `event_hash` is the SHA-256 of the line up to `,"event_hash"`, and `prev_hash` is the `event_hash` of the
//! line before (64 zeros for the first). What is too large for a line is committed to by it (`payload.rs`); `export.rs`
//! has the line in the words of other systems. Everything here is pure: no file, no database, no clock, no chance.
//!
//! **A chain alone proves nothing against somebody who can rewrite all of it.** Whoever deletes the newest
//! records from the table and the segments and corrects the head row leaves a chain that verifies. Signed
//! checkpoints kept elsewhere are what finds that; they are not in this crate yet.

mod digest;
mod entry;
mod export;
mod finding;
mod id;
mod json;
mod line;
mod op;
mod parsed;
mod payload;
mod seal;
mod segment;
mod timestamp;
mod verify;
mod words;

pub use digest::{BadDigest, Digest};
pub use entry::{Entry, Range, Text};
pub use export::{Format, Tie};
pub use finding::{Finding, Findings, Kind, Place};
pub use id::{BadId, Id};
pub use line::{Fault, Line};
pub use op::{Level, Op, SessionChange, Status};
pub use parsed::fields;
pub use payload::{Forgotten, MAX_PAYLOAD_BYTES, NamedPayload, Payload, Salt, commitment};
pub use seal::{Encoded, MAX_LINE_BYTES, SealError, SealedLine, VERSION, seal};
pub use segment::{MAX_SEGMENT_BYTES, SegmentName};
pub use timestamp::{BadTimestamp, Timestamp};
pub use verify::{Head, Verifier};
