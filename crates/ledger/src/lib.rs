//! The hash-chained ledger: what a record holds, how it becomes a line, how lines are verified.
//!
//! The hash covers the bytes as written, so any language can verify a line without canonical JSON: `event_hash` is the
//! SHA-256 of the line up to `,"event_hash"`, and `prev_hash` is the `event_hash` of the line before (64 zeros for the
//! first). A line holds only a commitment to what is too large for it (`payload.rs`). `export.rs` converts lines to the
//! formats of other systems. Everything here is pure: no files, no database, no clock, no randomness.
//!
//! **A chain alone proves nothing against an attacker who can rewrite all of it.** So the lines are also the leaves of
//! a Merkle tree (RFC 6962), whose size and root are signed at intervals as checkpoints (C2SP signed notes). A
//! checkpoint that is kept elsewhere exposes a ledger that was truncated, rewritten or rolled back.

mod checkpoint;
mod decision;
mod digest;
mod entry;
mod export;
mod field_writer;
mod finding;
mod hash;
mod id;
mod key;
mod line;
mod line_fields;
mod note;
mod op;
mod payload;
mod proof;
mod seal;
mod segment;
mod timestamp;
mod tree;
mod verify;
mod word_enum;

pub use checkpoint::{BadCheckpoint, Checkpoint, handover};
pub use decision::{Decision, DecisionReach, DecisionVerb};
pub use digest::{BadDigest, Digest};
pub use entry::{Entry, FileRange, RedactedText};
pub use export::{ExportFormat, RecordRef};
pub use finding::{Finding, FindingKind, FindingLocation, Findings};
pub use id::{BadId, Id};
pub use key::{BadKey, KeyKind, SigningKey, VerifyKey};
pub use line::{LedgerLine, LineError, LineReader, SignedLine};
pub use line_fields::line_fields;
pub use note::{BadNote, SignatureStatus, SignedNote};
pub use op::{Op, RecordLevel, RecordStatus, SessionChange};
pub use payload::{
    ForgottenPayload, MAX_PAYLOAD_BYTES, NamedPayload, Payload, Salt, commitment, may_name_payloads,
};
pub use proof::{MAX_PROOF_HASHES, consistency, inclusion, is_consistent, is_included};
pub use seal::{EncodedEntry, MAX_LINE_BYTES, SealError, SealedLine, VERSION, seal};
pub use segment::{MAX_SEGMENT_BYTES, SegmentName};
pub use timestamp::{BadTimestamp, Timestamp};
pub use tree::{BATCH_HEIGHT, Frontier, PartialTree, leaf, leaves, node};
pub use verify::{ChainHead, Verifier};
