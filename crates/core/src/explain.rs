//! The explanation of a decision: the same object for the command line, the console, the ledger and a card.

use serde_json::{Value, json};

use crate::fence::Fence;
use crate::plan::Plan;
use crate::policy::Decision;
use crate::settle::Settlement;
use crate::verdict::{Reason, Verdict};

/// Tells a decision: every layer's verdict with its reasons, the fence, and what would help.
#[must_use]
pub fn explain(plan: &Plan, decision: &Decision, settlement: &Settlement, revision: &str) -> Value {
    let layers: Vec<Value> = decision
        .layers
        .iter()
        .map(|judgement| {
            json!({"layer": judgement.layer.as_str(), "verdict": judgement.verdict.answer().as_str(),
                   "reasons": every_reason(&judgement.verdict)})
        })
        .collect();
    let (answer, discharged, open) = match settlement {
        Settlement::Permitted(permit) => ("allow", permit.vouchers().to_vec(), Vec::new()),
        Settlement::Waiting(open) => ("ask", Vec::new(), open.iter().map(tell).collect()),
        Settlement::Refused { .. } => ("deny", Vec::new(), Vec::new()),
    };
    json!({
        "verdict": answer,
        "tool": plan.tool.name.as_str(),
        "effects": plan.effects.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "risk": {"level": decision.risk.level.to_string(), "reasons": decision.risk.reasons},
        "digest": decision.digest.to_string(),
        "policy": revision,
        "layers": layers,
        "causes": decision.verdict.causes().map(tell).collect::<Vec<_>>(),
        "envelope": fence(&decision.fence),
        "discharged": discharged,
        "open": open,
    })
}

fn every_reason(verdict: &Verdict) -> Vec<Value> {
    let denials = verdict.denials().map(|denial| judged(&denial.reason, "deny", Some(denial.code.as_str())));
    let asks = verdict.obligations().map(|ask| judged(&ask.reason, "ask", None));
    denials.chain(asks).collect()
}

fn tell(reason: &Reason) -> Value {
    json!({"layer": reason.layer.as_str(), "rule": reason.rule, "at": reason.at.to_string(),
           "about": reason.about, "why": reason.why})
}

fn judged(reason: &Reason, verdict: &str, code: Option<&str>) -> Value {
    json!({"verdict": verdict, "code": code, "rule": reason.rule, "at": reason.at.to_string(), "about": reason.about,
           "why": reason.why})
}

fn fence(fence: &Fence) -> Value {
    let paths = |fence: &crate::fence::PathFence| fence.words();
    json!({"read": paths(&fence.read), "write": paths(&fence.write),
           "hosts": fence.hosts.words(), "secrets": fence.secrets.words()})
}
