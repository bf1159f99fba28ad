//! Sealing: the writer adds its name, the sequence number, the link to the line before, and the hash over all of it.

use crate::digest::Digest;
use crate::entry::Entry;
use crate::field_writer::decimal;
use crate::id::Id;
use crate::payload::Payload;

/// The version of the line format.
pub const VERSION: u64 = 1;

/// Maximum length of a line without its newline, in bytes.
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
    #[error("a record of {0} bytes exceeds the line limit")]
    TooLong(usize),
    /// A raw control byte, which would break the line.
    #[error("a record contains a raw control byte")]
    ControlByte,
}

/// The encoded fields of a record. The recording thread encodes; the writer only has to seal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedEntry {
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

impl EncodedEntry {
    pub(crate) fn new(fields: Vec<u8>, payloads: Vec<Payload>) -> Self {
        Self { fields, payloads }
    }

    /// The payloads to store beside the chain.
    #[must_use]
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// Length of the fields in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Always false: a record always has its time and op.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Seals the record as the successor of the one whose hash is `prev`.
    pub fn seal(&self, writer: &Id, seq: u64, prev: Digest) -> Result<SealedLine, SealError> {
        self.seal_in(Vec::new(), writer, seq, prev)
    }

    /// Like [`EncodedEntry::seal`], reusing a buffer; [`SealedLine::into_buffer`] returns it.
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
        // Without an early exit the loop is vectorised.
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

    /// The memory of the line, for reuse.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.line.into_bytes()
    }

    /// The sequence number.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The hash of the line before.
    #[must_use]
    pub fn prev_hash(&self) -> Digest {
        self.prev_hash
    }

    /// The hash of this line.
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
    fn the_hash_covers_the_bytes_before_it() {
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
    fn fields_that_would_break_the_line_are_rejected() {
        let writer = Id::new("w").unwrap();
        let raw = EncodedEntry::new(b",\"x\":\"a\nb\"".to_vec(), Vec::new());
        assert_eq!(raw.seal(&writer, 1, Digest::ZERO), Err(SealError::ControlByte));
        let long = EncodedEntry::new(vec![b' '; MAX_LINE_BYTES], Vec::new());
        assert!(matches!(long.seal(&writer, 1, Digest::ZERO), Err(SealError::TooLong(_))));
    }
}
