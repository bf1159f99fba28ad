//! A diff as it is drawn: its lines with their tones, and which file and hunk each belongs to, so that hunks can be numbered
//! and marked. Inside a hunk its counts say what a line is, so no content can look like a header.

use std::collections::BTreeMap;

use vambrace_broker::LookedFile;
use vambrace_workspace::diff::Gap;

use crate::harmless::plain;
use crate::out::Tone;

/// A diff to be drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Diff {
    pub(crate) rows: Vec<Row>,
    /// The files in their order; empty where the diff cannot be taken apart.
    pub(crate) files: Vec<File>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) tone: Tone,
    pub(crate) text: String,
    /// Its file, and its hunk from 1; 0 for the lines above the first one.
    pub(crate) at: (usize, usize),
    pub(crate) starts_hunk: bool,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) hunks: usize,
}

impl Diff {
    /// Reads a diff of these files.
    pub(crate) fn of(text: &str, files: &[LookedFile]) -> Self {
        let mut rows = Vec::new();
        let (mut old, mut new, mut headed) = (0_u64, 0_u64, false);
        let (mut sections, mut hunks): (usize, Vec<usize>) = (0, Vec::new());
        // Of each row whether its line ends in a carriage return; none where that says nothing.
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
                    Some('\\') => match Gap::told(line.as_bytes()) {
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
                if Gap::told(line.as_bytes()).is_some() { Tone::Care } else { Tone::Strong }
            };
            if let Some(last) = returns.last_mut().filter(|_| line.starts_with("\\ No newline")) {
                *last = None;
            }
            returns.push((inside && !line.starts_with('\\')).then_some(returned));
            let at = (sections.saturating_sub(1), hunks.last().copied().unwrap_or(0));
            rows.push(Row { tone, text: plain(line).replace('\t', "    "), at, starts_hunk });
        }
        show_returns(&mut rows, &returns);
        let named =
            files.iter().zip(&hunks).map(|(file, hunks)| File { path: file.path.clone(), hunks: *hunks });
        let files = if sections == files.len() { named.collect() } else { Vec::new() };
        Self { rows, files }
    }

    /// Every hunk, and every file without one.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        let of = |(number, file): (usize, &File)| {
            let first = usize::from(file.hunks > 0);
            (first..=file.hunks).map(move |hunk| (number, hunk)).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of).collect()
    }
}

/// Where some lines of a file end in a carriage return and others do not, it is seen: else a line that gets one, or loses it,
/// would look as it was.
fn show_returns(rows: &mut [Row], returns: &[Option<bool>]) {
    let mut ways: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for (row, returned) in rows.iter().zip(returns) {
        let (with, without) = ways.entry(row.at.0).or_default();
        *with |= *returned == Some(true);
        *without |= *returned == Some(false);
    }
    for (row, returned) in rows.iter_mut().zip(returns) {
        if *returned == Some(true) && ways.get(&row.at.0) == Some(&(true, true)) {
            row.text.push_str(&plain("\r"));
        }
    }
}

/// How many old and new lines a hunk has.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok());
    Some((count(old)?, count(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<LookedFile> {
        paths.iter().map(|path| LookedFile { path: (*path).to_owned(), created: false }).collect()
    }

    // B6: content that looks like headers is content
    #[test]
    fn content_does_not_begin_a_file_or_a_hunk() {
        let text = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- b/evil\n+++ b/evil\n same\n@@ -9 +9 @@\n-x\n+y\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
        let diff = Diff::of(text, &files(&["a", "b"]));
        assert_eq!(
            diff.files,
            [File { path: "a".to_owned(), hunks: 2 }, File { path: "b".to_owned(), hunks: 1 }]
        );
        assert_eq!(diff.places(), [(0, 1), (0, 2), (1, 1)]);
        let tones: Vec<Tone> = diff.rows.iter().map(|row| row.tone).collect();
        assert_eq!(tones.get(3..6), Some([Tone::Bad, Tone::Good, Tone::Plain].as_slice()));
    }

    // B6: a line that gets another end does not look as it was
    #[test]
    fn line_ends_that_change_are_seen() {
        let rows = |lines: &str| -> Vec<String> {
            let text = format!("--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n{lines}");
            Diff::of(&text, &files(&["a"])).rows.into_iter().skip(3).map(|row| row.text).collect()
        };
        assert_eq!(rows(" x\n-rm a\n+rm a\r\n"), [" x", "-rm a", "+rm a\u{fffd}"]);
        assert_eq!(rows(" x\r\n-a\r\n+a\n"), [" x\u{fffd}", "-a\u{fffd}", "+a"]);
        // Where all of them end so it is how the file is.
        assert_eq!(rows(" x\r\n-a\r\n+b\r\n"), [" x", "-a", "+b"]);
        assert_eq!(
            rows(" x\r\n-a\n\\ No newline at end of file\n+b\r\n"),
            [" x", "-a", "\\ No newline at end of file", "+b"]
        );
    }

    // B6: lines that are left out count, so what comes after them is what it is
    #[test]
    fn what_is_left_out_of_a_hunk_is_counted() {
        let text = "--- a/a\n+++ /dev/null\n@@ -1,9 +0,0 @@\n-x\n\\ 7 removed lines with 70 bytes are not shown\n-y\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-z\n";
        let diff = Diff::of(text, &files(&["a", "b"]));
        assert_eq!(diff.places(), [(0, 1), (1, 1)]);
        assert_eq!(diff.rows.get(4).map(|row| row.tone), Some(Tone::Care));
    }

    #[test]
    fn a_diff_that_does_not_fit_its_files_is_not_taken_apart() {
        assert!(Diff::of("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n", &files(&["a", "b"])).files.is_empty());
        let renamed = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n";
        assert_eq!(Diff::of(renamed, &files(&["y"])).places(), [(0, 0)]);
    }
}
