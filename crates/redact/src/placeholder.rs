//! What stands where a secret stood: `[REDACTED:<kind>:<8 hex>]`. The digits are a fingerprint keyed by the
//! installation: equal secrets look equal, and nobody without the key can test a guess.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::bytes::{at, part, rest, run};

/// How each begins.
pub(crate) const MARK: &[u8] = b"[REDACTED:";
/// The longest kind.
pub(crate) const LONGEST_KIND: usize = 48;
const DIGITS: usize = 8;
/// What stands behind so many of them is still judged. No more, so that a line in which each piece is judged after the one before it
/// was replaced comes to an end within the looks that are taken.
const BESIDE: usize = 2;

/// The installation's key.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<[u8; 32]>);

impl Key {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*key))
    }

    /// The fingerprint of a secret.
    pub(crate) fn print(&self, secret: &[u8]) -> Print {
        let inner = Sha256::new().chain_update(*self.0).chain_update(secret).finalize();
        let outer = Sha256::new().chain_update(*self.0).chain_update(inner).finalize();
        let mut print = [0; 4];
        print.iter_mut().zip(outer).for_each(|(to, from)| *to = from);
        Print(print)
    }
}

/// A fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Print([u8; 4]);

impl std::fmt::Display for Print {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Writes one.
pub(crate) fn write(out: &mut Vec<u8>, kind: &str, print: Print) {
    out.extend_from_slice(MARK);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(format!(":{print}]").as_bytes());
}

/// Where the one that begins at a place ends, and its kind. Whether the kind is one of ours is for the caller to
/// ask: else a secret could be spelled as a kind.
pub(crate) fn read(text: &[u8], start: usize) -> Option<(usize, &[u8])> {
    if !rest(text, start).starts_with(MARK) {
        return None;
    }
    let kind = start + MARK.len();
    let colon = run(text, kind, kind + LONGEST_KIND, is_kind);
    let digits = colon + 1;
    let end =
        run(text, digits, digits + DIGITS, |byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    let whole = colon > kind && at(text, colon) == b':' && end == digits + DIGITS && at(text, end) == b']';
    whole.then(|| (end + 1, part(text, kind, colon)))
}

/// A part of a text without the placeholders that it begins with, and up to the next. Whoever writes one beside a secret does not hide
/// it: what is left is judged alone. The bracket that closes one may lie behind the part.
pub(crate) fn beside(text: &[u8], from: usize, to: usize) -> (usize, usize) {
    let whole = |place: usize| read(text, place).filter(|(end, _)| *end <= to + 1).map(|(end, _)| end);
    let mut start = from;
    for _ in 0..BESIDE {
        start = whole(start).unwrap_or(start);
    }
    let next = memchr::memmem::find_iter(part(text, start, to), MARK)
        .map(|there| start + there)
        .find(|there| whole(*there).is_some());
    (start, next.unwrap_or(to))
}

/// What a kind is made of.
pub(crate) fn is_kind(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = b"x".to_vec();
        let print = Key::new(&[7; 32]).print(b"hunter2");
        write(&mut out, "password", print);
        assert_eq!(read(&out, 1), Some((out.len(), b"password".as_slice())));
        for bad in
            ["[REDACTED:x:0123456]", "[REDACTED::01234567]", "[REDACTED:x:0123456G]", "[REDACTED:X:01234567]"]
        {
            assert_eq!(read(bad.as_bytes(), 0), None, "{bad}");
        }
    }

    #[test]
    fn fingerprints_depend_on_the_installation() {
        assert_eq!(Key::new(&[1; 32]).print(b"a"), Key::new(&[1; 32]).print(b"a"));
        assert_ne!(Key::new(&[1; 32]).print(b"a"), Key::new(&[2; 32]).print(b"a"));
        assert_ne!(Key::new(&[1; 32]).print(b"a"), Key::new(&[1; 32]).print(b"b"));
    }
}
