//! Lines of a private key that are shown without the line that announces it: by a search, or by a read of some lines. The
//! redactor knows a key by its first line, so the file is asked for what stands before them. Lines that could not be
//! part of a key cost nothing here.

use std::collections::BTreeMap;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::redacted::Redact;
use vambrace_workspace::{Content, LineMatch, ReadRequest, Resolved, Visible};

use crate::read_file::clamp;
use crate::tool::Room;

/// A line of a key holds at least so much in one piece; its last line may hold less.
const PIECE: usize = 16;
/// Stands before lines of a key, so that the redactor knows them.
const FIRST: &str = "-----BEGIN PRIVATE KEY-----\n";
/// Stands after a short line, so that together they are long enough for a key.
const FILLING: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";

/// Masks the lines of private keys among what a search shows.
pub(crate) fn mask_matches(
    room: &Room,
    kin: Option<&Visible>,
    matches: &mut [LineMatch],
) -> Result<(), CallError> {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for hit in matches.iter().filter(|hit| shown(hit).any(|(_, text)| may_be_key(text))) {
        let end = hit.line + hit.after.len() as u64;
        let line = last.entry(hit.path.clone()).or_default();
        *line = end.max(*line);
    }
    for (path, end) in last {
        let file = room.workspace.resolve(&AskedPath::new(path.as_str()).parse()?)?;
        let inside = key_lines(room, kin, &file, end)?;
        for hit in matches.iter_mut().filter(|hit| hit.path == path) {
            let (line, first) = (hit.line, hit.line.saturating_sub(hit.before.len() as u64));
            let before = (first..).zip(&mut hit.before);
            let after = (line + 1..).zip(&mut hit.after);
            for (number, text) in before.chain([(line, &mut hit.text)]).chain(after) {
                if inside.hold(number, text) {
                    *text = masked(text, &*room.changes.redactor)?;
                }
            }
        }
    }
    Ok(())
}

/// Masks what a text that begins at `start_line` of a file has of a key that began before.
pub(crate) fn mask_range(
    room: &Room,
    kin: Option<&Visible>,
    file: &Resolved,
    start_line: u64,
    text: String,
) -> Result<String, CallError> {
    if start_line < 2 || !text.lines().next().is_some_and(may_be_key_or_end) {
        return Ok(text);
    }
    let inside = key_lines(room, kin, file, start_line)?;
    let first = text.lines().next().unwrap_or_default();
    if !inside.hold(start_line, first) {
        return Ok(text);
    }
    let clean = redacted(&format!("{FIRST}{text}"), &*room.changes.redactor)?;
    if clean.contains(FIRST) {
        // Too little of it is left to be known for a key.
        let (line, rest) = text.split_once('\n').unwrap_or((&text, ""));
        return Ok(format!("{}\n{rest}", masked(line, &*room.changes.redactor)?));
    }
    Ok(clean)
}

fn shown(hit: &LineMatch) -> impl Iterator<Item = (u64, &str)> {
    let first = hit.line.saturating_sub(hit.before.len() as u64);
    let before = (first..).zip(hit.before.iter().map(String::as_str));
    let after = (hit.line + 1..).zip(hit.after.iter().map(String::as_str));
    before.chain([(hit.line, hit.text.as_str())]).chain(after)
}

/// Which lines of a file are lines of a private key.
struct Inside {
    lines: Vec<u64>,
    /// What comes after this line was not read.
    read_to: u64,
}

impl Inside {
    /// Of what could not be read, everything that looks like a key counts as one.
    fn hold(&self, number: u64, text: &str) -> bool {
        self.lines.binary_search(&number).is_ok() || (number > self.read_to && may_be_key(text))
    }
}

fn key_lines(room: &Room, kin: Option<&Visible>, file: &Resolved, end: u64) -> Result<Inside, CallError> {
    let most = clamp(room.limits.read_bytes_hard);
    let want = ReadRequest {
        start_line: Some(1),
        end_line: Some(end),
        max_bytes: most,
        hard_cap: most,
        kin: kin.cloned(),
        ..ReadRequest::default()
    };
    let read = room.workspace.read_open(file, &want)?;
    let Content::Text(text) = read.content else { return Ok(Inside { lines: Vec::new(), read_to: end }) };
    // The last line may be cut where the file is too long to be read whole.
    let cut = read.returned_range.end_line < end.min(read.total_lines);
    let read_to = if cut { read.returned_range.end_line.saturating_sub(1) } else { end };
    Ok(Inside { lines: inside(&text), read_to })
}

