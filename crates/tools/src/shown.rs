//! The diff of a change as it may be shown. Secrets are looked for in the file as it is and as it shall be, never in the diff
//! itself: a line that goes and one that comes are no text together, and what a hunk shows of a secret may
//! lack its beginning. Whatever is replaced, no line is left out: who agrees has seen each of them.

use std::collections::BTreeMap;
use std::ops::Range;

use vambrace_core::change::FileChange;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, RedactError, Redacted, Secret};
use vambrace_workspace::Draft;

use crate::bare::same_size;
use crate::fresh::places;
use crate::sections::{lines, ranges, sections};

/// Lines with secrets, by their number, without them.
type Clean = BTreeMap<u64, String>;

/// The diff without secrets, line by line.
pub fn shown_diff(draft: &Draft, redactor: &dyn Redact) -> Result<String, CallError> {
    let mut out = String::with_capacity(draft.diff.len());
    let mut files = draft.changes.files().iter().zip(&draft.bases);
    for section in sections(&draft.diff) {
        let (old, new) = match files.next() {
            Some((file, base)) => clean(file, base, redactor)?,
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
    let (mut here, mut there) = (0, 0);
    for line in lines(section) {
        if let Some(first) = ranges(line.text).filter(|_| line.starts_hunk) {
            (here, there) = first;
        }
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
        here += u64::from(matches!(sign, Some(b'-' | b' ')));
        there += u64::from(matches!(sign, Some(b'+' | b' ')));
    }
    out
}

/// The lines with secrets of a file as it is, and as it shall be.
fn clean(file: &FileChange, base: &[u8], redactor: &dyn Redact) -> Result<(Clean, Clean), CallError> {
    let breaks = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
    let (mut old, mut new) = (Clean::new(), Clean::new());
    let Some(after) = file.after() else {
        mask(base, 1, &mut old, redactor)?;
        return Ok((old, new));
    };
    // The number of the line at the end of the last place, there and then.
    let (mut seen, mut here, mut there) = (0, 1, 1);
    for place in places(base, &after.splices) {
        let between = breaks(base.get(seen..place.span.start).unwrap_or_default());
        (here, there) = (here + between, there + between);
        let (was, shall) = (base.get(place.span.clone()).unwrap_or_default(), place.new_text(base));
        mask(was, here, &mut old, redactor)?;
        mask(&shall, there, &mut new, redactor)?;
        (here, there) = (here + breaks(was), there + breaks(&shall));
        seen = place.span.end;
    }
    Ok((old, new))
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
