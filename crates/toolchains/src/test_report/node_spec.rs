//! `node --test` with the spec reporter, as scripts of `package.json` run it: the counts and the list of failing tests at
//! the end.

use super::stack_frame::{frame, is_frame};
use super::{ParsedTests, TestFailure};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut tests = ParsedTests::default();
    let mut failing = false;
    let mut open: Option<(TestFailure, BoundedMessage)> = None;
    let mut place = None;
    for line in output.lines() {
        if let Some(count) = line.strip_prefix("ℹ ") {
            summary(count, &mut tests);
        } else if line.starts_with("✖ failing tests:") {
            failing = true;
        } else if failing && let Some(declared) = line.strip_prefix("test at ") {
            place = at.code_position(declared);
        } else if failing && let Some(name) = line.strip_prefix("✖ ") {
            close(&mut open, &mut tests);
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            let (file, number) = place.take().map_or((None, None), |(file, line)| (Some(file), Some(line)));
            let failure = TestFailure { test: name.to_owned(), file, line: number, ..TestFailure::default() };
            open = Some((failure, BoundedMessage::default()));
        } else if let Some((failure, message)) = &mut open {
            if !is_frame(line) {
                message.push(line.strip_prefix("  ").unwrap_or(line));
            } else if let Some((file, number)) = frame(line, at) {
                // Only the first frame counts: the others are its callers.
                failure.file = Some(file);
                failure.line = Some(number);
                close(&mut open, &mut tests);
            }
        }
    }
    close(&mut open, &mut tests);
    tests.complete.then_some(tests)
}

fn close(open: &mut Option<(TestFailure, BoundedMessage)>, tests: &mut ParsedTests) {
    if let Some((mut failure, message)) = open.take() {
        failure.message = message.finish();
        tests.failures.push(failure);
    }
}

fn summary(line: &str, tests: &mut ParsedTests) {
    let Some((name, value)) = line.trim().split_once(' ') else { return };
    if name == "duration_ms" {
        tests.duration = super::milliseconds(value);
    }
    let Ok(count) = value.parse::<u64>() else { return };
    match name {
        "pass" => tests.passed = count,
        "fail" => {
            tests.failed = count;
            tests.complete = true;
        }
        "cancelled" => tests.errors = count,
        "skipped" | "todo" => tests.skipped = tests.skipped.saturating_add(count),
        _ => {}
    }
}
