//! Tests that reported themselves as skipped (`vambrace_skip::skip`): counted as skipped, not as passed, and named.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{TaskResult, WithContext},
    tally::Tally,
};

/// The variable that tells a test where to report.
const VARIABLE: &str = "VAMBRACE_SKIP_LOG";

/// The log file of one test run.
pub(crate) struct SkipLog {
    file: PathBuf,
}

impl SkipLog {
    /// An empty log in the given directory.
    pub(crate) fn new(dir: &Path) -> TaskResult<Self> {
        fs::create_dir_all(dir).when(|| format!("cannot create `{}`", dir.display()))?;
        let file = dir.join("skipped-tests.txt");
        fs::write(&file, "").when(|| format!("cannot write `{}`", file.display()))?;
        Ok(Self { file })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Has the tests of a command report here.
    pub(crate) fn attach(&self, command: &mut Command) {
        command.env(VARIABLE, &self.file);
    }

    /// Moves skipped tests from the passed to the skipped ones and returns a line for each.
    pub(crate) fn settle(&self, tally: &mut Tally) -> TaskResult<Vec<String>> {
        let log = fs::read_to_string(&self.file).when(|| format!("cannot read `{}`", self.file.display()))?;
        Ok(settled(&log, tally))
    }
}

fn settled(log: &str, tally: &mut Tally) -> Vec<String> {
    let mut lines = Vec::new();
    let mut counted = BTreeSet::new();
    for line in log.lines() {
        let mut fields = line.split('\t');
        let (Some(kind), Some(test), Some(reason)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if kind == "skipped" {
            if counted.insert(test) {
                tally.passed = tally.passed.saturating_sub(1);
                tally.skipped += 1;
            }
            lines.push(format!("  skipped {test}: {reason}"));
        } else {
            lines.push(format!("  skipped in part {test}: {reason}"));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_does_not_count_as_passed() {
        let mut tally = Tally { passed: 5, failed: 0, skipped: 1 };
        let lines = settled("skipped\ta::b\tneeds root\npartly\tc::d\tno fuse\n", &mut tally);
        assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 2 });
        assert_eq!(lines, ["  skipped a::b: needs root", "  skipped in part c::d: no fuse"]);
    }

    #[test]
    fn test_that_reports_twice_is_counted_once() {
        let mut tally = Tally { passed: 5, failed: 0, skipped: 0 };
        let log = "skipped\ta::b\tneeds root\nskipped\ta::b\tneeds fuse\nskipped\ta::b\tneeds root\n";
        let lines = settled(log, &mut tally);
        assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 1 });
        assert_eq!(lines, ["  skipped a::b: needs fuse", "  skipped a::b: needs root"]);
    }
}
