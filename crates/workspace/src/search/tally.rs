//! What was found so far. Files come in any order; kept are the lines that come first by path, as many as are
//! wanted, so that the same search gives the same answer however its workers were scheduled.

use std::collections::BTreeMap;

use super::LineMatch;

/// Counts per file are kept for so many files; they are summed for all.
const MAX_COUNTED_FILES: usize = 10_000;

/// The sum of all workers' findings.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) total: u64,
    pub(crate) files: u64,
    pub(crate) binary: u64,
    pub(crate) skipped: u64,
    /// Why the secrets of a file could not be looked for.
    pub(crate) blind: Option<String>,
    pub(crate) per_file: BTreeMap<String, u64>,
    kept: BTreeMap<String, Vec<LineMatch>>,
    kept_lines: usize,
    most: usize,
}

impl Tally {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether lines of this file could be among those returned.
    pub(crate) fn wants(&self, path: &str) -> bool {
        self.kept_lines < self.most
            || self.kept.last_key_value().is_some_and(|(last, _)| path < last.as_str())
    }

    /// Takes the findings of one file.
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
            && self.kept_lines - last.get().len() >= self.most
        {
            self.kept_lines -= last.remove().len();
        }
    }

    /// The lines to return, in order.
    pub(crate) fn take_lines(&mut self) -> Vec<LineMatch> {
        let most = self.most;
        std::mem::take(&mut self.kept).into_values().flatten().take(most).collect()
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
            let mut tally = Tally::new(4);
            for (path, count) in files.iter().cycle().skip(turn).take(files.len()) {
                let kept = if tally.wants(path) { lines(path, *count) } else { Vec::new() };
                tally.add((*path).to_owned(), *count, kept);
            }
            assert_eq!((tally.total, tally.files), (8, 4));
            let got: Vec<_> = tally.take_lines().iter().map(|m| (m.path.clone(), m.line)).collect();
            let expected = [("a", 1), ("a", 2), ("b", 1), ("b", 2)];
            assert_eq!(got, expected.map(|(path, line)| (path.to_owned(), line)));
        }
    }
}
