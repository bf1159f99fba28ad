//! Picks a range of lines from text that arrives in chunks, within a byte limit. Whole lines where possible; a single line
//! longer than the limit is cut at a character boundary. The reported range is exactly the returned one.

use memchr::{memchr, memchr_iter};

use super::LineRange;

/// Collects the lines of a range.
#[derive(Debug)]
pub(crate) struct LinePicker {
    asked: LineRange,
    cap: usize,
    picked: Vec<u8>,
    /// Byte offset of `picked` in the text.
    from: u64,
    /// The line that the next byte belongs to.
    line: u64,
    /// Where that line starts in `picked`.
    line_at: usize,
    last: u64,
    cut: bool,
}

/// The lines of a range.
pub(crate) struct PickedLines {
    pub(crate) bytes: Vec<u8>,
    /// Byte offset in the text.
    pub(crate) from: u64,
    pub(crate) range: LineRange,
    /// Whether the byte limit cut something.
    pub(crate) cut: bool,
}

impl LinePicker {
    pub(crate) fn new(asked: LineRange, cap: usize) -> Self {
        let (line, last) = (1, asked.start_line - 1);
        Self { asked, cap, picked: Vec::new(), from: 0, line, line_at: 0, last, cut: false }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        if self.line < self.asked.start_line {
            let missing = usize::try_from(self.asked.start_line - self.line).unwrap_or(usize::MAX);
            match memchr_iter(b'\n', rest).nth(missing - 1) {
                Some(at) => {
                    self.line = self.asked.start_line;
                    self.from += at as u64 + 1;
                    rest = rest.get(at + 1..).unwrap_or_default();
                }
                None => {
                    self.line += memchr_iter(b'\n', rest).count() as u64;
                    self.from += rest.len() as u64;
                    return;
                }
            }
        }
        while !rest.is_empty() && self.line <= self.asked.end_line && !self.cut {
            let newline = memchr(b'\n', rest);
            let (part, tail) = rest.split_at(newline.map_or(rest.len(), |at| at + 1));
            self.add(part);
            rest = tail;
            if newline.is_some() {
                self.line += 1;
                self.line_at = self.picked.len();
            }
        }
    }

    pub(crate) fn finish(self, total_lines: u64) -> PickedLines {
        let start_line = self.asked.start_line;
        let end_line = self.last.min(total_lines.max(start_line - 1));
        PickedLines {
            bytes: self.picked,
            from: self.from,
            range: LineRange { start_line, end_line },
            cut: self.cut,
        }
    }

    fn add(&mut self, part: &[u8]) {
        let room = self.cap - self.picked.len();
        if part.len() <= room {
            self.picked.extend_from_slice(part);
            self.last = self.line;
            return;
        }
        self.cut = true;
        if self.line_at > 0 {
            self.picked.truncate(self.line_at);
            self.last = self.line - 1;
            return;
        }
        self.picked.extend_from_slice(part.get(..room).unwrap_or(part));
        if let Err(error) = std::str::from_utf8(&self.picked) {
            self.picked.truncate(error.valid_up_to());
        }
        self.last = self.line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, lines: (u64, u64), cap: usize, expected: (&str, u64, u64, bool)) {
        let total = text.lines().count() as u64;
        for split in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            let mut picker = LinePicker::new(LineRange { start_line: lines.0, end_line: lines.1 }, cap);
            picker.feed(&text.as_bytes()[..split]);
            picker.feed(&text.as_bytes()[split..]);
            let PickedLines { bytes, from, range, cut } = picker.finish(total);
            let got = (std::str::from_utf8(&bytes).unwrap(), range.start_line, range.end_line, cut);
            assert_eq!(got, expected, "split at {split}");
            let there = usize::try_from(from).unwrap();
            assert!(
                text.as_bytes()[there..].starts_with(expected.0.as_bytes()),
                "split at {split}: from {from}"
            );
        }
    }

    // T6, B1
    #[test]
    fn whole_lines_within_the_byte_limit_are_returned() {
        let text = "one\ntwo\nthree\nfour";
        check(text, (1, 200), 1000, (text, 1, 4, false));
        check(text, (2, 3), 1000, ("two\nthree\n", 2, 3, false));
        check(text, (4, 4), 1000, ("four", 4, 4, false));
        check(text, (4, 9), 1000, ("four", 4, 4, false));
        check(text, (5, 9), 1000, ("", 5, 4, false));
        check(text, (9, 12), 1000, ("", 9, 8, false));
        check(text, (1, 4), 8, ("one\ntwo\n", 1, 2, true));
        check(text, (1, 4), 9, ("one\ntwo\n", 1, 2, true));
        check(text, (3, 4), 3, ("thr", 3, 3, true));
        check(text, (1, 1), 4, ("one\n", 1, 1, false));
        check(text, (1, 2), 0, ("", 1, 1, true));
        check("", (1, 200), 10, ("", 1, 0, false));
        check("\n\n", (1, 200), 10, ("\n\n", 1, 2, false));
    }

    #[test]
    fn a_long_line_is_cut_at_a_character_boundary() {
        check("ääää", (1, 1), 5, ("ää", 1, 1, true));
        check("a漢字", (1, 1), 3, ("a", 1, 1, true));
    }
}
