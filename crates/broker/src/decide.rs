//! Decide: every policy layer judges every effect.

use std::time::Instant;

use vambrace_core::plan::Plan;
use vambrace_core::policy::PolicyDecision;
use vambrace_core::recorded_plan::RecordedPlan;
use vambrace_core::redacted::Redacted;
use vambrace_store::RedactedText;
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
    let judged = recorded(broker, &plan, &decision, record);
    match record.held {
        Some(_) => record.judged_change = judged,
        None => record.judged = judged,
    }
    Decided { plan, prepared, decision }
}

/// Effects and verdict in their stored form. What the redactor cannot check is not stored, and the call counts as not judged
/// in a replay.
fn recorded(
    broker: &Broker,
    plan: &Plan,
    decision: &PolicyDecision,
    record: &CallRecord,
) -> Option<RedactedText> {
    let (risk, parts) = (record.tool_risk.clone()?, &broker.parts);
    let (role, skill) = (parts.requested_role.as_deref(), record.principal.skill.as_deref());
    let recorded = RecordedPlan::of(plan, risk, decision, role, skill, parts.clock.now())?;
    Redacted::json(recorded.to_json(), &*parts.redactor).ok().map(|json| json.to_text())
}
