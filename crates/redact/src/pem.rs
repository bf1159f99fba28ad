//! PEM private keys: `-----BEGIN ... PRIVATE KEY-----`, lines of base64, `-----END ...-----`. A state machine walks the
//! lines, in files, in string literals (quotes, `\n`, `+`), and in keys that are cut off; certificates and public keys
//! are left alone.

use crate::bytes::{at, is_blank, rest, run_end, run_start, slice, starts_with_ignoring_case};

/// Maximum length of a BEGIN or END line, in bytes.
const MAX_FRAME_BYTES: usize = 100;
/// Minimum length of a line of a key, in bytes.
const MIN_LINE_BYTES: usize = 16;
/// Minimum length of the body of a key, in bytes.
const MIN_KEY_BYTES: usize = 24;

/// Where a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PemWalk {
    /// Position after the last byte of the key.
    pub(crate) end: usize,
    /// Whether the key may continue beyond the text.
    pub(crate) open: bool,
    /// Number of base64 characters seen.
    pub(crate) body: usize,
}

impl PemWalk {
    pub(crate) fn is_key(&self) -> bool {
        self.body >= MIN_KEY_BYTES
    }
}

/// The span of the BEGIN line whose `BEGIN` is at a position, if it announces a private key.
pub(crate) fn begin_line(view: &[u8], begin: usize) -> Option<(usize, usize)> {
    let dash = run_start(view, begin, begin.saturating_sub(1), |byte| byte == b' ');
    let start = run_start(view, dash, dash.saturating_sub(5), |byte| byte == b'-');
    // Spaces may be URL- or form-encoded.
    let label = run_end(view, begin, begin + MAX_FRAME_BYTES, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'_' | b'+' | b'%')
    });
    let end = run_end(view, label, label + 5, |byte| byte == b'-');
    let label_text = slice(view, begin, label);
    let named = [b"PRIVATE KEY".as_slice(), b"PRIVATE+KEY", b"PRIVATE%20KEY"]
        .iter()
        .any(|name| label_text.windows(name.len()).any(|window| window == *name));
    (named && dash - start >= 4 && end - label >= 4).then_some((start, end))
}

/// What precedes the first line of a key and, with other numbers, each of its other lines: `12:`, `web_1  | `, `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePrefix {
    bytes: [u8; LinePrefix::MAX_BYTES],
    length: usize,
}

impl LinePrefix {
    const MAX_BYTES: usize = 96;
    pub(crate) const NONE: Self = Self { bytes: [0; Self::MAX_BYTES], length: 0 };

    /// What precedes a position on its line; empty if that is too long.
    pub(crate) fn before(view: &[u8], place: usize) -> Self {
        let line = run_start(view, place, place.saturating_sub(Self::MAX_BYTES + 1), |byte| {
            !matches!(byte, b'\n' | b'\r')
        });
        let there = slice(view, line, place);
        let mut prefix = Self::NONE;
        if there.len() <= Self::MAX_BYTES {
            prefix.length = there.len();
            prefix.bytes.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
        }
        prefix
    }

    /// Whether a line begins with the prefix. Numbers and whitespace may differ, and `grep` writes `:` or `-` after the
    /// number.
    fn match_at(&self, text: &[u8], line: usize) -> PrefixMatch {
        let wanted = slice(&self.bytes, 0, self.length);
        let sort = |byte: u8| byte.is_ascii_digit() || is_blank(byte);
        let (mut n, mut place) = (0, line);
        while n < wanted.len() {
            let byte = at(wanted, n);
            let same = |other: u8| if is_blank(byte) { is_blank(other) } else { other.is_ascii_digit() };
            if sort(byte) {
                let end = run_end(text, place, text.len(), same);
                if end >= text.len() {
                    return PrefixMatch::Incomplete;
                }
                if end == place && byte.is_ascii_digit() {
                    return PrefixMatch::No;
                }
                n = run_end(wanted, n, wanted.len(), same);
                place = end;
                continue;
            }
            if place >= text.len() {
                return PrefixMatch::Incomplete;
            }
            let either = matches!(byte, b':' | b'-') && matches!(at(text, place), b':' | b'-');
            if at(text, place) != byte && !either {
                return PrefixMatch::No;
            }
            (n, place) = (n + 1, place + 1);
        }
        if n == 0 { PrefixMatch::No } else { PrefixMatch::To(place) }
    }
}

