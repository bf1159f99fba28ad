//! What a test run says: counts, and each failure with test, file, line and message.
//!
//! Every reader is total: any text gives a report, in linear time, of limited size. The output comes from code of the
//! repository, so a report is information for the caller and never a reason to allow anything. If no reader recognises
//! the output, the exit code decides and `notes` says so.

mod cargo_errors;
mod failure_list;
mod go_json;
mod go_text;
mod gradle;
mod jest_json;
mod jest_text;
mod libtest;
mod maven;
mod mocha_text;
mod nextest;
mod node_spec;
mod pytest;
mod rust_panic;
mod stack_frame;
mod tap;
mod unittest;
mod vitest_text;

use std::time::Duration;

pub(crate) use failure_list::FailureList;

use crate::run_output::{PlainOutput, RunLocation, RunOutput};

/// Maximum number of failures in a report.
pub const MAX_FAILURES: usize = 500;

/// How the output of a test run is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestFormat {
    /// `cargo test`.
    Libtest,
    /// `cargo nextest run`.
    Nextest,
    /// pytest with `--tb=short`.
    Pytest,
    /// `python -m unittest`.
    Unittest,
    /// `go test -json`.
    GoJson,
    /// `go test`.
    GoText,
    /// The JSON report of jest and vitest.
    JestJson,
    /// jest's own output.
    JestText,
    /// vitest's own output.
    VitestText,
    /// TAP, as `node --test --test-reporter=tap` writes it.
    Tap,
    /// `node --test` with the spec reporter.
    NodeSpec,
    /// mocha's spec reporter.
    MochaText,
    /// Maven's surefire plugin.
    Maven,
    /// Gradle.
    Gradle,
    /// Not known: every reader is tried.
    Unknown,
}

impl TestFormat {
    /// The order in which formats are tried on output of unknown origin: the most specific first.
    const TRIED: [Self; 14] = [
        Self::Nextest,
        Self::Libtest,
        Self::Pytest,
        Self::Unittest,
        Self::GoJson,
        Self::GoText,
        Self::Tap,
        Self::NodeSpec,
        Self::JestJson,
        Self::JestText,
        Self::VitestText,
        Self::MochaText,
        Self::Maven,
        Self::Gradle,
    ];

    /// A word for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Libtest => "cargo test",
            Self::Nextest => "cargo nextest",
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::GoJson | Self::GoText => "go test",
            Self::JestJson => "jest json",
            Self::JestText => "jest",
            Self::VitestText => "vitest",
            Self::Tap => "tap",
            Self::NodeSpec => "node --test",
            Self::MochaText => "mocha",
            Self::Maven => "maven",
            Self::Gradle => "gradle",
            Self::Unknown => "unknown",
        }
    }

    fn read(
        self,
        output: &PlainOutput<'_>,
        reader: &TestReader,
        at: &RunLocation<'_>,
    ) -> Option<ParsedTests> {
        match self {
            Self::Libtest => libtest::read(output, at),
            Self::Nextest => nextest::read(output, at),
            Self::Pytest => pytest::read(output, at),
            Self::Unittest => unittest::read(output, at),
            Self::GoJson => go_json::read(output, at, reader.go_module.as_deref()),
            Self::GoText => go_text::read(output, at, reader.go_module.as_deref()),
            Self::JestJson => jest_json::read(output, at),
            Self::JestText => jest_text::read(output, at),
            Self::VitestText => vitest_text::read(output, at),
            Self::Tap => tap::read(output, at),
            Self::NodeSpec => node_spec::read(output, at),
            Self::MochaText => mocha_text::read(output, at),
            Self::Maven => maven::read(output, at),
            Self::Gradle => gradle::read(output, at),
            Self::Unknown => None,
        }
    }
}

/// How a test run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestOutcome {
    /// Every test that ran passed.
    Passed,
    /// A test failed.
    Failed,
    /// The tests could not be built or loaded.
    BuildFailed,
    /// No test matched.
    NoTests,
    /// The runner reported an error of its own, or was ended before its summary.
    NotFinished,
}

impl TestOutcome {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::BuildFailed => "build_failed",
            Self::NoTests => "no_tests",
            Self::NotFinished => "not_finished",
        }
    }
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TestFailureKind {
    /// A test.
    #[default]
    Test,
    /// Code around the tests: a fixture, a hook, a crash.
    Error,
    /// The code did not compile, or a test file could not be loaded.
    Build,
    /// A test ran past its deadline.
    Timeout,
}

impl TestFailureKind {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Error => "error",
            Self::Build => "build",
            Self::Timeout => "timeout",
        }
    }
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestFailure {
    /// What failed.
    pub kind: TestFailureKind,
    /// Name of the test, in the form that `run_test` takes as a target where the runner has one. Empty for build errors
    /// that belong to no test.
    pub test: String,
    /// File of the failed assertion or error, relative to the service root.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
    /// The runner's message, a few lines at most.
    pub message: String,
}

/// What a test run says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReport {
    /// The format that was recognised; `Unknown` if only the exit code counts.
    pub format: TestFormat,
    /// How the run ended.
    pub outcome: TestOutcome,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were skipped, ignored or are still to be written.
    pub skipped: u64,
    /// Errors outside of tests: fixtures, hooks, files that did not load, build errors.
    pub errors: u64,
    /// Duration by the runner's own clock.
    pub duration: Option<Duration>,
    /// The failures, in the order of the output.
    pub failures: Vec<TestFailure>,
    /// Failures beyond [`MAX_FAILURES`].
    pub failures_left_out: u64,
    /// Whether the runner's own summary was found, so that the counts are whole.
    pub complete: bool,
    /// What the reader of this report should know.
    pub notes: Vec<String>,
}

