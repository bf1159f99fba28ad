//! The check of a chain, one line at a time and in one pass. It says what is wrong and goes on, so that one
//! edit is one finding and not one for every line behind it.

use crate::digest::Digest;
use crate::finding::{Findings, Kind, Place};
use crate::line::{Fault, Line, LineReader, SignedLine, unhex};
use crate::timestamp::Timestamp;

/// Between processes a few milliseconds are ordinary: records are stamped before they queue for the writer.
const CLOCK_SLACK_MS: i64 = 5000;

/// The newest record of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its place; 0 when there is none.
    pub seq: u64,
    /// Its hash; zeros when there is none.
    pub hash: Digest,
}

impl Head {
    /// The head of a chain without records.
    pub const EMPTY: Self = Self { seq: 0, hash: Digest::ZERO };
}

/// A hash as it was read: under a signed root its digits are only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Digest(Digest),
    Digits([u8; 64]),
}

impl Hash {
    fn digest(&self) -> Digest {
        match self {
            Self::Digest(digest) => *digest,
            Self::Digits(digits) => unhex(digits).unwrap_or(Digest::ZERO),
        }
    }
}

/// Checks lines in the order of the chain.
#[derive(Debug, Clone)]
pub struct Verifier {
    seq: u64,
    hash: Hash,
    latest: Option<Timestamp>,
    minute: Minute,
    records: u64,
    reader: LineReader,
}

impl Default for Verifier {
    fn default() -> Self {
        Self::after(Head::EMPTY)
    }
}

impl Verifier {
    /// A check from the first record on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A check that goes on behind a record that is known.
    #[must_use]
    pub fn after(head: Head) -> Self {
        Self {
            seq: head.seq,
            hash: Hash::Digest(head.hash),
            latest: None,
            minute: Minute::default(),
            records: 0,
            reader: LineReader::default(),
        }
    }

