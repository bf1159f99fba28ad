//! Confining a program: what it sees of the file system, its environment, its time, memory and processes, with the
//! kernel as the judge. No outside helper, no container engine, no root.
//!
//! Three processes: the broker asks ([`Sandbox`]), the small [`launcher`] makes and ends, a cell per run builds the
//! walls around itself and becomes the program. What a program changes is collected as [`Changes`] and promoted by
//! whoever decides ([`Promote`]).
//!
//! **Invariants.** Nothing degrades silently: the tier is in every outcome, and what was demanded is there or the run
//! is refused. The program never runs as user 0. Nothing survives a run: not its processes, mounts or control groups.
//! The only crate with `unsafe`, all of it in `sys` and one call in `cell`.
//!
//! Deliberately absent: what of the network is allowed (the egress gate), decisions, records.

mod aside;
mod attributes;
mod audit;
mod cell;
mod changes;
mod denial;
mod fault;
mod filter;
mod input;
pub mod launcher;
pub mod network;
mod observe;
mod offer;
mod order;
mod outcome;
mod promote;
mod run;
mod sandbox;
mod spec;
mod stop;
mod sys;
mod talk;
mod task;
mod tier;
mod toolchain;
mod walk;
mod wire;

pub use changes::{Change, ChangeKind, Changes, Diffs, EntryKind, Facts, Listing, Why, Withheld};
pub use denial::{Certainty, Denial, Operation, Rule, Source};
pub use fault::SandboxFault;
pub use outcome::{Captured, Exit, MemoryBound, Outcome};
pub use promote::{Journaled, Promote, PromoteFault, Promoted};
pub use run::{Input, Output, Stream};
pub use sandbox::{Places, Sandbox};
pub use spec::{Filesystem, Limits, Network, Observe, PROTECTED, SCRATCH, Spec};
pub use stop::Stop;
pub use tier::{Feature, FeatureKind, Features, Tier};
