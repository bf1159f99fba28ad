//! vitest as people read it, for scripts whose JSON report is not available.

use super::stack_frame::frame;
use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut tests = ParsedTests::default();
    let mut open: Option<(TestFailure, BoundedMessage)> = None;
    for line in output.lines() {
        let trimmed = line.trim_start();
        if let Some(title) = line.strip_prefix(" FAIL  ") {
            close(&mut open, &mut tests);
            let failure = titled(title, at);
            tests.errors += u64::from(failure.kind == TestFailureKind::Build);
            open = Some((failure, BoundedMessage::default()));
        } else if line.starts_with("⎯⎯") {
            close(&mut open, &mut tests);
        } else if let Some(counts) = trimmed.strip_prefix("Tests  ") {
            close(&mut open, &mut tests);
            read_counts(counts, &mut tests);
        } else if let Some(time) = trimmed.strip_prefix("Duration  ") {
            let time = time.split(' ').next().unwrap_or_default();
            tests.duration = match time.strip_suffix("ms") {
                Some(ms) => super::milliseconds(ms),
                None => time.strip_suffix('s').and_then(super::seconds),
            };
        } else if let Some((failure, message)) = &mut open {
            if trimmed.starts_with("❯ ") {
                if failure.line.is_none()
                    && let Some((file, number)) = frame(line, at)
                {
                    failure.file = Some(file);
                    failure.line = Some(number);
                }
            } else if failure.line.is_none() {
                message.push(line);
            }
        }
    }
    close(&mut open, &mut tests);
    tests.complete.then_some(tests)
}

/// `calc.test.ts > calc > adds`, or `missing.test.ts [ missing.test.ts ]` for a file that did not load.
fn titled(title: &str, at: &RunLocation<'_>) -> TestFailure {
    let title = title.trim();
    match title.split_once(" > ") {
        Some((path, name)) => {
            // A workspace puts the project's name in front: `|unit| calc.test.ts`.
            let path = at.service_path(path.rsplit_once(' ').map_or(path, |(_, path)| path));
            let name = name.replace(" > ", " ");
            let test = path.as_ref().map_or(name.clone(), |path| format!("{path}::{name}"));
            TestFailure { test, file: path, ..TestFailure::default() }
        }
        None => {
            let path = at.service_path(title.split_once(" [").map_or(title, |(path, _)| path));
            let test = path.clone().unwrap_or_default();
            TestFailure { kind: TestFailureKind::Build, test, file: path, ..TestFailure::default() }
        }
    }
}

fn close(open: &mut Option<(TestFailure, BoundedMessage)>, tests: &mut ParsedTests) {
    if let Some((mut failure, message)) = open.take() {
        failure.message = message.finish();
        tests.failures.push(failure);
    }
}

/// `2 failed | 1 passed | 1 skipped (4)`
fn read_counts(counts: &str, tests: &mut ParsedTests) {
    for part in counts.split('|') {
        let mut words = part.trim().split(' ');
        let Some(count) = words.next().and_then(|count| count.parse::<u64>().ok()) else { continue };
        match words.next() {
            Some("passed") => tests.passed = count,
            Some("failed") => tests.failed = count,
            Some("skipped" | "todo") => tests.skipped = tests.skipped.saturating_add(count),
            _ => continue,
        }
        tests.complete = true;
    }
}
