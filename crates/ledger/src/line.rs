//! Reading a sealed line back, strictly: every byte is covered by the hash, compared with it, or fixed.

use crate::digest::Digest;
use crate::hash;
use crate::seal::{END, EVENT, HEAD, MAX_LINE_BYTES, PREV, SEQ, VERSION, WRITER};
use crate::tree::LEAF;

const TS: &[u8] = b",\"ts\":\"";
const OP: &[u8] = b"\",\"op\":\"";
const NO_HASH: &str = "the hash at its end is missing";
const NO_LINK: &str = "the link to the line before is missing";
/// The link, its 64 digits and its closing quote.
const LINK: usize = PREV.len() + 64 + 1;
/// All that follows the last field: the link, the hash and the end.
pub(crate) const TAIL: usize = LINK + EVENT.len() + 64 + END.len();

/// The parts of a line that the chain is made of. The hash is right when this exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'l> {
    /// Who wrote it.
    pub writer: &'l str,
    /// Its place.
    pub seq: u64,
    /// When, in the one fixed form.
    pub ts: &'l str,
    /// What it is about.
    pub op: &'l str,
    /// The hash of the line before.
    pub prev_hash: Digest,
    /// Its own hash.
    pub event_hash: Digest,
}

/// The parts of a line whose leaf stands under a signed root. Its hashes were checked before it was signed; they are
/// left as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedLine<'l> {
    /// Who wrote it.
    pub writer: &'l [u8],
    /// Its place.
    pub seq: u64,
    /// When.
    pub ts: &'l [u8],
    /// What it is about.
    pub op: &'l [u8],
    /// The digits of the hash of the line before, and of its own.
    pub(crate) prev: &'l [u8; 64],
    pub(crate) hash: &'l [u8; 64],
}

/// Reads many lines, and says the leaf of each in the tree.
#[derive(Debug, Default, Clone)]
pub struct LineReader(());

impl LineReader {
    /// Reads a line (without its newline), checks its hash, and says its leaf. The leaf is that of the bytes, whether
    /// they are a line or not.
    pub fn read<'l>(&self, line: &'l [u8]) -> (Result<Line<'l>, Fault>, Digest) {
        let taken = take_apart(line);
        let body = taken.as_ref().map_or(&[][..], |(_, body)| body);
        let (actual, leaf) = hash::pair(body, LEAF, line);
        (taken.and_then(|(parts, _)| parts.fitting(actual)), leaf)
    }
}

/// Why a line is not a sealed line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not of the form of a line.
    #[error("not a ledger line: {0}")]
    Malformed(&'static str),
    /// A version that this program does not know.
    #[error("line version {0} is not known here")]
    UnknownVersion(u64),
    /// The content does not have the hash that it says.
    #[error("the content has the hash `{actual}`, the line says `{said}`")]
    WrongHash {
        /// What the line says.
        said: Digest,
        /// What its bytes have.
        actual: Digest,
    },
}

impl<'l> SignedLine<'l> {
    /// Reads a line (without its newline).
    pub fn read(line: &'l [u8]) -> Result<Self, Fault> {
        parts(line).map(|(parts, _)| parts)
    }
}

impl<'l> Line<'l> {
    /// Reads a line (without its newline) and checks its hash.
    pub fn read(line: &'l [u8]) -> Result<Self, Fault> {
        let (parts, body) = take_apart(line)?;
        parts.fitting(Digest::of(body))
    }

    fn fitting(self, actual: Digest) -> Result<Self, Fault> {
        let said = self.event_hash;
        if actual == said { Ok(self) } else { Err(Fault::WrongHash { said, actual }) }
    }

    /// The place that a line claims, however broken the rest of it is.
    #[must_use]
    pub fn claimed_seq(line: &[u8]) -> Option<u64> {
        let (_, rest) = start(line).ok()?;
        number(rest).map(|(seq, _)| seq)
    }

    /// The hash that a line claims, however broken the rest of it is.
    #[must_use]
    pub fn claimed_hash(line: &[u8]) -> Option<Digest> {
        tail(line).and_then(|(hex, _)| unhex(hex))
    }
}

