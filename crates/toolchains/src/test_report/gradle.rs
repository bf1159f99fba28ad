//! Gradle's plain console. It counts only failing runs; a run without failures has no counts.

use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = GradleReader::default();
    for line in output.lines() {
        reader.line(line, at);
    }
    reader.close();
    if !reader.seen {
        return None;
    }
    let mut tests = reader.tests;
    if !tests.complete && tests.failures.is_empty() {
        tests.notes.push("gradle prints no counts for a run without failures".to_owned());
    }
    Some(tests)
}

#[derive(Debug, Default)]
struct GradleReader {
    tests: ParsedTests,
    seen: bool,
    open: Option<(TestFailure, BoundedMessage)>,
}

impl GradleReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if let Some(rest) =
            line.strip_prefix("BUILD SUCCESSFUL").or_else(|| line.strip_prefix("BUILD FAILED"))
        {
            self.close();
            self.seen = true;
            let time = rest.trim().strip_prefix("in ").and_then(|time| time.strip_suffix('s'));
            self.tests.duration = time.and_then(super::seconds);
        } else if line.starts_with("> Task ") || line.starts_with("FAILURE: ") {
            self.close();
        } else if let Some(name) = line.strip_suffix(" FAILED").filter(|name| name.contains(" > ")) {
            self.close();
            let test = name.replace(" > ", ".").trim_end_matches("()").to_owned();
            self.open = Some((TestFailure { test, ..TestFailure::default() }, BoundedMessage::default()));
        } else if let Some((counts, _)) = line.split_once(" failed").filter(|_| line.contains(" completed, "))
        {
            self.close();
            self.counts(counts, line);
        } else if let Some(failure) = compiler_error(line, at) {
            self.close();
            self.tests.errors += 1;
            self.tests.failures.push(failure);
        } else if let Some((failure, message)) = &mut self.open {
            if line.trim().is_empty() {
                self.close();
            } else {
                // `    org.opentest4j.AssertionFailedError: ... at CalcTest.java:8`: a file without its directory.
                let number =
                    line.rsplit_once(':').and_then(|(_, number)| number.trim_end_matches(')').parse().ok());
                failure.line = failure.line.or(number);
                message.push(line.trim());
            }
        }
    }

    /// `3 tests completed, 1 failed, 1 skipped`
    fn counts(&mut self, counts: &str, line: &str) {
        let number =
            |text: Option<&str>| text.and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
        let Some(completed) = number(Some(counts)) else { return };
        let failed = number(line.split(", ").find(|part| part.contains(" failed"))).unwrap_or(0);
        let skipped = number(line.split(", ").find(|part| part.contains(" skipped"))).unwrap_or(0);
        self.seen = true;
        self.tests.complete = true;
        self.tests.failed += failed;
        self.tests.skipped += skipped;
        self.tests.passed += completed.saturating_sub(failed).saturating_sub(skipped);
    }

    fn close(&mut self) {
        if let Some((mut failure, message)) = self.open.take() {
            failure.message = message.finish();
            self.tests.failures.push(failure);
        }
    }
}

/// `/srv/project/src/main/java/demo/X.java:1: error: <identifier> expected`, `e: file:///srv/project/X.kt:1:2 message`
fn compiler_error(line: &str, at: &RunLocation<'_>) -> Option<TestFailure> {
    let (place, message) = match line.strip_prefix("e: ") {
        Some(kotlin) => kotlin.split_once(' ')?,
        None => line.split_once(": error: ")?,
    };
    let (file, number) = at.code_position(place)?;
    Some(TestFailure {
        kind: TestFailureKind::Build,
        test: String::new(),
        file: Some(file),
        line: Some(number),
        message: message.to_owned(),
    })
}
