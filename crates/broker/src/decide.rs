//! Deciding: every layer judges every effect.

use std::time::Instant;

use vambrace_core::error::CallError;
use vambrace_core::policy::Decision;
use vambrace_tools::Prepared;

use crate::broker::Broker;
use crate::plan::Planned;
use crate::trail::Trail;

/// A call with everybody's verdict.
pub(crate) struct Decided {
    prepared: Prepared,
    decision: Decision,
    refused: Option<CallError>,
}

impl Decided {
    /// The work, what was decided about it, and the workspace's own refusal.
    pub(crate) fn into_parts(self) -> (Prepared, Decision, Option<CallError>) {
        (self.prepared, self.decision, self.refused)
    }
}

pub(crate) fn decide(broker: &Broker, planned: Planned, trail: &mut Trail) -> Decided {
    let (plan, prepared, session) = planned.into_parts();
    let before = Instant::now();
    let decision = broker.parts.policy.decide(&plan, &session);
    trail.decide_us = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
    trail.plan_digest = Some(decision.digest);
    trail.verdict = Some(decision.verdict.answer().as_str());
    Decided { prepared, decision, refused: plan.refused }
}
