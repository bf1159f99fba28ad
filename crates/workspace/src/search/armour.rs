//! Private keys that are longer than what is looked at around a place. Where that begins with a line that may be one of a
//! key, the line that announces the key is looked for further up.

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use memchr::{memchr, memmem, memrchr};

use super::shade::FileFrom;
use crate::loom::SECRET_REACH;

/// So much is read at a time.
const PIECE: u64 = 16 * 1024;
/// Headers may stand between the first line of a key and its lines.
const ABOVE: u64 = 2048;
/// A line of a key holds at least so much in one piece.
const RUN: usize = 16;

/// The lines of one text that may be of a key, as far as they were walked.
#[derive(Debug, Default)]
pub struct Armour {
    walked: Range<u64>,
    /// The line that announces them, and where it stands.
    first: Option<(u64, Vec<u8>)>,
}

impl Armour {
    /// From where a text must be looked at to know every secret at a place. Walks least where places come in order.
    pub fn reach_back(&mut self, text: &[u8], at: usize) -> usize {
        let from = at.saturating_sub(SECRET_REACH);
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let read = |from: u64, to: u64| Ok(text.get(place(from)..place(to)).unwrap_or_default().to_vec());
        let part = text.get(from..at).unwrap_or_default();
        match self.above(from as u64, part, read) {
            Ok(Some((first, _))) => place(*first).min(from),
            _ => from,
        }
    }

    /// The line that announces the key whose lines a part of a file, from `from` on, begins with; empty where there is none.
    pub(super) fn first_line(
        &mut self,
        file: BorrowedFd<'_>,
        skip: u64,
        from: u64,
        part: &[u8],
    ) -> io::Result<&[u8]> {
        let found = self.above(from, part, |from, to| {
            let mut piece = Vec::new();
            FileFrom { file, at: skip + from }.take(to - from).read_to_end(&mut piece).map(|_| piece)
        })?;
        Ok(found.map_or(&[], |(_, line)| line.as_slice()))
    }

    fn above(
        &mut self,
        from: u64,
        part: &[u8],
        read: impl Fn(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<Option<&(u64, Vec<u8>)>> {
        // What it begins with may be cut.
        let whole = memchr(b'\n', part).and_then(|end| part.get(end + 1..)).unwrap_or_default();
        let first = whole.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if from == 0 || !may_be_key(first) {
            return Ok(None);
        }
        let end = from + (part.len() - whole.len()) as u64;
        let mut place = end;
        while self.walked.is_empty() || !(self.walked.start..=self.walked.end).contains(&place) {
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
            let above_it = stop.saturating_sub(ABOVE);
            self.first = announced(&read(above_it, stop)?).map(|(at, line)| (above_it + at as u64, line));
            self.walked = stop..end;
            break;
        }
        self.walked.end = self.walked.end.max(end);
        Ok(self.first.as_ref())
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

/// The last line that announces a private key.
fn announced(text: &[u8]) -> Option<(usize, Vec<u8>)> {
    let name = memmem::rfind(text, b"PRIVATE KEY")?;
    let start = memrchr(b'\n', text.get(..name)?).map_or(0, |end| end + 1);
    let line = text.get(start..)?.split_inclusive(|byte| *byte == b'\n').next()?;
    Some((start, line.to_vec()))
}

fn may_be_key(line: &[u8]) -> bool {
    line.split(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')))
        .any(|run| run.len() >= RUN)
}
