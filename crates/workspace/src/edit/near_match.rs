//! Suggestions for a text that was not found: the same lines except for whitespace, quotes or case, or else the most similar
//! ones. They are only reported, with the difference made visible; nothing here is applied.

use vambrace_core::digest::Digest;

use super::error::{MatchLine, NearMatch};
use crate::diff::LineTokens;

/// Suggestions per error.
const MAX_SUGGESTIONS: usize = 3;
/// Lines examined; bounds the cost of a suggestion.
const MAX_LINES: usize = 50_000;
/// Characters of a line in a message.
const MAX_LINE_CHARS: usize = 120;
/// Characters of a suggestion.
const MAX_TEXT_CHARS: usize = 2000;
/// Minimum similarity of two lines, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;
/// Longer lines are not compared, in bytes.
const MAX_COMPARED_BYTES: usize = 300;
/// Total byte pairs compared.
const MAX_COMPARED_PAIRS: usize = 20_000_000;
/// Bytes of the file examined.
const MAX_BYTES: usize = 8 * 1024 * 1024;

type Fold = fn(&str) -> String;

/// From the smallest difference to the largest.
const FOLDS: &[(&str, Fold)] = &[
    ("trailing whitespace", |line| line.trim_end().to_owned()),
    ("indentation or whitespace", collapse_whitespace),
    ("quotes or dashes", |line| {
        collapse_whitespace(&line.chars().map(to_ascii_punctuation).collect::<String>())
    }),
    ("upper and lower case", |line| {
        collapse_whitespace(&line.chars().map(to_ascii_punctuation).collect::<String>()).to_lowercase()
    }),
];

/// Lines of the file that are similar to a text.
pub(crate) fn near(base: &[u8], wanted: &str) -> Vec<NearMatch> {
    let base = base.get(..MAX_BYTES).unwrap_or(base);
    let lines: Vec<&[u8]> = LineTokens(base).iter().take(MAX_LINES).collect();
    let text: Vec<String> = lines.iter().map(|line| body(line)).collect();
    let wanted = wanted.replace("\r\n", "\n");
    let wanted: Vec<&str> = wanted.trim_matches('\n').split('\n').collect();
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    for (why, fold) in FOLDS {
        let folded: Vec<String> = text.iter().map(|line| fold(line)).collect();
        let wanted_folded: Vec<String> = wanted.iter().map(|line| fold(line)).collect();
        let found = windows(&folded, &wanted_folded);
        if !found.is_empty() {
            return found.iter().map(|at| near_match_at(&lines, &text, *at, &wanted, why)).collect();
        }
    }
    most_similar(&text, &wanted)
        .map(|at| near_match_at(&lines, &text, at, &wanted, "more than whitespace"))
        .into_iter()
        .collect()
}

/// A line for a message.
pub(crate) fn match_line(base: &[u8], at: usize, line: u64) -> MatchLine {
    let start = crate::diff::line_start(base, at);
    let end = crate::diff::line_end(base, at);
    MatchLine { line, text: visible(&body(base.get(start..end).unwrap_or_default())) }
}

/// Positions where the sought lines follow each other; the first and last may be parts of lines.
fn windows(lines: &[String], wanted_folded: &[String]) -> Vec<usize> {
    let (Some(first), Some(last)) = (wanted_folded.first(), wanted_folded.last()) else { return Vec::new() };
    let fits = |window: &[String]| {
        let inner = window.len().saturating_sub(2);
        let mut pairs = window.iter().zip(wanted_folded).skip(1).take(inner);
        match window {
            [one] => one.contains(first.as_str()) && !first.is_empty(),
            [head, .., tail] => {
                head.ends_with(first.as_str())
                    && tail.starts_with(last.as_str())
                    && pairs.all(|(a, b)| a == b)
            }
            [] => false,
        }
    };
    lines
        .windows(wanted_folded.len())
        .enumerate()
        .filter(|(_, w)| fits(w))
        .map(|(at, _)| at)
        .take(MAX_SUGGESTIONS)
        .collect()
}

