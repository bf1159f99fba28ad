//! Runs the test binary as a child process that changes files until it is done or killed, and reports its progress on
//! stdout.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vambrace_core::ErrorCode;
use vambrace_core::blocked_paths::BlockList;
use vambrace_workspace::{Applier, EditRequest, ScopeRules, Workspace};

use crate::editing::limits;
use crate::fixtures::path;
use crate::harness::applier;

const HOME: &str = "VAMBRACE_TEST_CHILD_HOME";
const TASK: &str = "VAMBRACE_TEST_CHILD_TASK";

/// Spawns a child for the project below `home`.
pub(crate) fn spawn(home: &Path, task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process::child", "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .env(TASK, task)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// The lines that a child reports. A line truncated by a kill is skipped.
pub(crate) fn reported(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.strip_prefix("SAID ")?.strip_suffix(" END").map(str::to_owned))
}

fn report(words: &str) {
    let mut out = std::io::stdout().lock();
    // One write for the whole line, on a new line after the output of the test harness.
    out.write_all(format!("\nSAID {words} END\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Not a test by itself: does something only when spawned as a child.
#[test]
fn child() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    let block = BlockList::with_defaults::<&str>(&[]).unwrap();
    let ws = Workspace::open(&home.join("project"), ScopeRules::new("", block)).unwrap();
    let applier = applier(&ws, &home);
    let task = std::env::var(TASK).unwrap();
    report("READY");
    match task.split_once(' ').unwrap_or((&task, "")) {
        ("count", share) => count(&ws, &applier, &home, share.parse().unwrap()),
        ("hold", how) => {
            let applier = if how == "worker" { applier.as_worker() } else { applier };
            let edit = [EditRequest::replace("a", "b")];
            let changes = ws.draft_edit(&path("f"), &edit, None, &limits()).unwrap().changes;
            let held = applier.prepare(&changes).unwrap();
            report("HELD");
            std::thread::park();
            drop(held);
        }
        ("batch", _) => batches(&ws, &applier, &home),
        ("single", _) => singles(&ws, &applier, &home),
        other => panic!("{other:?}"),
    }
}

fn text(home: &Path, name: &str) -> String {
    std::fs::read_to_string(home.join("project").join(name)).unwrap()
}

/// Increments the number in a file repeatedly, in competition with other processes.
fn count(ws: &Workspace, applier: &Applier, home: &Path, share: u32) {
    let mut retries = 0_u32;
    for _ in 0..share {
        loop {
            let now = text(home, "counter");
            let number: u32 = now.trim().strip_prefix("count: ").unwrap().parse().unwrap();
            let edit =
                [EditRequest::replace(format!("count: {number}\n"), format!("count: {}\n", number + 1))];
            let code = match ws.draft_edit(&path("counter"), &edit, None, &limits()) {
                Err(error) => error.code(),
                Ok(draft) => match applier.apply(&draft.changes) {
                    Ok(_) => break,
                    Err(error) => error.code(),
                },
            };
            let expected = [ErrorCode::StaleBase, ErrorCode::MatchCountMismatch, ErrorCode::ResourceBusy];
            assert!(expected.contains(&code), "{code}");
            retries += 1;
        }
    }
    report(&format!("DONE {retries}"));
}

fn singles(ws: &Workspace, applier: &Applier, home: &Path) {
    loop {
        let now = text(home, "single");
        let number: u64 = now.lines().next().unwrap().strip_prefix("gen ").unwrap().parse().unwrap();
        let edit = [EditRequest::replace(format!("gen {number}\n"), format!("gen {}\n", number + 1))];
        let draft = ws.draft_edit(&path("single"), &edit, None, &limits()).unwrap();
        applier.apply(&draft.changes).unwrap();
        report(&format!("GEN {}", number + 1));
    }
}

fn batches(ws: &Workspace, applier: &Applier, home: &Path) {
    loop {
        let number: u64 = text(home, "f0").trim().strip_prefix("gen ").unwrap().parse().unwrap();
        let draft = ws.draft_patch(step(number).as_bytes(), &limits()).unwrap();
        applier.prepare(&draft.changes).unwrap().commit(&format!("gen {}", number + 1)).unwrap();
        report(&format!("GEN {}", number + 1));
    }
}

/// The files of a generation: three are modified, one is created or deleted, one is renamed and modified.
pub(crate) fn generation(number: u64) -> Vec<(String, Option<String>)> {
    let own = format!("gen {number}\n");
    let (here, there) = if number.is_multiple_of(2) { ("even", "odd") } else { ("odd", "even") };
    let mut files: Vec<_> = (0..3).map(|n| (format!("f{n}"), Some(own.clone()))).collect();
    files.push(("deep/extra".to_owned(), number.is_multiple_of(2).then(|| own.clone())));
    files.push((here.to_owned(), Some(own)));
    files.push((there.to_owned(), None));
    files
}

/// The patch from one generation to the next.
fn step(number: u64) -> String {
    let next = number + 1;
    let hunk = format!("@@ -1 +1 @@\n-gen {number}\n+gen {next}\n");
    let mut patch: String =
        (0..3).map(|n| format!("diff --git a/f{n} b/f{n}\n--- a/f{n}\n+++ b/f{n}\n{hunk}")).collect();
    let (from, to) = if number.is_multiple_of(2) { ("even", "odd") } else { ("odd", "even") };
    patch += &format!(
        "diff --git a/{from} b/{to}\nrename from {from}\nrename to {to}\n--- a/{from}\n+++ b/{to}\n{hunk}"
    );
    patch += &if number.is_multiple_of(2) {
        format!(
            "diff --git a/deep/extra b/deep/extra\n--- a/deep/extra\n+++ /dev/null\n@@ -1 +0,0 @@\n-gen {number}\n"
        )
    } else {
        format!(
            "diff --git a/deep/extra b/deep/extra\n--- /dev/null\n+++ b/deep/extra\n@@ -0,0 +1 @@\n+gen {next}\n"
        )
    };
    patch
}
