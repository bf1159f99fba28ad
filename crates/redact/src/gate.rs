//! What must stand where an anchor was found before its rule is asked: the bytes that a regular expression needs at
//! fixed distances from its beginning, and what may stand before it. Asked first, because it costs a few
//! nanoseconds where starting the expression costs a hundred times as much.
//!
//! INVARIANT: a gate is never closed where the expression would match.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::bytes::{at, before};

/// Places beyond this are left to the expression.
const FAR: usize = 48;
/// So many alternatives are told apart.
const WAYS: usize = 24;

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set([u64; 4]);

impl Set {
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

    /// Whether a byte is in it.
    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }

    fn lies_in(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(mine, other)| mine & !other == 0)
    }
}

/// One way in which a match may begin: so many bytes of a set, one after another.
#[derive(Debug, Clone, Default)]
struct Way {
    runs: Vec<(Set, usize)>,
    /// Whether what follows has a fixed distance too.
    goes_on: bool,
}

impl Way {
    fn len(&self) -> usize {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    fn push(&mut self, set: Set, count: usize) {
        let count = count.min(FAR.saturating_sub(self.len()));
        match self.runs.last_mut() {
            Some((last, many)) if *last == set => *many += count,
            _ => self.runs.extend((count > 0).then_some((set, count))),
        }
        self.goes_on &= self.len() < FAR;
    }

    fn sets(&self) -> impl Iterator<Item = Set> {
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

/// What must stand there.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// What may stand before it.
    left: Option<Set>,
    ways: Vec<Way>,
}

impl Gate {
    /// Always open.
    pub(crate) const OPEN: Self = Self { left: None, ways: Vec::new() };

    /// Of an expression, as its text. Open where it cannot be read: compiling it tells the fault.
    pub(crate) fn of(pattern: &str, nocase: bool) -> Self {
        let mut parser =
            ParserBuilder::new().unicode(false).utf8(false).case_insensitive(nocase).nest_limit(100).build();
        let Ok(hir) = parser.parse(pattern) else { return Self::OPEN };
        let ways = ways(&hir);
        let word = Set::of(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let first = |way: &Way| way.runs.first().is_some_and(|(set, _)| set.lies_in(&word));
        let left = (begins_at_word(&hir) && ways.iter().all(first)).then(|| Set::of(|byte| !word.has(byte)));
        Self { left, ways }
    }

    /// The same where neither a letter nor a digit may stand before.
    pub(crate) fn after_sign(mut self) -> Self {
        self.left = Some(Set::of(|byte| !byte.is_ascii_alphanumeric()));
        self
    }

    /// Whether every match begins with one of these words, whatever the case of its letters.
    pub(crate) fn begins_with(&self, words: &[String]) -> bool {
        let begins = |way: &Way, word: &str| {
            way.len() >= word.len()
                && way
                    .sets()
                    .zip(word.bytes())
                    .all(|(set, byte)| set.lies_in(&Set::of(|other| other.eq_ignore_ascii_case(&byte))))
        };
        !self.ways.is_empty() && self.ways.iter().all(|way| words.iter().any(|word| begins(way, word)))
    }

    /// What may follow a word that every match begins with, when all of them say so.
    pub(crate) fn follows(&self, word: &[u8]) -> Option<Set> {
        let mut all = Set::NONE;
        for way in &self.ways {
            if !way.sets().zip(word).all(|(set, byte)| {
                set.has(*byte) || set.has(byte.to_ascii_uppercase()) || set.has(byte.to_ascii_lowercase())
            }) {
                continue;
            }
            let next = way.sets().nth(word.len())?;
            all.0.iter_mut().zip(next.0).for_each(|(all, next)| *all |= next);
        }
        (all != Set::NONE).then_some(all)
    }

    /// Whether a match may begin at a place; `joins` tells where another finding ends, which is as good as a blank.
    pub(crate) fn lets(&self, text: &[u8], place: usize, joins: impl Fn(usize) -> bool) -> bool {
        self.left.is_none_or(|left| left.has(before(text, place)) || joins(place))
            && (self.ways.is_empty() || self.ways.iter().any(|way| way.fits(text, place)))
    }
}

/// The ways in which a match may begin; none when nothing is certain.
fn ways(hir: &Hir) -> Vec<Way> {
    let mut ways = vec![Way { runs: Vec::new(), goes_on: true }];
    extend(&mut ways, hir);
    if ways.iter().any(|way| way.runs.is_empty()) { Vec::new() } else { ways }
}

fn extend(ways: &mut Vec<Way>, hir: &Hir) {
    let each = |ways: &mut Vec<Way>, set: Set, count: usize| {
        ways.iter_mut().filter(|way| way.goes_on).for_each(|way| way.push(set, count));
    };
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => {
            literal.0.iter().for_each(|byte| each(ways, Set::of(|other| other == *byte), 1));
        }
        HirKind::Class(class) => match set_of(class) {
            Some(set) => each(ways, set, 1),
            None => stop(ways),
        },
        HirKind::Capture(capture) => extend(ways, &capture.sub),
        HirKind::Concat(parts) => parts.iter().for_each(|part| extend(ways, part)),
        HirKind::Alternation(parts) => branch(ways, parts),
        HirKind::Repetition(repetition) => {
            let least = usize::try_from(repetition.min).unwrap_or(FAR).min(FAR);
            match repetition.sub.kind() {
                HirKind::Class(class) => match set_of(class) {
                    Some(set) => each(ways, set, least),
                    None => stop(ways),
                },
                _ => {
                    for _ in 0..least {
                        if ways.iter().all(|way| !way.goes_on) {
                            break;
                        }
                        extend(ways, &repetition.sub);
                    }
                }
            }
            if repetition.max != Some(repetition.min) {
                stop(ways);
            }
        }
    }
}

/// Every way goes on in every one of the parts; too many end here.
fn branch(ways: &mut Vec<Way>, parts: &[Hir]) {
    let going = ways.iter().filter(|way| way.goes_on).count();
    let mut branched: Vec<Way> = ways.iter().filter(|way| !way.goes_on).cloned().collect();
    for part in parts {
        let mut own: Vec<Way> = ways.iter().filter(|way| way.goes_on).cloned().collect();
        extend(&mut own, part);
        branched.append(&mut own);
        if branched.len() > WAYS {
            break;
        }
    }
    if going == 0 {
    } else if branched.len() > WAYS {
        stop(ways);
    } else {
        *ways = branched;
    }
}

fn stop(ways: &mut [Way]) {
    ways.iter_mut().for_each(|way| way.goes_on = false);
}

fn set_of(class: &Class) -> Option<Set> {
    let Class::Bytes(class) = class else { return None };
    Some(Set::of(|byte| class.iter().any(|range| (range.start()..=range.end()).contains(&byte))))
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

    fn lets(pattern: &str, text: &str, place: usize) -> bool {
        Gate::of(pattern, false).lets(text.as_bytes(), place, |_| false)
    }

    #[test]
    fn a_gate_is_closed_where_nothing_can_match() {
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
            assert_eq!(lets(pattern, text, place), open, "{pattern} {text}");
        }
    }

    #[test]
    fn words_that_every_match_begins_with() {
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
            assert_eq!(Gate::of(pattern, false).begins_with(&keywords), expected, "{pattern}");
        }
        let next = Gate::of("pat[0-9]{3}", false).follows(b"pat").unwrap();
        assert!(next.has(b'7') && !next.has(b'h'));
        assert!(Gate::of("pat.*", false).follows(b"pat").is_none());
    }
}
