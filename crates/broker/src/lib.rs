//! The path of a call. `pipeline.rs` is the corridor, on one screen; every other file is a room it passes.
//!
//! Each step takes the former type by value and is the only module that can build the next one:
//! `RawCall -> Admitted -> Planned -> Decided -> Permitted -> Started -> Performed -> Clean`. **An error inside a
//! check is a denial with a reason, never a skipped check.**

mod admit;
mod agreement;
mod answer;
mod asking;
mod broker;
mod cleanse;
mod decide;
mod decider;
mod deciding;
mod egress;
mod explain;
mod flood;
mod grants;
mod hear;
mod look;
mod perform;
mod pipeline;
mod plan;
mod preview;
mod proposal;
mod provenance;
mod recall;
mod record;
mod recover;
mod settle;
mod start;
mod trail;

pub use answer::{Answer, Ending, envelope_schema};
pub use asking::{AskedCall, Asking, Patience, Person, Waiting};
pub use broker::{Broker, Pace, Parts, Violations};
pub use decider::Decider;
pub use deciding::Choice;
pub use explain::Explained;
pub use look::{Look, LookedFile, expire, look, visible};
pub use preview::Preview;
pub use vambrace_core::principal::{Peer, Principal, RawCall};
pub use vambrace_ledger::{Reach, Verb};
pub use vambrace_tools::Part;