/// The parts of a line with its hashes, and the bytes that its own covers.
fn take_apart(line: &[u8]) -> Result<(Line<'_>, &[u8]), Fault> {
    let (parts, body) = parts(line)?;
    let event_hash = unhex(parts.hash).ok_or(Fault::Malformed(NO_HASH))?;
    let prev_hash = unhex(parts.prev).ok_or(Fault::Malformed(NO_LINK))?;
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| Fault::Malformed("not UTF-8"));
    let (writer, ts, op) = (utf8(parts.writer)?, utf8(parts.ts)?, utf8(parts.op)?);
    Ok((Line { writer, seq: parts.seq, ts, op, prev_hash, event_hash }, body))
}

/// The digits of the hash at the end of the line, and the bytes it covers.
fn tail(line: &[u8]) -> Option<(&[u8; 64], &[u8])> {
    let (rest, hex) = line.strip_suffix(END)?.split_last_chunk()?;
    Some((hex, rest.strip_suffix(EVENT)?))
}

/// The parts of a line, and the bytes that its hash covers.
fn parts(line: &[u8]) -> Result<(SignedLine<'_>, &[u8]), Fault> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Fault::Malformed("too long"));
    }
    let (hash, body) = tail(line).ok_or(Fault::Malformed(NO_HASH))?;
    let (writer, rest) = start(line)?;
    let (seq, rest) = number(rest).ok_or(Fault::Malformed("no sequence number"))?;
    let rest = rest.strip_prefix(TS).ok_or(Fault::Malformed("no time"))?;
    let (ts, rest) = rest.split_at_checked(24).ok_or(Fault::Malformed("no time"))?;
    let op = rest.strip_prefix(OP).ok_or(Fault::Malformed("it does not say what it is about"))?;
    let end = op.iter().position(|byte| *byte == b'"').unwrap_or(op.len());
    let op = op.get(..end).unwrap_or_default();
    let link = body.strip_suffix(b"\"").and_then(<[u8]>::split_last_chunk);
    let prev = link.filter(|(rest, _)| rest.ends_with(PREV)).ok_or(Fault::Malformed(NO_LINK))?.1;
    Ok((SignedLine { writer, seq, ts, op, prev, hash }, body))
}

/// The writer, and what follows `"seq":`.
fn start(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let rest = line.strip_prefix(HEAD).ok_or(Fault::Malformed("no version"))?;
    let (version, rest) = number(rest).ok_or(Fault::Malformed("no version"))?;
    if version != VERSION {
        return Err(Fault::UnknownVersion(version));
    }
    let rest = rest.strip_prefix(WRITER).ok_or(Fault::Malformed("no writer"))?;
    let end = rest.iter().position(|byte| *byte == b'"').ok_or(Fault::Malformed("no writer"))?;
    let (writer, rest) = rest.split_at_checked(end).ok_or(Fault::Malformed("no writer"))?;
    let rest = rest.strip_prefix(SEQ).ok_or(Fault::Malformed("no sequence number"))?;
    Ok((writer, rest))
}

/// The digest of 64 lower-case digits. Without an early way out it runs on wide registers.
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
    fn a_sealed_line_reads_back() {
        let line = sealed();
        let read = Line::read(line.as_bytes()).unwrap();
        assert_eq!((read.writer, read.seq, read.ts), ("w-1", 3, "1970-01-01T00:00:00.000Z"));
        assert_eq!(read.op, "tool.start");
        let (again, leaf) = LineReader::default().read(line.as_bytes());
        assert_eq!((again, leaf), (Ok(read), crate::tree::leaf(line.as_bytes())));
        assert_eq!(read.prev_hash, Digest::of(b"x"));
        assert_eq!(Line::claimed_seq(line.as_bytes()), Some(3));
    }

    #[test]
    fn digits_read_as_everywhere_else() {
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
    fn every_flipped_bit_and_every_cut_is_found() {
        let line = sealed().into_bytes();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(Line::read(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(Line::read(&line[..at]).is_err(), "cut at {at}");
        }
        for extra in [b" ".as_slice(), b"\n", b"}", b"\0"] {
            assert!(Line::read(&[&line, extra].concat()).is_err());
        }
    }
}
