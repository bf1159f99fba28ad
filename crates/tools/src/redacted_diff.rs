//! The diff of a change with its secrets redacted. Secrets are detected in the old and the new file, never in the diff
//! itself: removed and added lines do not form one text, and a hunk may show a secret without its beginning. No line of the
//! diff is dropped, so an approver sees each of them. The parts that the diff itself omits (`diff::Omission`) are not scanned.

use std::ops::Range;

use vambrace_core::change::{BadChange, FileChange, spliced};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, RedactError, Redacted, SecretSpan};
use vambrace_workspace::{Draft, PemContext, SECRET_CONTEXT_BYTES};

use crate::diff_sections::{lines, sections};
use crate::secret_exposure::lossy_same_length;

/// The diff of a draft with placeholders instead of secrets, line by line.
pub fn redacted_diff(draft: &Draft, redactor: &dyn Redact) -> Result<String, CallError> {
    let mut out = String::with_capacity(draft.diff.len());
    let mut files = draft.changes.files().iter().zip(&draft.bases);
    for section in sections(&draft.diff) {
        let masked = match files.next() {
            Some((file, base)) => masked_section(&section, file, base, redactor)?,
            None => String::from_utf8_lossy(&section).into_owned(),
        };
        // Remaining secrets are redacted line by line, so that no two lines are merged.
        if redactor.redact(&masked).map_err(failed)?.count == 0 {
            out.push_str(&masked);
            continue;
        }
        for line in masked.split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
            out.push_str(Redacted::text(text, redactor).map_err(failed)?.get());
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
    redactor: &dyn Redact,
) -> Result<String, CallError> {
    let new = match file.after() {
        Some(after) => spliced(base, &after.splices).map_err(BadChange::from)?,
        None => Vec::new(),
    };
    let placed = place_lines(section, base, &new);
    if !placed.iter().all(|line| line.fits(base, &new)) {
        return Err(CallError::new(ErrorCode::Internal, "the diff does not match its file"));
    }
    let old_secrets = secrets(base, placed.iter().filter_map(|line| line.old.as_ref()), redactor)?;
    let new_secrets = secrets(&new, placed.iter().filter_map(|line| line.new.as_ref()), redactor)?;
    let mut out = String::with_capacity(section.len());
    for line in &placed {
        let mut own: Vec<(Range<usize>, &str)> = Vec::new();
        own.extend(line.old.iter().flat_map(|span| within(&old_secrets, span)));
        own.extend(line.new.iter().flat_map(|span| within(&new_secrets, span)));
        own.sort_by_key(|(span, _)| span.start);
        // Spans are relative to the text after the sign.
        let mut at = 0;
        for (span, placeholder) in own {
            let from = (span.start + 1).max(at);
            out.push_str(&String::from_utf8_lossy(line.text.get(at..from).unwrap_or_default()));
            // A secret in a context line is detected on both sides and replaced once.
            if span.end + 1 > at {
                out.push_str(placeholder);
            }
            at = (span.end + 1).max(from);
        }
        out.push_str(&String::from_utf8_lossy(line.text.get(at..).unwrap_or_default()));
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

/// The secrets in and around the shown ranges of a text. The scanned context covers the longest secret.
fn secrets<'s>(
    text: &[u8],
    shown: impl Iterator<Item = &'s Range<usize>>,
    redactor: &dyn Redact,
) -> Result<Vec<SecretSpan>, CallError> {
    let (mut around, mut pem_context) = (Vec::<Range<usize>>::new(), PemContext::default());
    for span in shown {
        let start = pem_context.context_start(text, span.start);
        let end = span.end.saturating_add(SECRET_CONTEXT_BYTES);
        match around.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end.min(text.len())),
            _ => around.push(start..end.min(text.len())),
        }
    }
    let mut found = Vec::new();
    for span in around {
        let part = lossy_same_length(text.get(span.clone()).unwrap_or_default());
        let own = redactor.secrets(&part).map_err(failed)?;
        let moved = |secret: SecretSpan| SecretSpan {
            span: span.start + secret.span.start..span.start + secret.span.end,
            placeholder: secret.placeholder,
        };
        found.extend(own.into_iter().map(moved));
    }
    Ok(found)
}

/// The secrets that overlap a range, relative to it.
fn within<'s>(
    secrets: &'s [SecretSpan],
    part: &Range<usize>,
) -> impl Iterator<Item = (Range<usize>, &'s str)> {
    let from = secrets.partition_point(|secret| secret.span.end <= part.start);
    let own =
        secrets.get(from..).unwrap_or_default().iter().take_while(move |secret| secret.span.start < part.end);
    own.map(move |secret| {
        let (start, end) = (secret.span.start.max(part.start), secret.span.end.min(part.end));
        (start - part.start..end - part.start, secret.placeholder.as_str())
    })
}

fn failed(error: RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
