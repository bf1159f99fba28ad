//! Lets a test report that it was skipped, in whole or in part, because this machine or user lacks something.
//!
//! Rust's test harness counts such a test as passed and hides its output. `cargo xtask test` names a log file in
//! `VAMBRACE_SKIP_LOG`, reads it after the run, counts these tests as skipped and prints each with its reason.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests write a log file and to standard error"
)]

use std::fs::OpenOptions;
use std::io::Write as _;

/// The variable that names the log file.
pub const SKIP_LOG: &str = "VAMBRACE_SKIP_LOG";

/// Reports the running test as skipped. The caller returns afterwards.
#[track_caller]
pub fn skip(reason: &str) {
    report("skipped", reason);
}

/// Reports that a part of the running test was skipped; the test goes on and counts by its result.
#[track_caller]
pub fn skip_part(reason: &str) {
    report("partly", reason);
}

#[track_caller]
fn report(kind: &str, reason: &str) {
    let test = test_name();
    eprintln!("{kind}: {test}: {reason}");
    let Some(log) = std::env::var_os(SKIP_LOG) else { return };
    // One write per line: several test processes append to the same file.
    let line = format!("{kind}\t{test}\t{}\n", reason.replace(['\n', '\t'], " "));
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&log)
        .and_then(|mut log| log.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("cannot write `{}`: {error}", log.display());
    }
}

/// The name of the running test: nextest's variable, the thread's name under Rust's harness, else the place of the call.
#[track_caller]
fn test_name() -> String {
    let place = std::panic::Location::caller();
    std::env::var("NEXTEST_TEST_NAME").unwrap_or_else(|_| match std::thread::current().name() {
        Some(name) if name.contains("::") => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    })
}
