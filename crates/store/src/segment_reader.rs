//! Reads the segments beside the table, line by line. A missing or an extra line is one finding, not one for
//! every line after it.

use vambrace_ledger::{
    FindingKind, FindingLocation, Findings, LedgerLine, MAX_LINE_BYTES, SegmentName, Verifier,
};

use crate::segment_files::SegmentFiles;

const CHUNK_BYTES: usize = 256 << 10;

/// Some segments, one after the other.
pub(crate) struct SegmentReader<'a> {
    files: &'a dyn SegmentFiles,
    segments: Vec<(SegmentName, u64)>,
    /// Index of the segment that is being read.
    at: usize,
    /// Bytes read and not yet consumed, and where they begin and end.
    buffer: Vec<u8>,
    used: usize,
    end: usize,
    offset: u64,
    line: u64,
    /// Rows without a line in a segment, at the end of the part of the table read so far.
    missing_rows: Option<(u64, u64)>,
}

/// The next line of the segments.
enum NextLine {
    /// Its length in the buffer, without the newline.
    Line(usize),
    /// Bytes without a newline at the end of a segment.
    Torn(usize),
    End,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn new(files: &'a dyn SegmentFiles, segments: Vec<(SegmentName, u64)>) -> Self {
        Self {
            files,
            segments,
            at: 0,
            buffer: Vec::new(),
            used: 0,
            end: 0,
            offset: 0,
            line: 0,
            missing_rows: None,
        }
    }

    /// Compares the next line with a row of the table.
    pub(crate) fn compare(&mut self, seq: u64, row: &[u8], found: &mut Findings) {
        // Nearly always the next line equals the row; then there is nothing to search for.
        let rest = self.rest();
        if rest.get(row.len()) == Some(&b'\n') && rest.starts_with(row) && self.missing_rows.is_none() {
            return self.take(row.len() + 1);
        }
        loop {
            let name = self.name();
            let (length, torn) = match self.next(found) {
                NextLine::End => return self.mark_missing(seq),
                NextLine::Line(length) => (length, false),
                NextLine::Torn(length) => (length, true),
            };
            let place = FindingLocation::Segment(
                self.name().or(name).unwrap_or(SegmentName::starting(0)),
                self.line + 1,
            );
            let line = self.peek(length);
            if line == row && !torn {
                self.take(length + 1);
                // A later line exists, so these were cut out; at the very end they may just not be written yet.
                if let Some((from, to)) = self.missing_rows.take() {
                    found.fault(place, FindingKind::SegmentShort, missing_detail(from, to));
                }
                return;
            }
            if torn {
                let honest = row.starts_with(line);
                self.take(length);
                if honest {
                    let detail = "the last line is incomplete, as after a crash; the next start repairs it";
                    found.note(place, FindingKind::TornTail, detail);
                } else {
                    found.fault(place, FindingKind::TornTail, "ends within a line that is not in the table");
                }
                return self.mark_missing(seq);
            }
            match LedgerLine::claimed_seq(line) {
                Some(claimed) if claimed > seq => return self.mark_missing(seq),
                Some(claimed) if claimed < seq => {
                    let detail = format!("record {claimed} is not in the table at this position");
                    found.fault(place, FindingKind::ExtraLines, detail);
                    self.take(length + 1);
                }
                _ => {
                    let detail = match (LedgerLine::read(line).is_ok(), LedgerLine::read(row).is_ok()) {
                        (true, false) => {
                            "differs from the table; the segment's line matches its hash, the table's does not"
                        }
                        (false, true) => {
                            "differs from the table; the table's line matches its hash, the segment's does not"
                        }
                        _ => "differs from the table",
                    };
                    found.fault(place, FindingKind::SegmentDiffers, format!("record {seq} {detail}"));
                    self.take(length + 1);
                    return;
                }
            }
        }
    }

    /// Skips the lines of records up to `upto`.
    pub(crate) fn skip(&mut self, upto: u64, found: &mut Findings) {
        while let NextLine::Line(length) = self.next(found) {
            if LedgerLine::claimed_seq(self.peek(length)).is_none_or(|seq| seq > upto) {
                return;
            }
            self.take(length + 1);
        }
    }

