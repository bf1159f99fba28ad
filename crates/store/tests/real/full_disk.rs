//! A disk that is really full: a small tmpfs in its own mount namespace, in which this binary runs again. Needs
//! `unshare` and `mount`; an ordinary user becomes root of a user namespace for it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use vambrace_core::redacted::Redacted;
use vambrace_core::{CallError, ErrorCode};
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{Batch, CallFinish, CallState, Entry, StateChange, Store, StoreError};

use crate::fixtures::{at, clean, home, id, open, runtime, session, start};

const INSIDE: &str = "VAMBRACE_STORE_FULL";
const RESERVE: u64 = 4 << 20;

/// Runs a test of this binary with a small disk mounted on a directory.
fn on_a_small_disk(test: &str) {
    let (temp, home) = home();
    fs::create_dir(&home).unwrap();
    let script = "mount -t tmpfs -o size=12m,mode=700 tmpfs \"$1\" && exec \"$2\" --exact \"$3\" --nocapture";
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["sh", "-c", script, "sh"]).arg(&home).arg(std::env::current_exe().unwrap()).arg(test);
    let output = command.env(INSIDE, home.join("state")).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("INSIDE DONE"), "{text}");
    drop(temp);
}

/// Uses every byte that is left.
fn fill(path: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn denial(n: i64) -> Batch {
    let mut entry = Entry::new(Op::Violation, at(n));
    entry.status = Some(RecordStatus::Denied);
    entry.session = Some(id("s-1"));
    entry.message = Some(Redacted::literal("`../x` is outside the workspace"));
    Batch::durable(vec![entry], vec![]).from_reserve()
}

fn is_full(result: Result<vambrace_store::Committed, StoreError>) -> bool {
    let Err(error) = result else { return false };
    let shown = CallError::from(&error);
    assert_eq!(shown.code, ErrorCode::AuditUnavailable);
    assert!(shown.message.contains("the disk is full"), "{error}");
    matches!(error, StoreError::Full(_))
}

// B5
#[test]
fn on_a_full_disk_no_call_starts_and_denials_are_recorded() {
    on_a_small_disk("full_disk::inside_denials");
}

/// Not a test by itself: does nothing unless it runs on a small disk.
#[test]
fn inside_denials() {
    let Some(home) = std::env::var_os(INSIDE).map(std::path::PathBuf::from) else { return };
    let filler = home.parent().unwrap().join("filler");
    let reserve = || fs::metadata(home.join("reserve")).unwrap().len();
    let runtime = runtime();
    let commit = |store: &vambrace_store::SqliteStore, batch| runtime.block_on(store.commit(batch));
    let store = open(&home);
    assert_eq!(reserve(), RESERVE);
    commit(&store, Batch::durable(vec![], vec![session("s-1")])).unwrap();
    commit(&store, start("s-1", "c-running", 1)).unwrap();
    fill(&filler);
    // Blocks that are already allocated may still be written.
    let rejected = (0..200).find(|n| is_full(commit(&store, start("s-1", &format!("c-{n}"), *n))));
    assert!(rejected.is_some(), "never full");
    assert_eq!(reserve(), RESERVE, "a start does not touch the reserve");
    let recorded = commit(&store, denial(1)).unwrap();
    assert!(recorded.is_durable());
    assert_eq!(reserve(), 0);
    // Only denials and ends of calls may use the space that is now free: neither starts nor reads.
    assert!(is_full(commit(&store, start("s-1", "c-late", 1))));
    let mut lazy = start("s-1", "c-read", 1);
    lazy.durability = vambrace_store::Durability::Lazy;
    assert!(is_full(commit(&store, lazy)));
    let end = CallFinish { id: id("c-running"), state: CallState::Completed, at: at(2), error: None };
    let end = Batch::durable(vec![Entry::new(Op::ToolEnd, at(2))], vec![StateChange::FinishCall(end)]);
    assert!(commit(&store, end.from_reserve()).unwrap().is_durable());
    // Another process, while the disk is full.
    let other = open(&home);
    assert!(is_full(commit(&other, start("s-1", "c-other", 1))));
    commit(&other, denial(2)).unwrap();
    drop(other);
    let denials = (0..1000).take_while(|n| commit(&store, denial(*n)).is_ok()).count();
    println!("{denials} denials were recorded on a full disk");
    assert!(denials >= 500, "only {denials}");
    // Space is free again: the same process continues.
    fs::remove_file(&filler).unwrap();
    commit(&store, start("s-1", "c-after", 1)).unwrap();
    assert_eq!(reserve(), RESERVE);
    drop(store);
    clean(&home);
    println!("INSIDE DONE");
}

// B5
#[test]
fn a_full_disk_can_be_opened_and_an_exhausted_reserve_rejects_everything() {
    on_a_small_disk("full_disk::inside_used_up");
}

/// Not a test by itself: does nothing unless it runs on a small disk.
#[test]
fn inside_used_up() {
    let Some(home) = std::env::var_os(INSIDE).map(std::path::PathBuf::from) else { return };
    let filler = home.parent().unwrap().join("filler");
    let runtime = runtime();
    let commit = |store: &vambrace_store::SqliteStore, batch| runtime.block_on(store.commit(batch));
    let store = open(&home);
    commit(&store, Batch::durable(vec![], vec![session("s-1")])).unwrap();
    // The last process deletes the WAL and its index, and another program takes their space.
    drop(store);
    fill(&filler);
    let store = open(&home);
    assert!(is_full(commit(&store, start("s-1", "c-1", 1))));
    commit(&store, denial(1)).unwrap();
    // Another program takes the space of the reserve too.
    fill(&filler);
    let rejected = (0..3000).find(|n| is_full(commit(&store, denial(*n))));
    assert!(rejected.is_some(), "the disk never became full");
    assert!(is_full(commit(&store, start("s-1", "c-2", 1))));
    drop(store);
    fs::remove_file(&filler).unwrap();
    let store = open(&home);
    commit(&store, start("s-1", "c-3", 1)).unwrap();
    drop(store);
    clean(&home);
    println!("INSIDE DONE");
}
