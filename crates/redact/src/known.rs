//! Known values: the layer that guarantees. A value that the broker holds is found wherever it appears, in any of its
//! [encodings](crate::encodings), whatever surrounds it.

use crate::bytes::{at, before, is_base64, run_end, slice};
use crate::encodings::{EncodedForm, EncodingKind, encodings};
use crate::pem;
use crate::placeholder::{Fingerprint, FingerprintKey};
use crate::secret_bytes::SecretBytes;

/// Default minimum length of a known value, in bytes; a shorter one would match by chance.
pub const MIN_KNOWN_VALUE_BYTES: usize = 6;
/// Lower bound for that minimum: shorter values cannot be searched for.
pub(crate) const MIN_SEARCHABLE_BYTES: usize = 4;
/// A longer encoding is searched for in pieces of this many bytes.
const MAX_NEEDLE_BYTES: usize = 1024;
/// One line break is allowed per this many bytes of an encoding.
const BYTES_PER_BREAK: usize = 16;
/// Leading bytes by which the prefilter finds a needle.
const HEAD_BYTES: usize = 4;
/// Maximum number of bytes between two lines of a value.
const MAX_GAP_BYTES: usize = 80;
/// Maximum number of separator bytes between two bytes of a line.
const MAX_SEPARATOR_BYTES: usize = 24;

/// A value that is known to be secret.
#[expect(missing_debug_implementations, reason = "it holds a secret")]
#[derive(Clone)]
pub struct KnownValue {
    /// The kind in its placeholder: `env`, or the name of a scope.
    pub kind: String,
    /// The value.
    pub value: SecretBytes,
}

/// One encoding of a known value, or a piece of it, to search for.
pub(crate) struct Needle {
    encoding: EncodingKind,
    bytes: SecretBytes,
    /// Bytes before the needle that also belong to the value. A line break among the first bytes hides a needle from
    /// the prefilter; a second needle that begins after them is still found.
    head: SecretBytes,
    pub(crate) kind: u16,
    pub(crate) fingerprint: Fingerprint,
}