/// The numbers of the lines between the first and the last line of a private key.
fn inside(text: &str) -> Vec<u64> {
    let mut lines = Vec::new();
    if !text.contains("PRIVATE KEY") {
        return lines;
    }
    let (mut open, mut met) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.contains("-----BEGIN") && line.contains("PRIVATE KEY") {
            (open, met) = (true, false);
        } else if line.contains("-----END") {
            open = false;
        } else if open && may_be_key(line) {
            met = true;
            lines.push(number);
        } else if open {
            // Headers and blank lines come first; a short line is the last.
            let header = !met && (line.trim().is_empty() || line.contains(':'));
            let end = met && !line.trim().is_empty() && is_piece(line);
            lines.extend(end.then_some(number));
            open = header;
        }
    }
    lines
}

/// Whether a line holds so much of base64 that it may be one of a key.
fn may_be_key(line: &str) -> bool {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')))
        .any(|run| run.len() >= PIECE)
}

fn may_be_key_or_end(line: &str) -> bool {
    may_be_key(line) || is_piece(line)
}

/// Nothing but a short piece of base64, quotes and escapes aside.
fn is_piece(line: &str) -> bool {
    let bare =
        line.trim().trim_matches(|c: char| matches!(c, '"' | '\'' | '\\' | 'n' | ',' | ';' | '+' | ' '));
    !bare.is_empty() && bare.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='))
}

/// A line of a key as the redactor replaces it: as its first line, or behind another; and where it fits nowhere, or is too
/// short to tell whether it is gone, by a key that stands for it.
fn masked(line: &str, redactor: &dyn Redact) -> Result<String, CallError> {
    let gone = |clean: &str| !clean.contains(FIRST.trim_end());
    if line.trim().len() >= PIECE {
        for key in [format!("{FIRST}{line}\n{FILLING}"), format!("{FIRST}{FILLING}{line}\n")] {
            let clean = redacted(&key, redactor)?;
            if gone(&clean) && !clean.contains(line.trim()) {
                return Ok(clean.trim_end().to_owned());
            }
        }
    }
    let clean = redacted(&format!("{FIRST}{FILLING}"), redactor)?;
    if gone(&clean) {
        return Ok(clean.trim_end().to_owned());
    }
    Err(CallError::new(ErrorCode::Internal, "a line of a private key could not be masked"))
}

fn redacted(text: &str, redactor: &dyn Redact) -> Result<String, CallError> {
    let masked = redactor.redact(text);
    let masked = masked.map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(masked.text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz";

    // T21
    #[test]
    fn lines_between_the_first_and_the_last_of_a_key() {
        let key = format!("-----BEGIN OPENSSH {} KEY-----", "PRIVATE");
        for (text, expected) in [
            (format!("a\n{key}\n{BODY}\n{BODY}\nAQID==\n-----END X-----\n{BODY}\n"), vec![3, 4, 5]),
            (format!("{key}\nProc-Type: 4,ENCRYPTED\n\n{BODY}\nplain words follow\n{BODY}\n"), vec![4]),
            (format!("x = \"{key}\\n\" +\n  \"{BODY}\\n\" +\n  \"{BODY}\"\n"), vec![2, 3]),
            (format!("-----BEGIN CERTIFICATE-----\n{BODY}\n-----END CERTIFICATE-----\n"), vec![]),
            (format!("{key} in a sentence\nand no key\n{BODY}\n"), vec![]),
        ] {
            assert_eq!(inside(&text), expected, "{text}");
        }
    }

    /// Replaces a key only where a whole line of base64 stands behind its first line, as a redactor may.
    struct Picky;

    impl Redact for Picky {
        fn redact<'a>(
            &self,
            text: &'a str,
        ) -> Result<vambrace_core::redacted::Masked<'a>, vambrace_core::redacted::RedactError> {
            let whole = text.strip_prefix(FIRST).is_some_and(|rest| rest.starts_with(FILLING));
            let text = if whole { "[key]".into() } else { text.into() };
            Ok(vambrace_core::redacted::Masked { text, count: u32::from(whole) })
        }
    }

    // T21
    #[test]
    fn a_line_that_is_too_short_for_a_first_one_is_masked_all_the_same() {
        for line in ["abcQ==", "k", "", "web_1  | abcQ==", "web_1  | b3BlbnNzaC1rZXktdjEAAAAABG5vbmU"] {
            assert_eq!(masked(line, &Picky).unwrap(), "[key]", "{line}");
        }
    }

    #[test]
    fn most_lines_could_not_be_of_a_key() {
        for line in ["fn main() {", "    let x = y;", "", "key = value", "a-b-c-d-e-f-g-h-i-j-k-l-m"] {
            assert!(!may_be_key(line), "{line}");
        }
        assert!(may_be_key(BODY) && may_be_key(&format!("  \"{BODY}\\n\" +")));
    }
}
