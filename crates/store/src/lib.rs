//! State and ledger in one SQLite file, shared by every process that uses one state directory.
//!
//! A [`Batch`] holds state changes and the records that describe them; one transaction writes it, so neither
//! exists without the other. A durable batch is on disk when its future resolves; a lazy one is committed and
//! synced soon after. [`Committed`] says which. A call that changes anything needs a durable start record.
//!
//! Invariants: **one chain, whichever process writes** (the head is read inside the transaction, under the
//! writer lock of the directory); **free text is redacted** (the types accept nothing else); **after a failed
//! write or sync the store accepts nothing more** until the directory is opened again; **on a full disk no call
//! starts**, and denials and ends of calls are recorded in the space of a reserve.
//!
//! In the background the lines are added to a Merkle tree whose root is signed about every second
//! (`tree_builder.rs`), and written to segments (`segment_writer.rs`). `rollback_check.rs` compares the table
//! with its checkpoints, segments and tree when a directory is opened.
//!
//! Not here: the clock and the disk (the caller passes them in), other databases.

mod access_token;
mod append;
mod approvals;
mod approver_key;
mod background;
mod batch;
mod call;
mod checkpoints;
mod commit_queue;
mod disk;
mod error;
mod group_writer;
mod key_rotation;
mod ledger_keys;
mod ledger_reader;
mod lock;
mod merkle_tree;
mod notify;
mod payload;
mod process_liveness;
mod read_pool;
mod record_query;
mod reserve;
mod rollback_check;
mod schema;
mod sealed_blob;
mod segment_files;
mod segment_reader;
mod segment_seal;
mod segment_writer;
mod session;
mod shared_state;
#[cfg(test)]
mod sim;
mod sqlite;
mod state_dir;
mod statements;
mod store;
mod sync_state;
mod timeline_event;
mod torn_tail;
mod tree_builder;
mod trust;
mod verify;
mod violation;
mod wal;
mod witness;

pub use access_token::{AccessToken, TokenKind, TokenRow};
pub use approvals::{
    ApprovalChange, ApprovalFilter, ApprovalKind, ApprovalQueries, ApprovalRow, ApprovalState, DecisionRow,
    GrantRow, ProposalRow, ProposalState,
};
pub use approver_key::{ApproverKey, ApproverKeyError, Passphrase, client_key};
pub use batch::{Batch, ChainPosition, Committed, DiskSpace, Durability, StartReceipt, StateChange};
pub use call::{CallFinish, CallRow, CallState, RecentCalls};
pub use checkpoints::CheckpointRow;
pub use disk::{Disk, DiskFile, OpenFor, OsDisk};
pub use error::StoreError;
pub use ledger_reader::LedgerReader;
pub use notify::ApprovalWatch;
pub use payload::{PayloadRow, PayloadState};
pub use record_query::{LedgerRecord, RecordOrder, RecordQuery};
pub use sealed_blob::{BlobCipher, SealedBlob};
pub use segment_files::{DiskSegments, SegmentFiles};
pub use session::{SessionRow, SessionState};
pub use sqlite::{SqliteStore, StoreCounters, StoreOptions};
pub use state_dir::StateDir;
pub use store::{BoxFuture, Store};
pub use timeline_event::{EventPhase, EventStatus, TimelineEvent};
pub use trust::TrustRow;
pub use verify::{VerifyOptions, VerifyProgress, VerifyReport, verify};
pub use violation::ViolationRow;
pub use witness::{CheckpointWitness, LedgerView, WitnessReply, submit_to_witness};

pub use vambrace_ledger::{ChainHead, Entry, Id, RedactedText, Timestamp};
pub use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, SigningKey, VerifyKey};
