//! Verifies a chain, line by line in one pass. It reports what is wrong and continues, so that one edit yields one
//! finding and not one for every later line.

use crate::digest::Digest;
use crate::finding::{FindingKind, FindingLocation, Findings};
use crate::line::{LedgerLine, LineError, LineReader, SignedLine, unhex};
use crate::timestamp::Timestamp;

/// Tolerated step back of the clock, in ms. A few milliseconds are normal between processes: records are stamped before
/// they queue for the writer.
const CLOCK_SLACK_MS: i64 = 5000;

/// The newest record of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// Its sequence number; 0 if there is none.
    pub seq: u64,
    /// Its hash; zeros if there is none.
    pub hash: Digest,
}

impl ChainHead {
    /// The head of a chain without records.
    pub const EMPTY: Self = Self { seq: 0, hash: Digest::ZERO };
}

/// A hash as it was read: under a signed root, the hex digits are only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkHash {
    Digest(Digest),
    Digits([u8; 64]),
}

impl LinkHash {
    fn digest(&self) -> Digest {
        match self {
            Self::Digest(digest) => *digest,
            Self::Digits(digits) => unhex(digits).unwrap_or(Digest::ZERO),
        }
    }
}

/// Verifies lines in the order of the chain.
#[derive(Debug, Clone)]
pub struct Verifier {
    seq: u64,
    hash: LinkHash,
    latest: Option<Timestamp>,
    minute: MinuteCache,
    records: u64,
    reader: LineReader,
}

impl Default for Verifier {
    fn default() -> Self {
        Self::after(ChainHead::EMPTY)
    }
}

impl Verifier {
    /// Starts at the first record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues after a known record.
    #[must_use]
    pub fn after(head: ChainHead) -> Self {
        Self {
            seq: head.seq,
            hash: LinkHash::Digest(head.hash),
            latest: None,
            minute: MinuteCache::default(),
            records: 0,
            reader: LineReader::default(),
        }
    }

    /// Verifies the next line, without its newline. Returns the parsed line if it is valid, and its leaf.
    pub fn feed<'l>(
        &mut self,
        location: &FindingLocation,
        line: &'l [u8],
        findings: &mut Findings,
    ) -> (Option<LedgerLine<'l>>, Digest) {
        let read = self.reader.read(line);
        self.check_line(location, line, read, findings)
    }

    /// Verifies the next line if its leaf is under a signed root. The caller must compare the root with the signature,
    /// and must repeat everything with [`Verifier::feed`] if they differ.
    pub fn feed_signed<'l>(
        &mut self,
        location: &FindingLocation,
        line: &'l [u8],
        findings: &mut Findings,
    ) -> Option<SignedLine<'l>> {
        self.records += 1;
        match SignedLine::read(line) {
            Ok(read) => {
                self.check_link(
                    location,
                    read.seq,
                    read.ts,
                    LinkHash::Digits(*read.prev),
                    LinkHash::Digits(*read.hash),
                    findings,
                );
                Some(read)
            }
            Err(error) => {
                self.report_invalid_line(location, line, &error, findings);
                None
            }
        }
    }

    fn check_line<'l>(
        &mut self,
        location: &FindingLocation,
        line: &'l [u8],
        (read, leaf): (Result<LedgerLine<'l>, LineError>, Digest),
        findings: &mut Findings,
    ) -> (Option<LedgerLine<'l>>, Digest) {
        self.records += 1;
        let read = match read {
            Ok(read) => {
                let (prev, own) = (LinkHash::Digest(read.prev_hash), LinkHash::Digest(read.event_hash));
                self.check_link(location, read.seq, read.ts.as_bytes(), prev, own, findings);
                Some(read)
            }
            Err(error) => {
                self.report_invalid_line(location, line, &error, findings);
                None
            }
        };
        (read, leaf)
    }

    /// Reports an invalid line. The lines after it are checked against what it claims, because its own error is already
    /// reported.
    fn report_invalid_line(
        &mut self,
        location: &FindingLocation,
        line: &[u8],
        error: &LineError,
        findings: &mut Findings,
    ) {
        let kind = match error {
            LineError::Malformed(_) => FindingKind::Malformed,
            LineError::UnknownVersion(_) => FindingKind::UnknownVersion,
            LineError::WrongHash { .. } => FindingKind::WrongHash,
        };
        findings.fault(location.clone(), kind, error.to_string());
        self.seq = LedgerLine::claimed_seq(line).unwrap_or(self.seq.saturating_add(1));
        self.hash = LinkHash::Digest(LedgerLine::claimed_hash(line).unwrap_or(Digest::ZERO));
    }

    /// The last line that was verified.
    #[must_use]
    pub fn head(&self) -> ChainHead {
        ChainHead { seq: self.seq, hash: self.hash.digest() }
    }

    /// Number of lines that were verified.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    fn check_link(
        &mut self,
        location: &FindingLocation,
        seq: u64,
        ts: &[u8],
        prev: LinkHash,
        own: LinkHash,
        findings: &mut Findings,
    ) {
        let next = self.seq.saturating_add(1);
        if seq == next {
            if prev != self.hash {
                let (named, before) = (prev.digest(), self.hash.digest());
                if named != before {
                    let detail =
                        format!("names `{named}` as the hash of the record before, which has `{before}`");
                    findings.fault(location.clone(), FindingKind::BrokenLink, detail);
                }
            }
        } else if seq > next {
            let detail = format!("records {next} to {} are missing", seq - 1);
            findings.fault(location.clone(), FindingKind::Gap, detail);
        } else if seq == self.seq {
            findings.fault(location.clone(), FindingKind::Duplicate, format!("record {seq} appears twice"));
            return;
        } else {
            let detail = format!("record {seq} comes after record {}", self.seq);
            findings.fault(location.clone(), FindingKind::Reordered, detail);
            return;
        }
        (self.seq, self.hash) = (seq, own);
        self.check_clock(location, ts, findings);
    }

    fn check_clock(&mut self, location: &FindingLocation, ts: &[u8], findings: &mut Findings) {
        let Some(ts) = self.minute.parse(ts) else {
            findings.fault(location.clone(), FindingKind::Malformed, "the time is invalid");
            return;
        };
        if let Some(latest) = self.latest
            && ts < latest.earlier(CLOCK_SLACK_MS)
        {
            let detail = format!("the clock went back from {latest} to {ts}");
            findings.note(location.clone(), FindingKind::ClockWentBack, detail);
        }
        self.latest = Some(ts);
    }
}

