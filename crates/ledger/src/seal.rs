//! Sealing: the writer adds who, which and after what, and the hash over all of it.

use crate::digest::Digest;
use crate::entry::Entry;
use crate::id::Id;
use crate::json::decimal;
use crate::payload::Payload;

/// The version of the line format.
pub const VERSION: u64 = 1;

/// The longest line, its newline not counted.
pub const MAX_LINE_BYTES: usize = 64 << 10;

pub(crate) const HEAD: &[u8] = b"{\"v\":";
pub(crate) const WRITER: &[u8] = b",\"writer\":\"";
pub(crate) const SEQ: &[u8] = b"\",\"seq\":";
pub(crate) const PREV: &[u8] = b",\"prev_hash\":\"sha256:";
pub(crate) const EVENT: &[u8] = b",\"event_hash\":\"sha256:";
pub(crate) const END: &[u8] = b"\"}";

/// A record that cannot be sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Longer than [`MAX_LINE_BYTES`].
    #[error("a record of {0} bytes is longer than a line may be")]
    TooLong(usize),
    /// A raw control byte, which would break the line.
    #[error("a record holds a raw control byte")]
    ControlByte,
}

/// The fields of a record as bytes, made by whoever records; the writer only has to seal them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    // INVARIANT: `,"key":value` pairs of valid JSON, in UTF-8, without control bytes.
    fields: Vec<u8>,
    payloads: Vec<Payload>,
}

/// A line with its hash, without the newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedLine {
    line: String,
    seq: u64,
    prev_hash: Digest,
    event_hash: Digest,
}

/// Seals one record.
pub fn seal(entry: &Entry, writer: &Id, seq: u64, prev: Digest) -> Result<SealedLine, SealError> {
    entry.encode().seal(writer, seq, prev)
}

impl Encoded {
    pub(crate) fn new(fields: Vec<u8>, payloads: Vec<Payload>) -> Self {
        Self { fields, payloads }
    }

    /// What the record leaves beside the chain.
    #[must_use]
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// The length of the fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Never: a record always has its time and what it is about.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Puts the record behind the one whose hash is `prev`.
    pub fn seal(&self, writer: &Id, seq: u64, prev: Digest) -> Result<SealedLine, SealError> {
        self.seal_in(Vec::new(), writer, seq, prev)
    }

    /// The same in a buffer that was used before; [`SealedLine::into_buffer`] gives it back.
    pub fn seal_in(
        &self,
        buffer: Vec<u8>,
        writer: &Id,
        seq: u64,
        prev: Digest,
    ) -> Result<SealedLine, SealError> {
        let mut line = buffer;
        line.clear();
        line.reserve(self.fields.len() + 384);
        line.extend_from_slice(HEAD);
        decimal(&mut line, VERSION);
        line.extend_from_slice(WRITER);
        line.extend_from_slice(writer.as_str().as_bytes());
        line.extend_from_slice(SEQ);
        decimal(&mut line, seq);
        line.extend_from_slice(&self.fields);
        line.extend_from_slice(PREV);
        line.extend_from_slice(&prev.hex());
        line.push(b'"');
        let event_hash = Digest::of(&line);
        line.extend_from_slice(EVENT);
        line.extend_from_slice(&event_hash.hex());
        line.extend_from_slice(END);
        if line.len() > MAX_LINE_BYTES {
            return Err(SealError::TooLong(line.len()));
        }
        let line = String::from_utf8(line).map_err(|_| SealError::ControlByte)?;
        // Without an early way out the loop runs on wide registers.
        if line.bytes().fold(false, |raw, byte| raw | (byte < 0x20)) {
            return Err(SealError::ControlByte);
        }
        Ok(SealedLine { line, seq, prev_hash: prev, event_hash })
    }
}

impl SealedLine {
    /// The line, without a newline.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.line
    }

    /// The memory of the line, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.line.into_bytes()
    }

    /// Its place in the chain.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The hash of the line before.
    #[must_use]
    pub fn prev_hash(&self) -> Digest {
        self.prev_hash
    }

    /// Its own hash.
    #[must_use]
    pub fn event_hash(&self) -> Digest {
        self.event_hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::timestamp::Timestamp;

    #[test]
    fn the_hash_is_that_of_the_bytes_before_it() {
        let entry = Entry::new(Op::ToolEnd, Timestamp::from_millis(0));
        let sealed = seal(&entry, &Id::new("w-a").unwrap(), 7, Digest::ZERO).unwrap();
        let (before, after) = sealed.as_str().split_once(",\"event_hash\"").unwrap();
        assert_eq!(after, format!(":\"{}\"}}", Digest::of(before.as_bytes())));
        assert_eq!(
            before,
            format!(
                "{{\"v\":1,\"writer\":\"w-a\",\"seq\":7,\"ts\":\"1970-01-01T00:00:00.000Z\",\"op\":\"tool.end\",\
                 \"event_type\":\"tool.end\",\"level\":\"INFO\",\"prev_hash\":\"{}\"",
                Digest::ZERO
            )
        );
    }

    #[test]
    fn what_would_break_the_line_is_refused() {
        let writer = Id::new("w").unwrap();
        let raw = Encoded::new(b",\"x\":\"a\nb\"".to_vec(), Vec::new());
        assert_eq!(raw.seal(&writer, 1, Digest::ZERO), Err(SealError::ControlByte));
        let long = Encoded::new(vec![b' '; MAX_LINE_BYTES], Vec::new());
        assert!(matches!(long.seal(&writer, 1, Digest::ZERO), Err(SealError::TooLong(_))));
    }
}
