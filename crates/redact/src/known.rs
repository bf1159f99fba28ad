//! Known values: the guarantee layer. A value that the broker holds is found wherever it stands, in any of its
//! [forms](crate::forms), whatever surrounds it.

use crate::bytes::{at, before, is_base64, part, run};
use crate::forms::{Form, Script, forms};
use crate::pem;
use crate::placeholder::{Key, Print};
use crate::secret::Secret;

/// A value shorter than this is not looked for, unless told otherwise: it would be met by chance.
pub const LEAST_VALUE: usize = 6;
/// Shorter ones cannot be looked for.
pub(crate) const SHORTEST_VALUE: usize = 4;
/// A longer form is looked for in pieces of this size.
const PIECE: usize = 1024;
/// How many line breaks a form may hold for each so many of its bytes.
const BREAK_EVERY: usize = 16;
/// Letters by which a needle is met.
const HEAD: usize = 4;
/// The most that stands between two lines of it.
const GAP: usize = 80;
/// The most signs between two bytes of a line.
const SIGNS: usize = 24;

/// A value that is known to be secret.
#[expect(missing_debug_implementations, reason = "it holds a secret")]
#[derive(Clone)]
pub struct KnownValue {
    /// What its placeholder says: `env`, or the name of a scope.
    pub kind: String,
    /// The value.
    pub value: Secret,
}

/// What is looked for.
pub(crate) struct Needle {
    script: Script,
    bytes: Secret,
    /// Letters before it that belong to the value too. A line may break among the first letters, by which a needle is met; then this one,
    /// which begins behind them, is met all the same.
    head: Secret,
    pub(crate) kind: u16,
    pub(crate) print: Print,
}

/// The needles of a value.
pub(crate) fn needles(value: &Secret, kind: u16, key: &Key) -> Vec<Needle> {
    let print = key.print(value.expose().trim_ascii());
    let pieces = forms(value.expose()).into_iter().flat_map(|Form { script, bytes }| {
        let whole = bytes.expose();
        let count = (whole.len() / PIECE).max(1);
        let needle = |from, to, head: &[u8]| Needle {
            script,
            bytes: Secret::new(part(whole, from, to)),
            head: Secret::new(head),
            kind,
            print,
        };
        // No number is cut.
        let edge = |n: usize| match script {
            Script::Numbers if n > 0 => run(whole, n * PIECE, whole.len(), |byte| byte != b',') + 1,
            _ => n * PIECE,
        };
        // The last piece takes what is left over, so that none is too short to stand alone.
        (0..count)
            .flat_map(|n| {
                let (from, end) = (edge(n), if n + 1 == count { whole.len() } else { edge(n + 1) });
                let broken = matches!(script, Script::Base64 | Script::Hex);
                let behind = (broken && end - from >= 3 * HEAD)
                    .then(|| needle(from + HEAD, end, part(whole, from, from + HEAD)));
                [Some(needle(from, end, &[])), behind]
            })
            .flatten()
            .collect::<Vec<_>>()
    });
    pieces.collect()
}

impl Needle {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// Where it stands when it begins at `start`; what belongs to it at its edges included.
    pub(crate) fn stands(&self, text: &[u8], start: usize) -> Option<(usize, usize)> {
        let end = match self.script {
            Script::Plain => {
                let end = start + self.bytes().len();
                (part(text, start, end) == self.bytes()).then_some(end)?
            }
            Script::Base64 => self.across_lines(text, start)?,
            Script::Hex => self.across_bytes(text, start)?,
            Script::Numbers => return self.numbers(text, start),
        };
        let start = self.with_head(text, start)?;
        if self.script != Script::Base64 {
            return Some((start, end));
        }
        // The letters beside it hold up to four bits of it.
        let start = start - usize::from(start > 0 && is_base64(at(text, start.wrapping_sub(1))));
        let mut end = end + usize::from(is_base64(at(text, end)));
        while at(text, end) == b'=' {
            end += 1;
        }
        Some((start, end))
    }

    /// Where the letters before a place begin that belong to it; nothing when they do not stand there.
    fn with_head(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut place = start;
        for &wanted in self.head.expose().iter().rev() {
            if !before(text, place).eq_ignore_ascii_case(&wanted) {
                let broken = |from: &usize| {
                    pem::past_break(text, *from) == Some(place)
                        && before(text, *from).eq_ignore_ascii_case(&wanted)
                };
                place = (place.saturating_sub(GAP)..place).rev().find(broken)?;
            }
            place -= 1;
        }
        Some(place)
    }

