//! Errors of cargo and rustc in the output of a test run, as people read them.

use super::libtest::build_failure;
use super::{ParsedTests, TestFailure};
use crate::bounded_text::MAX_MESSAGE_CHARS;
use crate::run_output::{PlainOutput, RunLocation};

/// Errors that only repeat what was reported before, or tell that tests failed.
const ECHOES: &[&str] = &[
    "could not compile ",
    "aborting due to ",
    "test failed, to rerun pass ",
    "doctest failed, to rerun pass ",
    "test run failed",
    "command `",
    "build failed",
];

/// Adds the build errors to the tests; whether there was one.
pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>, tests: &mut ParsedTests) -> bool {
    let mut open: Option<TestFailure> = None;
    let before = tests.failures.len();
    let close = |open: &mut Option<TestFailure>, tests: &mut ParsedTests| {
        if let Some(failure) = open.take() {
            let key = format!("{:?}:{:?}:{}", failure.file, failure.line, failure.message);
            // The library and its tests are compiled separately and report the same error.
            tests.failures.entry(&key, || failure);
        }
    };
    // Afterwards the output belongs to the tests.
    let built =
        |line: &&str| !["Running ", "Doc-tests "].iter().any(|word| line.trim_start().starts_with(word));
    for line in output.stderr.lines().take_while(built) {
        if let Some(message) = error_message(line) {
            close(&mut open, tests);
            if !is_echo(message) {
                open = Some(build_failure(message));
            }
        } else if let Some(failure) = &mut open {
            let place = line.trim_start().strip_prefix("--> ");
            if let Some((file, line)) = place.and_then(|place| at.code_position(place)) {
                if failure.file.is_none() {
                    failure.file = Some(file);
                    failure.line = Some(line);
                }
            } else if line.trim().is_empty() {
                close(&mut open, tests);
            } else if let Some(more) = line.trim_start().strip_prefix("= note: ")
                && failure.message.len() < MAX_MESSAGE_CHARS
            {
                failure.message = format!("{}\n{more}", failure.message);
            }
        }
    }
    close(&mut open, tests);
    let found = tests.failures.len() - before;
    tests.errors += found;
    found > 0
}

/// The message of `error: ...` and `error[E0308]: ...`.
fn error_message(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("error")?;
    if let Some(message) = rest.strip_prefix(": ") {
        return Some(message);
    }
    let (code, message) = rest.strip_prefix('[')?.split_once("]: ")?;
    code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')).then_some(message)
}

fn is_echo(message: &str) -> bool {
    let targets_failed = message.split_once(' ').is_some_and(|(count, rest)| {
        count.parse::<u64>().is_ok()
            && (rest.starts_with("target failed") || rest.starts_with("targets failed"))
    });
    targets_failed || ECHOES.iter().any(|echo| message.starts_with(echo))
}
