//! Python's unittest: the sections of the failures and the last two lines, which it writes to standard error.

use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = UnittestReader::default();
    for line in output.lines() {
        reader.line(line, at);
    }
    reader.close_section();
    (reader.ran.is_some()).then_some(reader.tests)
}

#[derive(Debug, Default)]
struct UnittestReader {
    tests: ParsedTests,
    ran: Option<u64>,
    after_border: bool,
    open: Option<(TestFailure, BoundedMessage)>,
}

impl UnittestReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        let border = |mark: &str| {
            line.len() >= 70 && line.starts_with(mark) && line.trim_matches(['=', '-']).is_empty()
        };
        if border("==") {
            self.close_section();
            self.after_border = true;
        } else if self.after_border {
            self.after_border = false;
            self.open = failure_title(line).map(|failure| (failure, BoundedMessage::default()));
        } else if let Some(rest) = line.strip_prefix("Ran ")
            && let Some((count, time)) = rest.split_once(" in ")
            && let Some(count) = count.split(' ').next().and_then(|count| count.parse().ok())
        {
            self.close_section();
            self.ran = Some(count);
            self.tests.duration = time.trim_end().strip_suffix('s').and_then(super::seconds);
        } else if self.ran.is_some() && !self.tests.complete {
            self.result(line);
        } else if let Some((failure, message)) = &mut self.open
            && !border("--")
        {
            section_line(line, failure, message, at);
        }
    }

    fn close_section(&mut self) {
        if let Some((mut failure, message)) = self.open.take() {
            failure.message = message.finish();
            self.tests.failures.push(failure);
        }
    }

    /// `OK (skipped=1)`, `FAILED (failures=2, errors=2, expected failures=1)`, `NO TESTS RAN`
    fn result(&mut self, line: &str) {
        let (word, counts) =
            line.split_once(" (").map_or((line, ""), |(word, rest)| (word, rest.trim_end_matches(')')));
        if !matches!(word.trim(), "OK" | "FAILED" | "NO TESTS RAN") {
            return;
        }
        self.tests.complete = true;
        for part in counts.split(", ") {
            let Some((what, count)) = part.split_once('=') else { continue };
            let count: u64 = count.parse().unwrap_or(0);
            match what {
                "failures" | "unexpected successes" => self.tests.failed += count,
                "errors" => self.tests.errors += count,
                "skipped" | "expected failures" => self.tests.skipped += count,
                _ => {}
            }
        }
        let others = self.tests.failed.saturating_add(self.tests.errors).saturating_add(self.tests.skipped);
        self.tests.passed = self.ran.unwrap_or(0).saturating_sub(others);
    }
}

/// `FAIL: test_adds (test_calc.CalcTest.test_adds)`; before Python 3.11 the method is not repeated in the parentheses.
fn failure_title(line: &str) -> Option<TestFailure> {
    let (kind, rest) = match line.split_once(": ") {
        Some(("FAIL", rest)) => (TestFailureKind::Test, rest),
        Some(("ERROR", rest)) => (TestFailureKind::Error, rest),
        Some(("UNEXPECTED SUCCESS", rest)) => (TestFailureKind::Test, rest),
        _ => return None,
    };
    let (method, rest) = rest.split_once(" (").unwrap_or((rest, ""));
    let class = rest.split_once(')').map_or(rest, |(class, _)| class);
    let failed_import = class.starts_with("unittest.loader._FailedTest");
    let test = match class {
        _ if failed_import => method.to_owned(),
        "" => method.to_owned(),
        class if class.ends_with(&format!(".{method}")) => class.to_owned(),
        class => format!("{class}.{method}"),
    };
    let kind = if failed_import { TestFailureKind::Build } else { kind };
    Some(TestFailure { kind, test, ..TestFailure::default() })
}

fn section_line(line: &str, failure: &mut TestFailure, message: &mut BoundedMessage, at: &RunLocation<'_>) {
    if let Some(rest) = line.strip_prefix("  File \"") {
        let place = rest.split_once("\", line ").and_then(|(file, rest)| {
            let number = rest.split(',').next()?.trim().parse::<u32>().ok()?;
            Some((at.service_path(file)?, number))
        });
        if let Some((file, number)) = place {
            failure.file = Some(file);
            failure.line = Some(number);
        }
        // The message follows the last frame.
        *message = BoundedMessage::default();
    } else if !line.starts_with("Traceback ") && !line.starts_with("    ") {
        message.push(line);
    }
}
