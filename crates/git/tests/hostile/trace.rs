//! Counts every program that starts, by a trace of execve.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::lab::{Lab, run_under, versions};
use super::vectors::arm_everything;
use super::vectors_remote::every_invocation;

// T15
#[test]
fn only_git_itself_is_executed_in_a_repository_with_every_vector() {
    if Command::new("strace")
        .args(["-qq", "-e", "trace=none", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        for git in versions() {
            let lab = Lab::new(&git);
            arm_everything(&lab);
            lab.clear_markers();
            let repository = lab.open().unwrap();
            let trace = lab.root.join("trace");
            let mut started = BTreeSet::new();
            for invocation in every_invocation(&lab, &repository) {
                let wrapper = [
                    "strace",
                    "-f",
                    "-qq",
                    "-s",
                    "4096",
                    "-e",
                    "trace=execve",
                    "-o",
                    trace.to_str().unwrap(),
                ];
                run_under(&wrapper, &invocation);
                started.extend(executed(&fs::read_to_string(&trace).unwrap()));
            }
            assert_eq!(lab.markers(), Vec::<String>::new());
            // The shell starts the ssh of the lab, which runs the server's part.
            let expected = ["env", "fake-ssh", "git", "git-receive-pack", "sh"];
            assert!(started.iter().all(|program| expected.contains(&program.as_str())), "{started:?}");
            assert!(started.contains("git"));
        }
    } else {
        vambrace_skip::skip("strace cannot trace here");
    }
}

/// The names of the programs that were executed.
fn executed(trace: &str) -> impl Iterator<Item = String> + '_ {
    trace.lines().filter(|line| line.contains("execve(") && line.ends_with("= 0")).map(|line| {
        let path = line.split('"').nth(1).unwrap();
        path.rsplit('/').next().unwrap().to_owned()
    })
}
