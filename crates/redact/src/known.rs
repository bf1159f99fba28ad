//! Known values: the guarantee layer. A value that the broker holds is found wherever it stands, in any of its
//! [forms](crate::forms), whatever surrounds it.

use crate::bytes::{at, before, is_base64, part};
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
        // The last piece takes what is left over, so that none is too short to stand alone.
        (0..count)
            .flat_map(|n| {
                let (from, end) = (n * PIECE, if n + 1 == count { whole.len() } else { (n + 1) * PIECE });
                let behind = (script != Script::Plain && end - from >= 3 * HEAD)
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
            Script::Base64 => self.across_lines(text, start, |a, b| a == b)?,
            Script::Hex => self.across_lines(text, start, |a, b| a.eq_ignore_ascii_case(&b))?,
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

    fn across_lines(&self, text: &[u8], start: usize, same: impl Fn(u8, u8) -> bool) -> Option<usize> {
        let mut place = start;
        let mut breaks = self.bytes().len() / BREAK_EVERY;
        for (n, &wanted) in self.bytes().iter().enumerate() {
            if same(at(text, place), wanted) {
                place += 1;
                continue;
            }
            let next = pem::past_break(text, place)?;
            if n == 0 || next > place + GAP || !same(at(text, next), wanted) {
                return None;
            }
            breaks = breaks.checked_sub(1)?;
            place = next + 1;
        }
        Some(place)
    }
}
