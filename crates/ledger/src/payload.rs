//! Payloads: arguments that are too large for a line live beside the chain, and the line holds a commitment to them.
//!
//! The commitment is the SHA-256 of 32 random bytes and the payload. The salt is kept with the payload and nowhere
//! else, so that once both are deleted nobody can test a guess against the line, and the chain still holds. Which
//! payloads a record has stands in a field of its own (`payloads`), never inside the arguments: what an agent sends
//! can look like anything.

use std::fmt;

use memchr::memmem;
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::line::TAIL;
use crate::parsed;

/// What is kept of one payload; the rest is cut off, and the line says how long it was.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// What makes a commitment impossible to guess.
pub type Salt = [u8; 32];

/// A payload on its way to its place beside the chain.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// The field of the line that it stands for.
    pub field: &'static str,
    /// The salt of its commitment.
    pub salt: Salt,
    /// The bytes that are kept: JSON, unless it was cut.
    pub content: Vec<u8>,
    /// How many bytes there were before it was cut.
    pub bytes: u64,
    /// The digest of salt and content.
    pub commitment: Digest,
}

impl Payload {
    pub(crate) fn new(field: &'static str, salt: Salt, mut content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        content.truncate(boundary(&content, MAX_PAYLOAD_BYTES));
        Self { field, salt, bytes, commitment: commitment(&salt, &content), content }
    }
}

impl fmt::Debug for Payload {
    /// Without the salt and the content, which must not come to stand in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Payload");
        shown.field("field", &self.field).field("bytes", &self.bytes).finish_non_exhaustive()
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
    /// The field that it stands for.
    pub field: String,
    /// The commitment.
    pub commitment: Digest,
    /// How many bytes there were.
    pub bytes: u64,
    /// How many of them were kept.
    pub kept: u64,
}

/// A payload that was forgotten: what the record of it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// The record that had the payload.
    pub seq: u64,
    /// The commitment that nothing answers to any more.
    pub commitment: Digest,
}

/// Whether a line can name payloads, or one that was forgotten: a look at one byte.
#[must_use]
pub fn may_name_payloads(line: &[u8]) -> bool {
    matches!(last_byte(line), Some(b']' | b'}'))
}

impl NamedPayload {
    /// The payloads of a line. Reads the line only when it can have any.
    #[must_use]
    pub fn of_line(line: &str) -> Vec<Self> {
        if last_byte(line.as_bytes()) != Some(b']')
            || memmem::find(line.as_bytes(), b",\"payloads\":[").is_none()
        {
            return Vec::new();
        }
        parsed::fields(line).as_ref().map(Self::of_fields).unwrap_or_default()
    }

    /// The payloads of a line that was read already.
    #[must_use]
    pub fn of_fields(fields: &Map<String, Value>) -> Vec<Self> {
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

impl Forgotten {
    /// What a line says was forgotten.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        if last_byte(line.as_bytes()) != Some(b'}')
            || memmem::find(line.as_bytes(), b",\"forgotten\":{").is_none()
        {
            return None;
        }
        let fields = parsed::fields(line)?;
        let said = fields.get("forgotten")?;
        Some(Self {
            seq: said.get("seq")?.as_u64()?,
            commitment: said.get("commitment")?.as_str()?.parse().ok()?,
        })
    }
}

/// The last byte before the two hashes: both fields stand there when a line has them.
fn last_byte(line: &[u8]) -> Option<u8> {
    line.len().checked_sub(TAIL + 1).and_then(|at| line.get(at)).copied()
}

/// At most `most` bytes, not through the middle of a character.
fn boundary(bytes: &[u8], most: usize) -> usize {
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
    fn a_payload_past_the_cap_is_cut_between_characters() {
        let long = "\u{20ac}".repeat(MAX_PAYLOAD_BYTES / 3 + 10);
        let payload = Payload::new("tool_args", [7; 32], long.clone().into_bytes());
        assert_eq!(payload.bytes, long.len() as u64);
        assert!(payload.content.len() <= MAX_PAYLOAD_BYTES && payload.content.len() > MAX_PAYLOAD_BYTES - 3);
        assert!(long.starts_with(std::str::from_utf8(&payload.content).unwrap()));
        assert_eq!(payload.commitment, commitment(&[7; 32], &payload.content));
    }

    #[test]
    fn another_salt_is_another_commitment() {
        assert_ne!(commitment(&[0; 32], b"x"), commitment(&[1; 32], b"x"));
    }

    #[test]
    fn a_payload_is_not_printed() {
        let payload = Payload::new("tool_args", [0xab; 32], b"private".to_vec());
        assert!(!format!("{payload:?}").contains("private") && !format!("{payload:?}").contains("171"));
    }
}
