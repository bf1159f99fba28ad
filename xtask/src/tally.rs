//! Counts tests by the summary lines of the runners: nextest's and that of Rust's own test harness.

use std::{fmt, ops::AddAssign};

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };

    /// Parses a summary line; `None` for every other line.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let line = plain(line);
        let line = line.trim();
        let counts = if let Some(rest) = line.strip_prefix("test result: ") {
            rest.split_once(". ")?.1
        } else if line.starts_with("Summary [") {
            // `5 tests run: ...`, or `3/5 tests run: ...` if it was interrupted.
            line.split_once(" run: ")?.1
        } else {
            return None;
        };
        let mut tally = Self::default();
        for (count, word) in counts.split(['(', ')', ',', ';']).filter_map(counted) {
            match word {
                "passed" => tally.passed += count,
                "failed" | "exec failed" | "timed out" => tally.failed += count,
                "skipped" | "ignored" => tally.skipped += count,
                // Subsets of the passed ones (`slow`, `flaky`, `leaky`), tests that were not selected (`filtered out`),
                // and other numbers.
                _ => {}
            }
        }
        Some(tally)
    }
}

/// What the lines of a test runner say, read one by one.
#[derive(Debug, Default)]
pub(crate) struct RunnerLines {
    pub(crate) tally: Tally,
    /// Names of failed tests, as Rust's own harness lists them at its end.
    pub(crate) failed: Vec<String>,
    /// Tests that failed first and passed when nextest repeated them.
    pub(crate) flaky: Vec<String>,
    in_failures: bool,
}

impl RunnerLines {
    pub(crate) fn read(&mut self, line: &str) {
        let counts = Tally::of_line(line);
        let line = plain(line);
        match counts {
            // nextest shows the output of failed attempts, with summary lines of the harness: its own summary counts.
            Some(counts) if line.trim_start().starts_with("Summary [") => self.tally = counts,
            Some(counts) => self.tally += counts,
            None => {}
        }
        let line = line.trim_end();
        if let Some(rest) = line.trim_start().strip_prefix("FLAKY ") {
            let name = rest.split_once(']').map_or(rest, |(_, name)| name).trim();
            if !self.flaky.iter().any(|flaky| flaky == name) {
                self.flaky.push(name.to_owned());
            }
        }
        if line == "failures:" {
            // The harness prints this heading twice: above the output, and above the list of names.
            self.in_failures = true;
            self.failed.clear();
        } else if self.in_failures {
            match line.strip_prefix("    ") {
                Some(name) if !name.contains(' ') => self.failed.push(name.to_owned()),
                _ if line.is_empty() => {}
                _ => self.in_failures = line.starts_with("---- "),
            }
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// `3 passed` as a number and a word.
fn counted(part: &str) -> Option<(u64, &str)> {
    let (count, word) = part.trim().split_once(' ')?;
    Some((count.parse().ok()?, word.trim()))
}

/// The line without its colours.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' {
            rest.by_ref().find(|end| end.is_ascii_alphabetic());
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{RunnerLines, Tally};

    #[track_caller]
    fn check(line: &str, expected: Option<[u64; 3]>) {
        let expected = expected.map(|[passed, failed, skipped]| Tally { passed, failed, skipped });
        assert_eq!(Tally::of_line(line), expected, "{line:?}");
    }

    #[test]
    fn summary_lines_of_nextest_are_counted() {
        check("     Summary [   0.005s] 3 tests run: 3 passed, 0 skipped", Some([3, 0, 0]));
        check("     Summary [   1.2s] 1 test run: 1 passed, 12 skipped", Some([1, 0, 12]));
        check(
            "Summary [  61.0s] 9 tests run: 6 passed (2 slow, 1 flaky), 1 failed, 1 exec failed, 1 timed out, 4 skipped",
            Some([6, 3, 4]),
        );
        check("Summary [   0.1s] 3/5 tests run: 2 passed, 1 failed, 0 skipped", Some([2, 1, 0]));
        check(
            "Summary [   0.1s] 2 tests run: 1 passed (1 leaky), 1 failed (1 due to being leaky), 0 skipped",
            Some([1, 1, 0]),
        );
    }

    #[test]
    fn summary_lines_of_the_harness_are_counted() {
        check(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s",
            Some([3, 0, 1]),
        );
        check(
            "test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            Some([0, 2, 0]),
        );
    }

    #[test]
    fn colours_do_not_hide_a_summary_line() {
        check(
            "\u{1b}[32;1m     Summary\u{1b}[0m [   0.005s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m \u{1b}[33;1mskipped\u{1b}[0m",
            Some([3, 0, 0]),
        );
        check(
            "test result: \u{1b}[32mok\u{1b}[0m. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            Some([3, 0, 0]),
        );
    }

    #[test]
    fn failed_and_repeated_tests_are_named() {
        let mut lines = RunnerLines::default();
        for line in [
            "   FLAKY 2/2 [   0.471s] ( 940/1663) vambrace-sandbox::real processes::memory",
            "failures:",
            "",
            "---- a::b stdout ----",
            "    an indented line of output",
            "",
            "failures:",
            "    a::b",
            "    c",
            "",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            lines.read(line);
        }
        assert_eq!(lines.flaky, ["( 940/1663) vambrace-sandbox::real processes::memory"]);
        assert_eq!(lines.failed, ["a::b", "c"]);
        assert_eq!(lines.tally, Tally { passed: 1, failed: 2, skipped: 0 });
    }

    #[test]
    fn a_test_that_passes_when_repeated_is_no_failure() {
        let mut lines = RunnerLines::default();
        lines.read("    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 275 filtered out");
        lines.read("     Summary [   9.8s] 3 tests run: 3 passed (1 flaky), 2 skipped");
        assert_eq!(lines.tally, Tally { passed: 3, failed: 0, skipped: 2 });
    }

    #[test]
    fn other_lines_are_ignored() {
        check("", None);
        check("test tally::works ... ok", None);
        check("3 passed, 0 failed", None);
    }
}
