//! The segments read beside the table, line by line. A missing or an extra line is one finding, not one for
//! every line behind it.

use vambrace_ledger::{Findings, Kind, Line, MAX_LINE_BYTES, Place, SegmentName, Verifier};

use crate::disk::SegmentFiles;

const PIECE: usize = 256 << 10;

/// Some segments, one behind the other.
pub(crate) struct Mirror<'a> {
    files: &'a dyn SegmentFiles,
    segments: Vec<(SegmentName, u64)>,
    /// Which of them is being read.
    at: usize,
    /// What was read of it and not yet used, and where that begins and ends.
    buffer: Vec<u8>,
    used: usize,
    end: usize,
    offset: u64,
    line: u64,
    /// Rows that no segment had a line for, at the end of the table as far as it was read.
    lacking: Option<(u64, u64)>,
}

/// The next line of the segments.
enum Next {
    /// Its length in the buffer, without the newline.
    Line(usize),
    /// Bytes without a newline at the end of a segment.
    Torn(usize),
    End,
}

impl<'a> Mirror<'a> {
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
            lacking: None,
        }
    }

    /// Compares the next line with a row of the table.
    pub(crate) fn compare(&mut self, seq: u64, row: &[u8], found: &mut Findings) {
        // Nearly always the next line is the row, and then there is nothing to look for.
        let rest = self.rest();
        if rest.get(row.len()) == Some(&b'\n') && rest.starts_with(row) && self.lacking.is_none() {
            return self.take(row.len() + 1);
        }
        loop {
            let name = self.name();
            let (length, torn) = match self.next(found) {
                Next::End => return self.lack(seq),
                Next::Line(length) => (length, false),
                Next::Torn(length) => (length, true),
            };
            let place =
                Place::Segment(self.name().or(name).unwrap_or(SegmentName::starting(0)), self.line + 1);
            let line = self.peek(length);
            if line == row && !torn {
                self.take(length + 1);
                // A later line is there, so these were cut out; at the very end they may just not be written yet.
                if let Some((from, to)) = self.lacking.take() {
                    found.fault(place, Kind::SegmentShort, missing(from, to));
                }
                return;
            }
            if torn {
                let honest = row.starts_with(line);
                self.take(length);
                if honest {
                    let detail = "the last line is not complete, as after a crash; the next start repairs it";
                    found.note(place, Kind::TornTail, detail);
                } else {
                    found.fault(place, Kind::TornTail, "ends within a line that the table does not have");
                }
                return self.lack(seq);
            }
            match Line::claimed_seq(line) {
                Some(claimed) if claimed > seq => return self.lack(seq),
                Some(claimed) if claimed < seq => {
                    let detail = format!("record {claimed} is here and not in the table at this place");
                    found.fault(place, Kind::ExtraLines, detail);
                    self.take(length + 1);
                }
                _ => {
                    let detail = match (Line::read(line).is_ok(), Line::read(row).is_ok()) {
                        (true, false) => {
                            "differs from the table; the segment's line fits its hash, the table's does not"
                        }
                        (false, true) => {
                            "differs from the table; the table's line fits its hash, the segment's does not"
                        }
                        _ => "differs from the table",
                    };
                    found.fault(place, Kind::SegmentDiffers, format!("record {seq} {detail}"));
                    self.take(length + 1);
                    return;
                }
            }
        }
    }

    /// Passes over the lines of records up to one.
    pub(crate) fn skip(&mut self, upto: u64, found: &mut Findings) {
        while let Next::Line(length) = self.next(found) {
            if Line::claimed_seq(self.peek(length)).is_none_or(|seq| seq > upto) {
                return;
            }
            self.take(length + 1);
        }
    }

    /// What is left when the rows are at their end; records up to `written` must have been there.
    pub(crate) fn finish(&mut self, written: u64, found: &mut Findings) {
        let mut extra = 0_u64;
        let mut first = None;
        loop {
            let length = match self.next(found) {
                Next::End => break,
                Next::Line(length) => length + 1,
                Next::Torn(length) => length,
            };
            if let Some(name) = self.name() {
                first.get_or_insert(Place::Segment(name, self.line + 1));
            }
            extra += 1;
            self.take(length);
        }
        if let Some(place) = first {
            let detail = format!("{extra} lines from here on are not in the table");
            found.fault(place, Kind::ExtraLines, detail);
        }
        if let Some((from, to)) = self.lacking
            && from <= written
        {
            let to = to.min(written);
            let place = Place::Segment(SegmentName::starting(from), 1);
            let detail = format!("records {from} to {to} were written to a segment and are in none");
            found.fault(place, Kind::SegmentShort, detail);
        }
    }

    /// Without a table: the chain of the segments by itself.
    pub(crate) fn alone(&mut self, verifier: &mut Verifier, found: &mut Findings) {
        loop {
            let (length, torn) = match self.next(found) {
                Next::End => return,
                Next::Line(length) => (length, false),
                Next::Torn(length) => (length, true),
            };
            let place = Place::Segment(self.name().unwrap_or(SegmentName::starting(0)), self.line + 1);
            if torn {
                found.fault(place, Kind::TornTail, "ends within a line");
                self.take(length);
            } else {
                let line = self.buffer.get(self.used..self.used + length).unwrap_or_default();
                verifier.feed(&place, line, found);
                self.take(length + 1);
            }
        }
    }

    fn lack(&mut self, seq: u64) {
        self.lacking = Some(self.lacking.map_or((seq, seq), |(from, _)| (from, seq)));
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

    fn next(&mut self, found: &mut Findings) -> Next {
        loop {
            let Some((name, size)) = self.segments.get(self.at).copied() else { return Next::End };
            let rest = self.rest();
            if let Some(length) = memchr::memchr(b'\n', rest) {
                return Next::Line(length);
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
                return Next::Torn(rest.len());
            }
            self.at += 1;
            (self.used, self.end, self.offset, self.line) = (0, 0, 0, 0);
        }
    }

    /// Reads on; false when the segment does not give what its size promised.
    fn fill(&mut self, name: SegmentName, left: u64, found: &mut Findings) -> bool {
        self.buffer.copy_within(self.used..self.end, 0);
        let kept = self.end - self.used;
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        if self.buffer.len() < kept + want {
            self.buffer.resize(kept + want, 0);
        }
        let room = self.buffer.get_mut(kept..kept + want);
        let read = room.map_or(Ok(0), |room| self.files.read(name, self.offset, room));
        let read = read.unwrap_or_else(|error| {
            let place = Place::Segment(name, self.line + 1);
            found.fault(place, Kind::SegmentDiffers, format!("cannot be read: {error}"));
            0
        });
        (self.used, self.end) = (0, kept + read);
        self.offset += read as u64;
        read > 0
    }
}

fn missing(from: u64, to: u64) -> String {
    format!("records {from} to {to} are in the table and in no segment")
}
