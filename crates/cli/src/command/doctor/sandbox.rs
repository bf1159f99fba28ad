//! Checks every kernel feature that the sandbox uses, and the resulting tier.

use vambrace_sandbox::{FeatureKind, Sandbox, Tier};

use super::check::DoctorCheck;
use crate::command::sandbox::start;

pub(super) fn look(checks: &mut Vec<DoctorCheck>) {
    let started = start();
    let tried = started
        .as_ref()
        .map_err(|failure| failure.error.message.clone())
        .and_then(|sandbox: &Sandbox| sandbox.features().cloned().map_err(|fault| fault.to_string()));
    let features = match tried {
        Ok(features) => features,
        Err(why) => {
            let lost = "no program can run";
            return checks.push(DoctorCheck::degraded("sandbox", why, lost, "see the message"));
        }
    };
    checks.push(match features.tier() {
        Some(Tier::Full) => DoctorCheck::ok("sandbox", "tier full"),
        Some(tier) => DoctorCheck::degraded(
            "sandbox",
            format!("tier {tier}"),
            "weaker isolation, see the lines below",
            "see the lines below",
        ),
        None => DoctorCheck::degraded("sandbox", "no tier", "no program can run", "see the lines below"),
    });
    for feature in features.list {
        let kind = feature.kind;
        checks.push(if feature.works {
            DoctorCheck::ok(kind.name(), feature.seen)
        } else if kind == FeatureKind::Audit {
            // Rarely available, and the sandbox is not weaker without it.
            DoctorCheck::ok(kind.name(), format!("not available ({}): {}", feature.seen, kind.lost()))
        } else {
            DoctorCheck::degraded(kind.name(), feature.seen, kind.lost(), kind.fix())
        });
    }
}
