//! Escaped characters: in source code and JSON (`\n`, `\u005f`, `\x2d`), in URLs (`%5F`), in markup (`&#95;`), and
//! terminal colour sequences. A token may begin where an escape ends. A word in which punctuation of a token is escaped
//! is decoded and scanned again.

use crate::bytes::{at, before, is_token, rest, run_end, run_start, slice, starts_with_ignoring_case};

/// The anchors: punctuation of tokens and URLs, escaped. Compared ignoring case.
#[rustfmt::skip]
pub(crate) const ESCAPED_ANCHORS: &[&[u8]] = &[
    b"%2d", b"%2e", b"%3a", b"%5f", b"%252d", b"%252e", b"%253a", b"%255f", b"\\u002d", b"\\u002e", b"\\u003a", b"\\u005f", b"\\x2d",
    b"\\x2e", b"\\x3a", b"\\x5f", b"&#45;", b"&#46;", b"&#58;", b"&#95;", b"&#x2d;", b"&#x2e;", b"&#x3a;", b"&#x5f;", b":\\/\\/",
];
/// Maximum length of one escaped character, in bytes.
const MAX_ESCAPE_BYTES: usize = 8;
/// Minimum length of a token's beginning that is worth decoding, in bytes.
const MIN_HEAD_BYTES: usize = 2;
/// How far back a word may begin before its first escape, in bytes.
const MAX_HEAD_BYTES: usize = 96;

/// Whether an escape ends at a position, so that the letter before it is not part of a word.
pub(crate) fn ends_at(text: &[u8], place: usize) -> bool {
    let back = |count: usize| place.checked_sub(count).map_or(0, |place| at(text, place));
    let hex = |count: usize| (1..=count).all(|n| back(n).is_ascii_hexdigit());
    let short = back(2) == b'\\' && matches!(back(1), b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'0');
    let two = || hex(2) && (back(3) == b'%' || (back(3) == b'x' && back(4) == b'\\'));
    let four = || hex(4) && back(5) == b'u' && back(6) == b'\\';
    let three = || (1..=3).all(|n| matches!(back(n), b'0'..=b'7')) && back(4) == b'\\';
    short || two() || four() || three() || colour_from(text, place).is_some()
}

/// Start of the terminal colour sequence that ends at a position.
fn colour_from(text: &[u8], place: usize) -> Option<usize> {
    matches!(before(text, place), b'm' | b'K').then_some(())?;
    let bracket = run_start(text, place - 1, place.saturating_sub(16), |byte| {
        byte.is_ascii_digit() || byte == b';' || byte == b':'
    });
    let escape = slice(text, bracket.saturating_sub(7), bracket.saturating_sub(1));
    let introducers =
        [b"\x1b".as_slice(), b"\\u001b", b"\\u001B", b"\\x1b", b"\\x1B", b"\\033", b"\\e", b"^["];
    let width = introducers.iter().find(|introducer| escape.ends_with(introducer))?.len();
    (before(text, bracket) == b'[').then(|| bracket - 1 - width)
}

/// Position after whitespace within a line and terminal colour sequences; at most `most` bytes of whitespace at a time.
pub(crate) fn skip_blanks(text: &[u8], from: usize, most: usize) -> usize {
    let mut place = from;
    for _ in 0..4 {
        place = run_end(text, place, place + most, crate::bytes::is_blank);
        if at(text, place) != 0x1b || at(text, place + 1) != b'[' {
            break;
        }
        let end = run_end(text, place + 2, place + 16, |byte| byte.is_ascii_digit() || byte == b';');
        if !matches!(at(text, end), b'm' | b'K') {
            break;
        }
        place = end + 1;
    }
    place
}

/// A word with its escapes decoded.
pub(crate) struct Unescaped {
    pub(crate) text: Vec<u8>,
    /// Source position of each decoded byte, and the end of the last.
    places: Vec<usize>,
}

