//! One call from the command line, from process start to exit, compared with `cat` and an empty Node program.
//!
//! No requirements: the cost of a start depends on the disk (each call leaves a durable record).

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    read::{BenchProject, micros, node, percentile},
    report::Report,
};

const RUNS: usize = 40;

pub(crate) fn run() -> Report {
    let place = BenchProject::new();
    let ours = || {
        let mut command = place.vambrace();
        command.args(["call", "read_file", &format!("path={}", BenchProject::FILE), "--workspace"]);
        command.arg(place.project()).arg("--json");
        command
    };
    let cat = || {
        let mut command = Command::new("cat");
        command.arg(place.project().join(BenchProject::FILE));
        command
    };
    let empty = || {
        let mut command = node();
        command.args(["-e", "0"]);
        command
    };
    let programs: [(&str, &dyn Fn() -> Command); 3] =
        [("vambrace call read_file", &ours), ("cat", &cat), ("node -e 0", &empty)];

    let mut times = [const { Vec::new() }; 3];
    for round in 0..=RUNS {
        for ((name, program), times) in programs.iter().zip(&mut times) {
            let time = wall(name, program());
            // The first round warms the caches.
            if round > 0 {
                times.push(time);
            }
        }
    }

    let mut report = Report::new("start");
    for ((name, _), times) in programs.iter().zip(&mut times) {
        report.add(format!("{name}, median"), percentile(times, 50) / 1e3, "ms");
    }
    let [ours, cat, node] = &mut times;
    let ours = percentile(ours, 50);
    report.add("vambrace / cat", ours / percentile(cat, 50), "times");
    report.add("node / vambrace", percentile(node, 50) / ours, "times");
    report
}

fn wall(name: &str, mut command: Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status();
    let time = micros(start);
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "`{name}` ended with {status:?}");
    time
}
