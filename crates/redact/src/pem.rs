//! Private keys in armour: `-----BEGIN ... PRIVATE KEY-----`, lines of base64, `-----END ...-----`. A state machine walks
//! the lines, in files, in texts of programs (quotes, `\n`, `+`) and cut off; certificates and public keys
//! are left alone.

use crate::bytes::{at, begins, is_blank, part, rest, run, run_back};

/// The longest first or last line.
const FRAME: usize = 100;
/// Shorter pieces of text are not lines of a key.
const LINE: usize = 16;
/// A key holds at least so much.
const LEAST: usize = 24;

/// Where a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    /// After the last byte that belongs to the key.
    pub(crate) end: usize,
    /// Whether the key may go on after what was seen.
    pub(crate) open: bool,
    /// How much of a key there was.
    pub(crate) body: usize,
}

impl Walked {
    pub(crate) fn is_key(&self) -> bool {
        self.body >= LEAST
    }
}

/// The first line whose `BEGIN` stands at a place: where it begins and ends, when it announces a private key.
pub(crate) fn first_line(view: &[u8], begin: usize) -> Option<(usize, usize)> {
    let dash = run_back(view, begin, begin.saturating_sub(1), |byte| byte == b' ');
    let start = run_back(view, dash, dash.saturating_sub(5), |byte| byte == b'-');
    // A blank may be written as an address or a form has it.
    let label = run(view, begin, begin + FRAME, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'_' | b'+' | b'%')
    });
    let end = run(view, label, label + 5, |byte| byte == b'-');
    let told = part(view, begin, label);
    let named = [b"PRIVATE KEY".as_slice(), b"PRIVATE+KEY", b"PRIVATE%20KEY"]
        .iter()
        .any(|name| told.windows(name.len()).any(|window| window == *name));
    (named && dash - start >= 4 && end - label >= 4).then_some((start, end))
}

/// What stands before the first line of a key and, with other numbers, before each of the others: `12:`, `web_1  | `, `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    bytes: [u8; Prefix::MOST],
    length: usize,
}

impl Prefix {
    const MOST: usize = 96;
    pub(crate) const NONE: Self = Self { bytes: [0; Self::MOST], length: 0 };

    /// What stands on the line before a place; nothing when that is too much.
    pub(crate) fn before(view: &[u8], place: usize) -> Self {
        let line = run_back(view, place, place.saturating_sub(Self::MOST + 1), |byte| {
            !matches!(byte, b'\n' | b'\r')
        });
        let there = part(view, line, place);
        let mut prefix = Self::NONE;
        if there.len() <= Self::MOST {
            prefix.length = there.len();
            prefix.bytes.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
        }
        prefix
    }

    /// Whether a line begins so. Numbers and blanks may differ, and `grep` writes `:` or `-` behind them.
    fn stands(&self, text: &[u8], line: usize) -> Stands {
        let wanted = part(&self.bytes, 0, self.length);
        let sort = |byte: u8| byte.is_ascii_digit() || is_blank(byte);
        let (mut n, mut place) = (0, line);
        while n < wanted.len() {
            let byte = at(wanted, n);
            let same = |other: u8| if is_blank(byte) { is_blank(other) } else { other.is_ascii_digit() };
            if sort(byte) {
                let end = run(text, place, text.len(), same);
                if end >= text.len() {
                    return Stands::Perhaps;
                }
                if end == place && byte.is_ascii_digit() {
                    return Stands::Not;
                }
                n = run(wanted, n, wanted.len(), same);
                place = end;
                continue;
            }
            if place >= text.len() {
                return Stands::Perhaps;
            }
            let either = matches!(byte, b':' | b'-') && matches!(at(text, place), b':' | b'-');
            if at(text, place) != byte && !either {
                return Stands::Not;
            }
            (n, place) = (n + 1, place + 1);
        }
        if n == 0 { Stands::Not } else { Stands::To(place) }
    }
}

