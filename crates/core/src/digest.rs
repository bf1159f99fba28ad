//! A SHA-256 digest, written `sha256:<64 lower-case hex digits>`. The form is fixed, so a digest needs no redaction.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Prefix of the text form.
pub const PREFIX: &str = "sha256:";

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected `sha256:` and 64 lower-case hex digits")]
pub struct BadDigest;

impl Digest {
    /// All zeros: the predecessor of the first record.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of several parts; each is preceded by its length, so that moving a boundary changes the digest.
    #[must_use]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// A digest computed elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits, without the prefix.
    #[must_use]
    pub fn hex(&self) -> [u8; 64] {
        let mut out = [0; 64];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            if let [high, low] = pair {
                *high = HEX.get(usize::from(byte >> 4)).copied().unwrap_or(b'0');
                *low = HEX.get(usize::from(byte & 15)).copied().unwrap_or(b'0');
            }
        }
        out
    }

    /// Parses 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(bytes))
    }

    /// Appends the text form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFIX.as_bytes());
        out.extend_from_slice(&self.hex());
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let hex = text.strip_prefix(PREFIX).ok_or(BadDigest)?;
        Self::from_hex(hex.as_bytes()).ok_or(BadDigest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_empty_input_is_the_published_one_and_parses() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.to_uppercase().parse::<Digest>(), Err(BadDigest));
        assert_eq!(text.replace("e3b0", "E3b0").parse::<Digest>(), Err(BadDigest));
        assert_eq!("sha256:00".parse::<Digest>(), Err(BadDigest));
    }

    #[test]
    fn moving_a_part_boundary_changes_the_digest() {
        let (left, right): ([&[u8]; 2], [&[u8]; 2]) = ([b"ab", b"c"], [b"a", b"bc"]);
        assert_ne!(Digest::of_parts(left), Digest::of_parts(right));
    }
}