    /// Takes the next line, without its newline. Returns what it says when it can be read, and its leaf.
    pub fn feed<'l>(
        &mut self,
        place: &Place,
        line: &'l [u8],
        found: &mut Findings,
    ) -> (Option<Line<'l>>, Digest) {
        let read = self.reader.read(line);
        self.take(place, line, read, found)
    }

    /// Takes a line whose leaf stands under a signed root. Whoever calls this has to hold the root against the
    /// signature, and everything against [`Verifier::feed`] where that fails.
    pub fn feed_signed<'l>(
        &mut self,
        place: &Place,
        line: &'l [u8],
        found: &mut Findings,
    ) -> Option<SignedLine<'l>> {
        self.records += 1;
        match SignedLine::read(line) {
            Ok(read) => {
                self.follow(
                    place,
                    read.seq,
                    read.ts,
                    Hash::Digits(*read.prev),
                    Hash::Digits(*read.hash),
                    found,
                );
                Some(read)
            }
            Err(fault) => {
                self.stumble(place, line, &fault, found);
                None
            }
        }
    }

    fn take<'l>(
        &mut self,
        place: &Place,
        line: &'l [u8],
        (read, leaf): (Result<Line<'l>, Fault>, Digest),
        found: &mut Findings,
    ) -> (Option<Line<'l>>, Digest) {
        self.records += 1;
        let read = match read {
            Ok(read) => {
                let (prev, own) = (Hash::Digest(read.prev_hash), Hash::Digest(read.event_hash));
                self.follow(place, read.seq, read.ts.as_bytes(), prev, own, found);
                Some(read)
            }
            Err(fault) => {
                self.stumble(place, line, &fault, found);
                None
            }
        };
        (read, leaf)
    }

    /// What the line claims is taken for the lines behind it: the fault itself is on record.
    fn stumble(&mut self, place: &Place, line: &[u8], fault: &Fault, found: &mut Findings) {
        let kind = match fault {
            Fault::Malformed(_) => Kind::Malformed,
            Fault::UnknownVersion(_) => Kind::UnknownVersion,
            Fault::WrongHash { .. } => Kind::WrongHash,
        };
        found.fault(place.clone(), kind, fault.to_string());
        self.seq = Line::claimed_seq(line).unwrap_or(self.seq.saturating_add(1));
        self.hash = Hash::Digest(Line::claimed_hash(line).unwrap_or(Digest::ZERO));
    }

    /// The last line that was taken.
    #[must_use]
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash.digest() }
    }

    /// How many lines were taken.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    fn follow(&mut self, place: &Place, seq: u64, ts: &[u8], prev: Hash, own: Hash, found: &mut Findings) {
        let next = self.seq.saturating_add(1);
        if seq == next {
            if prev != self.hash {
                let (named, before) = (prev.digest(), self.hash.digest());
                if named != before {
                    let detail = format!("names `{named}` as the record before, which has `{before}`");
                    found.fault(place.clone(), Kind::BrokenLink, detail);
                }
            }
        } else if seq > next {
            let detail = format!("records {next} to {} are missing", seq - 1);
            found.fault(place.clone(), Kind::Gap, detail);
        } else if seq == self.seq {
            found.fault(place.clone(), Kind::Duplicate, format!("record {seq} is here twice"));
            return;
        } else {
            let detail = format!("record {seq} stands behind record {}", self.seq);
            found.fault(place.clone(), Kind::Reordered, detail);
            return;
        }
        (self.seq, self.hash) = (seq, own);
        self.clock(place, ts, found);
    }

    fn clock(&mut self, place: &Place, ts: &[u8], found: &mut Findings) {
        let Some(ts) = self.minute.parse(ts) else {
            found.fault(place.clone(), Kind::Malformed, "the time is not one");
            return;
        };
        if let Some(latest) = self.latest
            && ts < latest.earlier(CLOCK_SLACK_MS)
        {
            let detail = format!("the clock went back from {latest} to {ts}");
            found.note(place.clone(), Kind::ClockWentBack, detail);
        }
        self.latest = Some(ts);
    }
}

/// The minute of the last time that was read: the next one is nearly always of the same.
#[derive(Debug, Clone, Default)]
struct Minute {
    text: Vec<u8>,
    start: i64,
}

impl Minute {
    fn parse(&mut self, text: &[u8]) -> Option<Timestamp> {
        if !self.text.is_empty()
            && let Some(&[a, b, b'.', c, d, e, b'Z']) = text.strip_prefix(self.text.as_slice())
            && [a, b, c, d, e].iter().all(u8::is_ascii_digit)
            && a < b'6'
        {
            let digits = [a, b, c, d, e].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            return Some(Timestamp::from_millis(self.start + digits));
        }
        let ts = Timestamp::parse(std::str::from_utf8(text).ok()?).ok()?;
        self.text.clear();
        self.text.extend_from_slice(text.get(..17)?);
        self.start = ts.millis() - ts.millis().rem_euclid(60_000);
        Some(ts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_one_minute_read_like_any_other() {
        let mut minute = Minute::default();
        let honest = Timestamp::from_millis(1_785_000_000_123).to_string();
        assert_eq!(minute.parse(honest.as_bytes()), Timestamp::parse(&honest).ok());
        for at in 0..honest.len() {
            for byte in b'!'..=b'~' {
                let mut text = honest.clone().into_bytes();
                text[at] = byte;
                let text = String::from_utf8(text).unwrap();
                minute.parse(honest.as_bytes());
                assert_eq!(minute.parse(text.as_bytes()), Timestamp::parse(&text).ok(), "{text}");
            }
        }
        assert_eq!(minute.parse(honest.trim_end_matches('Z').as_bytes()), None);
    }

    use crate::entry::Entry;
    use crate::id::Id;
    use crate::op::Op;
    use crate::seal::seal;

    fn chain(records: i64) -> Vec<Vec<u8>> {
        let writer = Id::new("w-1").unwrap();
        let mut prev = Digest::ZERO;
        (0..records)
            .map(|n| {
                let entry = Entry::new(Op::ToolEnd, Timestamp::from_millis(n));
                let sealed = seal(&entry, &writer, n.unsigned_abs() + 1, prev).unwrap();
                prev = sealed.event_hash();
                sealed.as_str().as_bytes().to_vec()
            })
            .collect()
    }

    fn kinds(lines: &[Vec<u8>]) -> Vec<Kind> {
        let mut found = Findings::default();
        let mut verifier = Verifier::new();
        for (n, line) in (1..).zip(lines) {
            verifier.feed(&Place::Record(n), line, &mut found);
        }
        found.faults().iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn an_honest_chain_is_clean() {
        assert_eq!(kinds(&chain(20)), []);
    }

    // B5
    #[test]
    fn every_single_bit_flip_of_a_ledger_file_is_found() {
        let lines = chain(6);
        let file: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut bad = file.clone();
                bad[at] ^= 1 << bit;
                let complete = bad.last() == Some(&b'\n');
                let lines: Vec<Vec<u8>> =
                    bad.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).filter(|l| !l.is_empty()).collect();
                assert!(!complete || !kinds(&lines).is_empty(), "byte {at} bit {bit}");
            }
        }
    }

