//! Decide: every policy layer judges every effect.

use std::time::Instant;

use vambrace_core::plan::Plan;
use vambrace_core::policy::PolicyDecision;
use vambrace_tools::ToolPlan;

use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::plan::Planned;

/// A call with the verdict of every layer.
pub(crate) struct Decided {
    plan: Plan,
    prepared: ToolPlan,
    decision: PolicyDecision,
}

impl Decided {
    /// What was decided about, the prepared work, and the decision.
    pub(crate) fn into_parts(self) -> (Plan, ToolPlan, PolicyDecision) {
        (self.plan, self.prepared, self.decision)
    }
}

pub(crate) fn decide(broker: &Broker, planned: Planned, record: &mut CallRecord) -> Decided {
    let (plan, prepared, session) = planned.into_parts();
    let before = Instant::now();
    let decision = broker.parts.policy.decide(&plan, &session);
    record.decide_us = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
    record.plan_digest = Some(decision.digest);
    record.verdict = Some(decision.verdict.kind());
    Decided { plan, prepared, decision }
}