impl Unescaped {
    /// Decodes the run of visible characters whose first escape is at `sign`; `None` if no token can begin there.
    pub(crate) fn around(view: &[u8], sign: usize) -> Option<Self> {
        // `\\u005f`: a JSON string inside another.
        let sign = sign - usize::from(at(view, sign) == b'\\' && before(view, sign) == b'\\');
        let start = run_start(view, sign, sign.saturating_sub(MAX_HEAD_BYTES), is_token);
        if sign - start < MIN_HEAD_BYTES {
            return None;
        }
        let (mut text, mut places, mut place) = (Vec::new(), vec![start], start);
        while place < view.len() {
            let byte = at(view, place);
            if byte <= b' ' || matches!(byte, 0x7f | b'"' | b'\'' | b'`' | b'<' | b'>') {
                break;
            }
            let (byte, width) = decode_escape(view, place).unwrap_or((byte, 1));
            text.push(byte);
            place += width;
            places.push(place);
        }
        Some(Self { text, places })
    }

    /// Maps a range of the decoded text back to the source.
    pub(crate) fn source_span(&self, (start, end): (usize, usize)) -> Option<(usize, usize)> {
        Some((*self.places.get(start)?, *self.places.get(end)?))
    }

    /// Where the word ends in the source.
    pub(crate) fn source_end(&self) -> usize {
        self.places.last().copied().unwrap_or(0)
    }
}

/// Decodes the escaped visible character at a position; returns it with the length of the escape.
fn decode_escape(text: &[u8], place: usize) -> Option<(u8, usize)> {
    let tail = slice(text, place, place + MAX_ESCAPE_BYTES);
    let number = |from: usize, to: usize, radix: u32| {
        let digits = std::str::from_utf8(tail.get(from..to)?).ok()?;
        let value = u8::from_str_radix(digits, radix).ok()?;
        (value.is_ascii_graphic() && !digits.starts_with('+')).then_some(value)
    };
    let entity = |from: usize, radix: u32| {
        let end = run_end(tail, from, from + 3, |byte| byte.is_ascii_hexdigit());
        Some((number(from, end, radix)?, (at(tail, end) == b';').then_some(end + 1)?))
    };
    let hex = |from: usize| Some((number(from, from + 2, 16)?, from + 2));
    match at(tail, 0) {
        b'%' if starts_with_ignoring_case(tail, b"%25") => hex(3).or(Some((b'%', 3))),
        b'%' => hex(1),
        b'\\' if starts_with_ignoring_case(tail, b"\\\\u00") => hex(5),
        b'\\' if starts_with_ignoring_case(tail, b"\\u00") => hex(4),
        b'\\' if starts_with_ignoring_case(tail, b"\\x") => hex(2),
        b'\\' if rest(tail, 1).starts_with(b"/") => Some((b'/', 2)),
        b'&' if starts_with_ignoring_case(tail, b"&#x") => entity(3, 16),
        b'&' if starts_with_ignoring_case(tail, b"&#") => entity(2, 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_begins_after_an_escape_or_a_colour_sequence() {
        for text in [
            "\\n",
            "a\\t",
            "%0A",
            "%22",
            "\\u0022",
            "\\x22",
            "\\012",
            "\u{1b}[31m",
            "\u{1b}[1;31m",
            "\\u001b[0m",
            "\\033[K",
            "^[[32m",
        ] {
            assert!(ends_at(text.as_bytes(), text.len()), "{text:?}");
        }
        for text in ["", "n", "xn", "22", "0022", "[31m", "m", "x[3m", "\\", "%2", "u0022"] {
            assert!(!ends_at(text.as_bytes(), text.len()), "{text:?}");
        }
    }

    #[test]
    fn escapes_are_decoded_and_positions_map_back() {
        for text in [
            "x ab%5Fcd%2De",
            "x ab\\u005fcd\\u002De",
            "x ab&#95;cd&#x2d;e",
            "x ab\\x5fcd\\x2De",
            "x ab%255Fcd%252de",
            "x ab\\\\u005fcd\\\\u002de",
        ] {
            let text = format!("{text} more");
            let sign = text.find(['%', '\\', '&']).unwrap();
            let read = Unescaped::around(text.as_bytes(), sign).unwrap();
            assert_eq!(read.text, b"ab_cd-e", "{text}");
            assert_eq!(read.source_span((0, 7)), Some((2, text.len() - 5)), "{text}");
            assert_eq!(read.source_end(), text.len() - 5);
        }
        assert!(Unescaped::around(b"\"%2d:%2d\"", 1).is_none());
        let read = Unescaped::around(b"ab%5Fc%0a%+1\\u00zz%2", 2).unwrap();
        assert_eq!(read.text, b"ab_c%0a%+1\\u00zz%2");
    }
}
