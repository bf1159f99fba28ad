//! A run's write-back and a tool that changes the same file: never do both win.

use std::sync::Barrier;

use libtest_mimic::Trial;
use vambrace_core::change::MAX_FILES;
use vambrace_core::error::ErrorCode;
use vambrace_exec::RunReport;
use vambrace_sandbox::Filesystem;

use super::harness::{TestProject, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("edit_before_a_write_back_makes_it_stale", edit_before_a_write_back_makes_it_stale),
        test("edit_during_a_write_back_waits_and_is_stale", edit_during_a_write_back_waits_and_is_stale),
        test("run_and_concurrent_edit_never_both_win", run_and_concurrent_edit_never_both_win),
    ]
}

/// A run that changes `notes.txt`: as part of a ChangeSet, beside one, and in a run that is too large for one.
fn runs(project: &TestProject) -> [RunReport; 3] {
    let many = format!("mkdir many; for i in $(seq {MAX_FILES}); do : >many/$i; done");
    let run = |more: &str| project.run(Filesystem::ReadWrite, &format!("echo run >notes.txt; {more}"));
    [run(":"), run("ln -s x link"), run(&many)]
}

// T9
fn edit_before_a_write_back_makes_it_stale() {
    let project = TestProject::new();
    for report in runs(&project) {
        let edit = project.draft("notes.txt", "edit\n");
        project.applier.apply(&edit).unwrap();
        let before = project.listing();
        let error = project.write_back(&report).expect_err("the edit won");
        assert_eq!(error.code(), "StaleBase", "{error}");
        assert_eq!(project.listing(), before, "nothing was written");
        project.write("notes.txt", "notes\n");
    }
}

// T9
fn edit_during_a_write_back_waits_and_is_stale() {
    for number in 0..3 {
        let project = TestProject::new();
        let report = &runs(&project)[number];
        let edit = project.draft("notes.txt", "edit\n");
        let prepared = project.prepare(report).unwrap();
        let busy = project.applier.apply(&edit).expect_err("the file is locked");
        assert_eq!(busy.code(), ErrorCode::ResourceBusy, "{number}: {busy}");
        prepared.commit("test").unwrap();
        let stale = project.applier.apply(&edit).expect_err("the run won");
        assert_eq!(stale.code(), ErrorCode::StaleBase, "{number}: {stale}");
        assert_eq!(project.read("notes.txt").as_deref(), Some("run\n"));
        let again = project.draft("notes.txt", "edit\n");
        let prepared = project.applier.prepare(&again).unwrap();
        let error = project.write_back(report).expect_err("the file is locked or stale");
        assert!(["ResourceBusy", "StaleBase"].contains(&error.code()), "{number}: {error}");
        prepared.commit("").unwrap();
        assert_eq!(project.read("notes.txt").as_deref(), Some("edit\n"));
    }
}

// T9
fn run_and_concurrent_edit_never_both_win() {
    let (mut run_won, mut edit_won) = (0, 0);
    for round in 0..40 {
        let project = TestProject::new();
        let more = if round % 2 == 0 { ":" } else { "ln -s x link" };
        let report = project.run(Filesystem::ReadWrite, &format!("echo run >notes.txt; {more}"));
        let edit = project.draft("notes.txt", "edit\n");
        let begin = Barrier::new(2);
        let (run, edit) = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                begin.wait();
                project.write_back(&report)
            });
            begin.wait();
            let edit = project.applier.apply(&edit);
            (run.join().unwrap(), edit)
        });
        let content = project.read("notes.txt").unwrap();
        match (&run, &edit) {
            (Ok(_), Err(error)) => {
                assert!(matches!(error.code(), ErrorCode::StaleBase | ErrorCode::ResourceBusy), "{error}");
                assert_eq!(content, "run\n");
                run_won += 1;
            }
            (Err(error), Ok(_)) => {
                assert!(["StaleBase", "ResourceBusy"].contains(&error.code()), "{error}");
                assert_eq!(content, "edit\n");
                assert!(project.path("link").symlink_metadata().is_err(), "nothing of the run was written");
                edit_won += 1;
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    println!("the run won {run_won} times, the edit {edit_won} times");
}
