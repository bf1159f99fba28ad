//! Private keys in armour: `-----BEGIN ... PRIVATE KEY-----`, lines of base64, `-----END ...-----`. A state machine walks
//! the lines, in files, in texts of programs (quotes, `\n`, `+`) and cut off; certificates and public keys
//! are left alone.

use crate::bytes::{at, part, rest, run, run_back};

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
    let label = run(view, begin, begin + FRAME, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'_')
    });
    let end = run(view, label, label + 5, |byte| byte == b'-');
    let named = part(view, begin, label).windows(11).any(|window| window == b"PRIVATE KEY");
    (named && dash - start >= 4 && end - label >= 4).then_some((start, end))
}

/// Walks the lines of a key from `from` on, at most to `limit`. `inside` says that a line may be cut there.
pub(crate) fn walk(text: &[u8], from: usize, limit: usize, mut inside: bool) -> Walked {
    let limit = limit.min(text.len());
    let text = part(text, 0, limit);
    let (mut place, mut end, mut body) = (from, from, 0);
    loop {
        place = past_separators(text, place);
        if place >= limit {
            return Walked { end, open: true, body };
        }
        let tail = rest(text, place);
        if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") {
            let label = run(text, place + 5, place + FRAME, |byte| byte != b'-' && byte >= b' ');
            let last = run(text, label, label + 5, |byte| byte == b'-');
            return Walked { end: last, open: last >= limit, body };
        }
        let word = run(text, place, limit, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
        });
        let length = word - place;
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
            let next = past_separators(text, word);
            let tail = rest(text, next);
            if next >= limit {
                return Walked { end: word, open: true, body };
            }
            if tail.starts_with(b"-----END") || tail.starts_with(b"---- END") || tail.starts_with(b"=") {
                body += length;
                (end, place) = (word, next);
                continue;
            }
            // A beginning of the last line's dashes at the end of what is there.
            if b"-----END".starts_with(tail) {
                return Walked { end: word, open: true, body };
            }
        }
        if word >= limit && length > 0 {
            return Walked { end, open: true, body };
        }
        if !tail.is_empty() && b"-----END".starts_with(tail) {
            return Walked { end, open: true, body };
        }
        return Walked { end, open: false, body };
    }
}

/// Blanks, line ends as they are or as `\n`, quotes and signs that put texts of a program together.
fn past_separators(text: &[u8], mut place: usize) -> usize {
    loop {
        let next = match (at(text, place), at(text, place + 1)) {
            (
                b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b',' | b'#' | b'*' | b'|' | b'>' | b';'
                | b'.' | b'(' | b')',
                _,
            ) => place + 1,
            (b'\\', b'n' | b'r' | b't' | b'\\' | b'\n' | b'"') => place + 2,
            // A plus between quotes, not a letter of base64.
            (b'+', b' ' | b'\n' | b'\r' | b'"' | b'\'') => place + 1,
            (b'&', _) if rest(text, place).starts_with(b"&#10;") => place + 5,
            (b'%', b'0') if matches!(at(text, place + 2), b'A' | b'a') => place + 3,
            _ => return place,
        };
        if next > text.len() {
            return text.len();
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
    let walked = walk(text, start, end_line, true);
    (walked.body > 0 && start < end_line).then_some(start)
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<&str> {
        let begin = text.find("BEGIN")?;
        let (start, end) = first_line(text.as_bytes(), begin)?;
        let walked = walk(text.as_bytes(), end, usize::MAX, false);
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
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx0Vqb3BlbnNzaC1rZXktdjE";
        assert_eq!(key(cut), Some(cut));
        let certificate = whole.replace("RSA PRIVATE KEY", "CERTIFICATE");
        assert_eq!(key(&certificate), None);
        assert_eq!(key(&whole.replace("PRIVATE", "PUBLIC")), None);
        assert_eq!(key("a key begins with -----BEGIN RSA PRIVATE KEY----- and then some lines follow"), None);
        assert_eq!(key("-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----"), None);
    }
}
