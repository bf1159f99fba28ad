//! The path of a call. `pipeline.rs` shows the whole pipeline on one screen; every other file is one step of it, or
//! what a step needs.
//!
//! Each step takes the previous type by value and is the only module that can build the next one: `RawCall ->
//! Admitted -> Planned -> Decided -> Permitted -> Started -> Performed -> Clean`. **An error inside a check is a
//! denial with a reason, never a skipped check.**

mod admit;
mod approval_request;
mod approval_view;
mod approve;
mod approver;
mod await_decision;
mod broker;
mod call_record;
mod call_result;
mod cleanse;
mod completion;
mod consent;
mod decide;
mod decision;
mod egress;
mod explain;
mod flood;
mod grants;
mod held_change;
mod open_request;
mod pending_call;
mod perform;
mod pipeline;
mod plan;
mod preview;
mod proposal;
mod provenance;
mod record;
mod recover;
mod run_record;
mod settle;
mod start;

pub use approval_request::{
    ApprovalSettings, ApproverAvailability, DecisionWait, RequestedCall, WaitCallback, WaitProgress,
};
pub use approval_view::{ApprovalView, ProposalFile, expire, read_approval, visible};
pub use approve::ApprovalChoice;
pub use approver::Approver;
pub use broker::{Broker, BrokerParts, PolicySource, RateLimits, ViolationLimits};
pub use call_result::{CallResult, CallStatus, envelope_schema};
pub use completion::CallerPresence;
pub use explain::Explanation;
pub use preview::ProposalPreview;
pub use vambrace_core::principal::{EntryPoint, Peer, Principal, RawCall};
pub use vambrace_ledger::{DecisionReach, DecisionVerb};
pub use vambrace_tools::{Amendment, CallContext};
