//! Grants: yes to a class of calls, or to everything of an agent, within one session and for a while. They answer only
//! questions that may be answered so, and never outrank a rule of the organisation.

use vambrace_core::effect::Effect;
use vambrace_core::plan::Plan;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::verdict::{LayerKind, Verdict};
use vambrace_core::voucher::Voucher;
use vambrace_ledger::Reach;
use vambrace_store::GrantRow;

/// In front of every grant's id, so that a permit's vouchers tell apart.
pub(crate) const PREFIX: &str = "grant-";

/// The class that a call belongs to: its tool, or the programs it starts.
#[must_use]
pub(crate) fn class_of(plan: &Plan) -> String {
    let programs: Vec<&str> = plan
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Execute { argv } => argv.first().map(String::as_str),
            _ => None,
        })
        .collect();
    match programs.first() {
        Some(first) if programs.iter().all(|program| program == first) => {
            format!("{} {first}", plan.tool.name)
        }
        _ => plan.tool.name.to_string(),
    }
}

/// The vouchers that grants are, for the questions of one plan.
pub(crate) fn vouchers(
    grants: &[GrantRow<String>],
    class: &str,
    agent: &str,
    verdict: &Verdict,
    now: Timestamp,
) -> Vec<Voucher> {
    let mut vouchers = Vec::new();
    for grant in grants.iter().filter(|grant| grant.counts(now) && grant.agent == agent) {
        let fits = match grant.reach {
            Reach::Once => false,
            Reach::Class => grant.shape == class,
            Reach::Session => true,
        };
        if fits {
            vouchers.extend(verdict.obligations().map(|obligation| Voucher::Grant {
                id: grant.id.to_string(),
                about: obligation.reason.about.clone(),
                by: LayerKind::User,
                expires: Some(grant.expires),
                revoked: false,
            }));
        }
    }
    vouchers
}
