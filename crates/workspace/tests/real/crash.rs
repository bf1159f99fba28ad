//! Several processes that change one file, and processes that are killed at random moments.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use vambrace_core::digest::Digest;
use vambrace_workspace::{EditRequest, RecoveryOutcome};

use crate::child_process::{generation, reported, spawn};
use crate::editing::limits;
use crate::fixtures::path;
use crate::harness::{Harness, applier};

const PROCESSES: u32 = 5;
const EDITS: u32 = 500;
const KILLS: u64 = 260;

// T9
#[test]
fn thousands_of_contended_edits_from_several_processes_lose_none() {
    let harness = Harness::new();
    harness.tree.file("counter", "count: 0\n");
    let task = format!("count {EDITS}");
    let mut children: Vec<_> = (0..PROCESSES).map(|_| spawn(harness.tree.home.path(), &task)).collect();
    let mut retries = 0;
    for child in &mut children {
        let reported: Vec<String> = reported(child).collect();
        let done =
            reported.iter().find_map(|line| line.strip_prefix("DONE ")).expect("a child did not finish");
        retries += done.parse::<u64>().unwrap();
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(harness.read("counter").unwrap(), format!("count: {}\n", PROCESSES * EDITS).into_bytes());
    assert!(retries > 0, "the processes never contended: the test proves nothing");
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// T9
#[test]
fn the_lock_of_a_killed_process_is_released() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n");
    let changes = harness
        .ws
        .draft_edit(&path("f"), &[EditRequest::replace("a", "b")], None, &limits())
        .unwrap()
        .changes;
    for _ in 0..20 {
        let mut child = spawn(harness.tree.home.path(), "hold");
        let held = reported(&mut child).any(|line| line == "HELD");
        assert!(held, "the child never held the lock");
        let hasty = applier(&harness.ws, harness.tree.home.path()).lock_timeout(Duration::from_millis(20));
        assert!(hasty.apply(&changes).is_err(), "two holders at once");
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, back) = harness.applier.apply(&changes).unwrap();
        harness.applier.apply(&back.unwrap()).unwrap();
    }
    harness.applier.recover();
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// T9: an overdue holder is reported; one of our workers is killed first, any other process keeps the lock
#[test]
fn only_an_overdue_worker_is_killed_before_its_lock_is_taken() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n");
    let edit = [EditRequest::replace("a", "b")];
    let changes = harness.ws.draft_edit(&path("f"), &edit, None, &limits()).unwrap().changes;
    for (task, worker) in [("hold", false), ("hold worker", true)] {
        let mut child = spawn(harness.tree.home.path(), task);
        assert!(reported(&mut child).any(|line| line == "HELD"), "the child never held the lock");
        let patient = applier(&harness.ws, harness.tree.home.path()).overdue_after(Duration::ZERO);
        let prepared =
            patient.lock_timeout(Duration::from_secs(if worker { 20 } else { 1 })).prepare(&changes);
        if worker {
            let prepared = prepared.unwrap();
            let late = prepared.overdue();
            assert_eq!((late.len(), late[0].holder.process, late[0].holder.ended), (1, child.id(), true));
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        } else {
            let error = prepared.unwrap_err().to_string();
            assert!(error.contains("overdue"), "{error}");
            assert_eq!(child.try_wait().unwrap(), None, "the child still runs");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Kills a child at a moment that differs per round, within about one change after an acknowledged one; returns the last
/// generation it acknowledged.
fn killed(harness: &Harness, task: &str, round: u64) -> Option<u64> {
    let mut child = spawn(harness.tree.home.path(), task);
    let mut lines = reported(&mut child);
    assert_eq!(lines.next().as_deref(), Some("READY"));
    let generation = |line: String| line.strip_prefix("GEN ").and_then(|number| number.parse().ok());
    let begun = Instant::now();
    let mut last = lines.next().and_then(generation);
    let one = begun.elapsed().min(Duration::from_millis(200));
    let random = Digest::of(&round.to_be_bytes()).as_bytes()[0];
    let begun = Instant::now();
    while begun.elapsed() < one * u32::from(random) / 230 {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    last = lines.filter_map(generation).last().or(last);
    child.wait().unwrap();
    last
}

fn number(harness: &Harness, name: &str) -> u64 {
    let text = String::from_utf8(harness.read(name).unwrap()).unwrap();
    text.lines().next().unwrap().strip_prefix("gen ").unwrap().parse().unwrap()
}

// B7: all or none after any crash.
#[test]
fn a_killed_change_of_several_files_is_applied_completely_or_not_at_all() {
    let harness = Harness::new();
    for (name, content) in generation(0) {
        if let Some(content) = content {
            harness.tree.file(&name, content);
        }
    }
    let (mut redone, mut before) = (0, 0);
    for round in 0..KILLS {
        let acknowledged = killed(&harness, "batch", round).unwrap_or(before);
        for recovered in harness.applier.recover() {
            assert_eq!(recovered.outcome, RecoveryOutcome::Applied, "{recovered:?}");
            assert_eq!(recovered.tag, format!("gen {}", number(&harness, "f0")));
            redone += 1;
        }
        before = number(&harness, "f0");
        assert!(
            (acknowledged..=acknowledged + 1).contains(&before),
            "acknowledged {acknowledged}, found {before}"
        );
        for (name, content) in generation(before) {
            let now = harness.read(&name).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(now, content, "round {round}: `{name}` of generation {before}");
        }
        assert_eq!(harness.leftovers(), Vec::<String>::new(), "round {round}");
    }
    assert!(
        before >= KILLS && redone > 0,
        "{before} generations, {redone} redone: the kills never hit an open journal"
    );
    println!("{KILLS} kills of multi-file changes, {before} generations, {redone} completed by recovery");
}

// B7
#[test]
fn a_killed_change_of_one_file_leaves_the_old_or_the_new_content() {
    let harness = Harness::new();
    let filler = "the quick brown fox\n".repeat(20_000);
    harness.tree.file("single", format!("gen 0\n{filler}"));
    let mut before = 0;
    for round in 0..KILLS {
        let acknowledged = killed(&harness, "single", round).unwrap_or(before);
        // Every other round only the next writer cleans up.
        if round % 2 == 0 {
            assert_eq!(harness.applier.recover(), []);
        }
        before = number(&harness, "single");
        assert!(
            (acknowledged..=acknowledged + 1).contains(&before),
            "acknowledged {acknowledged}, found {before}"
        );
        assert!(
            harness.read("single").unwrap() == format!("gen {before}\n{filler}").into_bytes(),
            "round {round}"
        );
        if round % 2 == 0 {
            assert_eq!(harness.leftovers(), Vec::<String>::new(), "round {round}");
        }
    }
    assert!(before >= KILLS);
    println!("{KILLS} kills of single changes, {before} generations");
}

// B7: a change by another program between the crash and the start is not overwritten.
#[test]
fn recovery_keeps_and_reports_changes_of_other_programs() {
    let harness = Harness::new();
    for (name, content) in generation(0) {
        if let Some(content) = content {
            harness.tree.file(&name, content);
        }
    }
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 400, "no kill ever left a journal");
        killed(&harness, "batch", rounds);
        let journal = std::fs::read_dir(harness.tree.home.path().join("journal")).unwrap();
        if journal.map(Result::unwrap).any(|entry| entry.file_name().to_string_lossy().ends_with(".journal"))
        {
            break;
        }
        harness.applier.recover();
    }
    // Another project that shares the state directory does not touch it.
    let other = Harness::new();
    let stranger = applier(&other.ws, harness.tree.home.path());
    assert_eq!(stranger.recover(), []);
    assert_eq!(other.read("f0"), None);
    harness.tree.file("f2", "somebody\n");
    let recovered = harness.applier.recover();
    assert_eq!(recovered[0].outcome, RecoveryOutcome::Conflict(vec!["f2".to_owned()]));
    assert_eq!(harness.read("f2").unwrap(), b"somebody\n");
    // After the user has fixed the file, the next start completes the change.
    let whole = number(&harness, "f0");
    harness.tree.file("f2", format!("gen {whole}\n"));
    assert_eq!(harness.applier.recover()[0].outcome, RecoveryOutcome::Applied);
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}