/// Caches the minute of the last parsed time: the next time is nearly always in the same one.
#[derive(Debug, Clone, Default)]
struct MinuteCache {
    text: Vec<u8>,
    start: i64,
}

impl MinuteCache {
    fn parse(&mut self, text: &[u8]) -> Option<Timestamp> {
        if !self.text.is_empty()
            && let Some(&[a, b, b'.', c, d, e, b'Z']) = text.strip_prefix(self.text.as_slice())
            && [a, b, c, d, e].iter().all(u8::is_ascii_digit)
            && a < b'6'
        {
            let digits = [a, b, c, d, e].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            let ts = Timestamp::from_millis(self.start + digits);
            // A time after the last one is clamped.
            return (ts.millis() == self.start + digits).then_some(ts);
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
    fn times_in_the_cached_minute_parse_like_any_other() {
        let mut minute = MinuteCache::default();
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
        for (last, is_time) in [("9999-12-30T22:00:00.000Z", true), ("9999-12-30T22:00:00.001Z", false)] {
            assert_eq!(Timestamp::parse(last).is_ok(), is_time, "{last}");
            assert_eq!(minute.parse(last.as_bytes()), Timestamp::parse(last).ok(), "{last}");
        }
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

    fn kinds(lines: &[Vec<u8>]) -> Vec<FindingKind> {
        let mut findings = Findings::default();
        let mut verifier = Verifier::new();
        for (n, line) in (1..).zip(lines) {
            verifier.feed(&FindingLocation::Record(n), line, &mut findings);
        }
        findings.faults().iter().map(|finding| finding.kind).collect()
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
    fn deletion_reordering_duplication_insertion_and_truncation_are_reported() {
        let honest = chain(9);
        let edit = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut lines = honest.clone();
            change(&mut lines);
            kinds(&lines)
        };
        assert_eq!(edit(&|l| drop(l.remove(0))), [FindingKind::Gap]);
        assert_eq!(edit(&|l| drop(l.remove(4))), [FindingKind::Gap]);
        assert_eq!(edit(&|l| drop(l.drain(3..6))), [FindingKind::Gap]);
        assert_eq!(edit(&|l| l.swap(3, 4)), [FindingKind::Gap, FindingKind::Reordered]);
        assert_eq!(edit(&|l| l.insert(4, l[3].clone())), [FindingKind::Duplicate]);
        assert_eq!(edit(&|l| l.insert(6, l[1].clone())), [FindingKind::Reordered]);
        assert_eq!(edit(&|l| l[4].truncate(100)), [FindingKind::Malformed, FindingKind::BrokenLink]);
        assert_eq!(edit(&|l| l.insert(4, b"{}".to_vec()))[0], FindingKind::Malformed);
        let version = |l: &mut Vec<Vec<u8>>| l[2][5] = b'2';
        assert_eq!(edit(&version)[0], FindingKind::UnknownVersion);
    }

    #[test]
    fn a_record_rewritten_with_a_valid_hash_breaks_the_next_link() {
        let mut lines = chain(9);
        let entry = Entry::new(Op::Grant, Timestamp::from_millis(4));
        let prev = LedgerLine::read(&lines[3]).unwrap().event_hash;
        let forged = seal(&entry, &Id::new("w-1").unwrap(), 5, prev).unwrap();
        lines[4] = forged.as_str().as_bytes().to_vec();
        assert_eq!(kinds(&lines), [FindingKind::BrokenLink]);
    }

    #[test]
    fn a_clock_set_back_is_a_note_and_not_a_fault() {
        let writer = Id::new("w-1").unwrap();
        let mut findings = Findings::default();
        let mut verifier = Verifier::new();
        for (seq, millis) in [(1, 100_000), (2, 99_000), (3, 50_000)] {
            let entry = Entry::new(Op::ToolEnd, Timestamp::from_millis(millis));
            let sealed = seal(&entry, &writer, seq, verifier.head().hash).unwrap();
            verifier.feed(&FindingLocation::Record(seq), sealed.as_str().as_bytes(), &mut findings);
        }
        assert!(findings.is_clean());
        assert_eq!(findings.notes().len(), 1);
        assert_eq!(findings.notes()[0].location, FindingLocation::Record(3));
    }
}
