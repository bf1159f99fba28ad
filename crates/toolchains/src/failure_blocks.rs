//! Finds the parts of a log that show failures, by the marks that test runners, compilers and linters put at their
//! beginning. Needs only the text, so it works for every runner and for a stored log.

use std::ops::Range;

/// Maximum number of lines of one failure.
const MAX_BLOCK_LINES: usize = 60;
/// Number of blank lines in a row that end a failure.
const BLANK_LINES: usize = 2;

/// The first `limit` failures, as ranges of lines in ascending order.
pub(crate) fn failure_blocks(lines: &[&str], limit: usize) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut open: Option<usize> = None;
    let mut blank = 0_usize;
    let mut close = |open: &mut Option<usize>, end: usize| match open.take() {
        Some(start) if blocks.len() < limit => blocks.push(start..end),
        _ => {}
    };
    for (number, line) in lines.iter().enumerate() {
        blank = if line.trim().is_empty() { blank + 1 } else { 0 };
        let too_long = open.is_some_and(|start| number - start >= MAX_BLOCK_LINES);
        if starts_failure(line) {
            close(&mut open, number);
            open = Some(number);
        } else if open.is_some() && (blank >= BLANK_LINES || too_long || ends_failure(line)) {
            close(&mut open, number);
        }
    }
    close(&mut open, lines.len());
    blocks
}

/// Whether a line begins the description of a failure.
fn starts_failure(line: &str) -> bool {
    let trimmed = line.trim_start();
    let framed = |mark: &str| line.starts_with(mark) && line.trim_end().ends_with(mark);
    // libtest; pytest's sections; unittest; go; TAP; jest; vitest; node; nextest.
    (line.starts_with("---- ") && line.trim_end().ends_with(" ----"))
        || (framed("__") && line.contains(' '))
        || ["FAIL: ", "ERROR: ", "error: ", "error[", "FAIL\t", " FAIL  ", "not ok ", "panic: ", "Traceback "]
            .iter()
            .any(|mark| line.starts_with(mark))
        || ["--- FAIL: ", "not ok ", "● ", "✖ ", "FAIL [", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["]
            .iter()
            .any(|mark| trimmed.starts_with(mark))
        || is_compiler_error(line)
        || (line.starts_with("[ERROR] ") && line.contains("<<<"))
        || (line.ends_with(" FAILED") && line.contains(" > "))
}

/// `src/a.c:3:5: error: ...`, `X.java:[1,15] ...`, `bad.go:3:23: ...`
fn is_compiler_error(line: &str) -> bool {
    if line.contains(": error: ") || line.contains(": fatal error: ") {
        return true;
    }
    let java = line.starts_with("[ERROR] ") && (line.contains(".java:[") || line.contains(".kt:["));
    let go = line.split_once(".go:").is_some_and(|(file, rest)| {
        !file.contains(' ') && rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(": ")
    });
    java || (go && !line.starts_with([' ', '\t']))
}

/// Whether a line belongs to no failure any more.
fn ends_failure(line: &str) -> bool {
    let banner = line.starts_with("====") && line.trim_end().ends_with("====");
    banner
        || line.starts_with("test result: ")
        || line == "failures:"
        || line.trim_start().starts_with("PASS [")
        || line.starts_with("ok ")
        || line.starts_with("PASS ")
        || line.starts_with("warning: ")
        || line.starts_with("────")
        || line.starts_with("⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line of each block.
    #[track_caller]
    fn check(log: &str, expected: &[&str]) {
        let lines: Vec<&str> = log.lines().collect();
        let starts: Vec<&str> =
            failure_blocks(&lines, 100).iter().map(|block| lines[block.start].trim()).collect();
        assert_eq!(starts, expected);
    }

    // T14
    #[test]
    fn failures_of_real_logs_are_found() {
        check(
            include_str!("../tests/fixtures/test/cargo_build.err"),
            &[
                "error[E0425]: cannot find value `missing` in this scope",
                "error[E0308]: mismatched types",
                "error: could not compile `bad` (lib test) due to 2 previous errors",
                "error: could not compile `bad` (lib) due to 2 previous errors",
            ],
        );
        check(
            include_str!("../tests/fixtures/test/go.txt"),
            &[
                "FAIL\texample.com/demo/bad [build failed]",
                "--- FAIL: TestBoom (0.00s)",
                "panic: assignment to entry in nil map [recovered, repanicked]",
                "FAIL\texample.com/demo/boom\t0.013s",
                "--- FAIL: TestAdd (0.00s)",
                "--- FAIL: TestTable (0.00s)",
                "--- FAIL: TestTable/two (0.00s)",
                "FAIL\texample.com/demo/calc\t0.008s",
            ],
        );
        check(
            include_str!("../tests/fixtures/test/jest.txt"),
            &["● calc › adds", "● calc › throws", "● Test suite failed to run"],
        );
        check("all fine\n10 passed\n", &[]);
    }

    #[test]
    fn a_block_ends_at_its_limit() {
        let log: Vec<&str> = std::iter::once("error: x").chain(std::iter::repeat_n("more", 1000)).collect();
        assert_eq!(failure_blocks(&log, 5).first(), Some(&(0..MAX_BLOCK_LINES)));
        assert!(failure_blocks(&log, 0).is_empty());
    }
}
