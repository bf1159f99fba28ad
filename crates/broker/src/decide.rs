//! Decide: every policy layer judges every effect.

use std::time::Instant;

use vambrace_core::error::CallError;
use vambrace_core::policy::PolicyDecision;
use vambrace_tools::ToolPlan;

use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::plan::Planned;

/// A call with the verdict of every layer.
pub(crate) struct Decided {
    prepared: ToolPlan,
    decision: PolicyDecision,
    denied: Option<CallError>,
}

impl Decided {
    /// The prepared work, the policy decision about it, and the workspace's own denial.
    pub(crate) fn into_parts(self) -> (ToolPlan, PolicyDecision, Option<CallError>) {
        (self.prepared, self.decision, self.denied)
    }
}

pub(crate) fn decide(broker: &Broker, planned: Planned, record: &mut CallRecord) -> Decided {
    let (plan, prepared, session) = planned.into_parts();
    let before = Instant::now();
    let decision = broker.parts.policy.decide(&plan, &session);
    record.decide_us = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
    record.plan_digest = Some(decision.digest);
    record.verdict = Some(decision.verdict.kind().as_str());
    Decided { prepared, decision, denied: plan.workspace_denial }
}
