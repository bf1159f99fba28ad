//! jest as people read it, for scripts whose JSON report is not available.

use super::stack_frame::{frame, is_frame};
use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = JestTextReader::default();
    for line in output.lines() {
        reader.line(line, at);
    }
    reader.close();
    reader.tests.complete.then_some(reader.tests)
}

#[derive(Debug, Default)]
struct JestTextReader {
    tests: ParsedTests,
    file: Option<String>,
    open: Option<(TestFailure, BoundedMessage)>,
}

impl JestTextReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if let Some(path) = line.strip_prefix("FAIL ").or_else(|| line.strip_prefix("PASS ")) {
            self.close();
            let path = path.trim().rsplit_once(" (").map_or(path.trim(), |(path, _)| path);
            self.file = at.service_path(path);
        } else if let Some(counts) = line.strip_prefix("Tests:") {
            self.close();
            self.counts(counts);
        } else if let Some(time) = line.strip_prefix("Time:") {
            self.tests.duration = time.trim().split(' ').next().and_then(super::seconds);
        } else if line.starts_with("Test Suites:") || line.starts_with("Summary of all failing tests") {
            self.close();
        } else if let Some(title) = line.strip_prefix("  ● ") {
            self.close();
            self.open(title);
        } else if let Some((failure, message)) = &mut self.open {
            let code = line.trim_start().trim_start_matches('>').trim_start().split(' ').next();
            let excerpt =
                line.contains('|') && code.is_some_and(|code| code == "|" || code.parse::<u32>().is_ok());
            if is_frame(line) {
                if let Some((file, number)) = frame(line, at)
                    && failure.line.is_none()
                {
                    failure.file = Some(file);
                    failure.line = Some(number);
                }
            } else if !excerpt {
                message.push(line.strip_prefix("    ").unwrap_or(line));
            }
        }
    }

    fn open(&mut self, title: &str) {
        let suite = title.trim() == "Test suite failed to run";
        let name = title.trim().replace(" › ", " ");
        let (kind, test) = match (&self.file, suite) {
            (Some(file), true) => (TestFailureKind::Build, file.clone()),
            (Some(file), false) => (TestFailureKind::Test, format!("{file}::{name}")),
            (None, true) => (TestFailureKind::Build, String::new()),
            (None, false) => (TestFailureKind::Test, name),
        };
        self.tests.errors += u64::from(suite);
        let failure = TestFailure { kind, test, file: self.file.clone(), ..TestFailure::default() };
        self.open = Some((failure, BoundedMessage::default()));
    }

    fn close(&mut self) {
        if let Some((mut failure, message)) = self.open.take() {
            failure.message = message.finish();
            // The summary of a large run repeats the failures.
            let key = format!("{}\n{:?}", failure.test, failure.line);
            self.tests.failures.entry(&key, || failure);
        }
    }

    /// `       2 failed, 1 skipped, 1 todo, 1 passed, 5 total`
    fn counts(&mut self, counts: &str) {
        for part in counts.split(',') {
            let Some((count, what)) = part.trim().split_once(' ') else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            match what {
                "passed" => self.tests.passed = count,
                "failed" => self.tests.failed = count,
                "skipped" | "todo" => self.tests.skipped = self.tests.skipped.saturating_add(count),
                "total" => self.tests.complete = true,
                _ => {}
            }
        }
    }
}