/// Whether a prefix is at a position.
enum PrefixMatch {
    No,
    /// The text ends inside the prefix.
    Incomplete,
    /// The prefix ends at this position.
    To(usize),
}

/// Walks the lines of a key from `from` on, at most to `limit`. `inside` means that a line may have been cut at `from`.
pub(crate) fn walk(text: &[u8], from: usize, limit: usize, mut inside: bool, prefix: &LinePrefix) -> PemWalk {
    let limit = limit.min(text.len());
    let text = slice(text, 0, limit);
    let (mut place, mut end, mut body) = (from, from, 0);
    // A key that is replaced in parts may have been cut inside a prefix.
    let line = run_start(text, from, from.saturating_sub(2 * LinePrefix::MAX_BYTES), |byte| byte != b'\n');
    if inside && let PrefixMatch::To(past) = prefix.match_at(text, line) {
        place = place.max(past);
    }
    loop {
        place = match skip_separators(text, place, prefix) {
            Some(place) if place < limit => place,
            _ => return PemWalk { end, open: true, body },
        };
        let tail = rest(text, place);
        if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") {
            let label =
                run_end(text, place + 5, place + MAX_FRAME_BYTES, |byte| byte != b'-' && byte >= b' ');
            let last = run_end(text, label, label + 5, |byte| byte == b'-');
            return PemWalk { end: last, open: last >= limit, body };
        }
        let (word, length) = base64_run(text, place);
        // `Proc-Type: 4,ENCRYPTED`, `Version: ...`: skip the rest of the line.
        let name = run_end(text, place, place + 24, |byte| byte.is_ascii_alphabetic() || byte == b'-');
        if body == 0 && at(text, name) == b':' && name > place {
            place = run_end(text, name, limit, |byte| byte >= b' ' && byte != b'\\' && byte != b'"');
            continue;
        }
        if length >= MIN_LINE_BYTES || (inside && length > 0) {
            inside = false;
            body += length;
            (end, place) = (word, word);
            continue;
        }
        // The last line may be short; so may the checksum of PGP.
        if length > 0 && body >= MIN_LINE_BYTES {
            let next = skip_separators(text, word, prefix);
            let Some(next) = next.filter(|next| *next < limit) else {
                return PemWalk { end: word, open: true, body };
            };
            let tail = rest(text, next);
            if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") || tail.starts_with(b"=") {
                body += length;
                (end, place) = (word, next);
                continue;
            }
            // The text ends inside the dashes of the END line.
            if b"-----END".starts_with(tail) || b"---- END".starts_with(tail) {
                return PemWalk { end: word, open: true, body };
            }
        }
        let escape = limit - word < MAX_ESCAPE_BYTES && matches!(at(text, word), b'\\' | b'%' | b'&');
        if (word >= limit && length > 0) || escape {
            return PemWalk { end, open: true, body };
        }
        if !tail.is_empty() && (b"-----END".starts_with(tail) || b"---- END".starts_with(tail)) {
            return PemWalk { end, open: true, body };
        }
        return PemWalk { end, open: false, body };
    }
}

