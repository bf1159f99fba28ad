//! Splits a diff into its files, in order, and the hunks of each. Inside a hunk the line counts of its header apply, so
//! content can never be mistaken for a header.

use vambrace_workspace::diff::Omission;

/// One line of a diff.
pub(crate) struct DiffLine<'d> {
    /// With its line ending.
    pub(crate) text: &'d [u8],
    /// Whether a file begins here.
    pub(crate) starts_section: bool,
    /// Whether a hunk begins here.
    pub(crate) starts_hunk: bool,
    /// Whether it is a line of a hunk.
    pub(crate) inside_hunk: bool,
    /// Inside a hunk: line number in the old and in the new file.
    pub(crate) numbers: (u64, u64),
    /// Lines that the diff omits here.
    pub(crate) omission: Option<Omission>,
}

/// Iterates over the lines of a diff.
pub(crate) fn lines(diff: &[u8]) -> impl Iterator<Item = DiffLine<'_>> {
    let (mut old, mut new) = (0_u64, 0_u64);
    let (mut here, mut there) = (0_u64, 0_u64);
    let mut headed = false;
    diff.split_inclusive(|byte| *byte == b'\n').map(move |text| {
        let mut line = DiffLine {
            text,
            starts_section: false,
            starts_hunk: false,
            inside_hunk: false,
            numbers: (here, there),
            omission: None,
        };
        if old > 0 || new > 0 {
            line.inside_hunk = true;
            let (removed, added) = match text.first() {
                Some(b'+') => (0, 1),
                Some(b'-') => (1, 0),
                Some(b'\\') => {
                    line.omission = Omission::parse(text);
                    line.omission.map_or((0, 0), |omission| (omission.old, omission.new))
                }
                _ => (1, 1),
            };
            (old, new) = (old.saturating_sub(removed), new.saturating_sub(added));
            (here, there) = (here.saturating_add(removed), there.saturating_add(added));
            return line;
        }
        if let Some(counts) = hunk(text) {
            (old, new) = counts;
            (here, there) = ranges(text).unwrap_or_default();
            line.starts_hunk = true;
            headed = false;
        } else if text.starts_with(b"diff --git ") || (text.starts_with(b"--- ") && !headed) {
            line.starts_section = true;
            headed = text.starts_with(b"diff --git ");
        } else {
            line.omission = Omission::parse(text);
        }
        line
    })
}

/// The first old and first new line number of a hunk header.
fn ranges(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text.get(..text.len().min(80))?).ok()?;
    let (ranges, _) = text.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let first = |words: &str| words.split(',').next().and_then(|first| first.parse::<u64>().ok());
    Some((first(old)?, first(new)?))
}

/// The counts of old and new lines of a hunk header.
fn hunk(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text.get(..text.len().min(80))?).ok()?;
    let rest = text.strip_prefix("@@ -")?;
    let (ranges, _) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |words: &str| match words.split_once(',') {
        Some((start, count)) => start.parse::<u64>().ok().and(count.parse::<u64>().ok()),
        None => words.parse::<u64>().ok().map(|_| 1),
    };
    Some((count(old)?, count(new)?))
}

/// The diff of each file, in order.
pub(crate) fn sections(diff: &[u8]) -> Vec<Vec<u8>> {
    let mut sections: Vec<Vec<u8>> = Vec::new();
    for line in lines(diff) {
        if line.starts_section || sections.is_empty() {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.extend_from_slice(line.text);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_looks_like_a_header_stays_content() {
        let diff = b"--- a/x\n+++ b/x\n@@ -0,0 +1,3 @@\n+--- a/y\n+@@ -1 +1 @@\n+text\n";
        assert_eq!(sections(diff), [diff]);
        assert_eq!(lines(diff).filter(|line| line.starts_hunk).count(), 1);
    }
}
