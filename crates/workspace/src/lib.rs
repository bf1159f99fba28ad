//! The project's files seen through directory handles. What an agent asks for is words; here the words become
//! an open file or a refusal, and nothing between the two can be swapped: every open starts at the handle of
//! the project root and goes through the kernel's own `openat2` rules (beneath the root, no links, one mount).
//!
//! **Invariants.** No path is checked as a string and opened later. Links are followed by re-spelling the
//! path without them, and the re-spelled path is opened with links forbidden. Blocked names are not read,
//! listed, searched, counted or suggested. A file with names we cannot account for is not read.
//!
//! Changing happens in two steps: Loom (`draft_*`) makes a ChangeSet and writes nothing; an `Applier` applies one and
//! nothing else.
//!
//! Deliberately absent: decisions of policy, proposals and approvals, encoding for the wire.

mod apply;
mod census;
mod entries;
mod fault;
mod handle;
mod list;
mod loom;
mod read;
mod repository;
mod resolve;
mod scope;
mod search;
mod suggest;
mod text;
mod visible;
mod workspace;

pub use apply::{
    Applied, AppliedFile, Applier, ApplyFault, Holder, Outcome, Overdue, Prepared, Recovered, State,
    state_folder,
};
pub use fault::{FileFault, OpenError};
pub use handle::Volume;
pub use list::{EntryKind, ListEntry, ListRequest, Listing};
pub use loom::{
    Draft, EditRequest, LoomFault, LoomLimits, MatchMode, Near, Note, Operation, ParseReport, Place,
    SECRET_REACH, Secrets, WriteMode,
};
pub use read::{Content, FileRead, LineRange, ReadRequest};
pub use resolve::{Kind, Resolved};
pub use scope::{DEFAULT_SHARED_PATHS, Isolation, ScopeRules};
pub use search::{
    Armour, Detail, FileCount, LineMatch, SearchFault, SearchMode, SearchRequest, SearchResult, SecretFinder,
};
pub use text::{Bom, Eol, Indent};
pub use vambrace_core::diff;
pub use visible::Visible;
pub use workspace::Workspace;
