//! Reading a sealed line back, strictly: every byte is covered by the hash, compared with it, or fixed.

use crate::digest::Digest;
use crate::hash;
use crate::seal::{END, EVENT, HEAD, MAX_LINE_BYTES, PREV, SEQ, VERSION, WRITER};
use crate::tree::LEAF;

const TS: &[u8] = b",\"ts\":\"";
const OP: &[u8] = b"\",\"op\":\"";
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

    /// Reads a line whose leaf stands under a signed root, and says that leaf. Its own hash was checked before it was
    /// signed and is taken as it says.
    pub fn read_signed<'l>(&self, line: &'l [u8]) -> (Result<Line<'l>, Fault>, Digest) {
        (take_apart(line).map(|(parts, _)| parts), hash::prefixed(LEAF, line))
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
        tail(line).ok().map(|(said, _)| said)
    }
}

/// The parts of a line, and the bytes that its hash covers.
fn take_apart(line: &[u8]) -> Result<(Line<'_>, &[u8]), Fault> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Fault::Malformed("too long"));
    }
    let (said, body) = tail(line)?;
    Ok((parts(line, body, said)?, body))
}

/// The hash at the end of the line, and the bytes it covers.
fn tail(line: &[u8]) -> Result<(Digest, &[u8]), Fault> {
    let malformed = Fault::Malformed("the hash at its end is missing");
    let rest = line.strip_suffix(END).ok_or_else(|| malformed.clone())?;
    let (rest, hex) =
        rest.split_at_checked(rest.len().saturating_sub(64)).ok_or_else(|| malformed.clone())?;
    let said = unhex(hex).ok_or_else(|| malformed.clone())?;
    Ok((said, rest.strip_suffix(EVENT).ok_or(malformed)?))
}

fn parts<'l>(line: &'l [u8], body: &'l [u8], said: Digest) -> Result<Line<'l>, Fault> {
    let (writer, rest) = start(line)?;
    let (seq, rest) = number(rest).ok_or(Fault::Malformed("no sequence number"))?;
    let rest = rest.strip_prefix(TS).ok_or(Fault::Malformed("no time"))?;
    let (ts, rest) = rest.split_at_checked(24).ok_or(Fault::Malformed("no time"))?;
    let op = rest.strip_prefix(OP).ok_or(Fault::Malformed("it does not say what it is about"))?;
    let end = op.iter().position(|byte| *byte == b'"').unwrap_or(op.len());
    let op = op.get(..end).unwrap_or_default();
    let linked = Fault::Malformed("the link to the line before is missing");
    let at = body.len().checked_sub(LINK).ok_or_else(|| linked.clone())?;
    let link = body.get(at..).ok_or_else(|| linked.clone())?;
    let prev_hash =
        link.strip_prefix(PREV).and_then(|rest| rest.strip_suffix(b"\"")).and_then(unhex).ok_or(linked)?;
    let utf8 = |bytes| std::str::from_utf8(bytes).map_err(|_| Fault::Malformed("not UTF-8"));
    Ok(Line { writer: utf8(writer)?, seq, ts: utf8(ts)?, op: utf8(op)?, prev_hash, event_hash: said })
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
fn unhex(hex: &[u8]) -> Option<Digest> {
    let hex: &[u8; 64] = hex.try_into().ok()?;
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
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = bytes.split_at_checked(digits)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
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
        assert_eq!(unhex(&honest[1..]), None);
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
