//! Rust's test harness under `cargo test`. Its JSON output is unstable, so this reads what people read.

use std::time::Duration;

use super::rust_panic::RustPanic;
use super::{ParsedTests, TestFailure, TestFailureKind, cargo_errors};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = LibtestReader::default();
    let mut seen = false;
    for line in output.lines() {
        seen |= reader.line(line, at);
    }
    reader.close_section();
    let build = cargo_errors::read(output, at, &mut reader.tests);
    if !seen && !build {
        return None;
    }
    let mut tests = reader.tests;
    // One `test result` line for each `running N tests` line.
    tests.complete = seen && !build && reader.running == reader.results && reader.results > 0;
    if reader.running > reader.results {
        tests.errors += reader.running - reader.results;
        tests.notes.push("a test program ended before its summary: it crashed or was killed".to_owned());
    }
    Some(tests)
}

#[derive(Debug, Default)]
struct LibtestReader {
    tests: ParsedTests,
    section: Option<(String, RustPanic)>,
    running: u64,
    results: u64,
}

impl LibtestReader {
    /// Reads a line; whether it is one that only this harness prints.
    fn line(&mut self, line: &str, at: &RunLocation<'_>) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.close_section();
            return self.result(counts);
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            self.close_section();
            let name = name.trim_end_matches(" stdout").trim_end_matches(" stderr");
            self.section = Some((name.to_owned(), RustPanic::default()));
            return true;
        }
        if line == "failures:" {
            self.close_section();
        } else if let Some((_, panic)) = &mut self.section {
            panic.line(line, at);
        } else if let Some((name, status)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            return self.status(name, status);
        } else if line.strip_prefix("running ").is_some_and(is_test_count) {
            self.running += 1;
        }
        false
    }

    fn status(&mut self, name: &str, status: &str) -> bool {
        let name = plain_name(name);
        match status.trim() {
            "ok" => true,
            "FAILED" => {
                let new = || TestFailure { test: name.to_owned(), ..TestFailure::default() };
                self.tests.failures.entry(name, new);
                true
            }
            status => status == "ignored" || status.starts_with("ignored, ") || status.starts_with("bench:"),
        }
    }

    fn close_section(&mut self) {
        if let Some((name, panic)) = self.section.take() {
            let new = || TestFailure { test: name.clone(), ..TestFailure::default() };
            if let Some(failure) = self.tests.failures.entry(&name, new) {
                panic.fill(failure);
            }
        }
    }

    /// `FAILED. 1 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.18s`
    fn result(&mut self, counts: &str) -> bool {
        let Some((_, counts)) = counts.split_once(". ") else { return false };
        self.results += 1;
        for part in counts.split("; ") {
            match part.trim().split_once(' ') {
                Some(("finished", time)) => self.duration(time),
                Some((count, what)) => {
                    let count: u64 = count.parse().unwrap_or(0);
                    match what {
                        "passed" => self.tests.passed += count,
                        "failed" => self.tests.failed += count,
                        "ignored" => self.tests.skipped += count,
                        _ => {}
                    }
                }
                None => {}
            }
        }
        true
    }

    fn duration(&mut self, time: &str) {
        let seconds = time.strip_prefix("in ").and_then(|time| time.trim_end().strip_suffix('s'));
        if let Some(time) = seconds.and_then(super::seconds) {
            self.tests.duration = Some(self.tests.duration.unwrap_or(Duration::ZERO).saturating_add(time));
        }
    }
}

fn is_test_count(rest: &str) -> bool {
    rest.split_once(' ').is_some_and(|(count, word)| {
        count.parse::<u64>().is_ok() && matches!(word.trim_end(), "test" | "tests")
    })
}

/// The name without what the harness appends to it.
fn plain_name(name: &str) -> &str {
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    name.strip_suffix(" - compile fail").or_else(|| name.strip_suffix(" - compile")).unwrap_or(name)
}

/// What a run without any test result says, for [`cargo_errors`].
pub(super) fn build_failure(message: &str) -> TestFailure {
    TestFailure { kind: TestFailureKind::Build, message: message.to_owned(), ..TestFailure::default() }
}