/// Maximum length of one escaped character, in bytes.
const MAX_ESCAPE_BYTES: usize = 8;
/// Escaped forms of `+`, `/` and `=`.
#[rustfmt::skip]
const ESCAPED_SIGNS: &[&[u8]] = &[
    b"\\/", b"\\\\/", b"%2b", b"%2f", b"%3d", b"\\u002b", b"\\u002f", b"\\u003d", b"\\\\u002b", b"\\\\u002f", b"\\\\u003d", b"&#43;", b"&#47;",
    b"&#61;", b"&#x2b;", b"&#x2f;", b"&#x3d;",
];
/// Forms of a line end.
#[rustfmt::skip]
const LINE_ENDS: &[&[u8]] = &[
    b"\r\n", b"\n", b"\r", b"\\n", b"\\r", b"\\\\n", b"\\\\r", b"\\u000a", b"\\u000d", b"\\\\u000a", b"\\\\u000d", b"%0a", b"%0d", b"&#10;", b"&#13;",
    b"&#xa;", b"&#xd;", b"&#x0a;", b"&#x0d;", b"\\x0a", b"\\x0d", b"\\012",
];

/// End and number of characters of the base64 run at a position.
fn base64_run(text: &[u8], place: usize) -> (usize, usize) {
    let (mut end, mut count) = (place, 0);
    loop {
        let plain = run_end(text, end, text.len(), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
        });
        (count, end) = (count + plain - end, plain);
        match form_width(text, end, ESCAPED_SIGNS) {
            Some(width) => (count, end) = (count + 1, end + width),
            None => return (end, count),
        }
    }
}

/// Length of the form in `signs` that is at a position.
fn form_width(text: &[u8], place: usize, signs: &[&[u8]]) -> Option<usize> {
    matches!(at(text, place), b'\\' | b'%' | b'&' | b'\n' | b'\r')
        .then(|| {
            signs
                .iter()
                .find(|sign| starts_with_ignoring_case(rest(text, place), sign))
                .map(|sign| sign.len())
        })
        .flatten()
}

/// Position after one line end in any form, with quotes and whitespace around it.
pub(crate) fn skip_line_break(text: &[u8], place: usize) -> Option<usize> {
    let next = skip_separators(text, place, &LinePrefix::NONE)?;
    let broken = (place..next).any(|place| form_width(text, place, LINE_ENDS).is_some());
    broken.then_some(next)
}

/// Position after whitespace, line ends in any form with the prefix of each line, quotes, and the punctuation that
/// concatenates string literals. `None` if the text ends where a line may have its prefix.
fn skip_separators(text: &[u8], mut place: usize, prefix: &LinePrefix) -> Option<usize> {
    loop {
        if let Some(width) = form_width(text, place, LINE_ENDS) {
            place += width;
            match prefix.match_at(text, place) {
                PrefixMatch::No => {}
                PrefixMatch::Incomplete => return None,
                PrefixMatch::To(past) => place = past,
            }
            continue;
        }
        let next = match (at(text, place), at(text, place + 1)) {
            (
                b' ' | b'\t' | b'"' | b'\'' | b'`' | b',' | b'#' | b'*' | b'|' | b'>' | b';' | b'.' | b'('
                | b')',
                _,
            ) => place + 1,
            (b'\\', b't' | b'\\' | b'\n' | b'\r' | b'"') => place + 2,
            // A plus between quotes, not a base64 character.
            (b'+', b' ' | b'\n' | b'\r' | b'"' | b'\'') => place + 1,
            _ => return Some(place),
        };
        if next > text.len() {
            return Some(text.len());
        }
        place = next;
    }
}

