//! Payloads: arguments that are too large for a line are stored beside the chain, and the line holds a commitment to
//! them.
//!
//! The commitment is the SHA-256 of 32 random bytes and the payload. The salt is stored with the payload and nowhere
//! else: after both are deleted, nobody can test a guess against the line, and the chain is still valid. The payloads
//! of a record are listed in a field of their own (`payloads`), never inside the arguments, because what an agent sends
//! can look like anything.

use std::fmt;

use memchr::memmem;
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::line::TAIL;
use crate::line_fields::line_fields;

/// Maximum number of bytes to keep of one payload. The rest is cut off, and the line states the original size.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// Random bytes that make a commitment impossible to guess.
pub type Salt = [u8; 32];

/// A payload to be stored beside the chain.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// The field of the line that it replaces.
    pub field: &'static str,
    /// The salt of its commitment.
    pub salt: Salt,
    /// The bytes to keep: JSON, unless truncated.
    pub content: Vec<u8>,
    /// Size in bytes before truncation.
    pub bytes: u64,
    /// The digest of salt and content.
    pub commitment: Digest,
}

impl Payload {
    pub(crate) fn new(field: &'static str, salt: Salt, mut content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        content.truncate(char_boundary(&content, MAX_PAYLOAD_BYTES));
        Self { field, salt, bytes, commitment: commitment(&salt, &content), content }
    }
}

impl fmt::Debug for Payload {
    /// Without the salt and the content, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Payload");
        debug.field("field", &self.field).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The commitment to a payload.
#[must_use]
pub fn commitment(salt: &Salt, content: &[u8]) -> Digest {
    Digest::of(&[salt.as_slice(), content].concat())
}

/// A payload as the line of its record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPayload {
    /// The field that it replaces.
    pub field: String,
    /// The commitment.
    pub commitment: Digest,
    /// Size in bytes before truncation.
    pub bytes: u64,
    /// Number of bytes kept.
    pub kept: u64,
}

/// A payload that was deleted, as its `payload.forgotten` record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenPayload {
    /// The record that had the payload.
    pub seq: u64,
    /// The commitment to the deleted payload.
    pub commitment: Digest,
}

/// Whether a line can name payloads, or a forgotten one; looks at one byte.
#[must_use]
pub fn may_name_payloads(line: &[u8]) -> bool {
    matches!(last_byte(line), Some(b']' | b'}'))
}

impl NamedPayload {
    /// The payloads of a line. Parses the line only if it can have any.
    #[must_use]
    pub fn of_line(line: &str) -> Vec<Self> {
        if last_byte(line.as_bytes()) != Some(b']')
            || memmem::find(line.as_bytes(), b",\"payloads\":[").is_none()
        {
            return Vec::new();
        }
        line_fields(line).as_ref().map(Self::of_fields).unwrap_or_default()
    }

    /// The payloads of a line that is already parsed.
    #[must_use]
    pub(crate) fn of_fields(fields: &Map<String, Value>) -> Vec<Self> {
        let list = fields.get("payloads").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Self::read).collect()
    }

    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            field: value.get("field")?.as_str()?.to_owned(),
            commitment: value.get("commitment")?.as_str()?.parse().ok()?,
            bytes: value.get("bytes")?.as_u64()?,
            kept: value.get("kept")?.as_u64()?,
        })
    }
}

impl ForgottenPayload {
    /// The payload that a line says was forgotten.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        if last_byte(line.as_bytes()) != Some(b'}')
            || memmem::find(line.as_bytes(), b",\"forgotten\":{").is_none()
        {
            return None;
        }
        let fields = line_fields(line)?;
        let forgotten = fields.get("forgotten")?;
        Some(Self {
            seq: forgotten.get("seq")?.as_u64()?,
            commitment: forgotten.get("commitment")?.as_str()?.parse().ok()?,
        })
    }
}

/// The last byte before the two hashes: both fields come last if a line has them.
fn last_byte(line: &[u8]) -> Option<u8> {
    line.len().checked_sub(TAIL + 1).and_then(|at| line.get(at)).copied()
}

/// A length of at most `most` bytes that does not split a character.
fn char_boundary(bytes: &[u8], most: usize) -> usize {
    if bytes.len() <= most {
        return bytes.len();
    }
    let starts = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
    (0..=most).rev().find(starts).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_over_the_cap_is_truncated_between_characters() {
        let long = "\u{20ac}".repeat(MAX_PAYLOAD_BYTES / 3 + 10);
        let payload = Payload::new("tool_args", [7; 32], long.clone().into_bytes());
        assert_eq!(payload.bytes, long.len() as u64);
        assert!(payload.content.len() <= MAX_PAYLOAD_BYTES && payload.content.len() > MAX_PAYLOAD_BYTES - 3);
        assert!(long.starts_with(std::str::from_utf8(&payload.content).unwrap()));
        assert_eq!(payload.commitment, commitment(&[7; 32], &payload.content));
    }

    #[test]
    fn another_salt_gives_another_commitment() {
        assert_ne!(commitment(&[0; 32], b"x"), commitment(&[1; 32], b"x"));
    }

    #[test]
    fn debug_output_does_not_contain_the_payload() {
        let payload = Payload::new("tool_args", [0xab; 32], b"private".to_vec());
        assert!(!format!("{payload:?}").contains("private") && !format!("{payload:?}").contains("171"));
    }
}