    fn across_lines(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut place = start;
        let mut breaks = self.bytes().len() / BREAK_EVERY;
        for (n, &wanted) in self.bytes().iter().enumerate() {
            if at(text, place) == wanted {
                place += 1;
                continue;
            }
            let next = pem::past_break(text, place)?;
            if n == 0 || next > place + GAP || at(text, next) != wanted {
                return None;
            }
            breaks = breaks.checked_sub(1)?;
            place = next + 1;
        }
        Some(place)
    }

    /// Digits of hex, also as a dump or a program shows them: `68:75`, `0x68, 0x75`, `68 75  |hu|` and more on the next line.
    fn across_bytes(&self, text: &[u8], start: usize) -> Option<usize> {
        let (mut place, mut dumped) = (start, false);
        for (n, wanted) in self.bytes().iter().enumerate() {
            let stands = |place: &usize| at(text, *place).eq_ignore_ascii_case(wanted);
            if !stands(&place) {
                let whole = n > 0 && n % 2 == 0;
                let beside = Some(past_signs(text, place)).filter(|_| whole);
                let broken = pem::past_break(text, place).filter(|next| n > 0 && *next <= place + GAP);
                place = match [beside, broken].into_iter().flatten().find(&stands) {
                    Some(next) => next,
                    None => {
                        dumped = true;
                        dump_line(text, place).filter(|next| whole && stands(next))?
                    }
                };
            }
            place += 1;
        }
        // The letters that a dump shows beside its last line.
        Some(if dumped { run(text, place, place + GAP, |byte| byte != b'\n') } else { place })
    }

    /// A list of numbers with whatever signs between them.
    fn numbers(&self, text: &[u8], start: usize) -> Option<(usize, usize)> {
        let mut place = start;
        for &wanted in self.bytes() {
            let next = if wanted == b',' {
                run(text, place, place + GAP, |byte| matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r'))
            } else {
                place + usize::from(at(text, place) == wanted)
            };
            place = Some(next).filter(|next| *next > place)?;
        }
        Some((start, place))
    }

    /// Groups of four bytes by which it is met, beside those of its own bytes.
    pub(crate) fn groups(&self) -> Vec<[u8; HEAD]> {
        let bytes = self.bytes();
        let group = |head: &[u8], tail: &[u8]| <[u8; HEAD]>::try_from([head, tail].concat()).ok();
        let first = match self.script {
            Script::Hex if self.head.expose().is_empty() => part(bytes, 0, 2),
            Script::Numbers => part(bytes, 0, run(bytes, 0, bytes.len(), |byte| byte != b',')),
            _ => return Vec::new(),
        };
        let next = at(bytes, first.len() + usize::from(self.script == Script::Numbers));
        [b" ".as_slice(), b":", b"-", b",", b", ", b",0", b" 0", b"  ", b",\n", b":\n", b"\n", b"\n0", b"\\x"]
            .into_iter()
            .flat_map(|signs| [group(first, signs), group(first, &[signs, &[next]].concat())])
            .flatten()
            .collect()
    }
}

/// Past what stands between two bytes of hex.
fn past_signs(text: &[u8], from: usize) -> usize {
    let mut place = from;
    while place < from + SIGNS {
        place += match (at(text, place), at(text, place + 1)) {
            (b'0' | b'\\', b'x' | b'X') => 2,
            (b' ' | b'\t' | b'\n' | b'\r' | b':' | b'-' | b',' | b';' | b'%' | b'_' | b'"' | b'\'', _) => 1,
            _ => break,
        };
    }
    place
}

/// Where the bytes of the next line of a dump begin: past the letters beside this line, and past the number of the next.
fn dump_line(text: &[u8], place: usize) -> Option<usize> {
    let line = place + memchr::memchr(b'\n', part(text, place, place + GAP))? + 1;
    let number = run(text, line, line + 16, |byte| byte.is_ascii_hexdigit());
    let numbered = number >= line + 4 && matches!(at(text, number), b':' | b' ' | b'\t');
    Some(past_signs(text, if numbered { number } else { line }))
}
