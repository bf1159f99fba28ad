//! Context for PEM private keys that are longer than the window scanned for secrets. If the window begins with a line that
//! may belong to a key, the key's `BEGIN` line is searched for further up.

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use memchr::{memchr, memmem, memrchr};

use super::context_window::SECRET_CONTEXT_BYTES;
use super::file_secrets::PositionedReader;

/// Bytes read per step upwards.
const READ_BYTES: u64 = 16 * 1024;
/// Maximum size of PEM headers between the `BEGIN` line and the key data, in bytes.
const MAX_HEADER_BYTES: u64 = 2048;
/// Minimum length of a base64 run in a line of key data.
const MIN_KEY_RUN_BYTES: usize = 16;

/// The key lines of one text that were scanned so far.
#[derive(Debug, Default)]
pub(super) struct PemContext {
    walked: Range<u64>,
    /// Offset and text of the `BEGIN` line above them.
    first: Option<(u64, Vec<u8>)>,
}

impl PemContext {
    /// The offset from which the text must be scanned to detect every secret at `at`. Cheapest with ascending offsets.
    pub(super) fn context_start(&mut self, text: &[u8], at: usize) -> usize {
        let from = at.saturating_sub(SECRET_CONTEXT_BYTES);
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let read = |from: u64, to: u64| Ok(text.get(place(from)..place(to)).unwrap_or_default().to_vec());
        let part = text.get(from..at).unwrap_or_default();
        match self.above(from as u64, part, read) {
            Ok(Some((first, _))) => place(*first).min(from),
            _ => from,
        }
    }

    /// The `BEGIN` line of the key whose data the part of the file at `from` begins with; empty if there is none.
    pub(super) fn begin_line(
        &mut self,
        file: BorrowedFd<'_>,
        skip: u64,
        from: u64,
        part: &[u8],
    ) -> io::Result<&[u8]> {
        let found = self.above(from, part, |from, to| {
            let mut piece = Vec::new();
            PositionedReader { file, at: skip + from }.take(to - from).read_to_end(&mut piece).map(|_| piece)
        })?;
        Ok(found.map_or(&[], |(_, line)| line.as_slice()))
    }

    fn above(
        &mut self,
        from: u64,
        part: &[u8],
        read: impl Fn(u64, u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<Option<&(u64, Vec<u8>)>> {
        // The first line of the part may be cut.
        let whole = memchr(b'\n', part).and_then(|end| part.get(end + 1..)).unwrap_or_default();
        let first = whole.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if from == 0 || !is_key_line(first) {
            return Ok(None);
        }
        let end = from + (part.len() - whole.len()) as u64;
        let mut place = end;
        while self.walked.is_empty() || !(self.walked.start..=self.walked.end).contains(&place) {
            let start = place.saturating_sub(READ_BYTES);
            let piece = read(start, place)?;
            let lines = if start == 0 { Some(0) } else { memchr(b'\n', &piece).map(|end| end + 1) };
            // A line this long is not key data.
            let lines = lines.unwrap_or(piece.len());
            let stop = run_start(&piece, lines).or((lines == piece.len() || start == 0).then_some(lines));
            let Some(stop) = stop else {
                place = start + lines as u64;
                continue;
            };
            let stop = start + stop as u64;
            let above_it = stop.saturating_sub(MAX_HEADER_BYTES);
            self.first =
                last_begin_line(&read(above_it, stop)?).map(|(at, line)| (above_it + at as u64, line));
            self.walked = stop..end;
            break;
        }
        self.walked.end = self.walked.end.max(end);
        Ok(self.first.as_ref())
    }
}

/// Start of the run of key lines at the end of a text; `None` when all lines from `lines` on are key lines.
fn run_start(text: &[u8], lines: usize) -> Option<usize> {
    let mut end = text.len();
    while end > lines {
        let head = text.get(lines..end - 1).unwrap_or_default();
        let start = memrchr(b'\n', head).map_or(lines, |at| lines + at + 1);
        if !is_key_line(text.get(start..end).unwrap_or_default()) {
            return Some(end);
        }
        end = start;
    }
    None
}

/// The last `BEGIN ... PRIVATE KEY` line, with its offset.
fn last_begin_line(text: &[u8]) -> Option<(usize, Vec<u8>)> {
    let name = memmem::rfind(text, b"PRIVATE KEY")?;
    let start = memrchr(b'\n', text.get(..name)?).map_or(0, |end| end + 1);
    let line = text.get(start..)?.split_inclusive(|byte| *byte == b'\n').next()?;
    Some((start, line.to_vec()))
}

fn is_key_line(line: &[u8]) -> bool {
    line.split(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')))
        .any(|run| run.len() >= MIN_KEY_RUN_BYTES)
}
