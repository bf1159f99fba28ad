//! The sandbox: every feature that it uses of the kernel was tried, and the tier that follows.

use vambrace_sandbox::{FeatureKind, Sandbox, Tier};

use super::check::Check;
use crate::command::sandbox::start;

pub(super) fn look(checks: &mut Vec<Check>) {
    let started = start();
    let tried = started
        .as_ref()
        .map_err(|failure| failure.error.message.clone())
        .and_then(|sandbox: &Sandbox| sandbox.features().cloned().map_err(|fault| fault.to_string()));
    let features = match tried {
        Ok(features) => features,
        Err(why) => {
            let lost = "no program is run";
            return checks.push(Check::degraded("sandbox", why, lost, "see the message"));
        }
    };
    checks.push(match features.tier() {
        Some(Tier::Full) => Check::ok("sandbox", "tier full"),
        Some(tier) => Check::degraded(
            "sandbox",
            format!("tier {tier}"),
            "weaker walls; the lines below say which",
            "see the lines below",
        ),
        None => Check::degraded("sandbox", "no tier", "no program is run", "see the lines below"),
    });
    for feature in features.list {
        let kind = feature.kind;
        checks.push(if feature.works {
            Check::ok(kind.name(), feature.seen)
        } else if kind == FeatureKind::Audit {
            // Hardly anybody has it, and no wall is weaker without.
            Check::ok(kind.name(), format!("not read ({}): {}", feature.seen, kind.lost()))
        } else {
            Check::degraded(kind.name(), feature.seen, kind.lost(), kind.fix())
        });
    }
}
