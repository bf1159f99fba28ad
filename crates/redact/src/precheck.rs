//! A cheap check before a rule's regular expression runs at an anchor: the bytes that the expression needs at fixed
//! distances from its start, and the bytes that may precede it. The check costs a few nanoseconds; starting the
//! expression costs a hundred times as much.
//!
//! INVARIANT: a precheck never rejects a position where the expression would match.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::bytes::{at, before};

/// Bytes of a match that are checked; the expression checks the rest.
const MAX_CHECKED_BYTES: usize = 48;
/// Maximum number of alternatives that are tracked.
const MAX_STARTS: usize = 24;

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    const NONE: Self = Self([0; 4]);

    pub(crate) fn of(fits: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::NONE;
        (0..=u8::MAX).filter(|byte| fits(*byte)).for_each(|byte| set.add(byte));
        set
    }

    fn add(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }

    /// Whether a byte is in the set.
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }

    fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(mine, other)| mine & !other == 0)
    }
}

/// One way in which a match can start: runs of bytes, each run from one set.
#[derive(Debug, Clone, Default)]
struct MatchStart {
    runs: Vec<(ByteSet, usize)>,
    /// Whether the next part of the expression also has a fixed distance from the start.
    extendable: bool,
}

impl MatchStart {
    fn len(&self) -> usize {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    fn push(&mut self, set: ByteSet, count: usize) {
        let count = count.min(MAX_CHECKED_BYTES.saturating_sub(self.len()));
        match self.runs.last_mut() {
            Some((last, many)) if *last == set => *many += count,
            _ => self.runs.extend((count > 0).then_some((set, count))),
        }
        self.extendable &= self.len() < MAX_CHECKED_BYTES;
    }

    fn sets(&self) -> impl Iterator<Item = ByteSet> {
        self.runs.iter().flat_map(|(set, count)| std::iter::repeat_n(*set, *count))
    }

    fn fits(&self, text: &[u8], mut place: usize) -> bool {
        self.runs.iter().all(|(set, count)| {
            let there = (place..place + count).all(|place| set.has(at(text, place)));
            place += count;
            there
        })
    }
}

/// What a rule needs at an anchor.
#[derive(Debug, Clone)]
pub(crate) struct Precheck {
    /// Bytes that may precede the match.
    left: Option<ByteSet>,
    starts: Vec<MatchStart>,
}

impl Precheck {
    /// Accepts every position.
    pub(crate) const ALWAYS: Self = Self { left: None, starts: Vec::new() };