/// Start of the lines of a key before its END line, if the text begins inside the key.
pub(crate) fn before_end_line(text: &[u8], end_line: usize) -> Option<usize> {
    let label = slice(text, end_line, end_line + MAX_FRAME_BYTES);
    if !label.windows(11).any(|window| window == b"PRIVATE KEY") {
        return None;
    }
    let start = run_start(text, end_line, 0, |byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r' | b' ' | b'\\' | b'"')
    });
    let walked = walk(text, start, end_line, true, &LinePrefix::NONE);
    (walked.body > 0 && start < end_line).then_some(start)
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<&str> {
        let begin = text.find("BEGIN")?;
        let (start, end) = begin_line(text.as_bytes(), begin)?;
        let prefix = LinePrefix::before(text.as_bytes(), start);
        let walked = walk(text.as_bytes(), end, usize::MAX, false, &prefix);
        walked.is_key().then(|| &text[start..walked.end])
    }

    const BODY: &str = "MIIEowIBAAKCAQEAx0Vq\nb3BlbnNzaC1rZXktdjEAAAAA\nshort==\n";

    // T21
    #[test]
    fn private_keys_are_found_and_public_keys_are_not() {
        let whole = format!("-----BEGIN RSA PRIVATE KEY-----\n{BODY}-----END RSA PRIVATE KEY-----");
        assert_eq!(key(&format!("x {whole} y")), Some(whole.as_str()));
        let escaped = whole.replace('\n', "\\n");
        assert_eq!(key(&format!("{{\"k\": \"{escaped}\"}}")), Some(escaped.as_str()));
        let joined = whole.replace('\n', "\\n\" +\n    \"");
        assert_eq!(key(&joined), Some(joined.as_str()));
        let headers = whole.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1);
        assert_eq!(key(&headers), Some(headers.as_str()));
        for newline in ["\\\\n", "&#xA;", "&#10;", "\\u000a", "%0A", "%0D%0A", "\\r\\n", "\r\n"] {
            let spelled = whole.replace('\n', newline);
            assert_eq!(key(&format!("k={spelled} y")), Some(spelled.as_str()), "{newline}");
        }
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx0Vqb3BlbnNzaC1rZXktdjE";
        assert_eq!(key(cut), Some(cut));
        let certificate = whole.replace("RSA PRIVATE KEY", "CERTIFICATE");
        assert_eq!(key(&certificate), None);
        assert_eq!(key(&whole.replace("PRIVATE", "PUBLIC")), None);
        assert_eq!(key("a key begins with -----BEGIN RSA PRIVATE KEY----- and then some lines follow"), None);
        assert_eq!(key("-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----"), None);
    }

    // T21: each line has a prefix
    #[test]
    fn keys_with_line_prefixes_are_found() {
        let whole = format!("-----BEGIN RSA PRIVATE KEY-----\n{BODY}-----END RSA PRIVATE KEY-----");
        type Before = fn(usize) -> String;
        let befores: [Before; 9] = [
            |n| format!("{n}:"),
            |n| format!("{n}{}", if n == 9 { ':' } else { '-' }),
            |n| format!("conf/key.pem:{n}:"),
            |_| "web_1  | ".to_owned(),
            |n| format!("2026-11-16T05:37:4{}.{n}00Z pod/web-7f9c ", n % 10),
            |_| "-".to_owned(),
            |_| "+".to_owned(),
            |_| "> > ".to_owned(),
            |n| format!("{n:>6}\t"),
        ];
        for before in befores {
            let lines = |lines: &str| {
                (9..).zip(lines.lines()).map(|(n, line)| format!("{}{line}\n", before(n))).collect::<String>()
            };
            let text = format!("{}after it plain words and nothing else\n", lines(&whole));
            let found = key(&text).unwrap_or_default();
            assert!(found.ends_with("-----END RSA PRIVATE KEY-----"), "{text} -> {found}");
            // Cut off at any position, the key is open and continues from there.
            let (start, first) = begin_line(text.as_bytes(), text.find("BEGIN").unwrap()).unwrap();
            let prefix = LinePrefix::before(text.as_bytes(), start);
            for cut in first..start + found.len() {
                let walked = walk(&text.as_bytes()[..cut], first, usize::MAX, false, &prefix);
                assert!(walked.open, "{cut}: {:?}", &text[..cut]);
            }
        }
        let text = "12:-----BEGIN RSA PRIVATE KEY-----\n13:MIIEowIBAAKCAQEAx0Vqb3BlbnNzaC1rZXkt\n14:then plain words\n";
        assert!(key(text).unwrap().ends_with("rZXkt"));
    }
}
