//! Private keys that are longer than what is looked at before a line. Where nothing but lines that may be of a key stands
//! there, the line that announces them is looked for further up, so that the redactor can be shown it.

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use memchr::{memchr, memmem, memrchr};

use super::shade::FileFrom;

/// So much is read at a time.
const PIECE: u64 = 64 * 1024;
/// Headers may stand between the first line of a key and its lines.
const ABOVE: u64 = 2048;
/// A line of a key holds at least so much in one piece.
const RUN: usize = 16;

/// The lines of one file that may be of a key, as far as they were walked.
#[derive(Default)]
pub(crate) struct Armour {
    walked: Range<u64>,
    first_line: Vec<u8>,
}

impl Armour {
    /// The line that announces the key which `before`, the text from `from` on, is a part of; empty where it is none.
    pub(crate) fn first_line(
        &mut self,
        file: BorrowedFd<'_>,
        skip: u64,
        from: u64,
        before: &[u8],
    ) -> io::Result<&[u8]> {
        let lines = memchr(b'\n', before).map_or(before.len(), |end| end + 1);
        if from == 0 || lines == before.len() || run_start(before, lines).is_some() {
            return Ok(&[]);
        }
        let end = from + lines as u64;
        let mut place = end;
        let read = |from: u64, to: u64| {
            let mut piece = Vec::new();
            FileFrom { file, at: skip + from }.take(to - from).read_to_end(&mut piece).map(|_| piece)
        };
        while !(self.walked.start..=self.walked.end).contains(&place) || self.walked.is_empty() {
            let start = place.saturating_sub(PIECE);
            let piece = read(start, place)?;
            let lines = if start == 0 { Some(0) } else { memchr(b'\n', &piece).map(|end| end + 1) };
            // A line of this length is none of a key.
            let lines = lines.unwrap_or(piece.len());
            let stop = run_start(&piece, lines).or((lines == piece.len() || start == 0).then_some(lines));
            let Some(stop) = stop else {
                place = start + lines as u64;
                continue;
            };
            let stop = start + stop as u64;
            let above = read(stop.saturating_sub(ABOVE), stop)?;
            let named = memmem::rfind(&above, b"PRIVATE KEY").map(|name| {
                let line = memrchr(b'\n', above.get(..name).unwrap_or_default()).map_or(0, |end| end + 1);
                let rest = above.get(line..).unwrap_or_default();
                rest.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
            });
            (self.walked, self.first_line) = (stop..end, named.unwrap_or_default());
            break;
        }
        self.walked.end = self.walked.end.max(end);
        Ok(&self.first_line)
    }
}

/// Where the lines that may be of a key begin at the end of a text, when not all of its lines from `lines` on are such.
fn run_start(text: &[u8], lines: usize) -> Option<usize> {
    let mut end = text.len();
    while end > lines {
        let head = text.get(lines..end - 1).unwrap_or_default();
        let start = memrchr(b'\n', head).map_or(lines, |at| lines + at + 1);
        if !may_be_key(text.get(start..end).unwrap_or_default()) {
            return Some(end);
        }
        end = start;
    }
    None
}

fn may_be_key(line: &[u8]) -> bool {
    line.split(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')))
        .any(|run| run.len() >= RUN)
}
