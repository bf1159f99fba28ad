//! Parses a diff for display: each line with its style, file and hunk, so that hunks can be numbered and selected. Inside a
//! hunk, the line counts of its header decide what a line is, so that content cannot pass for a header.

use std::collections::BTreeMap;

use vambrace_broker::ProposalFile;
use vambrace_core::terminal_escape::sanitize;
use vambrace_workspace::diff::Omission;

use crate::output::Tone;

/// A parsed diff.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Diff {
    pub(crate) rows: Vec<DiffRow>,
    /// The files in order; empty if the diff does not match the list of files.
    pub(crate) files: Vec<DiffFile>,
}

/// A line of the diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffRow {
    pub(crate) tone: Tone,
    pub(crate) text: String,
    /// Index of the file, and number of the hunk from 1; 0 for lines before the first hunk.
    pub(crate) at: (usize, usize),
    pub(crate) starts_hunk: bool,
}

/// A file of the diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffFile {
    pub(crate) path: String,
    pub(crate) hunks: usize,
}

impl Diff {
    /// Parses the diff of these files.
    pub(crate) fn of(text: &str, files: &[ProposalFile]) -> Self {
        let mut rows = Vec::new();
        let (mut old, mut new, mut headed) = (0_u64, 0_u64, false);
        let (mut sections, mut hunks): (usize, Vec<usize>) = (0, Vec::new());
        // For each row: whether its line ends in a carriage return; `None` for headers and markers.
        let mut returns: Vec<Option<bool>> = Vec::new();
        for line in text.split_terminator('\n') {
            let (line, returned) = line.strip_suffix('\r').map_or((line, false), |line| (line, true));
            let mut starts_hunk = false;
            let inside = (old > 0 || new > 0) && !line.starts_with("@@ ");
            let tone = if inside {
                match line.chars().next() {
                    Some('+') => {
                        new = new.saturating_sub(1);
                        Tone::Good
                    }
                    Some('-') => {
                        old = old.saturating_sub(1);
                        Tone::Bad
                    }
                    Some('\\') => match Omission::parse(line.as_bytes()) {
                        Some(gap) => {
                            (old, new) = (old.saturating_sub(gap.old), new.saturating_sub(gap.new));
                            Tone::Care
                        }
                        None => Tone::Faint,
                    },
                    _ => {
                        (old, new) = (old.saturating_sub(1), new.saturating_sub(1));
                        Tone::Plain
                    }
                }
            } else if let Some(counts) = counts(line) {
                (old, new) = counts;
                headed = false;
                starts_hunk = true;
                if let Some(count) = hunks.last_mut() {
                    *count += 1;
                }
                Tone::Care
            } else {
                if line.starts_with("diff --git ") || (line.starts_with("--- ") && !headed) {
                    headed = line.starts_with("diff --git ");
                    sections += 1;
                    hunks.push(0);
                }
                if Omission::parse(line.as_bytes()).is_some() { Tone::Care } else { Tone::Strong }
            };
            if let Some(last) = returns.last_mut().filter(|_| line.starts_with("\\ No newline")) {
                *last = None;
            }
            returns.push((inside && !line.starts_with('\\')).then_some(returned));
            let at = (sections.saturating_sub(1), hunks.last().copied().unwrap_or(0));
            rows.push(DiffRow { tone, text: sanitize(line).replace('\t', "    "), at, starts_hunk });
        }
        show_returns(&mut rows, &returns);
        let named =
            files.iter().zip(&hunks).map(|(file, hunks)| DiffFile { path: file.path.clone(), hunks: *hunks });
        let files = if sections == files.len() { named.collect() } else { Vec::new() };
        Self { rows, files }
    }

    /// Every hunk, and every file without hunks.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        let of = |(number, file): (usize, &DiffFile)| {
            let first = usize::from(file.hunks > 0);
            (first..=file.hunks).map(move |hunk| (number, hunk)).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of).collect()
    }
}

/// Shows carriage returns in files with mixed line endings; otherwise a line that gains or loses one would look unchanged.
fn show_returns(rows: &mut [DiffRow], returns: &[Option<bool>]) {
    let mut ways: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for (row, returned) in rows.iter().zip(returns) {
        let (with, without) = ways.entry(row.at.0).or_default();
        *with |= *returned == Some(true);
        *without |= *returned == Some(false);
    }
    for (row, returned) in rows.iter_mut().zip(returns) {
        if *returned == Some(true) && ways.get(&row.at.0) == Some(&(true, true)) {
            row.text.push_str(&sanitize("\r"));
        }
    }
}

/// The number of old and new lines of a hunk.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok());
    Some((count(old)?, count(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<ProposalFile> {
        paths.iter().map(|path| ProposalFile { path: (*path).to_owned(), created: false }).collect()
    }

    // B6: content that looks like headers is content
    #[test]
    fn content_never_starts_a_file_or_a_hunk() {
        let text = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- b/evil\n+++ b/evil\n same\n@@ -9 +9 @@\n-x\n+y\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
        let diff = Diff::of(text, &files(&["a", "b"]));
        assert_eq!(
            diff.files,
            [DiffFile { path: "a".to_owned(), hunks: 2 }, DiffFile { path: "b".to_owned(), hunks: 1 }]
        );
        assert_eq!(diff.places(), [(0, 1), (0, 2), (1, 1)]);
        let tones: Vec<Tone> = diff.rows.iter().map(|row| row.tone).collect();
        assert_eq!(tones.get(3..6), Some([Tone::Bad, Tone::Good, Tone::Plain].as_slice()));
    }

    // B6: a line with a changed line ending does not look unchanged
    #[test]
    fn changed_line_endings_are_visible() {
        let rows = |lines: &str| -> Vec<String> {
            let text = format!("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n{lines}");
            Diff::of(&text, &files(&["a"])).rows.into_iter().skip(3).map(|row| row.text).collect()
        };
        assert_eq!(rows(" x\n-rm a\n+rm a\r\n"), [" x", "-rm a", "+rm a\u{fffd}"]);
        assert_eq!(rows(" x\r\n-a\r\n+a\n"), [" x\u{fffd}", "-a\u{fffd}", "+a"]);
        // Consistent line endings are not shown.
        assert_eq!(rows(" x\r\n-a\r\n+b\r\n"), [" x", "-a", "+b"]);
        assert_eq!(
            rows(" x\r\n-a\n\\ No newline at end of file\n+b\r\n"),
            [" x", "-a", "\\ No newline at end of file", "+b"]
        );
    }

    // B6: omitted lines count, so the lines after them are parsed correctly
    #[test]
    fn omitted_lines_of_a_hunk_are_counted() {
        let text = "--- a/a\n+++ /dev/null\n@@ -1,9 +0,0 @@\n-x\n\\ 7 removed lines with 70 bytes are not shown\n-y\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
        let diff = Diff::of(text, &files(&["a", "b"]));
        assert_eq!(diff.places(), [(0, 1), (1, 1)]);
        assert_eq!(diff.rows.get(4).map(|row| row.tone), Some(Tone::Care));
    }

    #[test]
    fn diff_that_does_not_match_its_files_has_no_file_list() {
        assert!(Diff::of("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n", &files(&["a", "b"])).files.is_empty());
        let renamed = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n";
        assert_eq!(Diff::of(renamed, &files(&["y"])).places(), [(0, 0)]);
    }
}
