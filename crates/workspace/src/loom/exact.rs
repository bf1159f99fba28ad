//! Finding a text as it stands, whatever its line ends. A text that overlaps itself ("aa" in "aaa") is ambiguous: counted
//! from the left and from the right the matches differ, and nobody can say which was meant.

use memchr::memmem::{Finder, FinderRev};

use super::found::{Found, Matches, OVER};
use super::view::{BOM, Ending, View, plain_ends};

/// Looks for a text and puts another in its place.
pub(crate) fn matches(base: &[u8], spec: &str, content: &str, expected: usize) -> Matches {
    let spec = plain_ends(spec);
    let needle = spec.as_bytes();
    let needle = if base.starts_with(BOM) { needle.strip_prefix(BOM).unwrap_or(needle) } else { needle };
    let across_lines = needle.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let view = if across_lines { View::lines(base) } else { View::raw(base) };
    let ending = Ending::of(base);
    let most = expected.saturating_add(OVER);
    let starts: Vec<usize> = Finder::new(needle).find_iter(view.text()).take(most).collect();
    let mut ambiguous = None;
    if overlaps_itself(needle) && starts.len() < most {
        let mut from_right: Vec<usize> = FinderRev::new(needle).rfind_iter(view.text()).take(most).collect();
        from_right.reverse();
        ambiguous =
            starts.iter().zip(&from_right).find(|(a, b)| a != b).map(|(a, _)| view.span(*a..*a).start);
    }
    let found = starts
        .into_iter()
        .map(|start| {
            let span = view.span(start..start + needle.len());
            let insert = ending.fit(content.as_bytes(), base.get(span.clone()).unwrap_or_default());
            Found { span, insert }
        })
        .collect();
    Matches { found, ambiguous, parsed: None }
}

/// Whether some beginning of the text is also its end.
fn overlaps_itself(needle: &[u8]) -> bool {
    // Long texts cannot be compared with all their shifts; the two directions of search then tell.
    if needle.len() > 4096 {
        return true;
    }
    (1..needle.len()).any(|shift| needle.get(shift..).is_some_and(|rest| needle.starts_with(rest)))
}
