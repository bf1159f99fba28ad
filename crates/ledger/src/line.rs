//! Parses a sealed line strictly: the hash covers every byte, or the byte is compared with it or fixed.

use crate::digest::Digest;
use crate::hash;
use crate::seal::{END, EVENT, HEAD, MAX_LINE_BYTES, PREV, SEQ, VERSION, WRITER};
use crate::tree::LEAF;

const TS: &[u8] = b",\"ts\":\"";
const OP: &[u8] = b"\",\"op\":\"";
const NO_HASH: &str = "no hash at its end";
const NO_LINK: &str = "no link to the line before";
/// The link, its 64 digits and its closing quote.
const LINK: usize = PREV.len() + 64 + 1;
/// Everything after the last field: the link, the hash and the end.
pub(crate) const TAIL: usize = LINK + EVENT.len() + 64 + END.len();

/// The parts of a line that make up the chain. The hash of a value of this type is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLine<'l> {
    /// The writer.
    pub writer: &'l str,
    /// The sequence number.
    pub seq: u64,
    /// The time, in the one fixed form.
    pub ts: &'l str,
    /// The op of the record.
    pub op: &'l str,
    /// The hash of the line before.
    pub prev_hash: Digest,
    /// The hash of this line.
    pub event_hash: Digest,
}

/// The parts of a line whose leaf is under a signed root. Its hashes were checked before the root was signed, so they
/// stay as hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedLine<'l> {
    /// The writer.
    pub writer: &'l [u8],
    /// The sequence number.
    pub seq: u64,
    /// The time.
    pub ts: &'l [u8],
    /// The op of the record.
    pub op: &'l [u8],
    /// The hex digits of the hash of the line before, and of this line.
    pub(crate) prev: &'l [u8; 64],
    pub(crate) hash: &'l [u8; 64],
}

/// Parses lines and computes their leaves in the tree.
#[derive(Debug, Default, Clone)]
pub struct LineReader(());

impl LineReader {
    /// Parses a line (without its newline), checks its hash, and computes its leaf. The leaf is that of the bytes, even
    /// if they are not a valid line.
    pub fn read<'l>(&self, line: &'l [u8]) -> (Result<LedgerLine<'l>, LineError>, Digest) {
        let parts = split_line(line);
        let body = parts.as_ref().map_or(&[][..], |(_, body)| body);
        let (actual, leaf) = hash::pair(body, LEAF, line);
        (parts.and_then(|(parts, _)| parts.check_hash(actual)), leaf)
    }
}

/// Why bytes are not a sealed line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not in the format of a line.
    #[error("not a ledger line: {0}")]
    Malformed(&'static str),
    /// A version that this program does not know.
    #[error("line version {0} is not supported")]
    UnknownVersion(u64),
    /// The content does not have the hash that the line states.
    #[error("the content has the hash `{actual}`, the line states `{stated}`")]
    WrongHash {
        /// The hash that the line states.
        stated: Digest,
        /// The hash of its bytes.
        actual: Digest,
    },
}

impl<'l> SignedLine<'l> {
    /// Parses a line (without its newline).
    pub fn read(line: &'l [u8]) -> Result<Self, LineError> {
        parts(line).map(|(parts, _)| parts)
    }
}

impl<'l> LedgerLine<'l> {
    /// Parses a line (without its newline) and checks its hash.
    pub fn read(line: &'l [u8]) -> Result<Self, LineError> {
        let (parts, body) = split_line(line)?;
        parts.check_hash(Digest::of(body))
    }

    fn check_hash(self, actual: Digest) -> Result<Self, LineError> {
        let stated = self.event_hash;
        if actual == stated { Ok(self) } else { Err(LineError::WrongHash { stated, actual }) }
    }

    /// The sequence number that a line claims, even if the rest of it is broken.
    #[must_use]
    pub fn claimed_seq(line: &[u8]) -> Option<u64> {
        let (_, rest) = start(line).ok()?;
        number(rest).map(|(seq, _)| seq)
    }

    /// The hash that a line claims, even if the rest of it is broken.
    #[must_use]
    pub fn claimed_hash(line: &[u8]) -> Option<Digest> {
        tail(line).and_then(|(hex, _)| unhex(hex))
    }
}

/// The parts of a line with its hashes, and the bytes that its own hash covers.
fn split_line(line: &[u8]) -> Result<(LedgerLine<'_>, &[u8]), LineError> {
    let (parts, body) = parts(line)?;
    let event_hash = unhex(parts.hash).ok_or(LineError::Malformed(NO_HASH))?;
    let prev_hash = unhex(parts.prev).ok_or(LineError::Malformed(NO_LINK))?;
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| LineError::Malformed("not UTF-8"));
    let (writer, ts, op) = (utf8(parts.writer)?, utf8(parts.ts)?, utf8(parts.op)?);
    Ok((LedgerLine { writer, seq: parts.seq, ts, op, prev_hash, event_hash }, body))
}

