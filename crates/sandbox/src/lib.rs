//! Confines a program: which files it sees, its environment, its time, memory and processes. The kernel enforces all of
//! it. No outside helper, no container engine, no root.
//!
//! Three processes: the broker ([`Sandbox`]) requests a run, the small [`launcher`] creates and kills cells, and each
//! cell confines itself and then becomes the program. What a program changes in the workspace is collected as
//! [`RunChanges`]; the caller decides whether to write it back ([`JournaledWriteBack`]).
//!
//! **Invariants.** Nothing degrades silently: every outcome names the tier, and a run that cannot have what its spec
//! demands is denied. The program never runs as UID 0. Nothing survives a run: no process, mount or cgroup.
//! This is the only crate with `unsafe`: all of it is in `sys`, except one call in `cell`.
//!
//! Deliberately absent: which hosts are allowed (the egress gate), policy decisions, ledger records.

mod attributes;
mod cell;
mod changes;
mod denial;
mod error;
mod filter;
mod input;
mod landlock_audit;
pub mod launcher;
mod mask_walk;
pub mod network;
mod observer;
mod outcome;
mod prefetch;
mod run;
mod run_dirs;
mod run_loop;
mod run_request;
mod sandbox;
mod spec;
mod stop;
mod sys;
mod tier;
mod toolchain;
mod warm_cells;
mod wire;
mod workspace_fence;
mod write_back;

pub use changes::{
    ChangeKind, ChangeListing, Diffs, EntryChange, EntryMetadata, FileKind, RunChanges, WithheldChange,
    WithheldReason,
};
pub use denial::{Certainty, DenialRule, DenialSource, DeniedOperation, SandboxDenial};
pub use error::SandboxError;
pub use outcome::{Captured, Exit, MemoryEnforcement, RunOutcome};
pub use run::{Input, OutputStream};
pub use sandbox::{Sandbox, StateDirs};
pub use spec::{Filesystem, NetworkMode, Observe, RunLimits, SCRATCH, Spec};
pub use stop::StopHandle;
pub use tier::{Feature, FeatureKind, Features, Tier};
pub use workspace_fence::WorkspaceFence;
pub use write_back::{JournaledWriteBack, RecoveredChange, StagedWriteBack, WriteBackError, WrittenBack};
