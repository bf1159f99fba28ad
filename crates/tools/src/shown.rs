//! The diff of a change as it may be shown. Secrets are looked for in the file as it is and as it shall be, never in the diff
//! itself: a line that goes and one that comes are no text together, and what a hunk shows of a secret may
//! lack its beginning. Whatever is replaced, no line of the diff is left out: who agrees has seen each of them. What the
//! diff itself leaves out (`diff::Gap`) is not looked through, however long it is.

use std::collections::BTreeMap;
use std::ops::Range;

use vambrace_core::change::FileChange;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, RedactError, Redacted, Secret};
use vambrace_workspace::{Armour, Draft, SECRET_REACH};

use crate::bare::same_size;
use crate::fresh::places;
use crate::sections::{lines, sections};

/// Lines with secrets, by their number, without them.
type Clean = BTreeMap<u64, String>;

/// The diff without secrets, line by line.
pub fn shown_diff(draft: &Draft, redactor: &dyn Redact) -> Result<String, CallError> {
    let mut out = String::with_capacity(draft.diff.len());
    let mut files = draft.changes.files().iter().zip(&draft.bases);
    for section in sections(&draft.diff) {
        let (old, new) = match files.next() {
            Some((file, base)) => clean(file, base, &Hidden::by(&section), redactor)?,
            None => Default::default(),
        };
        let masked = masked_section(&section, &old, &new);
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

/// The diff of a file with the lines that hold secrets replaced.
fn masked_section(section: &[u8], old: &Clean, new: &Clean) -> String {
    let mut out = String::with_capacity(section.len());
    for line in lines(section) {
        let (here, there) = line.numbers;
        let sign = line.text.first().copied().filter(|_| line.inside_hunk);
        let masked = match sign {
            Some(b'+') => new.get(&there),
            Some(b'-') => old.get(&here),
            Some(b' ') => old.get(&here).or_else(|| new.get(&there)),
            _ => None,
        };
        match (masked, sign) {
            (Some(masked), Some(sign)) => {
                out.push(char::from(sign));
                out.push_str(masked);
                out.push_str(if line.text.ends_with(b"\n") { "\n" } else { "" });
            }
            _ => out.push_str(&String::from_utf8_lossy(line.text)),
        }
    }
    out
}

/// The numbers of the lines that a diff leaves out, of the file as it is and as it shall be, in order.
#[derive(Default)]
struct Hidden {
    old: Vec<Range<u64>>,
    new: Vec<Range<u64>>,
}

impl Hidden {
    fn by(section: &[u8]) -> Self {
        let mut hidden = Self::default();
        for (gap, (here, there)) in lines(section).filter_map(|line| Some((line.gap?, line.numbers))) {
            hidden.old.extend((gap.old > 0).then(|| here..here.saturating_add(gap.old)));
            hidden.new.extend((gap.new > 0).then(|| there..there.saturating_add(gap.new)));
        }
        hidden
    }
}

fn breaks(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The lines with secrets of a file as it is, and as it shall be.
fn clean(
    file: &FileChange,
    base: &[u8],
    hidden: &Hidden,
    redactor: &dyn Redact,
) -> Result<(Clean, Clean), CallError> {
    let (mut old, mut new) = (Clean::new(), Clean::new());
    let Some(after) = file.after() else {
        mask_shown(base, 1, &hidden.old, &mut old, redactor)?;
        return Ok((old, new));
    };
    // The number of the line at the end of the last place, there and then.
    let (mut seen, mut here, mut there) = (0, 1, 1);
    for place in places(base, &after.splices) {
        let between = breaks(base.get(seen..place.span.start).unwrap_or_default());
        (here, there) = (here + between, there + between);
        let (was, shall) = (base.get(place.span.clone()).unwrap_or_default(), place.new_text(base));
        mask_shown(was, here, &hidden.old, &mut old, redactor)?;
        mask_shown(&shall, there, &hidden.new, &mut new, redactor)?;
        (here, there) = (here + breaks(was), there + breaks(&shall));
        seen = place.span.end;
    }
    Ok((old, new))
}

/// Replaces the secrets of what is shown of a text. So much is looked at of what is not, on both sides, as a secret can be long.
fn mask_shown(
    mut rest: &[u8],
    mut number: u64,
    hidden: &[Range<u64>],
    into: &mut Clean,
    redactor: &dyn Redact,
) -> Result<(), CallError> {
    for gap in hidden {
        let start = skipped(rest, gap.start.saturating_sub(number));
        let end = skipped(rest, gap.end.saturating_sub(number));
        if end.saturating_sub(start) <= 2 * SECRET_REACH {
            continue;
        }
        let (head, _) = rest.split_at_checked(start + SECRET_REACH).unwrap_or((rest, &[]));
        mask(head, number, into, redactor)?;
        let from = Armour::default().reach_back(rest, end);
        let (before, tail) = rest.split_at_checked(from).unwrap_or((rest, &[]));
        (number, rest) = (number + breaks(before), tail);
    }
    mask(rest, number, into, redactor)
}

/// Where a text goes on behind so many lines.
fn skipped(text: &[u8], lines: u64) -> usize {
    let Some(last) = usize::try_from(lines).unwrap_or(usize::MAX).checked_sub(1) else { return 0 };
    memchr::memchr_iter(b'\n', text).nth(last).map_or(text.len(), |newline| newline + 1)
}

/// Replaces the secrets of a text, each line of them on its own.
fn mask(bytes: &[u8], first: u64, into: &mut Clean, redactor: &dyn Redact) -> Result<(), CallError> {
    let secrets = redactor.secrets(&same_size(bytes)).map_err(failed)?;
    let mut rest = secrets.as_slice();
    let (mut at, mut number) = (0, first);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let span = at..at + line.len() - usize::from(line.ends_with(b"\n"));
        at += line.len();
        while rest.first().is_some_and(|secret| secret.span.end <= span.start) {
            rest = rest.get(1..).unwrap_or_default();
        }
        let own: Vec<&Secret> = rest.iter().take_while(|secret| secret.span.start < span.end).collect();
        if !own.is_empty() {
            into.insert(number, masked(bytes, &span, &own));
        }
        number += 1;
    }
    Ok(())
}

fn masked(bytes: &[u8], line: &Range<usize>, secrets: &[&Secret]) -> String {
    let text = |from: usize, to: usize| String::from_utf8_lossy(bytes.get(from..to).unwrap_or_default());
    let (mut out, mut at) = (String::new(), line.start);
    for secret in secrets {
        out.push_str(&text(at, secret.span.start.max(at)));
        out.push_str(&secret.mark);
        at = secret.span.end.clamp(at, line.end);
    }
    out.push_str(&text(at, line.end));
    out
}

fn failed(error: RedactError) -> CallError {
    CallError::new(ErrorCode::Internal, error.to_string())
}
