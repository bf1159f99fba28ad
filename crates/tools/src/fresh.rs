//! What is new in a diff, and whether it may be written: no secret (T7), and no placeholder of a redacted one, which
//! would destroy the original. What stood in the replaced lines already is not new.

use std::collections::BTreeMap;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redact;

const MARK: &str = "[REDACTED";

/// One line of a diff.
pub(crate) struct DiffLine<'d> {
    /// With its line end.
    pub(crate) text: &'d [u8],
    /// Whether a file begins here.
    pub(crate) starts_section: bool,
    /// Whether a hunk begins here.
    pub(crate) starts_hunk: bool,
    /// Added or removed lines: without the sign.
    side: Option<(Side, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Added,
    Removed,
}

/// Walks a diff. Inside a hunk its counts say what a line is, so no content can look like a header.
pub(crate) fn lines(diff: &[u8]) -> impl Iterator<Item = DiffLine<'_>> {
    let (mut old, mut new, mut at) = (0_u64, 0_u64, 0_u64);
    let mut headed = false;
    diff.split_inclusive(|byte| *byte == b'\n').map(move |text| {
        let mut line = DiffLine { text, starts_section: false, starts_hunk: false, side: None };
        if old > 0 || new > 0 {
            match text.first() {
                Some(b'+') => {
                    line.side = Some((Side::Added, at));
                    new = new.saturating_sub(1);
                    at += 1;
                }
                Some(b'-') => {
                    line.side = Some((Side::Removed, at));
                    old = old.saturating_sub(1);
                }
                Some(b'\\') => {}
                _ => {
                    old = old.saturating_sub(1);
                    new = new.saturating_sub(1);
                    at += 1;
                }
            }
            return line;
        }
        if let Some((counts, start)) = hunk(text) {
            (old, new, at) = (counts.0, counts.1, start);
            line.starts_hunk = true;
            headed = false;
        } else if text.starts_with(b"diff --git ") || (text.starts_with(b"--- ") && !headed) {
            line.starts_section = true;
            headed = text.starts_with(b"diff --git ");
        }
        line
    })
}

/// The counts of old and new lines, and the first new line.
fn hunk(text: &[u8]) -> Option<((u64, u64), u64)> {
    let text = std::str::from_utf8(text.get(..text.len().min(80))?).ok()?;
    let rest = text.strip_prefix("@@ -")?;
    let (ranges, _) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |words: &str| match words.split_once(',') {
        Some((start, count)) => Some((start.parse::<u64>().ok()?, count.parse::<u64>().ok()?)),
        None => Some((words.parse().ok()?, 1)),
    };
    let (old, new) = (range(old)?, range(new)?);
    Some(((old.1, new.1), new.0))
}

/// The path that a section of a diff is about.
pub(crate) fn new_path(section: &[u8]) -> Option<String> {
    let header = |sign: &str, side: &str| {
        let mark = format!("{sign} {side}");
        section.split(|byte| *byte == b'\n').take(8).find_map(|line| {
            let line = std::str::from_utf8(line).ok()?;
            line.strip_prefix(&mark).map(str::to_owned)
        })
    };
    header("+++", "b/").or_else(|| header("---", "a/"))
}

/// Refuses new secrets and placeholders, by kind and line.
pub(crate) fn check(diff: &[u8], redactor: &dyn Redact) -> Result<(), CallError> {
    let mut section: Vec<DiffLine<'_>> = Vec::new();
    for line in lines(diff) {
        if line.starts_section && !section.is_empty() {
            check_section(&section, redactor)?;
            section.clear();
        }
        section.push(line);
    }
    check_section(&section, redactor)
}

