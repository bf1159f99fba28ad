//! The explanation of a policy decision: the same JSON object for the command line, the console, the ledger and an
//! approval request.

use serde_json::{Value, json};

use crate::fence::Fence;
use crate::plan::Plan;
use crate::policy::PolicyDecision;
use crate::settle::Settlement;
use crate::verdict::{Reason, Verdict};

/// Explains a decision: the verdict of every layer with its reasons, the fence, and the open obligations.
#[must_use]
pub fn explain(plan: &Plan, decision: &PolicyDecision, settlement: &Settlement, revision: &str) -> Value {
    let layers: Vec<Value> = decision
        .layers
        .iter()
        .map(|judgement| {
            json!({"layer": judgement.layer.as_str(), "verdict": judgement.verdict.kind().as_str(),
                   "reasons": every_reason(&judgement.verdict)})
        })
        .collect();
    let (answer, discharged, open) = match settlement {
        Settlement::Permitted(permit) => ("allow", permit.vouchers().to_vec(), Vec::new()),
        Settlement::Waiting(open) => ("ask", Vec::new(), open.iter().map(reason_json).collect()),
        Settlement::Denied { .. } => ("deny", Vec::new(), Vec::new()),
    };
    json!({
        "verdict": answer,
        "tool": plan.tool.name.as_str(),
        "effects": plan.effects.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "risk": {"level": decision.risk.level.to_string(), "reasons": decision.risk.reasons},
        "digest": decision.digest.to_string(),
        "policy": revision,
        "layers": layers,
        "causes": decision.verdict.causes().map(reason_json).collect::<Vec<_>>(),
        "envelope": fence_json(&decision.fence),
        "discharged": discharged,
        "open": open,
    })
}

fn every_reason(verdict: &Verdict) -> Vec<Value> {
    let denials =
        verdict.denials().map(|denial| layer_reason_json(&denial.reason, "deny", Some(denial.code.as_str())));
    let asks = verdict.obligations().map(|ask| layer_reason_json(&ask.reason, "ask", None));
    denials.chain(asks).collect()
}

fn reason_json(reason: &Reason) -> Value {
    json!({"layer": reason.layer.as_str(), "rule": reason.rule, "at": reason.at.to_string(),
           "about": reason.about, "why": reason.why})
}

fn layer_reason_json(reason: &Reason, verdict: &str, code: Option<&str>) -> Value {
    json!({"verdict": verdict, "code": code, "rule": reason.rule, "at": reason.at.to_string(), "about": reason.about,
           "why": reason.why})
}

fn fence_json(fence: &Fence) -> Value {
    let paths = |fence: &crate::fence::PathFence| fence.describe();
    json!({"read": paths(&fence.read), "write": paths(&fence.write),
           "hosts": fence.hosts.describe(), "secrets": fence.secrets.describe()})
}
