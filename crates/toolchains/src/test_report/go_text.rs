//! `go test` as people read it, and what both readers of go share: the output of one test, compiler errors.

use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::project_view::join;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(
    output: &PlainOutput<'_>,
    at: &RunLocation<'_>,
    module: Option<&str>,
) -> Option<ParsedTests> {
    let mut reader = GoTextReader::default();
    for line in output.stdout.lines() {
        reader.line(line, at, module);
    }
    if !reader.seen {
        return None;
    }
    for line in output.stderr.lines() {
        if let Some(failure) = compiler_error(line, at) {
            reader.tests.errors += 1;
            reader.tests.failures.push(failure);
        }
    }
    if reader.passed_packages > 0 && reader.tests.passed == 0 {
        let note = format!(
            "{} packages passed; without -json go does not count their tests",
            reader.passed_packages
        );
        reader.tests.notes.push(note);
        // The caller needs a count that is not zero to tell this from "no tests".
        reader.tests.passed = reader.passed_packages;
    }
    reader.tests.complete = true;
    Some(reader.tests)
}

#[derive(Debug, Default)]
struct GoTextReader {
    tests: ParsedTests,
    seen: bool,
    passed_packages: u64,
    /// Tests of the current package: the package's name follows its tests.
    pending: Vec<(String, GoFailureText)>,
}

impl GoTextReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>, module: Option<&str>) {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("--- ") {
            let Some((result, name)) = rest.split_once(": ") else { return };
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            match result {
                "PASS" => self.tests.passed += 1,
                "SKIP" => self.tests.skipped += 1,
                "FAIL" => self.fail(name),
                _ => {}
            }
        } else if let Some(package) = line.strip_prefix("FAIL\t") {
            self.seen = true;
            let package = package.split(['\t', ' ']).next().unwrap_or_default();
            self.close_package(package, module, at);
        } else if line.starts_with("ok  \t") {
            self.seen = true;
            self.passed_packages += 1;
            self.close_package("", module, at);
        } else if line.starts_with("?   \t") {
            self.seen = true;
        } else if let Some((_, text)) = self.pending.last_mut() {
            text.keep(line);
        }
    }

    fn fail(&mut self, name: &str) {
        // A parent that failed by its subtest is followed by it.
        let parent = self.pending.last().is_some_and(|(last, _)| {
            name.strip_prefix(last.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
        if parent {
            self.pending.pop();
        }
        if self.pending.len() < super::MAX_FAILURES {
            self.pending.push((name.to_owned(), GoFailureText::default()));
        } else {
            self.tests.failed += 1;
        }
    }

    fn close_package(&mut self, package: &str, module: Option<&str>, at: &RunLocation<'_>) {
        let inside = module.and_then(|module| package.strip_prefix(module)).unwrap_or_default();
        let directory = inside.trim_start_matches('/');
        for (name, text) in std::mem::take(&mut self.pending) {
            self.tests.failed += 1;
            let mut located = GoFailureText::default();
            for line in text.kept {
                located.line(&line, directory, at);
            }
            self.tests.failures.push(located.failure(target_name(&join(at.directory, directory), &name)));
        }
    }
}

/// A test in the form that a target has: the directory of its package and its name.
pub(super) fn target_name(directory: &str, test: &str) -> String {
    if directory.is_empty() { test.to_owned() } else { format!("{directory}::{test}") }
}

/// The output of one go test.
#[derive(Debug, Default)]
pub(super) struct GoFailureText {
    position: Option<(String, u32)>,
    message: BoundedMessage,
    panic: bool,
    kept: Vec<String>,
}

impl GoFailureText {
    /// Reads a line of the test's output; `directory` is that of its package.
    pub(super) fn line(&mut self, line: &str, directory: &str, at: &RunLocation<'_>) {
        let trimmed = line.trim_start();
        if trimmed.starts_with("--- ") || trimmed.starts_with("=== ") {
            return;
        }
        if trimmed.starts_with("panic: ") {
            self.panic = true;
            self.message.push(trimmed);
        } else if self.panic {
            // `\t/path/boom_test.go:7 +0x28`: the first frame inside the project.
            let place = trimmed.split_once(" +0x").map_or(trimmed, |(place, _)| place);
            if self.position.is_none() && trimmed.starts_with('/') {
                self.position = at.code_position(place);
            }
        } else if let Some((place, message)) = trimmed.split_once(": ")
            && place
                .split_once(':')
                .is_some_and(|(file, line)| file.ends_with(".go") && line.parse::<u32>().is_ok())
        {
            if self.position.is_none() {
                self.position = at.code_position(&join(directory, place));
            }
            self.message.push(message);
        } else {
            self.message.push(trimmed);
        }
    }

    /// Keeps a line until the package is known.
    fn keep(&mut self, line: &str) {
        if self.kept.len() < 60 {
            self.kept.push(line.to_owned());
        }
    }

    /// The failure of a test.
    pub(super) fn failure(self, test: String) -> TestFailure {
        let (file, line) = self.position.map_or((None, None), |(file, line)| (Some(file), Some(line)));
        TestFailure { test, file, line, message: self.message.finish(), ..TestFailure::default() }
    }
}

/// `bad/bad.go:3:23: cannot use ...`
pub(super) fn compiler_error(line: &str, at: &RunLocation<'_>) -> Option<TestFailure> {
    let (place, message) = line.split_once(": ")?;
    let (file, _) = place.strip_prefix("vet: ").unwrap_or(place).split_once(':')?;
    if !file.ends_with(".go") || line.starts_with(['\t', ' ']) {
        return None;
    }
    let (file, number) = at.code_position(place)?;
    Some(TestFailure {
        kind: TestFailureKind::Build,
        test: String::new(),
        file: Some(file),
        line: Some(number),
        message: message.to_owned(),
    })
}
