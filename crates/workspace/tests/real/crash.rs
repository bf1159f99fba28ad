//! Several processes at one file, and processes that are killed at any moment.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use vambrace_core::digest::Digest;
use vambrace_workspace::{EditRequest, Outcome};

use crate::bench::{Bench, applier};
use crate::child::{generation, said, spawn};
use crate::editing::limits;
use crate::tree::path;

const PROCESSES: u32 = 5;
const EDITS: u32 = 500;
const KILLS: u64 = 260;

// T9
#[test]
fn thousands_of_contended_edits_from_several_processes_lose_none() {
    let bench = Bench::new();
    bench.tree.file("counter", "count: 0\n");
    let task = format!("count {EDITS}");
    let mut children: Vec<_> = (0..PROCESSES).map(|_| spawn(bench.tree.home.path(), &task)).collect();
    let mut retries = 0;
    for child in &mut children {
        let said: Vec<String> = said(child).collect();
        let done = said.iter().find_map(|line| line.strip_prefix("DONE ")).expect("a child did not finish");
        retries += done.parse::<u64>().unwrap();
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(bench.read("counter").unwrap(), format!("count: {}\n", PROCESSES * EDITS).into_bytes());
    assert!(retries > 0, "nobody ever met anybody: the test proves nothing");
    assert_eq!(bench.litter(), Vec::<String>::new());
}

// T9
#[test]
fn the_lock_of_a_killed_holder_blocks_nobody() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n");
    let changes =
        bench.ws.draft_edit(&path("f"), &[EditRequest::replace("a", "b")], None, &limits()).unwrap().changes;
    for _ in 0..20 {
        let mut child = spawn(bench.tree.home.path(), "hold");
        let held = said(&mut child).any(|line| line == "HELD");
        assert!(held, "the child never held the lock");
        let hasty = applier(&bench.ws, bench.tree.home.path()).patience(Duration::from_millis(20));
        assert!(hasty.apply(&changes).is_err(), "two holders at once");
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, back) = bench.applier.apply(&changes).unwrap();
        bench.applier.apply(&back.unwrap()).unwrap();
    }
    bench.applier.recover();
    assert_eq!(bench.litter(), Vec::<String>::new());
}

