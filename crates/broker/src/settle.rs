//! Settle: an `ask` needs vouchers, a denial is final. Vouchers are a person's approval of exactly this plan, and the
//! grants of the session; every obligation that is left becomes an approval request.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::policy::{DAMAGED_CONFIG_RULE, NO_ROLE_RULE, PolicyDecision};
use vambrace_core::settle::{Permit, Settlement};
use vambrace_core::verdict::{Grantable, LayerKind, Reason, VerdictKind};
use vambrace_core::voucher::Voucher;
use vambrace_store::OwnerFilter;
use vambrace_tools::ToolPlan;

use crate::approval_request::{ApprovalRequest, NeededApproval, PipelineStop};
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::decide::Decided;
use crate::grants;

/// A call that may start.
pub(crate) struct Permitted {
    prepared: ToolPlan,
    permit: Permit,
}

impl Permitted {
    pub(crate) fn into_parts(self) -> (ToolPlan, Permit) {
        (self.prepared, self.permit)
    }
}

pub(crate) async fn settle(
    broker: &Broker,
    decided: Decided,
    record: &mut CallRecord,
) -> Result<Permitted, PipelineStop> {
    let (plan, prepared, decision) = decided.into_parts();
    let now = broker.parts.clock.now();
    // A denial by today's policy is reported with its own reason, whatever was approved before.
    let denied = decision.verdict.kind() == VerdictKind::Deny;
    let vouchers = if denied { Vec::new() } else { vouchers(broker, &decision, record).await? };
    match vambrace_core::settle::settle(&decision, &vouchers, now) {
        Settlement::Permitted(permit) => {
            if !permit.vouchers().is_empty() {
                record.rule = Some(permit.vouchers().join(", "));
            }
            Ok(Permitted { prepared, permit: *permit })
        }
        Settlement::Waiting(open) => {
            note(record, &open);
            if record.approval.is_some() || record.consent.is_some() {
                return Err(stale().into());
            }
            // An approval or grant carries the authority of the user: it can neither grant what is HIGH nor discharge
            // an obligation of the organisation.
            let grantable_by_user = |about: &Reason| {
                decision.verdict.obligations().any(|obligation| {
                    obligation.reason == *about && obligation.grantable == Grantable::AnyGrant
                })
            };
            let grantable =
                open.iter().all(|about| grantable_by_user(about) && about.layer >= LayerKind::User);
            Err(PipelineStop::Approval(NeededApproval::New(Box::new(ApprovalRequest {
                digest: decision.digest,
                level: prepared.risk.level,
                grantable,
                why: record.reasons.clone(),
            }))))
        }
        Settlement::Denied { .. } => {
            let denial = denial_error(&decision, record);
            Err(plan.workspace_denial.unwrap_or(denial).into())
        }
    }
}

/// Vouchers that can discharge the obligations of a decision.
async fn vouchers(
    broker: &Broker,
    decision: &PolicyDecision,
    record: &CallRecord,
) -> Result<Vec<Voucher>, CallError> {
    let now = broker.parts.clock.now();
    let mut vouchers: Vec<Voucher> = record.approval.iter().cloned().collect();
    if let Some(consent) = &record.consent {
        // Approving the whole approves what was shown; approving a part approves what is planned now.
        if consent.shown.is_some_and(|shown| shown != decision.digest) {
            return Err(stale());
        }
        let (id, digest, expires) = (consent.id.to_string(), decision.digest, now.later(60_000));
        vouchers.push(Voucher::Approval { id, digest, expires, used: false });
    }
    if record.command_approved {
        // Approving a command approves the ordinary changes that it makes; HIGH ones and rules that ask are asked about.
        let ordinary = decision.verdict.obligations().filter(|obligation| {
            obligation.grantable == Grantable::AnyGrant && obligation.reason.layer == LayerKind::Risk
        });
        vouchers.extend(ordinary.map(|obligation| Voucher::Grant {
            id: "approval of the command".to_owned(),
            about: obligation.reason.about.clone(),
            by: LayerKind::User,
            expires: None,
            revoked: false,
        }));
    }
    if decision.verdict.kind() == VerdictKind::Ask && vouchers.is_empty() {
        // The session was admitted: it is the caller's own.
        let (queries, session) = (broker.parts.store.approval_queries(), record.session.as_str());
        let found = queries.grants(Some(session), &OwnerFilter::Everyone).await;
        let found = found.map_err(|error| CallError::from(&error))?;
        if !found.is_empty() {
            let agent = broker.text(&record.principal.agent)?;
            vouchers = grants::vouchers(&found, &record.class, agent.get(), &decision.verdict, now);
        }
    }
    Ok(vouchers)
}

fn stale() -> CallError {
    CallError::new(
        ErrorCode::StaleBase,
        "the approval no longer matches what would happen: the files have changed",
    )
}

/// The denial as an error in one line; stores its reasons in the call record.
fn denial_error(decision: &PolicyDecision, record: &mut CallRecord) -> CallError {
    let reasons: Vec<Reason> = decision.verdict.causes().cloned().collect();
    note(record, &reasons);
    record.verdict = Some(VerdictKind::Deny);
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
                NO_ROLE_RULE => error.suggest("only the user can change that: `vambrace init` sets a project up, `vambrace trust` trusts its configuration"),
                DAMAGED_CONFIG_RULE => error.suggest("only the user can fix that: `vambrace policy check` lists every error"),
                _ => error,
            }
        }
        None => CallError::new(ErrorCode::Internal, "denied without a reason"),
    }
}

fn note(record: &mut CallRecord, reasons: &[Reason]) {
    record.rule = reasons.first().map(|reason| format!("{} ({})", reason.rule, reason.at));
    record.reasons = reasons
        .iter()
        .map(|reason| format!("{}: {} [{}]", reason.layer.as_str(), reason.why, reason.at))
        // A name with a line break must not look like another reason.
        .map(|reason| reason.replace(char::is_control, " "))
        .collect();
}
