//! Finds a literal text, ignoring line ending styles. A text whose occurrences overlap ("aa" in "aaa") is ambiguous: matches
//! counted from the left and from the right differ, and it is unclear which are meant.

use memchr::memmem::{Finder, FinderRev};

use super::matches::{MAX_EXCESS_MATCHES, Matches, SpanMatch};
use super::normalized_text::{BOM, LineEnding, NormalizedText, plain_ends};

/// Finds a text; each match is replaced with `content`.
pub(crate) fn matches(base: &[u8], spec: &str, content: &str, expected: usize) -> Matches {
    let spec = plain_ends(spec);
    let needle = spec.as_bytes();
    let needle = if base.starts_with(BOM) { needle.strip_prefix(BOM).unwrap_or(needle) } else { needle };
    let across_lines = needle.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let view = if across_lines { NormalizedText::lines(base) } else { NormalizedText::raw(base) };
    let ending = LineEnding::of(base);
    let max_matches = expected.saturating_add(MAX_EXCESS_MATCHES);
    let starts: Vec<usize> = Finder::new(needle).find_iter(view.text()).take(max_matches).collect();
    let mut ambiguous = None;
    if overlaps_itself(needle) && starts.len() < max_matches {
        let mut from_right: Vec<usize> =
            FinderRev::new(needle).rfind_iter(view.text()).take(max_matches).collect();
        from_right.reverse();
        ambiguous =
            starts.iter().zip(&from_right).find(|(a, b)| a != b).map(|(a, _)| view.span(*a..*a).start);
    }
    let found = starts
        .into_iter()
        .map(|start| {
            let span = view.span(start..start + needle.len());
            let insert = ending.fit(content.as_bytes(), base.get(span.clone()).unwrap_or_default());
            SpanMatch { span, insert }
        })
        .collect();
    Matches { found, ambiguous, parsed: None }
}

/// Whether a proper prefix of the text is also its suffix.
fn overlaps_itself(needle: &[u8]) -> bool {
    // For long texts comparing all shifts is too slow; the caller's search in both directions then decides.
    if needle.len() > 4096 {
        return true;
    }
    (1..needle.len()).any(|shift| needle.get(shift..).is_some_and(|rest| needle.starts_with(rest)))
}
