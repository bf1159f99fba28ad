//! State and ledger in one transaction, shared by every process that uses one store. [`SqliteStore`] keeps them in one
//! file of a state directory.
//!
//! A [`Batch`] holds state changes and the records that describe them; one transaction writes it, so neither
//! exists without the other. A durable batch is on disk when its future resolves; a lazy one is committed and
//! synced soon after. [`Committed`] says which. A call that changes anything needs a durable start record.
//!
//! Invariants: **one chain for each writer, whichever process writes** (the head is read inside the transaction, under
//! the writer lock of the directory); **a session is used by its owner only** (checked inside the transaction); **free
//! text is redacted** (the types accept nothing else); **after a failed write or sync the store accepts nothing more**
//! until the directory is opened again; **on a full disk no call starts**, and denials and ends of calls are recorded in
//! the space of a reserve.
//!
//! In the background the lines are added to a Merkle tree whose root is signed about every second
//! (`sqlite/tree_builder.rs`), and written to segments (`sqlite/segment_writer.rs`). `sqlite/rollback_check.rs`
//! compares the table with its checkpoints, segments and tree when a directory is opened.
//!
//! Users hold a `dyn` [`Store`]; only opening names the database. A second database implements [`Store`],
//! [`ApprovalQueries`] and [`LedgerAdmin`], and [`BlobSealer`], [`ApprovalNotifier`] and [`ProcessLiveness`] unless
//! those of a state directory fit; `tests/real/conformance.rs` is its test.
//!
//! Not here: the clock and the disk (the caller passes them in).

mod access_token;
mod approvals;
mod approver_key;
mod batch;
mod call;
mod checkpoints;
mod disk;
mod error;
mod ledger_admin;
mod ledger_keys;
mod lock;
mod notify;
mod payload;
mod process_liveness;
mod record_id;
mod record_query;
mod sealed_blob;
mod segment_files;
mod segment_reader;
mod session;
mod session_owner;
mod sqlite;
mod state_dir;
mod store;
mod timeline_event;
mod torn_tail;
mod trust;
mod verify_report;
mod violation;
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
pub use ledger_admin::{LedgerAdmin, StoreCounters};
pub use notify::{ApprovalNotifier, ApprovalWatch};
pub use payload::{PayloadRow, PayloadState};
pub use process_liveness::ProcessLiveness;
pub use record_id::RecordId;
pub use record_query::{LedgerRecord, RecordOrder, RecordQuery};
pub use sealed_blob::{BlobSealer, SealedBlob};
pub use segment_files::{DiskSegments, SegmentFiles};
pub use session::{SessionRow, SessionState};
pub use session_owner::{OwnerFilter, SessionOwner};
pub use sqlite::{LedgerReader, SqliteStore, StoreOptions, submit_to_witness, verify};
pub use state_dir::StateDir;
pub use store::{BoxFuture, Store};
pub use timeline_event::{EventPhase, EventStatus, TimelineEvent};
pub use trust::TrustRow;
pub use verify_report::{VerifyOptions, VerifyProgress, VerifyReport};
pub use violation::ViolationRow;
pub use witness::{CheckpointWitness, LedgerView, WitnessReply};

pub use vambrace_ledger::{ChainHead, Entry, Id, RedactedText, Timestamp};
pub use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, SigningKey, VerifyKey};