/// Whether a prefix stands somewhere.
enum Stands {
    Not,
    /// The text ends inside of it.
    Perhaps,
    /// Up to there.
    To(usize),
}

/// Walks the lines of a key from `from` on, at most to `limit`. `inside` says that a line may be cut there.
pub(crate) fn walk(text: &[u8], from: usize, limit: usize, mut inside: bool, prefix: &Prefix) -> Walked {
    let limit = limit.min(text.len());
    let text = part(text, 0, limit);
    let (mut place, mut end, mut body) = (from, from, 0);
    // A key that is replaced in parts may be cut inside of a prefix.
    let line = run_back(text, from, from.saturating_sub(2 * Prefix::MOST), |byte| byte != b'\n');
    if inside && let Stands::To(past) = prefix.stands(text, line) {
        place = place.max(past);
    }
    loop {
        place = match past_separators(text, place, prefix) {
            Some(place) if place < limit => place,
            _ => return Walked { end, open: true, body },
        };
        let tail = rest(text, place);
        if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") {
            let label = run(text, place + 5, place + FRAME, |byte| byte != b'-' && byte >= b' ');
            let last = run(text, label, label + 5, |byte| byte == b'-');
            return Walked { end: last, open: last >= limit, body };
        }
        let (word, length) = letters(text, place);
        // `Proc-Type: 4,ENCRYPTED`, `Version: ...`: the rest of the line.
        let name = run(text, place, place + 24, |byte| byte.is_ascii_alphabetic() || byte == b'-');
        if body == 0 && at(text, name) == b':' && name > place {
            place = run(text, name, limit, |byte| byte >= b' ' && byte != b'\\' && byte != b'"');
            continue;
        }
        if length >= LINE || (inside && length > 0) {
            inside = false;
            body += length;
            (end, place) = (word, word);
            continue;
        }
        // The last line may be short; so may the checksum of PGP.
        if length > 0 && body >= LINE {
            let next = past_separators(text, word, prefix);
            let Some(next) = next.filter(|next| *next < limit) else {
                return Walked { end: word, open: true, body };
            };
            let tail = rest(text, next);
            if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") || tail.starts_with(b"=") {
                body += length;
                (end, place) = (word, next);
                continue;
            }
            // A beginning of the last line's dashes at the end of what is there.
            if b"-----END".starts_with(tail) || b"---- END".starts_with(tail) {
                return Walked { end: word, open: true, body };
            }
        }
        let escape = limit - word < ESCAPE && matches!(at(text, word), b'\\' | b'%' | b'&');
        if (word >= limit && length > 0) || escape {
            return Walked { end, open: true, body };
        }
        if !tail.is_empty() && (b"-----END".starts_with(tail) || b"---- END".starts_with(tail)) {
            return Walked { end, open: true, body };
        }
        return Walked { end, open: false, body };
    }
}

/// The longest way to write one character.
const ESCAPE: usize = 8;
/// How `+`, `/` and `=` are written where they are not written as they are.
#[rustfmt::skip]
const SIGNS: &[&[u8]] = &[
    b"\\/", b"\\\\/", b"%2b", b"%2f", b"%3d", b"\\u002b", b"\\u002f", b"\\u003d", b"\\\\u002b", b"\\\\u002f", b"\\\\u003d", b"&#43;", b"&#47;",
    b"&#61;", b"&#x2b;", b"&#x2f;", b"&#x3d;",
];
/// How line ends are written.
#[rustfmt::skip]
const ENDS: &[&[u8]] = &[
    b"\r\n", b"\n", b"\r", b"\\n", b"\\r", b"\\\\n", b"\\\\r", b"\\u000a", b"\\u000d", b"\\\\u000a", b"\\\\u000d", b"%0a", b"%0d", b"&#10;", b"&#13;",
    b"&#xa;", b"&#xd;", b"&#x0a;", b"&#x0d;", b"\\x0a", b"\\x0d", b"\\012",
];