/// The needles of a value.
pub(crate) fn needles(value: &SecretBytes, kind: u16, key: &FingerprintKey) -> Vec<Needle> {
    let fingerprint = key.fingerprint(value.expose().trim_ascii());
    let pieces = encodings(value.expose()).into_iter().flat_map(|EncodedForm { encoding, bytes }| {
        let whole = bytes.expose();
        let count = (whole.len() / MAX_NEEDLE_BYTES).max(1);
        let needle = |from, to, head: &[u8]| Needle {
            encoding,
            bytes: SecretBytes::new(slice(whole, from, to)),
            head: SecretBytes::new(head),
            kind,
            fingerprint,
        };
        // Never cut a number.
        let edge = |n: usize| match encoding {
            EncodingKind::Numbers if n > 0 => {
                run_end(whole, n * MAX_NEEDLE_BYTES, whole.len(), |byte| byte != b',') + 1
            }
            _ => n * MAX_NEEDLE_BYTES,
        };
        // The last piece takes the remainder, so that none is too short to stand alone.
        (0..count)
            .flat_map(|n| {
                let (from, end) = (edge(n), if n + 1 == count { whole.len() } else { edge(n + 1) });
                let broken = matches!(encoding, EncodingKind::Base64 | EncodingKind::Hex);
                let behind = (broken && end - from >= 3 * HEAD_BYTES)
                    .then(|| needle(from + HEAD_BYTES, end, slice(whole, from, from + HEAD_BYTES)));
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

    /// The span of the needle if it begins at `start`, including adjacent bytes that belong to it.
    pub(crate) fn match_at(&self, text: &[u8], start: usize) -> Option<(usize, usize)> {
        let end = match self.encoding {
            EncodingKind::Plain => {
                let end = start + self.bytes().len();
                (slice(text, start, end) == self.bytes()).then_some(end)?
            }
            EncodingKind::Base64 => self.match_across_lines(text, start)?,
            EncodingKind::Hex => self.match_hex(text, start)?,
            EncodingKind::Numbers => return self.match_numbers(text, start),
        };
        let start = self.with_head(text, start)?;
        if self.encoding != EncodingKind::Base64 {
            return Some((start, end));
        }
        // The adjacent letters hold up to four bits of the value.
        let start = start - usize::from(start > 0 && is_base64(at(text, start.wrapping_sub(1))));
        let mut end = end + usize::from(is_base64(at(text, end)));
        while at(text, end) == b'=' {
            end += 1;
        }
        Some((start, end))
    }

    /// Start of the `head` bytes before a position; `None` if they are not there.
    fn with_head(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut place = start;
        for &wanted in self.head.expose().iter().rev() {
            if !before(text, place).eq_ignore_ascii_case(&wanted) {
                let broken = |from: &usize| {
                    pem::skip_line_break(text, *from) == Some(place)
                        && before(text, *from).eq_ignore_ascii_case(&wanted)
                };
                place = (place.saturating_sub(MAX_GAP_BYTES)..place).rev().find(broken)?;
            }
            place -= 1;
        }
        Some(place)
    }

    fn match_across_lines(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut place = start;
        let mut breaks = self.bytes().len() / BYTES_PER_BREAK;
        for (n, &wanted) in self.bytes().iter().enumerate() {
            if at(text, place) == wanted {
                place += 1;
                continue;
            }
            let next = pem::skip_line_break(text, place)?;
            if n == 0 || next > place + MAX_GAP_BYTES || at(text, next) != wanted {
                return None;
            }
            breaks = breaks.checked_sub(1)?;
            place = next + 1;
        }
        Some(place)
    }

    /// Matches hex digits, also as a dump or program prints them: `68:75`, `0x68, 0x75`, `68 75  |hu|` continued on the
    /// next line.
    fn match_hex(&self, text: &[u8], start: usize) -> Option<usize> {
        let (mut place, mut dumped) = (start, false);
        for (n, wanted) in self.bytes().iter().enumerate() {
            let matches_at = |place: &usize| at(text, *place).eq_ignore_ascii_case(wanted);
            if !matches_at(&place) {
                let whole = n > 0 && n % 2 == 0;
                let beside = Some(skip_separators(text, place)).filter(|_| whole);
                let broken =
                    pem::skip_line_break(text, place).filter(|next| n > 0 && *next <= place + MAX_GAP_BYTES);
                place = match [beside, broken].into_iter().flatten().find(&matches_at) {
                    Some(next) => next,
                    None => {
                        dumped = true;
                        next_dump_line(text, place).filter(|next| whole && matches_at(next))?
                    }
                };
            }
            place += 1;
        }
        // Include the text column of a dump's last line.
        Some(if dumped { run_end(text, place, place + MAX_GAP_BYTES, |byte| byte != b'\n') } else { place })
    }

    /// Matches a list of numbers with any separators.
    fn match_numbers(&self, text: &[u8], start: usize) -> Option<(usize, usize)> {
        let mut place = start;
        for &wanted in self.bytes() {
            let next = if wanted == b',' {
                run_end(text, place, place + MAX_GAP_BYTES, |byte| {
                    matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r')
                })
            } else {
                place + usize::from(at(text, place) == wanted)
            };
            place = Some(next).filter(|next| *next > place)?;
        }
        Some((start, place))
    }

    /// Four-byte groups by which the prefilter finds the needle, besides those of its own bytes.
    pub(crate) fn extra_groups(&self) -> Vec<[u8; HEAD_BYTES]> {
        let bytes = self.bytes();
        let group = |head: &[u8], tail: &[u8]| <[u8; HEAD_BYTES]>::try_from([head, tail].concat()).ok();
        let first = match self.encoding {
            EncodingKind::Hex if self.head.expose().is_empty() => slice(bytes, 0, 2),
            EncodingKind::Numbers => slice(bytes, 0, run_end(bytes, 0, bytes.len(), |byte| byte != b',')),
            _ => return Vec::new(),
        };
        let next = at(bytes, first.len() + usize::from(self.encoding == EncodingKind::Numbers));
        [b" ".as_slice(), b":", b"-", b",", b", ", b",0", b" 0", b"  ", b",\n", b":\n", b"\n", b"\n0", b"\\x"]
            .into_iter()
            .flat_map(|signs| [group(first, signs), group(first, &[signs, &[next]].concat())])
            .flatten()
            .collect()
    }
}

/// Position after the separators between two bytes of hex.
fn skip_separators(text: &[u8], from: usize) -> usize {
    let mut place = from;
    while place < from + MAX_SEPARATOR_BYTES {
        place += match (at(text, place), at(text, place + 1)) {
            (b'0' | b'\\', b'x' | b'X') => 2,
            (b' ' | b'\t' | b'\n' | b'\r' | b':' | b'-' | b',' | b';' | b'%' | b'_' | b'"' | b'\'', _) => 1,
            _ => break,
        };
    }
    place
}

/// Where the bytes of the next line of a dump begin: after the text column of this line and the offset of the next.
fn next_dump_line(text: &[u8], place: usize) -> Option<usize> {
    let line = place + memchr::memchr(b'\n', slice(text, place, place + MAX_GAP_BYTES))? + 1;
    let number = run_end(text, line, line + 16, |byte| byte.is_ascii_hexdigit());
    let numbered = number >= line + 4 && matches!(at(text, number), b':' | b' ' | b'\t');
    Some(skip_separators(text, if numbered { number } else { line }))
}