    /// Derives the check from an expression. Accepts everything if the expression does not parse: compiling it reports
    /// the error.
    pub(crate) fn from_pattern(pattern: &str, nocase: bool) -> Self {
        let mut parser =
            ParserBuilder::new().unicode(false).utf8(false).case_insensitive(nocase).nest_limit(100).build();
        let Ok(hir) = parser.parse(pattern) else { return Self::ALWAYS };
        let starts = starts(&hir);
        let word = ByteSet::of(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let first = |start: &MatchStart| start.runs.first().is_some_and(|(set, _)| set.is_subset(&word));
        let left =
            (begins_at_word(&hir) && starts.iter().all(first)).then(|| ByteSet::of(|byte| !word.has(byte)));
        Self { left, starts }
    }

    /// The same check, and no letter or digit may precede the match.
    pub(crate) fn after_sign(mut self) -> Self {
        self.left = Some(ByteSet::of(|byte| !byte.is_ascii_alphanumeric()));
        self
    }

    /// Whether every match begins with one of these words, ignoring case.
    pub(crate) fn begins_with(&self, words: &[String]) -> bool {
        let begins = |start: &MatchStart, word: &str| {
            start.len() >= word.len()
                && start
                    .sets()
                    .zip(word.bytes())
                    .all(|(set, byte)| set.is_subset(&ByteSet::of(|other| other.eq_ignore_ascii_case(&byte))))
        };
        !self.starts.is_empty()
            && self.starts.iter().all(|start| words.iter().any(|word| begins(start, word)))
    }

    /// The bytes that may follow a word that every match begins with, if all alternatives fix them.
    pub(crate) fn follows(&self, word: &[u8]) -> Option<ByteSet> {
        let mut all = ByteSet::NONE;
        for start in &self.starts {
            if !start.sets().zip(word).all(|(set, byte)| {
                set.has(*byte) || set.has(byte.to_ascii_uppercase()) || set.has(byte.to_ascii_lowercase())
            }) {
                continue;
            }
            let next = start.sets().nth(word.len())?;
            all.0.iter_mut().zip(next.0).for_each(|(all, next)| *all |= next);
        }
        (all != ByteSet::NONE).then_some(all)
    }

    /// Whether a match can begin at a position; `joins` returns whether another match ends there, which counts as a
    /// word boundary.
    pub(crate) fn may_match(&self, text: &[u8], place: usize, joins: impl Fn(usize) -> bool) -> bool {
        self.left.is_none_or(|left| left.has(before(text, place)) || joins(place))
            && (self.starts.is_empty() || self.starts.iter().any(|start| start.fits(text, place)))
    }
}

/// The ways in which a match can start; empty if nothing is certain.
fn starts(hir: &Hir) -> Vec<MatchStart> {
    let mut starts = vec![MatchStart { runs: Vec::new(), extendable: true }];
    extend(&mut starts, hir);
    if starts.iter().any(|start| start.runs.is_empty()) { Vec::new() } else { starts }
}

fn extend(starts: &mut Vec<MatchStart>, hir: &Hir) {
    let each = |starts: &mut Vec<MatchStart>, set: ByteSet, count: usize| {
        starts.iter_mut().filter(|start| start.extendable).for_each(|start| start.push(set, count));
    };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => {
            literal.0.iter().for_each(|byte| each(starts, ByteSet::of(|other| other == *byte), 1));
        }
        HirKind::Class(class) => match byte_set(class) {
            Some(set) => each(starts, set, 1),
            None => stop_extending(starts),
        },
        HirKind::Capture(capture) => extend(starts, &capture.sub),
        HirKind::Concat(parts) => parts.iter().for_each(|part| extend(starts, part)),
        HirKind::Alternation(parts) => branch(starts, parts),
        HirKind::Repetition(repetition) => {
            let least = usize::try_from(repetition.min).unwrap_or(MAX_CHECKED_BYTES).min(MAX_CHECKED_BYTES);
            match repetition.sub.kind() {
                HirKind::Class(class) => match byte_set(class) {
                    Some(set) => each(starts, set, least),
                    None => stop_extending(starts),
                },
                _ => {
                    for _ in 0..least {
                        if starts.iter().all(|start| !start.extendable) {
                            break;
                        }
                        extend(starts, &repetition.sub);
                    }
                }
            }
            if repetition.max != Some(repetition.min) {
                stop_extending(starts);
            }
        }
    }
}

/// Extends every start by every alternative. If there are too many, none is extended further.
fn branch(starts: &mut Vec<MatchStart>, parts: &[Hir]) {
    let extendable_count = starts.iter().filter(|start| start.extendable).count();
    let mut branched: Vec<MatchStart> = starts.iter().filter(|start| !start.extendable).cloned().collect();
    for part in parts {
        let mut own: Vec<MatchStart> = starts.iter().filter(|start| start.extendable).cloned().collect();
        extend(&mut own, part);
        branched.append(&mut own);
        if branched.len() > MAX_STARTS {
            break;
        }
    }
    if extendable_count == 0 {
    } else if branched.len() > MAX_STARTS {
        stop_extending(starts);
    } else {
        *starts = branched;
    }
}

fn stop_extending(starts: &mut [MatchStart]) {
    starts.iter_mut().for_each(|start| start.extendable = false);
}

fn byte_set(class: &Class) -> Option<ByteSet> {
    let Class::Bytes(class) = class else { return None };
    Some(ByteSet::of(|byte| class.iter().any(|range| (range.start()..=range.end()).contains(&byte))))
}

fn begins_at_word(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Look(look) => *look == Look::WordAscii,
        HirKind::Capture(capture) => begins_at_word(&capture.sub),
        HirKind::Concat(parts) => parts.first().is_some_and(begins_at_word),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_match(pattern: &str, text: &str, place: usize) -> bool {
        Precheck::from_pattern(pattern, false).may_match(text.as_bytes(), place, |_| false)
    }

    #[test]
    fn precheck_rejects_positions_where_nothing_can_match() {
        for (pattern, text, place, open) in [
            ("pat[A-Za-z0-9]{14}\\.", "pat0123456789abcd.", 0, true),
            ("pat[A-Za-z0-9]{14}\\.", "pathname = 1", 0, false),
            ("pat[A-Za-z0-9]{14}\\.", "pat0123456789abcd,", 0, false),
            ("\\b(re_\\w{8,})", "re_12345678", 0, true),
            ("\\b(re_\\w{8,})", "are_12345678", 1, false),
            ("(?i)abc\\d", "ABC1", 0, true),
            ("abc\\d", "ABC1", 0, false),
            ("(?:ab|cde)f", "cdef", 0, true),
            ("(?:ab|cde)f", "abf", 0, true),
            ("(?:ab|cde)f", "abe", 0, false),
            ("ab?c", "ac", 0, true),
            ("a(?:bc){2}d", "abcbcd", 0, true),
            ("a(?:bc){2}d", "abcbd", 0, false),
            ("x*", "y", 0, true),
            ("[^a]b", "", 0, false),
            ("abc$", "abc", 0, true),
        ] {
            assert_eq!(may_match(pattern, text, place), open, "{pattern} {text}");
        }
    }

    #[test]
    fn precheck_knows_the_words_that_every_match_begins_with() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for (pattern, keywords, expected) in [
            ("\\b(AKIA[A-Z]{16})", words(&["akia"]), true),
            ("(?i)(?:box_|box-|boxapi)x", words(&["box_", "box-", "boxapi"]), true),
            ("(?i)(?:box_|box-|boxapi)x", words(&["box_", "boxapi"]), false),
            ("[a-z]{3}AKIA", words(&["akia"]), false),
            ("(?i)[\\w.-]{0,50}?(?:adafruit)x", words(&["adafruit"]), false),
            ("(?:^|x)abc", words(&["abc"]), false),
            ("ab", words(&["abc"]), false),
        ] {
            assert_eq!(Precheck::from_pattern(pattern, false).begins_with(&keywords), expected, "{pattern}");
        }
        let next = Precheck::from_pattern("pat[0-9]{3}", false).follows(b"pat").unwrap();
        assert!(next.has(b'7') && !next.has(b'h'));
        assert!(Precheck::from_pattern("pat.*", false).follows(b"pat").is_none());
    }
}
