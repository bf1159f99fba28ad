//! Collects the results of all workers. Files arrive in any order; the collector keeps the first lines by path, so the same
//! search returns the same lines however its workers were scheduled.

use std::collections::BTreeMap;

use super::LineMatch;

/// Files with a count of their own; the total covers all files.
const MAX_COUNTED_FILES: usize = 10_000;

/// Results of all workers.
#[derive(Debug, Default)]
pub(crate) struct ResultCollector {
    pub(crate) total: u64,
    pub(crate) files: u64,
    pub(crate) binary: u64,
    pub(crate) skipped: u64,
    /// Why secret detection failed in some file.
    pub(crate) secret_scan_error: Option<String>,
    pub(crate) per_file: BTreeMap<String, u64>,
    kept: BTreeMap<String, Vec<LineMatch>>,
    kept_lines: usize,
    max_lines: usize,
}

impl ResultCollector {
    pub(crate) fn new(max_lines: usize) -> Self {
        Self { max_lines, ..Self::default() }
    }

    /// Whether lines of this file can be among those returned.
    pub(crate) fn can_return(&self, path: &str) -> bool {
        self.kept_lines < self.max_lines
            || self.kept.last_key_value().is_some_and(|(last, _)| path < last.as_str())
    }

    /// Adds the results of one file.
    pub(crate) fn add(&mut self, path: String, count: u64, lines: Vec<LineMatch>) {
        self.total += count;
        self.files += 1;
        self.per_file.insert(path.clone(), count);
        if self.per_file.len() > MAX_COUNTED_FILES {
            self.per_file.pop_last();
        }
        if lines.is_empty() {
            return;
        }
        self.kept_lines += lines.len();
        self.kept.insert(path, lines);
        while let Some(last) = self.kept.last_entry()
            && self.kept_lines - last.get().len() >= self.max_lines
        {
            self.kept_lines -= last.remove().len();
        }
    }

    /// The lines to return, in order.
    pub(crate) fn take_lines(&mut self) -> Vec<LineMatch> {
        let max_lines = self.max_lines;
        std::mem::take(&mut self.kept).into_values().flatten().take(max_lines).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, count: u64) -> Vec<LineMatch> {
        let line = |line| LineMatch {
            path: path.to_owned(),
            line,
            column: 1,
            text: String::new(),
            before: Vec::new(),
            after: Vec::new(),
            masked: 0,
        };
        (1..=count).map(line).collect()
    }

    #[test]
    fn the_first_lines_by_path_are_kept_in_any_order_of_arrival() {
        let files = [("d", 2), ("a", 2), ("c", 1), ("b", 3)];
        for turn in 0..files.len() {
            let mut results = ResultCollector::new(4);
            for (path, count) in files.iter().cycle().skip(turn).take(files.len()) {
                let kept = if results.can_return(path) { lines(path, *count) } else { Vec::new() };
                results.add((*path).to_owned(), *count, kept);
            }
            assert_eq!((results.total, results.files), (8, 4));
            let got: Vec<_> = results.take_lines().iter().map(|m| (m.path.clone(), m.line)).collect();
            let expected = [("a", 1), ("a", 2), ("b", 1), ("b", 2)];
            assert_eq!(got, expected.map(|(path, line)| (path.to_owned(), line)));
        }
    }
}