    /// Checks the remaining lines when the rows are at their end; records up to `written` must have been there.
    pub(crate) fn finish(&mut self, written: u64, found: &mut Findings) {
        let mut extra = 0_u64;
        let mut first = None;
        loop {
            let length = match self.next(found) {
                NextLine::End => break,
                NextLine::Line(length) => length + 1,
                NextLine::Torn(length) => length,
            };
            if let Some(name) = self.name() {
                first.get_or_insert(FindingLocation::Segment(name, self.line + 1));
            }
            extra += 1;
            self.take(length);
        }
        if let Some(place) = first {
            let detail = format!("{extra} lines from here on are not in the table");
            found.fault(place, FindingKind::ExtraLines, detail);
        }
        if let Some((from, to)) = self.missing_rows
            && from <= written
        {
            let to = to.min(written);
            let place = FindingLocation::Segment(SegmentName::starting(from), 1);
            let detail = format!("records {from} to {to} were written to a segment and are now in none");
            found.fault(place, FindingKind::SegmentShort, detail);
        }
    }

    /// Without a table: verifies the chain of the segments by itself.
    pub(crate) fn verify_chain(&mut self, verifier: &mut Verifier, found: &mut Findings) {
        loop {
            let (length, torn) = match self.next(found) {
                NextLine::End => return,
                NextLine::Line(length) => (length, false),
                NextLine::Torn(length) => (length, true),
            };
            let place =
                FindingLocation::Segment(self.name().unwrap_or(SegmentName::starting(0)), self.line + 1);
            if torn {
                found.fault(place, FindingKind::TornTail, "ends within a line");
                self.take(length);
            } else {
                let line = self.buffer.get(self.used..self.used + length).unwrap_or_default();
                verifier.feed(&place, line, found);
                self.take(length + 1);
            }
        }
    }

    fn mark_missing(&mut self, seq: u64) {
        self.missing_rows = Some(self.missing_rows.map_or((seq, seq), |(from, _)| (from, seq)));
    }

    fn name(&self) -> Option<SegmentName> {
        self.segments.get(self.at).map(|(name, _)| *name)
    }

    fn peek(&self, length: usize) -> &[u8] {
        self.buffer.get(self.used..self.used + length).unwrap_or_default()
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.used..self.end).unwrap_or_default()
    }

    fn take(&mut self, length: usize) {
        self.used += length;
        self.line += 1;
    }

    fn next(&mut self, found: &mut Findings) -> NextLine {
        loop {
            let Some((name, size)) = self.segments.get(self.at).copied() else { return NextLine::End };
            let rest = self.rest();
            if let Some(length) = memchr::memchr(b'\n', rest) {
                return NextLine::Line(length);
            }
            let left = size.saturating_sub(self.offset);
            let too_long = rest.len() > MAX_LINE_BYTES * 2;
            if left > 0 && !too_long {
                if self.fill(name, left, found) {
                    continue;
                }
                self.offset = size;
                continue;
            }
            if !rest.is_empty() {
                return NextLine::Torn(rest.len());
            }
            self.at += 1;
            (self.used, self.end, self.offset, self.line) = (0, 0, 0, 0);
        }
    }

    /// Reads more; `false` if the segment is shorter than its size promised.
    fn fill(&mut self, name: SegmentName, left: u64, found: &mut Findings) -> bool {
        self.buffer.copy_within(self.used..self.end, 0);
        let kept = self.end - self.used;
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        if self.buffer.len() < kept + want {
            self.buffer.resize(kept + want, 0);
        }
        let room = self.buffer.get_mut(kept..kept + want);
        let read = room.map_or(Ok(0), |room| self.files.read(name, self.offset, room));
        let read = read.unwrap_or_else(|error| {
            let place = FindingLocation::Segment(name, self.line + 1);
            found.fault(place, FindingKind::SegmentDiffers, format!("cannot be read: {error}"));
            0
        });
        (self.used, self.end) = (0, kept + read);
        self.offset += read as u64;
        read > 0
    }
}

fn missing_detail(from: u64, to: u64) -> String {
    format!("records {from} to {to} are in the table and in no segment")
}