/// The hex digits of the hash at the end of the line, and the bytes that it covers.
fn tail(line: &[u8]) -> Option<(&[u8; 64], &[u8])> {
    let (rest, hex) = line.strip_suffix(END)?.split_last_chunk()?;
    Some((hex, rest.strip_suffix(EVENT)?))
}

/// The parts of a line, and the bytes that its hash covers.
fn parts(line: &[u8]) -> Result<(SignedLine<'_>, &[u8]), LineError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::Malformed("too long"));
    }
    let (hash, body) = tail(line).ok_or(LineError::Malformed(NO_HASH))?;
    let (writer, rest) = start(line)?;
    let (seq, rest) = number(rest).ok_or(LineError::Malformed("no sequence number"))?;
    let rest = rest.strip_prefix(TS).ok_or(LineError::Malformed("no time"))?;
    let (ts, rest) = rest.split_at_checked(24).ok_or(LineError::Malformed("no time"))?;
    let op = rest.strip_prefix(OP).ok_or(LineError::Malformed("no op"))?;
    let end = op.iter().position(|byte| *byte == b'"').unwrap_or(op.len());
    let op = op.get(..end).unwrap_or_default();
    let link = body.strip_suffix(b"\"").and_then(<[u8]>::split_last_chunk);
    let prev = link.filter(|(rest, _)| rest.ends_with(PREV)).ok_or(LineError::Malformed(NO_LINK))?.1;
    Ok((SignedLine { writer, seq, ts, op, prev, hash }, body))
}

/// The writer, and what follows `"seq":`.
fn start(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let rest = line.strip_prefix(HEAD).ok_or(LineError::Malformed("no version"))?;
    let (version, rest) = number(rest).ok_or(LineError::Malformed("no version"))?;
    if version != VERSION {
        return Err(LineError::UnknownVersion(version));
    }
    let rest = rest.strip_prefix(WRITER).ok_or(LineError::Malformed("no writer"))?;
    let end = rest.iter().position(|byte| *byte == b'"').ok_or(LineError::Malformed("no writer"))?;
    let (writer, rest) = rest.split_at_checked(end).ok_or(LineError::Malformed("no writer"))?;
    let rest = rest.strip_prefix(SEQ).ok_or(LineError::Malformed("no sequence number"))?;
    Ok((writer, rest))
}

/// The digest of 64 lower-case hex digits. Without an early exit the loop is vectorised.
pub(crate) fn unhex(hex: &[u8; 64]) -> Option<Digest> {
    let (mut halves, mut all) = ([0_u8; 64], true);
    for (half, byte) in halves.iter_mut().zip(hex) {
        let (digit, letter) = (byte.wrapping_sub(b'0'), byte.wrapping_sub(b'a'));
        all &= (digit < 10) | (letter < 6);
        *half = if digit < 10 { digit } else { letter.wrapping_add(10) };
    }
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(halves.as_chunks::<2>().0) {
        *byte = high << 4 | low & 15;
    }
    all.then(|| Digest::from_bytes(bytes))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = bytes;
    while let Some((digit @ b'0'..=b'9', behind)) = rest.split_first() {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        rest = behind;
    }
    (rest.len() < bytes.len()).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::id::Id;
    use crate::op::Op;
    use crate::seal::seal;
    use crate::timestamp::Timestamp;

    fn sealed() -> String {
        let entry = Entry::new(Op::ToolStart, Timestamp::from_millis(0));
        seal(&entry, &Id::new("w-1").unwrap(), 3, Digest::of(b"x")).unwrap().as_str().to_owned()
    }

    #[test]
    fn a_sealed_line_parses_back() {
        let line = sealed();
        let read = LedgerLine::read(line.as_bytes()).unwrap();
        assert_eq!((read.writer, read.seq, read.ts), ("w-1", 3, "1970-01-01T00:00:00.000Z"));
        assert_eq!(read.op, "tool.start");
        let (again, leaf) = LineReader::default().read(line.as_bytes());
        assert_eq!((again, leaf), (Ok(read), crate::tree::leaf(line.as_bytes())));
        assert_eq!(read.prev_hash, Digest::of(b"x"));
        assert_eq!(LedgerLine::claimed_seq(line.as_bytes()), Some(3));
    }

    #[test]
    fn hex_digits_parse_as_in_digest() {
        let honest = Digest::of(b"x").hex();
        for at in 0..64 {
            for byte in 0..=255 {
                let mut hex = honest;
                hex[at] = byte;
                assert_eq!(unhex(&hex), Digest::from_hex(&hex), "{byte} at {at}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_found() {
        let line = sealed().into_bytes();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(LedgerLine::read(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(LedgerLine::read(&line[..at]).is_err(), "cut at {at}");
        }
        for extra in [b" ".as_slice(), b"\n", b"}", b"\0"] {
            assert!(LedgerLine::read(&[&line, extra].concat()).is_err());
        }
    }
}
