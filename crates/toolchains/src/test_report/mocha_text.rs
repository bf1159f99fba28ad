//! mocha's spec reporter.

use super::stack_frame::{frame, is_frame};
use super::{ParsedTests, TestFailure};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut tests = ParsedTests::default();
    let mut open: Option<MochaFailure> = None;
    for line in output.lines() {
        if !tests.complete || open.is_none() {
            summary(line, &mut tests);
        }
        if !tests.complete {
            continue;
        }
        if is_numbered(line) {
            close(&mut open, &mut tests);
            let title = line.split_once(") ").map_or("", |(_, title)| title).trim().to_owned();
            open = Some(MochaFailure { titles: vec![title], ..MochaFailure::default() });
        } else if let Some(failure) = &mut open {
            failure.line(line, at);
        }
    }
    close(&mut open, &mut tests);
    tests.complete.then_some(tests)
}

#[derive(Debug, Default)]
struct MochaFailure {
    titles: Vec<String>,
    titled: bool,
    message: BoundedMessage,
    place: Option<(String, u32)>,
}

impl MochaFailure {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if !self.titled {
            // The titles of the suites and the test, one a line; the last one ends with a colon.
            let title = line.trim();
            self.titled = title.is_empty() || title.ends_with(':') || self.titles.len() >= 16;
            self.titles.push(title.trim_end_matches(':').to_owned());
        } else if is_frame(line) {
            self.place = self.place.take().or_else(|| frame(line, at));
        } else {
            self.message.push(line.trim_start());
        }
    }
}

fn close(open: &mut Option<MochaFailure>, tests: &mut ParsedTests) {
    if let Some(failure) = open.take() {
        let (file, line) = failure.place.map_or((None, None), |(file, line)| (Some(file), Some(line)));
        let titles: Vec<String> = failure.titles.into_iter().filter(|title| !title.is_empty()).collect();
        tests.failures.push(TestFailure {
            test: titles.join(" "),
            file,
            line,
            message: failure.message.finish(),
            ..TestFailure::default()
        });
    }
}

/// `  1) calc`
fn is_numbered(line: &str) -> bool {
    line.strip_prefix("  ")
        .and_then(|rest| rest.split_once(") "))
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `  1 passing (6ms)`, `  1 pending`, `  1 failing`
fn summary(line: &str, tests: &mut ParsedTests) {
    let Some((count, rest)) = line.strip_prefix("  ").and_then(|line| line.split_once(' ')) else { return };
    let Ok(count) = count.parse::<u64>() else { return };
    match rest.split(' ').next() {
        Some("passing") => {
            tests.passed = count;
            tests.complete = true;
            let time = rest.split_once('(').map(|(_, time)| time.trim_end_matches(')'));
            tests.duration = time.and_then(|time| match time.strip_suffix("ms") {
                Some(ms) => super::milliseconds(ms),
                None => time.strip_suffix('s').and_then(super::seconds),
            });
        }
        Some("failing") if tests.complete => tests.failed = count,
        Some("pending") if tests.complete => tests.skipped = count,
        _ => {}
    }
}
