//! Settling: questions need vouchers, refusals stand. Vouchers are the yes of a person to this very plan, and the grants of
//! the session; what is still open then is asked.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::policy::{DAMAGED, Decision, NO_ROLE};
use vambrace_core::settle::{Permit, Settlement};
use vambrace_core::verdict::{Answer, Grantable, LayerKind, Reason};
use vambrace_core::voucher::Voucher;
use vambrace_tools::Prepared;

use crate::asking::{Question, Stop};
use crate::broker::Broker;
use crate::decide::Decided;
use crate::grants;
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

pub(crate) async fn settle(broker: &Broker, decided: Decided, trail: &mut Trail) -> Result<Permitted, Stop> {
    let (prepared, decision, refused) = decided.into_parts();
    let now = broker.parts.clock.now();
    // What is refused now is refused for its own reason, whatever was agreed to before.
    let denied = decision.verdict.answer() == Answer::Deny;
    let vouchers = if denied { Vec::new() } else { vouchers(broker, &decision, trail).await? };
    match vambrace_core::settle::settle(&decision, &vouchers, now) {
        Settlement::Permitted(permit) => {
            if !permit.vouchers().is_empty() {
                trail.rule = Some(permit.vouchers().join(", "));
            }
            Ok(Permitted { prepared, permit: *permit })
        }
        Settlement::Waiting(open) => {
            note(trail, &open);
            if trail.yes.is_some() || trail.consent.is_some() {
                return Err(stale().into());
            }
            // What somebody clicks is the user's word: it does not answer what is HIGH, nor a question of the organisation.
            let freely = |about: &Reason| {
                decision.verdict.obligations().any(|obligation| {
                    obligation.reason == *about && obligation.grantable == Grantable::Freely
                })
            };
            let grantable = open.iter().all(|about| freely(about) && about.layer >= LayerKind::User);
            Err(Stop::Ask(Box::new(Question {
                digest: decision.digest,
                level: prepared.risk.level,
                grantable,
                why: trail.reasons.clone(),
            })))
        }
        Settlement::Refused { .. } => {
            let refusal = refusal(&decision, trail);
            Err(refused.unwrap_or(refusal).into())
        }
    }
}

/// What may answer the questions of a decision.
async fn vouchers(broker: &Broker, decision: &Decision, trail: &Trail) -> Result<Vec<Voucher>, CallError> {
    let now = broker.parts.clock.now();
    let mut vouchers: Vec<Voucher> = trail.yes.iter().cloned().collect();
    if let Some(consent) = &trail.consent {
        // A yes to the whole is a yes to what was shown; a yes to a part is given to what is planned now.
        if consent.shown.is_some_and(|shown| shown != decision.digest) {
            return Err(stale());
        }
        let (id, digest, expires) = (consent.id.to_string(), decision.digest, now.later(60_000));
        vouchers.push(Voucher::Approval { id, digest, expires, used: false });
    }
    if decision.verdict.answer() == Answer::Ask && vouchers.is_empty() {
        let found = broker.parts.store.questions().grants(Some(trail.session.as_str())).await;
        let found = found.map_err(|error| CallError::from(&error))?;
        if !found.is_empty() {
            let agent = broker.text(&trail.principal.agent)?;
            vouchers = grants::vouchers(&found, &trail.class, agent.get(), &decision.verdict, now);
        }
    }
    Ok(vouchers)
}

fn stale() -> CallError {
    CallError::new(
        ErrorCode::StaleBase,
        "what was agreed to is not what would happen now: the files have changed",
    )
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
        // A name with a line break must not look like a reason of its own.
        .map(|reason| reason.replace(char::is_control, " "))
        .collect();
}