/// The run of base64 from a place on: where it ends, and how many letters it has.
fn letters(text: &[u8], place: usize) -> (usize, usize) {
    let (mut end, mut count) = (place, 0);
    loop {
        let plain = run(text, end, text.len(), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
        });
        (count, end) = (count + plain - end, plain);
        match width(text, end, SIGNS) {
            Some(width) => (count, end) = (count + 1, end + width),
            None => return (end, count),
        }
    }
}

/// How long the one of these is that stands at a place.
fn width(text: &[u8], place: usize, signs: &[&[u8]]) -> Option<usize> {
    matches!(at(text, place), b'\\' | b'%' | b'&' | b'\n' | b'\r')
        .then(|| signs.iter().find(|sign| begins(rest(text, place), sign)).map(|sign| sign.len()))
        .flatten()
}

/// Past one line end in any spelling, with quotes and blanks around it.
pub(crate) fn past_break(text: &[u8], place: usize) -> Option<usize> {
    let next = past_separators(text, place, &Prefix::NONE)?;
    let broken = (place..next).any(|place| width(text, place, ENDS).is_some());
    broken.then_some(next)
}

/// Past blanks, line ends in any spelling with what stands before each line, quotes and signs that put texts of a program together.
/// Nothing when the text ends where a line may have its prefix.
fn past_separators(text: &[u8], mut place: usize, prefix: &Prefix) -> Option<usize> {
    loop {
        if let Some(width) = width(text, place, ENDS) {
            place += width;
            match prefix.stands(text, place) {
                Stands::Not => {}
                Stands::Perhaps => return None,
                Stands::To(past) => place = past,
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
            // A plus between quotes, not a letter of base64.
            (b'+', b' ' | b'\n' | b'\r' | b'"' | b'\'') => place + 1,
            _ => return Some(place),
        };
        if next > text.len() {
            return Some(text.len());
        }
        place = next;
    }
}

/// Lines of a key before its last line, when the text begins inside the key: where they begin.
pub(crate) fn before_last_line(text: &[u8], end_line: usize) -> Option<usize> {
    let label = part(text, end_line, end_line + FRAME);
    if !label.windows(11).any(|window| window == b"PRIVATE KEY") {
        return None;
    }
    let start = run_back(text, end_line, 0, |byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r' | b' ' | b'\\' | b'"')
    });
    let walked = walk(text, start, end_line, true, &Prefix::NONE);
    (walked.body > 0 && start < end_line).then_some(start)
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<&str> {
        let begin = text.find("BEGIN")?;
        let (start, end) = first_line(text.as_bytes(), begin)?;
        let prefix = Prefix::before(text.as_bytes(), start);
        let walked = walk(text.as_bytes(), end, usize::MAX, false, &prefix);
        walked.is_key().then(|| &text[start..walked.end])
    }

    const BODY: &str = "MIIEowIBAAKCAQEAx0Vq\nb3BlbnNzaC1rZXktdjEAAAAA\nshort==\n";

    // T21
    #[test]
    fn private_keys_are_walked_and_public_ones_are_not() {
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

    // T21: each line has something before it
    #[test]
    fn keys_whose_lines_have_something_before_them() {
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
            // Cut off at any place it is open, and goes on from there.
            let (start, first) = first_line(text.as_bytes(), text.find("BEGIN").unwrap()).unwrap();
            let prefix = Prefix::before(text.as_bytes(), start);
            for cut in first..start + found.len() {
                let walked = walk(&text.as_bytes()[..cut], first, usize::MAX, false, &prefix);
                assert!(walked.open, "{cut}: {:?}", &text[..cut]);
            }
        }
        let text = "12:-----BEGIN RSA PRIVATE KEY-----\n13:MIIEowIBAAKCAQEAx0Vqb3BlbnNzaC1rZXkt\n14:then plain words\n";
        assert!(key(text).unwrap().ends_with("rZXkt"));
    }
}
