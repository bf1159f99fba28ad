//! Known values: the guarantee layer. A value that the broker holds is found wherever it stands, in any of its
//! [forms](crate::forms), whatever surrounds it.

use crate::bytes::{at, is_base64, part, rest};
use crate::forms::{Form, Script, forms};
use crate::placeholder::{Key, Print};
use crate::secret::Secret;

/// A value shorter than this is never looked for: it would be met by chance.
pub const LEAST_VALUE: usize = 6;
/// A longer form is looked for in pieces of this size.
const PIECE: usize = 1024;
/// How many line breaks a form may hold for each so many of its bytes.
const BREAK_EVERY: usize = 16;

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
    pub(crate) kind: u16,
    pub(crate) print: Print,
}

/// The needles of a value.
pub(crate) fn needles(value: &Secret, kind: u16, key: &Key) -> Vec<Needle> {
    let print = key.print(value.expose().trim_ascii());
    let pieces = forms(value.expose()).into_iter().flat_map(|Form { script, bytes }| {
        let whole = bytes.expose();
        let count = (whole.len() / PIECE).max(1);
        // The last piece takes what is left over, so that none is too short to stand alone.
        (0..count)
            .map(|n| {
                let end = if n + 1 == count { whole.len() } else { (n + 1) * PIECE };
                Needle { script, bytes: Secret::new(part(whole, n * PIECE, end)), kind, print }
            })
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

    fn across_lines(&self, text: &[u8], start: usize, same: impl Fn(u8, u8) -> bool) -> Option<usize> {
        let mut place = start;
        let mut breaks = self.bytes().len() / BREAK_EVERY;
        for (n, &wanted) in self.bytes().iter().enumerate() {
            if !same(at(text, place), wanted) {
                let next = rest(text, place).iter().position(|byte| !matches!(byte, b'\n' | b'\r' | b' '))?;
                if n == 0 || next == 0 || next > 8 || !part(text, place, place + next).contains(&b'\n') {
                    return None;
                }
                breaks = breaks.checked_sub(1)?;
                place += next;
                if !same(at(text, place), wanted) {
                    return None;
                }
            }
            place += 1;
        }
        Some(place)
    }
}
