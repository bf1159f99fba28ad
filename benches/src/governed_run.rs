//! What governing and recording a run of `/bin/true` costs: `vambrace sandbox run -- true` compared with an earlier binary
//! that neither decides nor records, and two durable commits on this disk.
//!
//! The earlier binary is named by `VAMBRACE_BEFORE`; without it only the times of this one are reported.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    read::{BenchProject, micros, percentile},
    report::{Report, Requirement},
};

const RUNS: usize = 40;
/// Allowed for planning, deciding and opening the store, in us.
const ALLOWANCE: f64 = 3000.0;

pub(crate) fn run() -> Report {
    let place = BenchProject::new();
    let earlier = std::env::var_os("VAMBRACE_BEFORE").map(PathBuf::from);
    let (mut governed, mut before) = (Vec::new(), Vec::new());
    for round in 0..=RUNS {
        let times = [
            Some(wall(run_true(place.vambrace(), &place))),
            earlier.as_ref().map(|earlier| {
                let mut command = place.vambrace();
                let mut other = Command::new(earlier);
                other.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
                command = other;
                wall(run_true(command, &place))
            }),
        ];
        // The first round warms the caches.
        if round > 0 {
            governed.extend(times[0]);
            before.extend(times[1]);
        }
    }
    let mut syncs = place.syncs();
    let commits = 2.0 * percentile(&mut syncs, 50);
    let mut report = Report::new("governed-run");
    let governed = percentile(&mut governed, 50);
    report.add("sandbox run -- true, median", governed / 1e3, "ms");
    report.add("two durable writes, median", commits / 1e3, "ms");
    if before.is_empty() {
        report.add("VAMBRACE_BEFORE is not set: not compared", 0.0, "");
        return report;
    }
    let before = percentile(&mut before, 50);
    report.add("the same, neither decided nor recorded, median", before / 1e3, "ms");
    let beyond = (governed - before - commits) / 1e3;
    report.require(
        "governed, beyond that and two commits",
        beyond,
        "ms",
        Requirement::AtMost(ALLOWANCE / 1e3),
    );
    report
}

fn run_true(mut command: Command, place: &BenchProject) -> Command {
    command.args(["sandbox", "run", "--workspace"]).arg(place.project()).args(["--", "/bin/true"]);
    command
}

fn wall(mut command: Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    micros(start)
}
