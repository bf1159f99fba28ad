//! The JSON report of jest (`--json`) and vitest (`--reporter=json`), which share one schema.

use std::time::Duration;

use serde_json::Value;

use super::stack_frame::{first_in_project, message_before_frames};
use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let report = output.report.and_then(document).or_else(|| document(&output.stdout))?;
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut tests = ParsedTests {
        passed: count("numPassedTests"),
        failed: count("numFailedTests"),
        skipped: count("numPendingTests").saturating_add(count("numTodoTests")),
        complete: true,
        ..ParsedTests::default()
    };
    let mut last = None;
    for file in report.get("testResults").and_then(Value::as_array).into_iter().flatten() {
        last = last.max(file.get("endTime").and_then(milliseconds));
        read_file(file, at, &mut tests);
    }
    let first = report.get("startTime").and_then(milliseconds);
    tests.duration =
        first.zip(last).and_then(|(first, last)| last.checked_sub(first)).map(Duration::from_millis);
    if report.get("wasInterrupted").and_then(Value::as_bool) == Some(true) {
        tests.complete = false;
    }
    Some(tests)
}

/// The report in a text: the whole text, or the line that holds it.
fn document(text: &str) -> Option<Value> {
    let parse = |text: &str| {
        let value: Value = serde_json::from_str(text).ok()?;
        value.get("numTotalTests").is_some().then_some(value)
    };
    parse(text.trim()).or_else(|| text.lines().filter(|line| line.starts_with("{\"num")).find_map(parse))
}

/// Milliseconds since the epoch; vitest writes fractions.
fn milliseconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| (0.0..1e15).contains(number))?;
        Some(Duration::from_secs_f64(number / 1000.0).as_millis() as u64)
    })
}

fn read_file(file: &Value, at: &RunLocation<'_>, tests: &mut ParsedTests) {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = at.service_path(&text(file, "name"));
    let results = file.get("assertionResults").and_then(Value::as_array);
    let mut failed = false;
    for result in results.into_iter().flatten().filter(|result| text(result, "status") == "failed") {
        failed = true;
        let message: String = result
            .get("failureMessages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .take(3)
            .collect::<Vec<_>>()
            .join("\n");
        let place = first_in_project(&message, at);
        let declared = result.get("location").and_then(|place| place.get("line")).and_then(Value::as_u64);
        let (file, line) = match place {
            Some((file, line)) => (Some(file), Some(line)),
            None => (path.clone(), declared.and_then(|line| u32::try_from(line).ok())),
        };
        let name = match text(result, "fullName") {
            name if name.is_empty() => text(result, "title"),
            name => name,
        };
        let test = path.as_ref().map_or(name.clone(), |path| format!("{path}::{name}"));
        let message = message_before_frames(&message);
        tests.failures.push(TestFailure { kind: TestFailureKind::Test, test, file, line, message });
    }
    // A file that did not load has no results, only a message.
    if text(file, "status") == "failed" && !failed {
        let message = text(file, "message");
        let line = first_in_project(&message, at)
            .filter(|(file, _)| Some(file) == path.as_ref())
            .map(|(_, line)| line);
        tests.errors += 1;
        tests.failures.push(TestFailure {
            kind: TestFailureKind::Build,
            test: path.clone().unwrap_or_default(),
            file: path,
            line: line.or_else(|| syntax_error_line(&message)),
            message: essence(&message),
        });
    }
}

/// Babel's `Unexpected token (1:10)`.
fn syntax_error_line(message: &str) -> Option<u32> {
    let error = message.lines().find(|line| line.contains("SyntaxError: "))?;
    let (_, inside) = error.trim_end().strip_suffix(')')?.rsplit_once('(')?;
    inside.split_once(':')?.0.parse().ok()
}

/// The part of a long message that names the error.
fn essence(message: &str) -> String {
    let error = message.lines().map(str::trim).find(|line| {
        line.split_once(": ").is_some_and(|(name, _)| name.ends_with("Error") && !name.contains(' '))
    });
    error.map_or_else(|| message_before_frames(message), str::to_owned)
}
