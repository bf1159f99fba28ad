//! A unified diff of 20,000 lines with 500 changes (B2), compared with `git diff --no-index` on the same two files.

use std::process::{Command, Stdio};
use std::time::Instant;

use vambrace_workspace::diff;

use crate::project::{Project, code, median};
use crate::report::{Report, Requirement};

const LINES: usize = 20_000;
const CHANGES: usize = 500;
const ROUNDS: usize = 15;

pub(crate) fn run() -> Report {
    let mut report = Report::new("diff");
    let project = Project::new();
    let old = code(LINES);
    let new: String = old
        .split_inclusive('\n')
        .enumerate()
        .map(|(n, line)| match n % (LINES / CHANGES) {
            7 if n % 3 == 0 => format!("{line}// added after {n}\n"),
            7 if n % 3 == 1 => String::new(),
            7 => line.replace("value +", "value *"),
            _ => line.to_owned(),
        })
        .collect();
    std::fs::write(project.at("old.rs"), &old).unwrap();
    std::fs::write(project.at("new.rs"), &new).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut sizes = (0, 0);
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        let before = std::fs::read(project.at("old.rs")).unwrap();
        let after = std::fs::read(project.at("new.rs")).unwrap();
        let made = diff::between(&before, &after);
        let our_time = begun.elapsed();
        let begun = Instant::now();
        let printed = Command::new("git")
            .args(["diff", "--no-index", "--no-color", "--no-ext-diff", "old.rs", "new.rs"])
            .current_dir(project.at("old.rs").parent().unwrap())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::null())
            .output()
            .expect("git runs");
        let their_time = begun.elapsed();
        let changed = |diff: &[u8]| {
            diff.split(|byte| *byte == b'\n').filter(|l| l.starts_with(b"+") || l.starts_with(b"-")).count()
        };
        // Two of git's lines are the file names.
        sizes = (changed(&made), changed(&printed.stdout) - 2);
        if round > 0 {
            ours.push(our_time.as_secs_f64() * 1e3);
            theirs.push(their_time.as_secs_f64() * 1e3);
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    report.add("changed lines: ours", sizes.0 as f64, "lines");
    report.add("changed lines: git", sizes.1 as f64, "lines");
    report.add("ours, with reading", ours, "ms");
    report.add("git diff --no-index", theirs, "ms");
    report.require("git / ours", theirs / ours, "x", Requirement::AtLeast(1.0));
    report
}
