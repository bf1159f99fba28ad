//! One exact edit in a file of 20,000 lines, proposed and applied (T8, T9), compared with `sed -i`: CPU time with CPU time,
//! and wall time with `sed -i` followed by the same two syncs. The syncs of a whole call, from request to ledger record,
//! are counted with strace (`edit/syncs.rs`).

mod syncs;

use std::fs::File;
use std::process::Command;
use std::time::Instant;

use vambrace_workspace::{EditLimits, EditRequest};

use crate::project::{Project, code, cpu_time, median, path};
use crate::report::{Report, Requirement};

const LINES: usize = 20_000;
const ROUNDS: usize = 5;
const EDITS: u32 = 60;

pub(crate) fn run() -> Report {
    let mut report = Report::new("edit");
    let project = Project::new();
    let text = code(LINES);
    for name in ["ours.rs", "theirs.rs"] {
        std::fs::write(project.at(name), &text).unwrap();
    }
    report.add("file", text.len() as f64 / 1024.0, "KiB");
    let (mut our_cpu, mut their_cpu, mut our_wall, mut their_wall) = (vec![], vec![], vec![], vec![]);
    let mut number = 0_u64;
    let mut syncs = 0;
    for _ in 0..ROUNDS {
        let (begun, cpu) = (Instant::now(), cpu_time());
        for _ in 0..EDITS {
            syncs = syncs.max(edit(&project, number));
            number += 1;
        }
        our_cpu.push((cpu_time() - cpu).as_secs_f64() * 1e3 / f64::from(EDITS));
        our_wall.push(begun.elapsed().as_secs_f64() * 1e3 / f64::from(EDITS));
        their_cpu.push(sed_cpu(&project));
        their_wall.push(sed_and_sync(&project));
    }
    let expected = text.replace("TARGET: u64 = 0;", &format!("TARGET: u64 = {number};"));
    assert_eq!(std::fs::read_to_string(project.at("ours.rs")).unwrap(), expected);
    let (our_cpu, their_cpu) = (median(&mut our_cpu), median(&mut their_cpu));
    let (our_wall, their_wall) = (median(&mut our_wall), median(&mut their_wall));
    if let Some((whole, all)) = syncs::of_one_edit(LINES) {
        report.require(
            "all syncs of the program per edit: proposed, approved, applied, recorded",
            all,
            "",
            Requirement::AtMost(4.0),
        );
        report.add("of them, syncs that an edit waits for", whole, "");
    }
    report.add("of those, syncs of the apply", f64::from(syncs), "");
    report.add("CPU time: ours, with the diff", our_cpu, "ms");
    report.add("CPU time: sed -i", their_cpu, "ms");
    report.require("CPU time: ours / sed -i", our_cpu / their_cpu, "x", Requirement::AtMost(2.0));
    report.add("wall: ours", our_wall, "ms");
    report.add("wall: sed -i, then syncing file and directory", their_wall, "ms");
    report.add("wall: ours / sed -i with syncs", our_wall / their_wall, "x");
    report
}

fn edit(project: &Project, number: u64) -> u32 {
    let spec = format!("const TARGET: u64 = {number};");
    let content = format!("const TARGET: u64 = {};", number + 1);
    let edit = [EditRequest::replace(spec, content)];
    let draft = project.ws.draft_edit(&path("ours.rs"), &edit, None, &EditLimits::default()).unwrap();
    assert!(!draft.preview().is_empty());
    project.applier.apply(&draft.changes).unwrap().0.syncs
}

/// CPU time of the shell's children over many runs: the clock is too coarse for a single one.
fn sed_cpu(project: &Project) -> f64 {
    let script = format!(
        "for i in $(seq {EDITS}); do sed -i \"s/TARGET: u64 = [0-9]*;/TARGET: u64 = $i;/\" theirs.rs; done; times"
    );
    let dir = project.at("theirs.rs");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(dir.parent().unwrap()).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let children = said.lines().nth(1).expect("`times` prints two lines");
    let seconds: f64 = children
        .split_whitespace()
        .map(|time| {
            let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
        })
        .sum();
    seconds * 1e3 / f64::from(EDITS)
}

fn sed_and_sync(project: &Project) -> f64 {
    let file = project.at("theirs.rs");
    let dir = File::open(file.parent().unwrap()).unwrap();
    let begun = Instant::now();
    for round in 0..EDITS {
        let script = format!("s/TARGET: u64 = [0-9]*;/TARGET: u64 = {round};/");
        assert!(Command::new("sed").args(["-i", &script]).arg(&file).status().unwrap().success());
        File::open(&file).unwrap().sync_all().unwrap();
        dir.sync_all().unwrap();
    }
    begun.elapsed().as_secs_f64() * 1e3 / f64::from(EDITS)
}
