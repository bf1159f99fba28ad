//! How much of a log a caller gets: `HEAD:n`, `TAIL:n`, `HEAD_TAIL:n:m`, `FAILURES:n`. Whole lines are left out, and a
//! line in brackets says how many. Works on any log text, so that a stored log can be cut again in another way.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::suggest::nearest;

use crate::bounded_text::clip;
use crate::failure_blocks::failure_blocks;

/// Maximum number of lines or failures that a strategy can ask for.
pub const MAX_TRUNCATION_COUNT: usize = 10_000;
/// Number of failures that the default strategy shows.
const DEFAULT_FAILURES: usize = 20;
/// Maximum length of one line, in characters.
const MAX_LINE_CHARS: usize = 2000;
/// Lines of the end that `FAILURES` always shows: the runner's summary.
const SUMMARY_LINES: usize = 8;
/// Lines of the end that `FAILURES` shows if nothing in the log looks like a failure.
const LINES_WITHOUT_FAILURE: usize = 20;

/// Which lines of a log are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TruncationStrategy {
    /// The first lines.
    Head(usize),
    /// The last lines.
    Tail(usize),
    /// The first and the last lines.
    HeadTail(usize, usize),
    /// The parts that show failures, and the summary at the end.
    Failures(usize),
}

impl Default for TruncationStrategy {
    fn default() -> Self {
        Self::Failures(DEFAULT_FAILURES)
    }
}

/// Why a text is not a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TruncationError {
    /// No such strategy.
    #[error("`{asked}` is not a truncation strategy")]
    Unknown {
        /// The text.
        asked: String,
        /// The strategy that it may have meant.
        nearest: Option<&'static str>,
    },
    /// Too few or too many numbers.
    #[error("`{name}` takes {expected}, `{asked}` has {found}")]
    Count {
        /// The strategy.
        name: &'static str,
        /// The text.
        asked: String,
        /// What it takes.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
    /// Not a number, or too large.
    #[error("`{number}` in `{asked}` is not a number from 0 to {MAX_TRUNCATION_COUNT}")]
    Number {
        /// The text.
        asked: String,
        /// The part.
        number: String,
    },
}

impl TruncationError {
    /// What the caller can write instead.
    #[must_use]
    pub fn suggestion(&self) -> String {
        match self {
            Self::Unknown { nearest: Some(name), .. } => format!("write {}", example(name)),
            Self::Unknown { nearest: None, .. } => {
                "use HEAD:n, TAIL:n, HEAD_TAIL:n:m or FAILURES:n, for example FAILURES:20".to_owned()
            }
            Self::Count { name, .. } => format!("write {}", example(name)),
            Self::Number { .. } => "write a number of lines, for example TAIL:100".to_owned(),
        }
    }
}

impl From<TruncationError> for CallError {
    fn from(error: TruncationError) -> Self {
        Self::new(ErrorCode::InvalidArguments, error.to_string()).suggest(error.suggestion())
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "HEAD" => "HEAD:50",
        "TAIL" => "TAIL:100",
        "HEAD_TAIL" => "HEAD_TAIL:20:80",
        _ => "FAILURES:20",
    }
}

impl std::str::FromStr for TruncationStrategy {
    type Err = TruncationError;

    fn from_str(text: &str) -> Result<Self, TruncationError> {
        let asked = || clip(text, 100);
        let mut parts = text.trim().split(':');
        let written = parts.next().unwrap_or_default();
        let name = written.to_ascii_uppercase().replace('-', "_");
        let name = match name.as_str() {
            "HEAD" => "HEAD",
            "TAIL" => "TAIL",
            "HEAD_TAIL" => "HEAD_TAIL",
            "FAILURES" => "FAILURES",
            _ => {
                let near = if written.len() <= 40 {
                    nearest(written, ["HEAD_TAIL", "FAILURES", "HEAD", "TAIL"])
                } else {
                    None
                };
                return Err(TruncationError::Unknown { asked: asked(), nearest: near });
            }
        };
        let mut numbers = Vec::new();
        for part in parts.by_ref().take(3) {
            let number = part.trim().parse::<usize>().ok().filter(|number| *number <= MAX_TRUNCATION_COUNT);
            let bad = || TruncationError::Number { asked: asked(), number: clip(part, 40) };
            numbers.push(number.ok_or_else(bad)?);
        }
        match (name, numbers.as_slice()) {
            ("HEAD", [lines]) => Ok(Self::Head(*lines)),
            ("TAIL", [lines]) => Ok(Self::Tail(*lines)),
            ("HEAD_TAIL", [head, tail]) => Ok(Self::HeadTail(*head, *tail)),
            ("FAILURES", [failures]) => Ok(Self::Failures(*failures)),
            ("FAILURES", []) => Ok(Self::default()),
            (name, numbers) => Err(TruncationError::Count {
                name,
                asked: asked(),
                expected: if name == "HEAD_TAIL" { "two numbers" } else { "one number" },
                found: numbers.len(),
            }),
        }
    }
}