// T9: a live holder past its time is told; a worker of ours is ended first, anybody else keeps the lock
#[test]
fn an_overdue_worker_is_ended_before_its_lock_is_taken_and_nobody_else() {
    let bench = Bench::new();
    bench.tree.file("f", "a\n");
    let edit = [EditRequest::replace("a", "b")];
    let changes = bench.ws.draft_edit(&path("f"), &edit, None, &limits()).unwrap().changes;
    for (task, worker) in [("hold", false), ("hold worker", true)] {
        let mut child = spawn(bench.tree.home.path(), task);
        assert!(said(&mut child).any(|line| line == "HELD"), "the child never held the lock");
        let patient = applier(&bench.ws, bench.tree.home.path()).overdue_after(Duration::ZERO);
        let prepared = patient.patience(Duration::from_secs(if worker { 20 } else { 1 })).prepare(&changes);
        if worker {
            let prepared = prepared.unwrap();
            let late = prepared.overdue();
            assert_eq!((late.len(), late[0].holder.process, late[0].holder.ended), (1, child.id(), true));
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        } else {
            let fault = prepared.unwrap_err().to_string();
            assert!(fault.contains("past its time"), "{fault}");
            assert_eq!(child.try_wait().unwrap(), None, "it lives");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Kills a child at a moment that differs from round to round, within the time of about one change after one that it has
/// acknowledged; returns the last generation it acknowledged.
fn killed(bench: &Bench, task: &str, round: u64) -> Option<u64> {
    let mut child = spawn(bench.tree.home.path(), task);
    let mut lines = said(&mut child);
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

fn number(bench: &Bench, name: &str) -> u64 {
    let text = String::from_utf8(bench.read(name).unwrap()).unwrap();
    text.lines().next().unwrap().strip_prefix("gen ").unwrap().parse().unwrap()
}

// B7: all or none after any crash.
#[test]
fn a_batch_that_is_killed_is_whole_or_not_there() {
    let bench = Bench::new();
    for (name, content) in generation(0) {
        if let Some(content) = content {
            bench.tree.file(&name, content);
        }
    }
    let (mut redone, mut before) = (0, 0);
    for round in 0..KILLS {
        let acknowledged = killed(&bench, "batch", round).unwrap_or(before);
        for recovered in bench.applier.recover() {
            assert_eq!(recovered.outcome, Outcome::Applied, "{recovered:?}");
            assert_eq!(recovered.tag, format!("gen {}", number(&bench, "f0")));
            redone += 1;
        }
        before = number(&bench, "f0");
        assert!(
            (acknowledged..=acknowledged + 1).contains(&before),
            "acknowledged {acknowledged}, found {before}"
        );
        for (name, content) in generation(before) {
            let now = bench.read(&name).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(now, content, "round {round}: `{name}` of generation {before}");
        }
        assert_eq!(bench.litter(), Vec::<String>::new(), "round {round}");
    }
    assert!(
        before >= KILLS && redone > 0,
        "{before} generations, {redone} redone: the kills came at the wrong times"
    );
    println!("{KILLS} kills of batches, {before} generations, {redone} finished by recovery");
}

// B7
#[test]
fn a_single_change_that_is_killed_is_old_or_new() {
    let bench = Bench::new();
    let filler = "the quick brown fox\n".repeat(20_000);
    bench.tree.file("single", format!("gen 0\n{filler}"));
    let mut before = 0;
    for round in 0..KILLS {
        let acknowledged = killed(&bench, "single", round).unwrap_or(before);
        // Every other time nobody tidies up but the next writer.
        if round % 2 == 0 {
            assert_eq!(bench.applier.recover(), []);
        }
        before = number(&bench, "single");
        assert!(
            (acknowledged..=acknowledged + 1).contains(&before),
            "acknowledged {acknowledged}, found {before}"
        );
        assert!(
            bench.read("single").unwrap() == format!("gen {before}\n{filler}").into_bytes(),
            "round {round}"
        );
        if round % 2 == 0 {
            assert_eq!(bench.litter(), Vec::<String>::new(), "round {round}");
        }
    }
    assert!(before >= KILLS);
    println!("{KILLS} kills of single changes, {before} generations");
}

// B7: somebody else's change between the crash and the start is not overwritten.
#[test]
fn recovery_leaves_what_somebody_else_changed_and_says_so() {
    let bench = Bench::new();
    for (name, content) in generation(0) {
        if let Some(content) = content {
            bench.tree.file(&name, content);
        }
    }
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 400, "no kill ever left a journal");
        killed(&bench, "batch", rounds);
        let journal = std::fs::read_dir(bench.tree.home.path().join("journal")).unwrap();
        if journal.map(Result::unwrap).any(|entry| entry.file_name().to_string_lossy().ends_with(".journal"))
        {
            break;
        }
        bench.applier.recover();
    }
    // Another project that shares the state folder has nothing to do with it.
    let other = Bench::new();
    let stranger = applier(&other.ws, bench.tree.home.path());
    assert_eq!(stranger.recover(), []);
    assert_eq!(other.read("f0"), None);
    bench.tree.file("f2", "somebody\n");
    let recovered = bench.applier.recover();
    assert_eq!(recovered[0].outcome, Outcome::Conflict(vec!["f2".to_owned()]));
    assert_eq!(bench.read("f2").unwrap(), b"somebody\n");
    // Once the user has put it right, the next start finishes.
    let whole = number(&bench, "f0");
    bench.tree.file("f2", format!("gen {whole}\n"));
    assert_eq!(bench.applier.recover()[0].outcome, Outcome::Applied);
    assert_eq!(bench.litter(), Vec::<String>::new());
}
