//! A directory that cannot be used: every call is denied with a reason and a suggestion, and nothing
//! acknowledged before is lost.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use vambrace_core::{CallError, ErrorCode};
use vambrace_store::{Batch, Entry, SqliteStore, StateDir, Store, StoreError, StoreOptions};

use crate::child_process::{ack, command, lines};
use crate::fixtures::{
    KEY_RECORDS, at, clean, home, open, runtime, session, start, test_options, try_open, verified,
};

fn open_error(home: &Path) -> StoreError {
    let error = try_open(home).unwrap_err();
    let shown = CallError::from(&error);
    assert_eq!(shown.code, ErrorCode::AuditUnavailable);
    assert!(!shown.suggestion.is_empty());
    error
}

fn made() -> (tempfile::TempDir, std::path::PathBuf) {
    let (temp, home) = home();
    let store = open(&home);
    let batch = Batch::durable(vec![Entry::new(vambrace_ledger::Op::Grant, at(1))], vec![session("s-1")]);
    runtime().block_on(store.commit(batch)).unwrap();
    drop(store);
    (temp, home)
}

#[test]
fn garbage_in_place_of_the_database_is_rejected() {
    let (_temp, home) = made();
    fs::write(home.join("vambrace.db"), vec![b'x'; 9000]).unwrap();
    assert!(matches!(open_error(&home), StoreError::Damaged { .. }));
}

#[test]
fn a_directory_in_place_of_the_database_is_rejected() {
    let (_temp, home) = made();
    fs::remove_file(home.join("vambrace.db")).unwrap();
    fs::create_dir(home.join("vambrace.db")).unwrap();
    assert!(matches!(open_error(&home), StoreError::Directory { .. }));
}

#[test]
fn a_database_or_directory_that_others_can_write_is_rejected() {
    let (_temp, home) = made();
    fs::set_permissions(home.join("vambrace.db"), Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(open_error(&home), StoreError::Exposed { .. }));
    fs::set_permissions(home.join("vambrace.db"), Permissions::from_mode(0o600)).unwrap();
    drop(open(&home));
    fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(open_error(&home), StoreError::Exposed { .. }));
}

#[test]
fn a_key_that_others_can_read_is_rejected_and_named() {
    let (_temp, home) = made();
    let key = home.join("keys/ledger.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let error = open_error(&home);
    assert!(matches!(error, StoreError::KeyExposed { .. }), "{error}");
    assert!(error.to_string().contains("ledger.key") && error.suggestion().contains("chmod 600"), "{error}");
}

#[test]
fn a_newer_schema_is_rejected() {
    let (_temp, home) = made();
    let connection = rusqlite::Connection::open(home.join("vambrace.db")).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    assert!(matches!(open_error(&home), StoreError::NewerSchema { found: 99, .. }));
}

#[test]
fn a_held_lock_fails_the_commit_and_leaves_nothing_behind() {
    let (_temp, home) = made();
    let options = StoreOptions { lock_timeout: Duration::from_millis(30), ..test_options() };
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
    let holder = fs::File::open(home.join("writer.lock")).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let runtime = runtime();
    for n in 0..3 {
        let result = runtime.block_on(store.commit(start("s-1", &format!("c-{n}"), n)));
        assert!(matches!(result, Err(StoreError::Locked(_))), "{result:?}");
    }
    drop(holder);
    // The waiter thread that is still waiting gets the lock in its own time.
    let sealed = (0..200)
        .find_map(|n| runtime.block_on(store.commit(start("s-1", &format!("d-{n}"), n))).ok())
        .unwrap();
    assert_eq!(sealed.last().unwrap().record.seq, KEY_RECORDS + 2);
    drop(store);
    assert_eq!(clean(&home).records, KEY_RECORDS + 2);
}

#[test]
fn a_log_deleted_under_a_running_store_closes_the_store() {
    let (_temp, home) = made();
    let store = open(&home);
    let runtime = runtime();
    runtime.block_on(store.commit(start("s-1", "c-1", 1))).unwrap();
    fs::remove_file(home.join("vambrace.db-wal")).unwrap();
    let lost = runtime.block_on(store.commit(start("s-1", "c-2", 1)));
    // The background worker may have noticed first.
    assert!(matches!(lost, Err(StoreError::Io(_) | StoreError::Poisoned(_))), "{lost:?}");
    let after = runtime.block_on(store.commit(start("s-1", "c-3", 1)));
    assert!(matches!(after, Err(StoreError::Poisoned(_))), "{after:?}");
}

/// A child whose files may not grow beyond a size: writes fail while it runs, as on a full disk.
#[test]
fn failing_writes_close_the_store_and_lose_nothing() {
    let (_temp, home) = made();
    let program = std::env::current_exe().unwrap();
    let plain = command(&program, &home, "s-limited", 4000);
    let script = "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(&program).args(plain.get_args());
    shell.envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell.stdout(std::process::Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let output: Vec<String> = lines(&mut child).collect();
    child.wait().unwrap();
    let acked: Vec<_> = output.iter().filter_map(|line| ack(line)).collect();
    let failed: Vec<_> = output.iter().filter(|line| line.starts_with("FAILED")).collect();
    assert!(!acked.is_empty() && !failed.is_empty(), "{} acks, {} failures", acked.len(), failed.len());
    let first = output.iter().position(|line| line.starts_with("FAILED")).unwrap();
    let poisoned = output.iter().skip(first).filter(|line| line.contains("after a failed write")).count();
    assert!(poisoned > 0, "{:?}", output.get(first..first + 5));
    drop(open(&home));
    let report = clean(&home);
    let last = acked.iter().map(|ack| ack.seq).max().unwrap();
    assert!(report.head.seq >= last);
}

/// As an ordinary user; root can write everywhere, so root runs the child as `nobody`.
#[test]
fn a_read_only_directory_is_rejected_and_can_still_be_verified() {
    use std::os::unix::process::CommandExt;
    let (temp, home) = made();
    let root = rustix::process::geteuid().is_root();
    let program = temp.path().join("program");
    // By another process: children forked meanwhile would inherit our descriptor, which is open for writing.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(temp.path(), Permissions::from_mode(0o755)).unwrap();
    if root {
        for path in walk(&home) {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    fs::set_permissions(home.join("vambrace.db"), Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o500)).unwrap();
    let mut denied = command(&program, &home, "s-denied", 1);
    if root {
        denied.uid(65534).gid(65534);
    }
    let mut child = denied.stderr(std::process::Stdio::null()).spawn().unwrap();
    let output: Vec<String> = lines(&mut child).collect();
    assert!(!child.wait().unwrap().success());
    assert!(!output.iter().any(|line| line.starts_with("ACK")), "{output:?}");
    let report = verified(&home);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.records, KEY_RECORDS + 1);
    fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}
