//! The hash-chained record: what one record says, how it becomes a line, how lines are checked.
//!
//! A line is hashed as the bytes that are written, so any language verifies it without canonical JSON:
//! `event_hash` is the SHA-256 of the line up to `,"event_hash"`, and `prev_hash` is the `event_hash` of the
//! line before (64 zeros for the first). What is too large for a line is committed to by it (`payload.rs`); `export.rs`
//! has the line in the words of other systems. Everything here is pure: no file, no database, no clock, no chance.
//!
//! **A chain alone proves nothing against somebody who can rewrite all of it.** So the lines are also the leaves of
//! a Merkle tree (RFC 6962), whose size and root are signed again and again as checkpoints (C2SP signed notes).
//! Whoever kept one of them elsewhere finds a ledger that was cut, rewritten or set back.

mod checkpoint;
mod decision;
mod digest;
mod entry;
mod export;
mod finding;
mod hash;
mod id;
mod json;
mod key;
mod line;
mod note;
mod op;
mod parsed;
mod payload;
mod proof;
mod seal;
mod segment;
mod timestamp;
mod tree;
mod verify;
mod words;

pub use checkpoint::{BadCheckpoint, Checkpoint, handover};
pub use decision::{Decision, Reach, Verb};
pub use digest::{BadDigest, Digest};
pub use entry::{Entry, Range, Text};
pub use export::{Format, Tie};
pub use finding::{Finding, Findings, Kind, Place};
pub use id::{BadId, Id};
pub use key::{BadKey, KeyKind, SigningKey, VerifyKey};
pub use line::{Fault, Line, LineReader, SignedLine};
pub use note::{BadNote, Note, Signed};
pub use op::{Level, Op, SessionChange, Status};
pub use parsed::fields;
pub use payload::{Forgotten, MAX_PAYLOAD_BYTES, NamedPayload, Payload, Salt, commitment, may_name_payloads};
pub use proof::{MOST_HASHES, consistency, inclusion, is_consistent, is_included};
pub use seal::{Encoded, MAX_LINE_BYTES, SealError, SealedLine, VERSION, seal};
pub use segment::{MAX_SEGMENT_BYTES, SegmentName};
pub use timestamp::{BadTimestamp, Timestamp};
pub use tree::{BUNCH_HEIGHT, Frontier, Stretch, leaf, leaves, node};
pub use verify::{Head, Verifier};
