//! `go test -json`: one event a line. A test with subtests counts by its subtests; go prints files by their bare name, so
//! the package gives the directory.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::go_text::{GoFailureText, compiler_error};
use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::project_view::join;
use crate::run_output::{PlainOutput, RunLocation};

/// Maximum number of tests whose results are kept.
const MAX_TESTS: usize = 200_000;

pub(super) fn read(
    output: &PlainOutput<'_>,
    at: &RunLocation<'_>,
    module: Option<&str>,
) -> Option<ParsedTests> {
    let mut reader = GoReader { module, ..GoReader::default() };
    for line in output.stdout.lines().filter(|line| line.starts_with('{')) {
        if let Ok(event) = serde_json::from_str::<Value>(line) {
            reader.event(&event, at);
        }
    }
    if !reader.seen {
        return None;
    }
    // Before go 1.24 the compiler's messages are on standard error.
    for line in output.stderr.lines() {
        reader.build_line(line, at);
    }
    Some(reader.finish(at))
}

/// The lines that the events carry.
pub(super) fn log(stdout: &str) -> String {
    let mut out = String::with_capacity(stdout.len() / 2);
    for line in stdout.lines() {
        let event = if line.starts_with('{') { serde_json::from_str::<Value>(line).ok() } else { None };
        match event {
            Some(event) => out.push_str(event.get("Output").and_then(Value::as_str).unwrap_or_default()),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[derive(Debug, Default)]
struct GoReader<'a> {
    module: Option<&'a str>,
    tests: ParsedTests,
    seen: bool,
    /// Result of each test of a package, in order of completion.
    results: Vec<(String, GoResult)>,
    parents: HashSet<String>,
    texts: HashMap<String, GoFailureText>,
    started: HashSet<String>,
    ended: HashSet<String>,
    build_errors: u64,
    failed_packages: Vec<String>,
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoResult {
    Pass,
    Fail,
    Skip,
}

impl GoReader<'_> {
    fn event(&mut self, event: &Value, at: &RunLocation<'_>) {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let (action, package, test) = (text("Action"), text("Package"), text("Test"));
        self.seen |= !action.is_empty() && (!package.is_empty() || !text("ImportPath").is_empty());
        if action == "build-output" {
            return self.build_line(text("Output").trim_end(), at);
        }
        if package.is_empty() || self.results.len() >= MAX_TESTS {
            return;
        }
        let result = match action {
            "start" => {
                self.started.insert(package.to_owned());
                return;
            }
            "output" => return self.output(package, test, text("Output"), at),
            "pass" => GoResult::Pass,
            "fail" => GoResult::Fail,
            "skip" => GoResult::Skip,
            _ => return,
        };
        if test.is_empty() {
            self.ended.insert(package.to_owned());
            let seconds = event.get("Elapsed").and_then(Value::as_f64).unwrap_or(0.0);
            self.seconds = self.seconds.max(seconds);
            if result == GoResult::Fail {
                self.failed_packages.push(package.to_owned());
            }
            return;
        }
        if let Some((parent, _)) = test.rsplit_once('/') {
            self.parents.insert(key(package, parent));
        }
        self.results.push((key(package, test), result));
    }

    fn output(&mut self, package: &str, test: &str, line: &str, at: &RunLocation<'_>) {
        if self.texts.len() < MAX_TESTS {
            let directory = self.directory(package);
            self.texts.entry(key(package, test)).or_default().line(line.trim_end(), &directory, at);
        }
    }

    /// The directory of a package, relative to the working directory.
    fn directory(&self, package: &str) -> String {
        let inside = self.module.and_then(|module| package.strip_prefix(module));
        inside.map_or(String::new(), |rest| rest.trim_start_matches('/').to_owned())
    }

    fn build_line(&mut self, line: &str, at: &RunLocation<'_>) {
        if let Some(failure) = compiler_error(line, at) {
            self.build_errors += 1;
            self.tests.failures.push(failure);
        }
    }

    fn finish(mut self, at: &RunLocation<'_>) -> ParsedTests {
        let results = std::mem::take(&mut self.results);
        let mut packages_with_failures = HashSet::new();
        for (key, result) in results.into_iter().filter(|(key, _)| !self.parents.contains(key)) {
            match result {
                GoResult::Pass => self.tests.passed += 1,
                GoResult::Skip => self.tests.skipped += 1,
                GoResult::Fail => {
                    self.tests.failed += 1;
                    let (package, test) = key.split_once('\n').unwrap_or(("", &key));
                    packages_with_failures.insert(package.to_owned());
                    let directory = self.directory(package);
                    let name = super::go_text::target_name(&join(at.directory, &directory), test);
                    let text = self.texts.remove(&key).unwrap_or_default();
                    self.tests.failures.push(text.failure(name));
                }
            }
        }
        self.tests.errors = self.build_errors;
        for package in std::mem::take(&mut self.failed_packages) {
            // A package that failed without a failed test or a compiler error: a crash, `os.Exit`, a missing package.
            if self.build_errors > 0 || packages_with_failures.contains(&package) {
                continue;
            }
            self.tests.errors += 1;
            let text = self.texts.remove(&key(&package, "")).unwrap_or_default();
            self.tests.failures.push(TestFailure { kind: TestFailureKind::Error, ..text.failure(package) });
        }
        self.tests.duration = super::seconds(&self.seconds.to_string());
        self.tests.complete = self.started.is_subset(&self.ended) && !self.ended.is_empty();
        self.tests
    }
}

fn key(package: &str, test: &str) -> String {
    format!("{package}\n{test}")
}