/// What a reader found.
#[derive(Debug, Default)]
pub(crate) struct ParsedTests {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) errors: u64,
    pub(crate) duration: Option<Duration>,
    pub(crate) failures: FailureList,
    pub(crate) complete: bool,
    pub(crate) notes: Vec<String>,
}

/// How to read the output of a planned test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReader {
    /// Expected format; other formats are tried if it does not fit.
    pub format: TestFormat,
    /// Module path of `go.mod`: go prints packages, not directories.
    pub go_module: Option<String>,
}

impl TestReader {
    /// A reader for a format.
    #[must_use]
    pub fn new(format: TestFormat) -> Self {
        Self { format, go_module: None }
    }

    /// Reads the output.
    #[must_use]
    pub fn read(&self, output: &RunOutput<'_>, at: &RunLocation<'_>) -> TestReport {
        let clean = output.clean();
        let tried = std::iter::once(self.format)
            .chain(TestFormat::TRIED.into_iter().filter(|format| *format != self.format));
        let found = tried.into_iter().find_map(|format| Some((format, format.read(&clean, self, at)?)));
        match found {
            Some((format, tests)) => report(format, tests, &clean),
            None => by_exit_code(self.format, &clean),
        }
    }

    /// The output as text for people: JSON events become the lines that they carry.
    #[must_use]
    pub fn log(&self, output: &RunOutput<'_>) -> String {
        let clean = output.clean();
        let stdout = match self.format {
            TestFormat::GoJson => go_json::log(&clean.stdout),
            _ => clean.stdout.into_owned(),
        };
        match (stdout.is_empty(), clean.stderr.is_empty()) {
            (_, true) => stdout,
            (true, false) => clean.stderr.into_owned(),
            (false, false) => {
                let gap = if stdout.ends_with('\n') { "" } else { "\n" };
                format!("{stdout}{gap}{}", clean.stderr)
            }
        }
    }
}

fn report(format: TestFormat, tests: ParsedTests, output: &PlainOutput<'_>) -> TestReport {
    let ParsedTests { passed, failed, skipped, errors, duration, failures, complete, mut notes } = tests;
    let built = failures.iter().all(|failure| failure.kind != TestFailureKind::Build);
    let bad = failed > 0 || errors > 0 || !failures.is_empty();
    let outcome = match output.exit_code {
        _ if bad && !built && passed + failed == 0 => TestOutcome::BuildFailed,
        _ if bad => TestOutcome::Failed,
        Some(0) if passed + skipped > 0 || !complete => TestOutcome::Passed,
        Some(code) if passed + skipped == 0 && complete && (code == 0 || no_tests_code(format, code)) => {
            TestOutcome::NoTests
        }
        _ => TestOutcome::NotFinished,
    };
    match output.exit_code {
        Some(0) if bad => notes.push("the exit code was 0 although failures were reported".to_owned()),
        Some(code) if outcome == TestOutcome::NotFinished => {
            notes.push(format!("the exit code was {code} although no failed test was found"));
        }
        None => notes.push("the program was ended before it exited".to_owned()),
        _ => {}
    }
    if output.truncated {
        notes.push("the output was cut: counts and failures may be missing".to_owned());
    }
    let (failures, failures_left_out) = failures.finish();
    let complete = complete && output.exit_code.is_some();
    TestReport {
        format,
        outcome,
        passed,
        failed,
        skipped,
        errors,
        duration,
        failures,
        failures_left_out,
        complete,
        notes,
    }
}

/// Exit codes that mean "no test matched": pytest 5, unittest 5 (Python 3.12), nextest 4.
fn no_tests_code(format: TestFormat, code: i32) -> bool {
    match format {
        TestFormat::Pytest | TestFormat::Unittest => code == 5,
        TestFormat::Nextest => code == 4,
        _ => false,
    }
}

/// The report of a run whose output no reader recognises.
fn by_exit_code(expected: TestFormat, output: &PlainOutput<'_>) -> TestReport {
    let (outcome, what) = match output.exit_code {
        Some(0) => (TestOutcome::Passed, "the exit code 0".to_owned()),
        Some(code) => (TestOutcome::Failed, format!("the exit code {code}")),
        None => (TestOutcome::NotFinished, "how the program ended".to_owned()),
    };
    let expected = match expected {
        TestFormat::Unknown => String::new(),
        format => format!(" as that of {}", format.as_str()),
    };
    TestReport {
        format: TestFormat::Unknown,
        outcome,
        passed: 0,
        failed: 0,
        skipped: 0,
        errors: 0,
        duration: None,
        failures: Vec::new(),
        failures_left_out: 0,
        complete: false,
        notes: vec![format!(
            "the output could not be read{expected}: the result is {what}, and there are no counts"
        )],
    }
}

/// A number of seconds; `None` if it is none, or absurd.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    (0.0..1e9).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// A number of milliseconds.
fn milliseconds(text: &str) -> Option<Duration> {
    let milliseconds: f64 = text.trim().parse().ok()?;
    (0.0..1e12).contains(&milliseconds).then(|| Duration::from_secs_f64(milliseconds / 1000.0))
}

#[cfg(test)]
mod tests;