/// The start of the most similar lines.
fn most_similar(text: &[String], wanted: &[&str]) -> Option<usize> {
    let mut left = MAX_COMPARED_PAIRS;
    let mut likeness = |a: &str, b: &str| {
        let (a, b) = (a.trim(), b.trim());
        let short = |text: &str| text.len() <= MAX_COMPARED_BYTES && !text.is_empty();
        // Lines of very different length cannot be similar.
        let apart = a.len().abs_diff(b.len()) * 2 > a.len().max(b.len());
        if a == b {
            return 1.0;
        }
        if !short(a) || !short(b) || apart || left == 0 {
            return 0.0;
        }
        left = left.saturating_sub(a.len() * b.len());
        strsim::normalized_levenshtein(a, b)
    };
    // Only the longest line is compared, since it is the most specific.
    let (anchor, line) = wanted.iter().enumerate().max_by_key(|(_, line)| line.trim().len())?;
    let best = text
        .iter()
        .enumerate()
        .map(|(at, candidate)| (likeness(candidate, line), at))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    Some(best.1.saturating_sub(anchor))
}

fn near_match_at(
    lines: &[&[u8]],
    text: &[String],
    at: usize,
    wanted: &[&str],
    why: &'static str,
) -> NearMatch {
    let end = (at + wanted.len()).min(lines.len());
    let bytes: Vec<u8> = lines.get(at..end).unwrap_or_default().concat();
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let theirs = text.get(at..end).unwrap_or_default();
    let differs = theirs.iter().zip(wanted).find(|(a, b)| a != *b).map(|(line, _)| line.as_str());
    NearMatch {
        line: at as u64 + 1,
        end_line: end as u64,
        why,
        text: String::from_utf8_lossy(bytes).chars().take(MAX_TEXT_CHARS).collect(),
        visible: visible(differs.or(theirs.first().map(String::as_str)).unwrap_or_default()),
        hash: Digest::of(bytes),
    }
}

/// A line without its line ending.
fn body(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

/// One line with whitespace made visible: tabs as `→`, leading and trailing spaces as `·`, unprintable characters escaped.
pub(crate) fn visible(line: &str) -> String {
    let inner = line.trim_start_matches([' ', '\t']);
    let lead = line.len() - inner.len();
    let tail = inner.trim_end_matches([' ', '\t']).len() + lead;
    let mut out = String::new();
    for (at, c) in line.char_indices() {
        match c {
            '\t' => out.push('→'),
            ' ' if at < lead || at >= tail => out.push('·'),
            '`' => out.push('\''),
            c if c.is_control() || hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        if out.chars().count() >= MAX_LINE_CHARS {
            out.push('…');
            break;
        }
    }
    out
}

fn hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{a0}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Trims whitespace and collapses runs inside to one space.
fn collapse_whitespace(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Maps typographic quotes, dashes and spaces to their ASCII forms.
fn to_ascii_punctuation(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' | '`' | '"' | '\u{201c}'..='\u{201f}' | '\u{2033}' => '\'',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => ' ',
        '\u{2026}' => '.',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, wanted: &str, expected: Option<(u64, &str, &str)>) {
        let found = near(base.as_bytes(), wanted);
        let got = found.first().map(|near| (near.line, near.why, near.visible.as_str()));
        assert_eq!(got, expected);
    }

    // T8
    #[test]
    fn similar_lines_are_reported_with_the_difference_made_visible() {
        check(
            "a\n\tif x:\n\t\ty\n",
            "    if x:\n        y",
            Some((2, "indentation or whitespace", "→if x:")),
        );
        check("a  \nb\n", "a\nb", Some((1, "trailing whitespace", "a··")));
        check(
            "say(\u{201c}hi\u{201d})\n",
            "say(\"hi\")",
            Some((1, "quotes or dashes", "say(\u{201c}hi\u{201d})")),
        );
        check("Foo = 1\n", "foo = 1", Some((1, "upper and lower case", "Foo = 1")));
        check(
            "x\nlet total = sum(items);\n",
            "let totals = sum(item);",
            Some((2, "more than whitespace", "let total = sum(items);")),
        );
        check("a\u{a0}b\n", "a b", Some((1, "indentation or whitespace", "a\\u{a0}b")));
        check("abc\n", "something else entirely", None);
        check("abc\n", "\n\n", None);
        check("", "abc", None);
    }

    #[test]
    fn a_suggestion_carries_the_exact_text_and_its_hash() {
        let found = near(b"x\n\tif x:\r\n\t\ty\r\nz\n", "if x:\n  y\n");
        assert_eq!(found[0].text, "\tif x:\r\n\t\ty");
        assert_eq!((found[0].line, found[0].end_line), (2, 3));
        assert_eq!(found[0].hash, Digest::of(b"\tif x:\r\n\t\ty"));
    }
}
