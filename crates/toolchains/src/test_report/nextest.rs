//! `cargo nextest run`. Its machine-readable output is experimental, so this reads the status lines and the summary. A
//! test is named by its binary and its own name, which the target of a later run takes.

use super::rust_panic::RustPanic;
use super::{ParsedTests, TestFailure, TestFailureKind, cargo_errors};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = NextestReader::default();
    let mut seen = false;
    for line in output.stderr.lines().chain(output.stdout.lines()) {
        seen |= reader.line(line, at);
    }
    reader.close_section();
    if !seen {
        let mut tests = ParsedTests::default();
        let nextest =
            output.lines().any(|line| line.starts_with("error: command `") && line.contains("--no-run"));
        return (nextest && cargo_errors::read(output, at, &mut tests)).then_some(tests);
    }
    Some(reader.tests)
}

#[derive(Debug, Default)]
struct NextestReader {
    tests: ParsedTests,
    section: Option<(String, RustPanic)>,
}

/// What a status line says.
struct StatusLine<'a> {
    status: &'a str,
    retry: bool,
    name: String,
}

impl NextestReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) -> bool {
        if let Some(summary) = line.trim_start().strip_prefix("Summary [") {
            self.close_section();
            return self.summary(summary);
        }
        if let Some(status) = status_line(line) {
            self.close_section();
            self.status(status);
            return true;
        }
        if line.starts_with("────") {
            self.close_section();
        } else if let Some((_, panic)) = &mut self.section
            && !line.trim_end().ends_with("───")
        {
            panic.line(line.strip_prefix("    ").unwrap_or(line), at);
        }
        false
    }

    fn status(&mut self, line: StatusLine<'_>) {
        let kind = match line.status {
            "FAIL" | "LEAK-FAIL" => TestFailureKind::Test,
            "TIMEOUT" => TestFailureKind::Timeout,
            "ABORT" => TestFailureKind::Error,
            signal if signal.starts_with("SIG") => TestFailureKind::Error,
            "PASS" | "FLAKY" if line.retry => return self.tests.failures.discard(&line.name),
            _ => return,
        };
        let message = match kind {
            TestFailureKind::Timeout => "timed out".to_owned(),
            TestFailureKind::Error => format!("ended by {}", line.status),
            _ => String::new(),
        };
        let new = || TestFailure { kind, test: line.name.clone(), message, ..TestFailure::default() };
        self.tests.failures.entry(&line.name, new);
        self.section = Some((line.name, RustPanic::default()));
    }

    fn close_section(&mut self) {
        if let Some((name, panic)) = self.section.take()
            && let Some(failure) = self.tests.failures.entry(&name, TestFailure::default)
            && failure.file.is_none()
        {
            panic.fill(failure);
        }
    }

    /// `   0.229s] 6 tests run: 2 passed (1 slow), 4 failed, 1 timed out, 1 skipped`
    fn summary(&mut self, summary: &str) -> bool {
        let Some((time, rest)) = summary.split_once(']') else { return false };
        let Some((run, counts)) = rest.split_once(" run:") else { return false };
        self.tests.duration = time.trim().strip_suffix('s').and_then(super::seconds);
        self.tests.complete = !run.contains('/');
        let flat = without_parentheses(counts);
        for part in flat.split(',') {
            let Some((count, what)) = part.trim().split_once(' ') else { continue };
            let count: u64 = count.parse().unwrap_or(0);
            match what.trim() {
                "passed" => self.tests.passed += count,
                "skipped" => self.tests.skipped += count,
                "failed" | "timed out" => self.tests.failed += count,
                "exec failed" => self.tests.errors += count,
                _ => {}
            }
        }
        true
    }
}

/// Drops what is in parentheses: those counts are part of another one.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// `        FAIL [   0.007s] (2/6) demo-calc::whole whole_fails`
fn status_line(line: &str) -> Option<StatusLine<'_>> {
    let (status, rest) = line.strip_prefix("  ")?.trim_start().split_once(" [")?;
    let (time, rest) = rest.split_once("] ")?;
    let timed = time.trim().trim_start_matches('>');
    if !timed.is_empty() && timed.strip_suffix('s').and_then(super::seconds).is_none() {
        return None;
    }
    let words: Vec<&str> = status.split(' ').take(4).collect();
    let (status, retry) = match words.as_slice() {
        [status] => (*status, false),
        ["TRY", number, status] if number.parse::<u32>().is_ok() => (*status, true),
        ["FLAKY", _] => ("FLAKY", true),
        _ => return None,
    };
    if status.is_empty()
        || !status.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'0'..=b'9'))
    {
        return None;
    }
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('(').and_then(|counted| counted.split_once(") ")) {
        Some((_, rest)) => rest.trim_start(),
        None => rest,
    };
    let (binary, test) = rest.split_once(' ')?;
    Some(StatusLine { status, retry, name: format!("{binary}::{}", test.trim()) })
}
