//! The diff of a change as it may be shown. Secrets are looked for in the file as it is and as it shall be, never in the diff
//! itself: a line that goes and one that comes are no text together, and what a hunk shows of a secret may
//! lack its beginning. Whatever is replaced, no line of the diff is left out: who agrees has seen each of them. What the
//! diff itself leaves out (`diff::Gap`) is not looked through, however long it is.

use std::ops::Range;

use vambrace_core::change::{BadChange, FileChange, spliced};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, RedactError, Redacted, Secret};
use vambrace_workspace::{Armour, Draft, SECRET_REACH};

use crate::bare::same_size;
use crate::sections::{lines, sections};

/// The diff without secrets, line by line.
pub fn shown_diff(draft: &Draft, redactor: &dyn Redact) -> Result<String, CallError> {
    let mut out = String::with_capacity(draft.diff.len());
    let mut files = draft.changes.files().iter().zip(&draft.bases);
    for section in sections(&draft.diff) {
        let masked = match files.next() {
            Some((file, base)) => masked_section(&section, file, base, redactor)?,
            None => String::from_utf8_lossy(&section).into_owned(),
        };
        // What is left is looked at line by line, so that no two lines become one.
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

/// The diff of a file with its secrets replaced.
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
    let placed = placed(section, base, &new);
    if !placed.iter().all(|line| line.fits(base, &new)) {
        return Err(CallError::new(ErrorCode::Internal, "a diff that is not the one of its file"));
    }
    let was = secrets(base, placed.iter().filter_map(|line| line.old.as_ref()), redactor)?;
    let shall = secrets(&new, placed.iter().filter_map(|line| line.new.as_ref()), redactor)?;
    let mut out = String::with_capacity(section.len());
    for line in &placed {
        let mut own: Vec<(Range<usize>, &str)> = Vec::new();
        own.extend(line.old.iter().flat_map(|span| within(&was, span)));
        own.extend(line.new.iter().flat_map(|span| within(&shall, span)));
        own.sort_by_key(|(span, _)| span.start);
        // Behind the sign.
        let mut at = 0;
        for (span, mark) in own {
            let from = (span.start + 1).max(at);
            out.push_str(&String::from_utf8_lossy(line.text.get(at..from).unwrap_or_default()));
            // What stays and is known on both sides is marked once.
            if span.end + 1 > at {
                out.push_str(mark);
            }
            at = (span.end + 1).max(from);
        }
        out.push_str(&String::from_utf8_lossy(line.text.get(at..).unwrap_or_default()));
    }
    Ok(out)
}

/// A line of a diff, and where what is shown of it stands in the file as it is, and as it shall be.
struct Placed<'d> {
    text: &'d [u8],
    old: Option<Range<usize>>,
    new: Option<Range<usize>>,
}

impl Placed<'_> {
    /// Whether it shows what stands there: else secrets would be replaced somewhere else.
    fn fits(&self, base: &[u8], new: &[u8]) -> bool {
        let shown = self.text.strip_suffix(b"\n").unwrap_or(self.text).get(1..).unwrap_or_default();
        let same = |span: &Option<Range<usize>>, text: &[u8]| {
            span.as_ref().is_none_or(|span| text.get(span.clone()) == Some(shown))
        };
        same(&self.old, base) && same(&self.new, new)
    }
}

fn placed<'d>(section: &'d [u8], base: &[u8], new: &[u8]) -> Vec<Placed<'d>> {
    let (mut was, mut shall) = (Walk::of(base), Walk::of(new));
    let mut placed = Vec::new();
    let mut all = lines(section).peekable();
    while let Some(line) = all.next() {
        let (here, there) = line.numbers;
        let front = all.peek().and_then(|next| next.gap?.front).unwrap_or(0);
        let shown = line.text.strip_suffix(b"\n").unwrap_or(line.text).len().saturating_sub(1);
        let (old, new) = match line.text.first().filter(|_| line.inside_hunk) {
            Some(b'-') => (Some(was.part(here, front, shown)), None),
            Some(b'+') => (None, Some(shall.part(there, front, shown))),
            Some(b' ') => (Some(was.part(here, front, shown)), Some(shall.part(there, front, shown))),
            _ => (None, None),
        };
        placed.push(Placed { text: line.text, old, new });
    }
    placed
}

/// A walk along the lines of a text.
struct Walk<'t> {
    text: &'t [u8],
    /// The number of a line, and where it begins.
    number: u64,
    at: usize,
}

impl<'t> Walk<'t> {
    fn of(text: &'t [u8]) -> Self {
        Self { text, number: 1, at: 0 }
    }

    /// Where a part of a line stands, from so many bytes on; of a line that is not above the last one.
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

/// The secrets in and around what is shown of a text, by their places in it. So far is looked around as a secret can reach.
fn secrets<'s>(
    text: &[u8],
    shown: impl Iterator<Item = &'s Range<usize>>,
    redactor: &dyn Redact,
) -> Result<Vec<Secret>, CallError> {
    let (mut around, mut armour) = (Vec::<Range<usize>>::new(), Armour::default());
    for span in shown {
        let start = armour.reach_back(text, span.start);
        let end = span.end.saturating_add(SECRET_REACH);
        match around.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end.min(text.len())),
            _ => around.push(start..end.min(text.len())),
        }
    }
    let mut found = Vec::new();
    for span in around {
        let part = same_size(text.get(span.clone()).unwrap_or_default());
        let own = redactor.secrets(&part).map_err(failed)?;
        let moved = |secret: Secret| Secret {
            span: span.start + secret.span.start..span.start + secret.span.end,
            mark: secret.mark,
        };
        found.extend(own.into_iter().map(moved));
    }
    Ok(found)
}

/// The secrets of a part of the text, by their places in that part.
fn within<'s>(secrets: &'s [Secret], part: &Range<usize>) -> impl Iterator<Item = (Range<usize>, &'s str)> {
    let from = secrets.partition_point(|secret| secret.span.end <= part.start);
    let own =
        secrets.get(from..).unwrap_or_default().iter().take_while(move |secret| secret.span.start < part.end);
    own.map(move |secret| {
        let (start, end) = (secret.span.start.max(part.start), secret.span.end.min(part.end));
        (start - part.start..end - part.start, secret.mark.as_str())
    })
}

fn failed(error: RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
