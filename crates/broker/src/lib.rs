//! The path of a call. `pipeline.rs` is the corridor, on one screen; every other file is a room it passes.
//!
//! Each step takes the former type by value and is the only module that can build the next one:
//! `RawCall -> Admitted -> Planned -> Decided -> Permitted -> Started -> Performed -> Clean`. **An error inside a
//! check is a denial with a reason, never a skipped check.**

mod admit;
mod answer;
mod broker;
mod cleanse;
mod decide;
mod explain;
mod perform;
mod pipeline;
mod plan;
mod provenance;
mod record;
mod settle;
mod start;
mod trail;

pub use answer::{Answer, Ending, envelope_schema};
pub use broker::{Broker, Pace, Parts, Violations};
pub use explain::Explained;
pub use vambrace_core::principal::{Peer, Principal, RawCall};