fn check_section(section: &[DiffLine<'_>], redactor: &dyn Redact) -> Result<(), CallError> {
    let side = |wanted: Side| {
        let mut text = String::new();
        let mut numbers = Vec::new();
        for line in section {
            if let Some((side, number)) = line.side
                && side == wanted
            {
                text.push_str(&String::from_utf8_lossy(line.text.get(1..).unwrap_or_default()));
                numbers.push(number);
            }
        }
        (text, numbers)
    };
    let (added, numbers) = side(Side::Added);
    let (removed, _) = side(Side::Removed);
    let number = |before: &str| {
        let at = before.matches('\n').count().min(numbers.len().saturating_sub(1));
        numbers.get(at).copied().unwrap_or(1)
    };
    if let Some((before, _)) = first_new(&added, &removed) {
        let line = number(before);
        let why = format!(
            "line {line} of the new content holds the placeholder of a redacted secret; writing it would destroy the original"
        );
        return Err(CallError::new(ErrorCode::SecretInContent, why)
            .suggest("leave the line with the secret as it is: edit around it"));
    }
    let failed =
        |error: vambrace_core::redacted::RedactError| CallError::new(ErrorCode::Internal, error.to_string());
    let masked = redactor.redact(&added).map_err(failed)?;
    if masked.count == 0 {
        return Ok(());
    }
    let known = redactor.redact(&removed).map_err(failed)?;
    if let Some((before, mark)) = first_new(&masked.text, &known.text) {
        let (line, kind) = (number(before), kind(mark));
        let why = format!("line {line} of the new content holds a secret ({kind})");
        return Err(CallError::new(ErrorCode::SecretInContent, why));
    }
    Ok(())
}

/// The first placeholder of a text that the other does not hold as often: what stands before it, and it.
fn first_new<'t>(text: &'t str, known: &str) -> Option<(&'t str, &'t str)> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, mark) in marks(known) {
        *left.entry(mark).or_default() += 1;
    }
    marks(text).find(|(_, mark)| match left.get_mut(mark) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    })
}

fn marks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(MARK).filter_map(move |(at, _)| {
        let (before, from) = text.split_at_checked(at)?;
        let end = from.find(']').map_or(from.len(), |end| end + 1).min(200);
        let mark = from.get(..end).unwrap_or(MARK);
        // A word of prose is no placeholder.
        matches!(from.as_bytes().get(MARK.len()), Some(b':' | b']')).then_some((before, mark))
    })
}

fn kind(mark: &str) -> &str {
    let inner = mark.trim_start_matches(MARK).trim_start_matches(':').trim_end_matches(']');
    match inner.split(':').next() {
        Some(kind) if !kind.is_empty() => kind,
        _ => "secret",
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::redacted::{Masked, RedactError};

    use super::*;

    struct Knows;
    impl Redact for Knows {
        fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
            let count =
                u32::try_from(text.matches("hunter2").count() + text.matches("swordfish").count()).unwrap();
            let text =
                text.replace("hunter2", "[REDACTED:env:1111]").replace("swordfish", "[REDACTED:env:2222]");
            Ok(Masked { text: text.into(), count })
        }
    }

    fn refused(diff: &str) -> Option<String> {
        check(diff.as_bytes(), &Knows).err().map(|error| {
            assert_eq!(error.code, ErrorCode::SecretInContent);
            assert!(!error.message.contains("hunter2"));
            error.message
        })
    }

    // T7
    #[test]
    fn a_new_secret_is_named_by_kind_and_line_never_by_value() {
        let said = refused("--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n+fine\n+p = hunter2\n b\n").unwrap();
        assert!(said.contains("line 3") && said.contains("(env)"), "{said}");
        assert_eq!(refused("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"), None);
        // In the context or removed: nothing new.
        assert_eq!(refused("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-hunter2\n b\n"), None);
        assert_eq!(refused("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n hunter2\n-b\n+c\n"), None);
    }

    #[test]
    fn a_secret_that_stood_there_may_stay_and_another_may_not_take_its_place() {
        let change = |old: &str, new: &str| format!("--- a/x\n+++ b/x\n@@ -7 +7 @@\n-{old}\n+{new}\n");
        assert_eq!(refused(&change("p = hunter2 # old", "p = hunter2 # new")), None);
        assert!(refused(&change("p = hunter2", "p = swordfish")).is_some());
        assert!(refused(&change("p = hunter2", "p = hunter2; q = hunter2")).unwrap().contains("line 7"));
    }

    #[test]
    fn a_placeholder_is_not_written_over_the_original() {
        let change = |old: &str, new: &str| format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{old}\n+{new}\n");
        assert!(refused(&change("p = x", "p = [REDACTED:env:1111]")).unwrap().contains("placeholder"));
        assert_eq!(refused(&change("say [REDACTED:env:1] a", "say [REDACTED:env:1] b")), None);
        assert_eq!(refused(&change("a", "[REDACTEDly] spoken")), None);
    }

    #[test]
    fn content_that_looks_like_a_header_stays_content() {
        let diff = "--- a/x\n+++ b/x\n@@ -0,0 +1,3 @@\n+--- a/y\n+@@ -1 +1 @@\n+hunter2\n";
        assert!(refused(diff).unwrap().contains("line 3"));
        assert_eq!(lines(diff.as_bytes()).filter(|line| line.starts_section).count(), 1);
        assert_eq!(new_path(diff.as_bytes()).as_deref(), Some("x"));
    }
}
