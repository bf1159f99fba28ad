//! Checks every kernel feature that the sandbox uses, and the resulting tier.

use std::path::Path;

use vambrace_sandbox::{FeatureKind, Sandbox, StateDirs, Tier};

use super::check::DoctorCheck;
use crate::host::recover_write_backs;
use crate::paths::Paths;

/// `program` is the launcher of the sandbox: this program itself.
pub(super) fn examine(paths: &Paths, program: &Path, checks: &mut Vec<DoctorCheck>) {
    let places = StateDirs::below(paths.state());
    recover_write_backs(paths, None);
    let tried = Sandbox::start(program, places).and_then(|sandbox| sandbox.features().cloned());
    let features = match tried {
        Ok(features) => features,
        Err(fault) => {
            let lost = "no program can run";
            return checks.push(DoctorCheck::degraded("sandbox", fault.to_string(), lost, "see the message"));
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
