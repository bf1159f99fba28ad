//! Rewriting a syntax pattern in 1,000 functions (T8), compared with the ast-grep program on the same file: once with the
//! file written, once without.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Instant;

use vambrace_workspace::{EditLimits, EditRequest, MatchMode};

use crate::project::{Project, median, path};
use crate::report::{Report, Requirement};

const FUNCTIONS: usize = 1000;
const ROUNDS: usize = 11;
const PATTERN: &str = "compute($A, $B)";
const REWRITE: &str = "evaluate($B, $A)";

pub(crate) fn run() -> Report {
    let mut report = Report::new("edit-ast");
    let project = Project::new();
    let text: String = (0..FUNCTIONS)
        .map(|n| {
            format!(
                "/// Function {n}.\npub fn function_{n}(left: u64, right: u64) -> u64 {{\n    let sum = left + {n};\n    \
                 if sum > right {{\n        return compute(sum * 2, right);\n    }}\n    sum - right\n}}\n\n"
            )
        })
        .collect();
    let program = std::env::var_os("VAMBRACE_AST_GREP").unwrap_or_else(|| "ast-grep".into());
    report.add("file", text.len() as f64 / 1024.0, "KiB");
    let (mut ours, mut theirs, mut drafted, mut printed) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        for name in ["ours.rs", "theirs.rs"] {
            std::fs::write(project.at(name), &text).unwrap();
        }
        let edit = [EditRequest {
            match_mode: MatchMode::Ast,
            count: FUNCTIONS,
            ..EditRequest::replace(PATTERN, REWRITE)
        }];
        let begun = Instant::now();
        let draft = project.ws.draft_edit(&path("ours.rs"), &edit, None, &EditLimits::default()).unwrap();
        let draft_time = begun.elapsed();
        project.applier.apply(&draft.changes).unwrap();
        let our_time = begun.elapsed();
        let begun = Instant::now();
        let rewrites = theirs_with(&program, &project, "--json=compact");
        let told_time = begun.elapsed();
        assert!(rewrites > 0, "ast-grep printed nothing");
        let begun = Instant::now();
        theirs_with(&program, &project, "--update-all");
        let their_time = begun.elapsed();
        let read = |name: &str| std::fs::read_to_string(project.at(name)).unwrap();
        assert!(read("ours.rs") == read("theirs.rs"), "the two results differ");
        assert!(read("ours.rs") != text);
        // The first round warms the caches.
        if round > 0 {
            ours.push(our_time.as_secs_f64() * 1e3);
            theirs.push(their_time.as_secs_f64() * 1e3);
            drafted.push(draft_time.as_secs_f64() * 1e3);
            printed.push(told_time.as_secs_f64() * 1e3);
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let (drafted, printed) = (median(&mut drafted), median(&mut printed));
    report.add("ours: matched, diffed, applied, synced", ours, "ms");
    report.add("ast-grep program, the file written", theirs, "ms");
    report.add("ours: matched, diffed, parsed again", drafted, "ms");
    report.add("ast-grep program, rewrites as JSON, nothing written", printed, "ms");
    report.require("nothing written: ast-grep / ours", printed / drafted, "x", Requirement::AtLeast(0.8));
    report.require("written: ast-grep / ours", theirs / ours, "x", Requirement::AtLeast(0.8));
    report
}

/// Runs ast-grep on its copy; returns how many bytes it printed.
fn theirs_with(program: &OsStr, project: &Project, how: &str) -> usize {
    let output = Command::new(program)
        .args(["run", "--pattern", PATTERN, "--rewrite", REWRITE, "--lang", "rust", how, "theirs.rs"])
        .current_dir(project.at("theirs.rs").parent().unwrap())
        .stdin(Stdio::null())
        .output()
        .expect("ast-grep runs; set VAMBRACE_AST_GREP to its path");
    assert!(output.status.success());
    output.stdout.len()
}
