//! The store on SQLite. Everything that names the database library is below this module; the other modules of the
//! crate are the interface of every store, and the files of a state directory.
//!
//! A commit goes `commit_queue` -> `group_writer` -> `statements`, and is durable when `sync_state` says so. The
//! `background` worker follows with the Merkle tree (`tree_builder`), its checkpoints and the segments
//! (`segment_writer`). Opening a directory (`sqlite_store`) checks it against all of these (`rollback_check`).

mod append;
mod approval_queries;
mod approval_transitions;
mod background;
mod commit_queue;
mod group_writer;
mod key_rotation;
mod ledger_admin;
mod ledger_reader;
mod merkle_tree;
mod queries;
mod read_pool;
mod reserve;
mod rollback_check;
mod rows;
mod schema;
mod segment_seal;
mod segment_writer;
mod shared_state;
#[cfg(test)]
mod sim;
mod sqlite_error;
mod sqlite_store;
mod statements;
mod sync_state;
mod table_view;
mod tree_builder;
mod verify;
mod wal;

pub use ledger_reader::LedgerReader;
pub use sqlite_store::{SqliteStore, StoreOptions};
pub use table_view::submit_to_witness;
pub use verify::verify;
