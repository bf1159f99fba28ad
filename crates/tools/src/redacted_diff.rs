//! The diff of a change with its secrets redacted. Secrets are detected in the old and the new file, never in the diff
//! itself: removed and added lines do not form one text, and a hunk may show a secret without its beginning. No line of the
//! diff is dropped, so an approver sees each of them. The parts that the diff itself omits (`diff::Omission`) are not scanned.
//!
//! This module places the lines of the diff in the files; [`SecretFinder`] and [`TextSecrets`] find and replace.

use std::ops::Range;
use std::sync::Arc;

use vambrace_core::change::{BadChange, FileChange, spliced};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_workspace::{Draft, SecretFinder, TextSecrets};

use crate::diff_sections::{lines, sections};
use crate::secret_exposure::failed;

/// The diff of a draft with placeholders instead of secrets, line by line.
pub fn redacted_diff(draft: &Draft, redactor: &Arc<dyn Redact>) -> Result<String, CallError> {
    let finder = SecretFinder::new(Arc::clone(redactor));
    let mut out = String::with_capacity(draft.diff.len());
    let mut files = draft.changes.files().iter().zip(&draft.bases);
    for section in sections(&draft.diff) {
        let masked = match files.next() {
            Some((file, base)) => masked_section(&section, file, base, &finder)?,
            None => String::from_utf8_lossy(&section).into_owned(),
        };
        // Remaining secrets are redacted line by line, so that no two lines are merged.
        if redactor.redact(&masked).map_err(failed)?.count == 0 {
            out.push_str(&masked);
            continue;
        }
        for line in masked.split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
            out.push_str(Redacted::text(text, &**redactor).map_err(failed)?.get());
            out.push_str(end);
        }
    }
    Ok(out)
}

/// The diff of one file with its secrets replaced.
fn masked_section(
    section: &[u8],
    file: &FileChange,
    base: &[u8],
    finder: &SecretFinder,
) -> Result<String, CallError> {
    let new = match file.after() {
        Some(after) => spliced(base, &after.splices).map_err(BadChange::from)?,
        None => Vec::new(),
    };
    let placed = place_lines(section, base, &new);
    if !placed.iter().all(|line| line.fits(base, &new)) {
        return Err(CallError::new(ErrorCode::Internal, "the diff does not match its file"));
    }
    let shown_in = |text: &[u8], range: fn(&PlacedLine<'_>) -> Option<Range<usize>>| {
        finder.find_around(text, placed.iter().filter_map(range)).map_err(failed)
    };
    let old_secrets = shown_in(base, |line| line.old.clone())?;
    let new_secrets = shown_in(&new, |line| line.new.clone())?;
    let mut out = String::with_capacity(section.len());
    for line in &placed {
        let own = |secrets: &TextSecrets, span: &Option<Range<usize>>| {
            span.as_ref().map(|span| secrets.within(span)).unwrap_or_default()
        };
        // A secret in a context line is found on both sides and replaced once.
        let secrets = own(&old_secrets, &line.old).join(own(&new_secrets, &line.new));
        if secrets.is_empty() {
            out.push_str(&String::from_utf8_lossy(line.text));
            continue;
        }
        // Positions are relative to the text after the sign.
        let (sign, text) = line.text.split_at(line.text.len().min(1));
        out.push_str(&String::from_utf8_lossy(sign));
        out.push_str(&String::from_utf8_lossy(&secrets.with_placeholders(text)));
    }
    Ok(out)
}

/// A line of a diff, and the byte ranges of its text in the old and the new file.
struct PlacedLine<'d> {
    text: &'d [u8],
    old: Option<Range<usize>>,
    new: Option<Range<usize>>,
}

impl PlacedLine<'_> {
    /// Whether its text equals those ranges; otherwise secrets would be replaced at the wrong offset.
    fn fits(&self, base: &[u8], new: &[u8]) -> bool {
        let shown = self.text.strip_suffix(b"\n").unwrap_or(self.text).get(1..).unwrap_or_default();
        let same = |span: &Option<Range<usize>>, text: &[u8]| {
            span.as_ref().is_none_or(|span| text.get(span.clone()) == Some(shown))
        };
        same(&self.old, base) && same(&self.new, new)
    }
}

fn place_lines<'d>(section: &'d [u8], base: &[u8], new: &[u8]) -> Vec<PlacedLine<'d>> {
    let (mut old_walk, mut new_walk) = (LineWalk::of(base), LineWalk::of(new));
    let mut placed = Vec::new();
    let mut all = lines(section).peekable();
    while let Some(line) = all.next() {
        let (here, there) = line.numbers;
        let front = all.peek().and_then(|next| next.omission?.front).unwrap_or(0);
        let shown = line.text.strip_suffix(b"\n").unwrap_or(line.text).len().saturating_sub(1);
        let (old, new) = match line.text.first().filter(|_| line.inside_hunk) {
            Some(b'-') => (Some(old_walk.part(here, front, shown)), None),
            Some(b'+') => (None, Some(new_walk.part(there, front, shown))),
            Some(b' ') => (Some(old_walk.part(here, front, shown)), Some(new_walk.part(there, front, shown))),
            _ => (None, None),
        };
        placed.push(PlacedLine { text: line.text, old, new });
    }
    placed
}

/// Iterates forward over the lines of a text.
struct LineWalk<'t> {
    text: &'t [u8],
    /// Number and offset of the current line.
    number: u64,
    at: usize,
}

impl<'t> LineWalk<'t> {
    fn of(text: &'t [u8]) -> Self {
        Self { text, number: 1, at: 0 }
    }

    /// The byte range of a part of a line, `front` bytes into it. Line numbers must not decrease between calls.
    fn part(&mut self, number: u64, front: u64, length: usize) -> Range<usize> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if let Some(last) = usize::try_from(number.saturating_sub(self.number)).unwrap_or(0).checked_sub(1) {
            let newline = memchr::memchr_iter(b'\n', rest).nth(last);
            self.at += newline.map_or(rest.len(), |newline| newline + 1);
            self.number = number;
        }
        let from = self.at.saturating_add(usize::try_from(front).unwrap_or(usize::MAX));
        from..from.saturating_add(length)
    }
}