impl std::fmt::Display for TruncationStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Head(lines) => write!(f, "HEAD:{lines}"),
            Self::Tail(lines) => write!(f, "TAIL:{lines}"),
            Self::HeadTail(head, tail) => write!(f, "HEAD_TAIL:{head}:{tail}"),
            Self::Failures(failures) => write!(f, "FAILURES:{failures}"),
        }
    }
}

/// A log after truncation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedLog {
    /// The kept lines, with a line in brackets wherever lines were left out.
    pub text: String,
    /// Number of lines of the whole log.
    pub lines: usize,
    /// Number of lines that were left out.
    pub lines_left_out: usize,
}

impl TruncationStrategy {
    /// How many failures the caller wants as data; no limit for the strategies that count lines.
    #[must_use]
    pub fn max_failures(self) -> Option<usize> {
        match self {
            Self::Failures(failures) => Some(failures),
            _ => None,
        }
    }

    /// Cuts a log.
    #[must_use]
    pub fn apply(self, log: &str) -> TruncatedLog {
        let lines: Vec<&str> = log.lines().collect();
        let count = lines.len();
        let head_tail = |head: usize, tail: usize| vec![0..head, count.saturating_sub(tail)..count];
        let ranges = match self {
            Self::Head(head) => head_tail(head, 0),
            Self::Tail(tail) => head_tail(0, tail),
            Self::HeadTail(head, tail) => head_tail(head, tail),
            Self::Failures(failures) => {
                let mut ranges = failure_blocks(&lines, failures);
                let end =
                    if ranges.is_empty() && failures > 0 { LINES_WITHOUT_FAILURE } else { SUMMARY_LINES };
                ranges.push(count.saturating_sub(end)..count);
                ranges
            }
        };
        let mut cutter = LogCutter { lines: &lines, next: 0, text: String::new(), left_out: 0 };
        for range in ranges {
            cutter.keep(range);
        }
        cutter.leave_out_until(count);
        TruncatedLog { text: cutter.text, lines: count, lines_left_out: cutter.left_out }
    }
}

/// Copies ranges of lines in ascending order.
struct LogCutter<'a> {
    lines: &'a [&'a str],
    /// The first line that is not decided yet.
    next: usize,
    text: String,
    left_out: usize,
}

