//! State and ledger in one SQLite file, shared by every process of one state folder.
//!
//! A [`Batch`] is state changes and the records that describe them; it is written in one transaction, so
//! neither exists without the other. A durable batch is on the disk when its future resolves, a lazy
//! one is committed and synced soon after. [`Committed`] tells which; a call that changes anything needs the former.
//!
//! Invariants: **one chain, whoever writes** (the head is read inside the transaction, under the folder's
//! writer lock); **free text is redacted** (the types accept nothing else); **after a failed write or sync
//! nothing is accepted any more** until the folder is opened again; **on a full disk nothing begins**, and refusals
//! and ends are recorded in the room of a reserve.
//!
//! In the background the lines grow a Merkle tree, whose root is signed again and again (`growth.rs`), and are written
//! to segments (`projection.rs`). What contradicts the table when a folder is opened is found by `guard.rs`.
//!
//! Not here: the clock and the disk (they are handed in), other databases.

mod append;
mod approver;
mod ask;
mod batch;
mod call;
mod checkpoints;
mod desk;
mod disk;
mod error;
mod event;
mod files;
mod growth;
mod guard;
mod keeper;
mod keys;
mod life;
mod lock;
mod mirror;
mod payload;
mod projection;
mod questions;
mod read;
mod reader;
mod record;
mod remains;
mod reserve;
mod rotation;
mod schema;
mod seal;
mod session;
mod shared;
#[cfg(test)]
mod sim;
mod sqlite;
mod state_dir;
mod statements;
mod store;
mod tide;
mod token;
mod tree;
mod trust;
mod vault;
mod verify;
mod violation;
mod wake;
mod wal;
mod witness;
mod writer;

pub use approver::{Approver, ApproverFault, Passphrase, client_key};
pub use ask::{ApprovalRow, AskChange, AskKind, AskState, Decided, GrantRow, ProposalRow, ProposalState};
pub use batch::{Batch, Change, Committed, Durability, Room, Sealed, StartReceipt};
pub use call::{CallFinish, CallRow, CallState, RecentCalls};
pub use checkpoints::CheckpointRow;
pub use disk::{DiskSegments, SegmentFiles};
pub use error::StoreError;
pub use event::{EventStatus, Phase, TimelineEvent};
pub use files::{Disk, DiskFile, OpenFor, OsDisk};
pub use payload::{PayloadRow, Standing};
pub use questions::{Asked, Questions};
pub use reader::Reader;
pub use record::{Order, Query, Record};
pub use session::{SessionRow, SessionState};
pub use sqlite::{Counters, Options, SqliteStore};
pub use state_dir::StateDir;
pub use store::{BoxFuture, Store};
pub use token::{Token, TokenKind, TokenRow};
pub use trust::TrustRow;
pub use vault::{Kept, Vault};
pub use verify::{Progress, VerifyOptions, VerifyReport, verify};
pub use violation::ViolationRow;
pub use wake::Watch;
pub use witness::{Heard, Shown, Witness, show};

pub use vambrace_ledger::{Decision, Reach, SigningKey, Verb, VerifyKey};
pub use vambrace_ledger::{Entry, Head, Id, Text, Timestamp};
