//! Settling: questions need vouchers, refusals stand.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::policy::{DAMAGED, Decision, NO_ROLE};
use vambrace_core::settle::{Permit, Settlement};
use vambrace_core::verdict::Reason;
use vambrace_tools::Prepared;

use crate::broker::Broker;
use crate::decide::Decided;
use crate::trail::Trail;

/// A call that may start.
pub(crate) struct Permitted {
    prepared: Prepared,
    permit: Permit,
}

impl Permitted {
    pub(crate) fn into_parts(self) -> (Prepared, Permit) {
        (self.prepared, self.permit)
    }
}

pub(crate) fn settle(broker: &Broker, decided: Decided, trail: &mut Trail) -> Result<Permitted, CallError> {
    let (prepared, decision, refused) = decided.into_parts();
    match vambrace_core::settle::settle(&decision, &[], broker.parts.clock.now()) {
        Settlement::Permitted(permit) => {
            if !permit.vouchers().is_empty() {
                trail.rule = Some(permit.vouchers().join(", "));
            }
            Ok(Permitted { prepared, permit: *permit })
        }
        Settlement::Waiting(open) => {
            note(trail, &open);
            let first = open.first().map_or_else(String::new, |reason| reason.why.clone());
            let why = format!("a person must agree first, and none can be asked from here: {first}");
            Err(CallError::new(ErrorCode::ApprovalRejected, why).suggest(
                "do something else, or ask the user to add an `allow` rule for this to their configuration",
            ))
        }
        Settlement::Refused { .. } => {
            let refusal = refusal(&decision, trail);
            Err(refused.unwrap_or(refusal))
        }
    }
}

/// The refusal of a decision in one line, its reasons noted for the record.
fn refusal(decision: &Decision, trail: &mut Trail) -> CallError {
    let reasons: Vec<Reason> = decision.verdict.causes().cloned().collect();
    note(trail, &reasons);
    trail.verdict = Some("deny");
    match decision.verdict.denials().next() {
        Some(first) => {
            let origin =
                if first.reason.at.line > 0 { format!(" ({})", first.reason.at) } else { String::new() };
            let why = format!(
                "{} denies `{}`: {}{origin}",
                first.reason.layer.as_str(),
                first.reason.about,
                first.reason.why
            );
            let error = CallError::new(first.code, why);
            match first.reason.rule.as_str() {
                NO_ROLE => error.suggest("only the user can change that: `vambrace init` sets a project up, `vambrace trust` trusts its configuration"),
                DAMAGED => error.suggest("only the user can mend that: `vambrace policy check` tells every fault"),
                _ => error,
            }
        }
        None => CallError::new(ErrorCode::Internal, "refused without a reason"),
    }
}

fn note(trail: &mut Trail, reasons: &[Reason]) {
    trail.rule = reasons.first().map(|reason| format!("{} ({})", reason.rule, reason.at));
    trail.reasons = reasons
        .iter()
        .map(|reason| format!("{}: {} [{}]", reason.layer.as_str(), reason.why, reason.at))
        .collect();
}
