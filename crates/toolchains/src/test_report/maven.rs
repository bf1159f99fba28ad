//! Maven with the surefire plugin: compiler errors, the list of results and the total.

use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    if !output.stdout.lines().any(|line| line.starts_with("[INFO] ") || line.starts_with("[ERROR] ")) {
        return None;
    }
    let mut reader = MavenReader::default();
    for line in output.stdout.lines() {
        reader.line(line, at);
    }
    reader.seen.then_some(reader.tests)
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum MavenList {
    #[default]
    None,
    Failures,
    Errors,
}

#[derive(Debug, Default)]
struct MavenReader {
    tests: ParsedTests,
    seen: bool,
    in_results: bool,
    list: MavenList,
}

impl MavenReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        let Some((level, text)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
            return;
        };
        match (level, text.trim_end()) {
            ("INFO", "Results:") => self.in_results = true,
            ("ERROR", "Failures:") => self.list = MavenList::Failures,
            ("ERROR", "Errors:") => self.list = MavenList::Errors,
            ("ERROR" | "INFO" | "WARNING", text) if text.starts_with("Tests run: ") => {
                self.list = MavenList::None;
                // Lines of single classes have a time, or name the class; the totals have neither.
                if self.in_results && !text.contains("Time elapsed") {
                    self.totals(text);
                    self.in_results = false;
                }
            }
            ("INFO", text) if text.starts_with("Total time:") => {
                self.tests.duration = text.split_once(':').and_then(|(_, time)| duration(time.trim()));
            }
            ("INFO", "BUILD FAILURE" | "BUILD SUCCESS") => self.seen = true,
            ("ERROR", text) if text.contains(".java:[") || text.contains(".kt:[") => {
                self.compiler_error(text, at)
            }
            ("ERROR", text) if self.list != MavenList::None && text.starts_with("  ") => self.failure(text),
            _ => {}
        }
    }

    /// `Tests run: 3, Failures: 1, Errors: 1, Skipped: 1`
    fn totals(&mut self, text: &str) {
        self.seen = true;
        self.tests.complete = true;
        let (mut run, mut others) = (0_u64, 0_u64);
        for part in text.split(", ") {
            let Some((what, count)) = part.split_once(": ") else { continue };
            let count: u64 = count.trim().parse().unwrap_or(0);
            match what {
                "Tests run" => run = count,
                "Failures" => self.tests.failed += count,
                "Errors" => self.tests.errors += count,
                "Skipped" => self.tests.skipped += count,
                _ => {}
            }
            others = others.saturating_add(if what == "Tests run" { 0 } else { count });
        }
        self.tests.passed += run.saturating_sub(others);
    }

    /// `  CalcTest.adds:8 sum is wrong ==> expected: <3> but was: <-1>`, `  CalcTest.throwsError:13 » IllegalState ...`
    fn failure(&mut self, text: &str) {
        let text = text.trim_start();
        let (head, message) = text.split_once(' ').unwrap_or((text, ""));
        // `CalcTest.outer:8->helper:20`: the last place is where the assertion is.
        let mut test = "";
        let mut line = None;
        for part in head.split("->") {
            let (name, number) = part.rsplit_once(':').unwrap_or((part, ""));
            line = number.parse().ok().or(line);
            if test.is_empty() {
                test = name;
            }
        }
        let kind =
            if self.list == MavenList::Errors { TestFailureKind::Error } else { TestFailureKind::Test };
        let message = message.trim_start_matches("» ").to_owned();
        // Surefire names the class, not the file.
        self.tests.failures.push(TestFailure {
            kind,
            test: test.replace("..", ""),
            file: None,
            line,
            message,
        });
    }

    /// `/srv/project/src/main/java/demo/X.java:[1,15] <identifier> expected`
    fn compiler_error(&mut self, text: &str, at: &RunLocation<'_>) {
        let Some((file, rest)) = text.split_once(":[") else { return };
        let Some((place, message)) = rest.split_once("] ") else { return };
        let line = place.split(',').next().and_then(|line| line.parse().ok());
        let file = at.service_path(file);
        let key = format!("{file:?}{line:?}{message}");
        let failure = TestFailure {
            kind: TestFailureKind::Build,
            test: String::new(),
            file,
            line,
            message: message.to_owned(),
        };
        // Maven repeats compiler errors at the end.
        let before = self.tests.failures.len();
        self.tests.failures.entry(&key, || failure);
        self.tests.errors += self.tests.failures.len() - before;
    }
}

/// `2.111 s`, `01:05 min`
fn duration(text: &str) -> Option<std::time::Duration> {
    let (number, unit) = text.split_once(' ')?;
    match (unit.split(' ').next()?, number.split_once(':')) {
        ("s", None) => super::seconds(number),
        ("min", Some((minutes, seconds))) => Some(
            std::time::Duration::from_secs(minutes.parse::<u32>().ok()?.into()).saturating_mul(60)
                + super::seconds(seconds)?,
        ),
        _ => None,
    }
}