impl LogCutter<'_> {
    fn keep(&mut self, range: std::ops::Range<usize>) {
        if range.end <= self.next || range.is_empty() {
            return;
        }
        self.leave_out_until(range.start);
        for line in self.lines.get(self.next..range.end.min(self.lines.len())).unwrap_or_default() {
            self.text.push_str(&clip(line, MAX_LINE_CHARS));
            self.text.push('\n');
        }
        self.next = range.end.min(self.lines.len());
    }

    fn leave_out_until(&mut self, end: usize) {
        let count = end.min(self.lines.len()).saturating_sub(self.next);
        if count > 0 {
            let lines = if count == 1 { "line" } else { "lines" };
            self.text.push_str(&format!("[{count} {lines} left out]\n"));
            self.left_out += count;
            self.next += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn parse(text: &str) -> TruncationStrategy {
        text.parse().unwrap()
    }

    // T14
    #[test]
    fn strategies_are_parsed_and_printed() {
        let check = |text: &str, expected: TruncationStrategy, printed: &str| {
            assert_eq!(parse(text), expected);
            assert_eq!(expected.to_string(), printed);
        };
        check("HEAD:5", TruncationStrategy::Head(5), "HEAD:5");
        check("TAIL:100", TruncationStrategy::Tail(100), "TAIL:100");
        check("HEAD_TAIL:2:3", TruncationStrategy::HeadTail(2, 3), "HEAD_TAIL:2:3");
        check(" head-tail:2:3 ", TruncationStrategy::HeadTail(2, 3), "HEAD_TAIL:2:3");
        check("FAILURES", TruncationStrategy::Failures(20), "FAILURES:20");
        assert_eq!(TruncationStrategy::default(), parse("FAILURES:20"));
    }

    // T14
    #[test]
    fn errors_say_what_to_write_instead() {
        let check = |text: &str, message: &str, suggestion: &str| {
            let error = text.parse::<TruncationStrategy>().unwrap_err();
            assert_eq!((error.to_string().as_str(), error.suggestion().as_str()), (message, suggestion));
        };
        check("HAED:5", "`HAED:5` is not a truncation strategy", "write HEAD:50");
        check(
            "middle",
            "`middle` is not a truncation strategy",
            "use HEAD:n, TAIL:n, HEAD_TAIL:n:m or FAILURES:n, for example FAILURES:20",
        );
        check("HEAD", "`HEAD` takes one number, `HEAD` has 0", "write HEAD:50");
        check("HEAD_TAIL:5", "`HEAD_TAIL` takes two numbers, `HEAD_TAIL:5` has 1", "write HEAD_TAIL:20:80");
        check("TAIL:1:2", "`TAIL` takes one number, `TAIL:1:2` has 2", "write TAIL:100");
        check(
            "TAIL:-1",
            "`-1` in `TAIL:-1` is not a number from 0 to 10000",
            "write a number of lines, for example TAIL:100",
        );
        check(
            "HEAD:99999999999999999999",
            "`99999999999999999999` in `HEAD:99999999999999999999` is not a number from 0 to 10000",
            "write a number of lines, for example TAIL:100",
        );
        let call: CallError = "x".parse::<TruncationStrategy>().unwrap_err().into();
        assert_eq!(call.code, ErrorCode::InvalidArguments);
    }

    // T14
    #[test]
    fn left_out_lines_are_counted_where_they_were() {
        let log = "1\n2\n3\n4\n5\n6\n";
        let check = |strategy: &str, expected: &str, left_out: usize| {
            let cut = parse(strategy).apply(log);
            assert_eq!(
                (cut.text.as_str(), cut.lines, cut.lines_left_out),
                (expected, 6, left_out),
                "{strategy}"
            );
        };
        check("HEAD:2", "1\n2\n[4 lines left out]\n", 4);
        check("TAIL:1", "[5 lines left out]\n6\n", 5);
        check("HEAD_TAIL:1:2", "1\n[3 lines left out]\n5\n6\n", 3);
        check("HEAD_TAIL:4:4", log, 0);
        check("HEAD:5", "1\n2\n3\n4\n5\n[1 line left out]\n", 1);
        check("HEAD:0", "[6 lines left out]\n", 6);
        check("TAIL:10000", log, 0);
        check("FAILURES:3", log, 0);
        assert_eq!(parse("HEAD:3").apply("").text, "");
    }

    #[test]
    fn a_long_line_is_clipped() {
        let cut = parse("HEAD:1").apply(&"x".repeat(5000));
        assert!(cut.text.ends_with("[3000 characters left out]\n"), "{}", cut.text);
    }

    // T14
    #[test]
    fn failures_show_the_failing_parts_and_the_summary() {
        let log = include_str!("../tests/fixtures/test/cargo_test.out");
        let noise: String = (0..500).map(|n| format!("test noise_{n} ... ok\n")).collect();
        let cut = parse("FAILURES:1").apply(&format!("{noise}{log}"));
        assert!(cut.text.starts_with("[510 lines left out]\n"), "{}", cut.text);
        assert!(cut.text.contains("---- tests::does_not_panic stdout ----"), "{}", cut.text);
        assert!(cut.text.contains("test did not panic as expected"), "{}", cut.text);
        assert!(!cut.text.contains("no database"), "{}", cut.text);
        assert!(cut.text.contains("\ntest result: FAILED. 0 passed; 1 failed"), "{}", cut.text);
        let all = parse("FAILURES:20").apply(&format!("{noise}{log}"));
        for part in ["sum is wrong", "no database", "called `Option::unwrap()`"] {
            assert!(all.text.contains(part), "{part} in {}", all.text);
        }
        assert!(!all.text.contains("noise_3 "));
    }

    proptest! {
        #[test]
        fn every_line_is_kept_or_counted(log in "(a|E   x|not ok 1|\n|--- FAIL: x|error: y){0,80}", head in 0..9_usize, tail in 0..9_usize) {
            for strategy in [TruncationStrategy::Head(head), TruncationStrategy::Tail(tail), TruncationStrategy::HeadTail(head, tail), TruncationStrategy::Failures(head)] {
                let cut = strategy.apply(&log);
                let marks = cut.text.lines().filter(|line| line.ends_with("left out]")).count();
                prop_assert_eq!(cut.text.lines().count() - marks + cut.lines_left_out, cut.lines);
            }
        }

        #[test]
        fn parsing_never_panics(text in ".{0,60}") {
            let _ = text.parse::<TruncationStrategy>();
        }
    }
}
