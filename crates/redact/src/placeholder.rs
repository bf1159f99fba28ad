//! The placeholder of a secret: `[REDACTED:<kind>:<8 hex>]`. The digits are a fingerprint keyed by the installation:
//! equal secrets look equal, and nobody without the key can test a guess.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::bytes::{at, rest, run_end, slice};

/// The start of every placeholder.
pub(crate) const PLACEHOLDER_START: &[u8] = b"[REDACTED:";
/// Maximum length of a kind, in bytes.
pub(crate) const MAX_KIND_BYTES: usize = 48;
const FINGERPRINT_DIGITS: usize = 8;
/// Number of leading placeholders that are skipped to examine what follows them. Bounded, so that a line in which each
/// piece is examined only after the one before it was replaced is finished within the number of scan passes.
const MAX_SKIPPED: usize = 2;

/// The installation's key.
#[derive(Clone)]
pub(crate) struct FingerprintKey(Zeroizing<[u8; 32]>);

impl FingerprintKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*key))
    }

    /// The fingerprint of a secret.
    pub(crate) fn fingerprint(&self, secret: &[u8]) -> Fingerprint {
        let inner = Sha256::new().chain_update(*self.0).chain_update(secret).finalize();
        let outer = Sha256::new().chain_update(*self.0).chain_update(inner).finalize();
        let mut fingerprint = [0; 4];
        fingerprint.iter_mut().zip(outer).for_each(|(to, from)| *to = from);
        Fingerprint(fingerprint)
    }
}

/// A keyed fingerprint of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 4]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Writes a placeholder.
pub(crate) fn write(out: &mut Vec<u8>, kind: &str, fingerprint: Fingerprint) {
    out.extend_from_slice(PLACEHOLDER_START);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(format!(":{fingerprint}]").as_bytes());
}

/// The end and the kind of the placeholder at a position. The caller must check that the kind is ours: otherwise a
/// secret could pose as a kind.
pub(crate) fn read(text: &[u8], start: usize) -> Option<(usize, &[u8])> {
    if !rest(text, start).starts_with(PLACEHOLDER_START) {
        return None;
    }
    let kind = start + PLACEHOLDER_START.len();
    let colon = run_end(text, kind, kind + MAX_KIND_BYTES, is_kind_byte);
    let digits = colon + 1;
    let end = run_end(text, digits, digits + FINGERPRINT_DIGITS, |byte| {
        byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()
    });
    let whole = colon > kind
        && at(text, colon) == b':'
        && end == digits + FINGERPRINT_DIGITS
        && at(text, end) == b']';
    whole.then(|| (end + 1, slice(text, kind, colon)))
}

/// A range without its leading placeholders, up to the next one. A placeholder that was written beside a secret does
/// not hide it: the rest is examined alone. The closing bracket may lie just after the range.
pub(crate) fn trim_placeholders(text: &[u8], from: usize, to: usize) -> (usize, usize) {
    let whole = |place: usize| read(text, place).filter(|(end, _)| *end <= to + 1).map(|(end, _)| end);
    let mut start = from;
    for _ in 0..MAX_SKIPPED {
        start = whole(start).unwrap_or(start);
    }
    let next = memchr::memmem::find_iter(slice(text, start, to), PLACEHOLDER_START)
        .map(|there| start + there)
        .find(|there| whole(*there).is_some());
    (start, next.unwrap_or(to))
}

/// The characters of a kind.
pub(crate) fn is_kind_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_placeholder_is_read_back() {
        let mut out = b"x".to_vec();
        let fingerprint = FingerprintKey::new(&[7; 32]).fingerprint(b"hunter2");
        write(&mut out, "password", fingerprint);
        assert_eq!(read(&out, 1), Some((out.len(), b"password".as_slice())));
        for bad in
            ["[REDACTED:x:0123456]", "[REDACTED::01234567]", "[REDACTED:x:0123456G]", "[REDACTED:X:01234567]"]
        {
            assert_eq!(read(bad.as_bytes(), 0), None, "{bad}");
        }
    }

    #[test]
    fn fingerprints_depend_on_the_installation() {
        assert_eq!(
            FingerprintKey::new(&[1; 32]).fingerprint(b"a"),
            FingerprintKey::new(&[1; 32]).fingerprint(b"a")
        );
        assert_ne!(
            FingerprintKey::new(&[1; 32]).fingerprint(b"a"),
            FingerprintKey::new(&[2; 32]).fingerprint(b"a")
        );
        assert_ne!(
            FingerprintKey::new(&[1; 32]).fingerprint(b"a"),
            FingerprintKey::new(&[1; 32]).fingerprint(b"b")
        );
    }
}
