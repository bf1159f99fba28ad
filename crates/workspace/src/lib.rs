//! The project's files, accessed through directory handles. A path from an agent becomes an open file or a denial, and
//! nothing can be swapped in between: every open starts at the handle of the project root and goes through `openat2` with
//! the kernel's own rules (beneath the root, no symlinks, one mount).
//!
//! **Invariants.** No path is checked as a string and opened later. Symlinks are followed by rewriting the path without
//! them; the rewritten path is opened with symlinks forbidden. Blocked names are not read, listed, searched, counted or
//! suggested. A file with hard links that are not all in scope is not read.
//!
//! A change has two steps: the edit engine (`Workspace::draft_*`) makes a ChangeSet and writes nothing; an `Applier`
//! applies it and does nothing else.
//!
//! Deliberately absent: policy decisions, proposals and approvals, wire encoding.

mod apply;
mod edit;
mod entries;
mod error;
mod handle;
mod hard_links;
mod list;
mod masking;
mod path_filter;
mod program_scope;
mod read;
mod repository;
mod resolve;
mod scope;
mod search;
mod suggest;
mod text;
mod workspace;

pub use apply::{
    Applied, AppliedFile, Applier, ApplyError, ChangeSetState, FurtherLocks, LockHolder, OverdueLock,
    PreparedChange, Recovered, RecoveryOutcome, open_state_dir,
};
pub use edit::{
    Draft, DraftNote, EditError, EditLimits, EditOperation, EditRequest, MatchLine, MatchMode, NearMatch,
    ParseReport, WriteMode,
};
pub use error::{FileError, OpenError};
pub use handle::Volume;
pub use list::{DirectoryListing, ListEntry, ListEntryKind, ListRequest};
pub use masking::{ContextWindow, SecretFinder, TextSecrets, context_windows};
pub use path_filter::PathFilter;
pub use program_scope::ProgramScope;
pub use read::{Content, FileRead, LineRange, ReadRequest};
pub use resolve::{Resolved, ResolvedKind};
pub use scope::{DEFAULT_SHARED_PATHS, Isolation, ScopeRules};
pub use search::{FileCount, LineMatch, SearchDetail, SearchError, SearchMode, SearchRequest, SearchResult};
pub use text::{Bom, Eol, Indent};
pub use vambrace_core::diff;
pub use workspace::Workspace;