    // B5
    #[test]
    fn deletion_reordering_duplication_insertion_and_truncation_are_named() {
        let honest = chain(9);
        let edit = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut lines = honest.clone();
            change(&mut lines);
            kinds(&lines)
        };
        assert_eq!(edit(&|l| drop(l.remove(0))), [Kind::Gap]);
        assert_eq!(edit(&|l| drop(l.remove(4))), [Kind::Gap]);
        assert_eq!(edit(&|l| drop(l.drain(3..6))), [Kind::Gap]);
        assert_eq!(edit(&|l| l.swap(3, 4)), [Kind::Gap, Kind::Reordered]);
        assert_eq!(edit(&|l| l.insert(4, l[3].clone())), [Kind::Duplicate]);
        assert_eq!(edit(&|l| l.insert(6, l[1].clone())), [Kind::Reordered]);
        assert_eq!(edit(&|l| l[4].truncate(100)), [Kind::Malformed, Kind::BrokenLink]);
        assert_eq!(edit(&|l| l.insert(4, b"{}".to_vec()))[0], Kind::Malformed);
        let version = |l: &mut Vec<Vec<u8>>| l[2][5] = b'2';
        assert_eq!(edit(&version)[0], Kind::UnknownVersion);
    }

    #[test]
    fn a_record_rewritten_with_a_right_hash_breaks_the_link_behind_it() {
        let mut lines = chain(9);
        let entry = Entry::new(Op::Grant, Timestamp::from_millis(4));
        let prev = Line::read(&lines[3]).unwrap().event_hash;
        let forged = seal(&entry, &Id::new("w-1").unwrap(), 5, prev).unwrap();
        lines[4] = forged.as_str().as_bytes().to_vec();
        assert_eq!(kinds(&lines), [Kind::BrokenLink]);
    }

    #[test]
    fn a_clock_set_back_is_a_note_and_no_fault() {
        let writer = Id::new("w-1").unwrap();
        let mut found = Findings::default();
        let mut verifier = Verifier::new();
        for (seq, millis) in [(1, 100_000), (2, 99_000), (3, 50_000)] {
            let entry = Entry::new(Op::ToolEnd, Timestamp::from_millis(millis));
            let sealed = seal(&entry, &writer, seq, verifier.head().hash).unwrap();
            verifier.feed(&Place::Record(seq), sealed.as_str().as_bytes(), &mut found);
        }
        assert!(found.is_clean());
        assert_eq!(found.notes().len(), 1);
        assert_eq!(found.notes()[0].place, Place::Record(3));
    }
}
