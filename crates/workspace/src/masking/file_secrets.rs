//! Secrets of a file of which only some lines are needed: the lines of a partial read, or those that a pattern matches. A
//! window around the lines is scanned, not the whole file.
//!
//! A matching line that holds a secret is matched again with the secret masked, and a match that touches a secret does not
//! count; so the result of a search does not depend on secrets. Checking only the lines that match unmasked is enough: a
//! match in the masked line that touches no secret is also a match in the original line.

use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use vambrace_core::redacted::{RedactError, SecretSpan};

use super::context_window::SECRET_CONTEXT_BYTES;
use super::pem_context::PemContext;
use super::{SecretFinder, TextSecrets};

const CONTEXT_BYTES: u64 = SECRET_CONTEXT_BYTES as u64;
/// Bytes scanned after a line: initially, and at most when nearby lines follow (doubled each time).
const LOOKAHEAD_BYTES: Range<u64> = 16 * 1024..512 * 1024;

/// The text in which secrets are detected.
#[derive(Clone, Copy)]
pub(crate) enum SecretText<'a> {
    Text(&'a [u8]),
    /// A file from this byte offset on.
    File(BorrowedFd<'a>, u64),
}

/// Secrets of a file, detected in a window around the requested lines.
pub(crate) struct FileSecrets<'a> {
    finder: &'a SecretFinder,
    source: SecretText<'a>,
    /// Offset and bytes of the window that was scanned last.
    from: u64,
    part: Vec<u8>,
    /// The range of the window far enough from its ends that every secret in it was detected.
    covered: Range<u64>,
    ahead: u64,
    pem_context: PemContext,
    secrets: Vec<(Range<u64>, String)>,
}

impl<'a> FileSecrets<'a> {
    pub(crate) fn new(finder: &'a SecretFinder, source: SecretText<'a>) -> Self {
        Self {
            finder,
            source,
            from: 0,
            part: Vec::new(),
            covered: 0..0,
            ahead: LOOKAHEAD_BYTES.start,
            pem_context: PemContext::default(),
            secrets: Vec::new(),
        }
    }

    /// The secrets in a line.
    pub(crate) fn in_line(&mut self, at: u64, line: &[u8]) -> io::Result<TextSecrets> {
        let end = at + line.len() as u64;
        if at < self.covered.start || end > self.covered.end {
            self.scan(at, end)?;
        }
        if matches!(self.source, SecretText::File(..)) {
            let place = usize::try_from(at - self.from).unwrap_or(usize::MAX);
            let seen = self.part.get(place..).unwrap_or_default();
            if !seen.starts_with(line) {
                let why = "the file changed during secret detection";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
        }
        let first = self.secrets.partition_point(|(span, _)| span.end <= at);
        let inside = self.secrets.iter().skip(first).take_while(|(span, _)| span.start < end);
        let place = |at_file: u64| usize::try_from(at_file.clamp(at, end) - at).unwrap_or(line.len());
        let secret = |(span, placeholder): &(Range<u64>, String)| SecretSpan {
            span: place(span.start)..place(span.end),
            placeholder: placeholder.clone(),
        };
        Ok(TextSecrets::new(inside.map(secret).collect()))
    }

    fn scan(&mut self, at: u64, end: u64) -> io::Result<()> {
        let mut ahead_of_it = 0;
        let found = match self.source {
            SecretText::Text(text) => {
                self.covered = 0..u64::MAX;
                self.finder.find(text)
            }
            SecretText::File(file, skip) => {
                let near = at < self.from + self.part.len() as u64 + CONTEXT_BYTES;
                self.ahead =
                    if near { (self.ahead * 2).min(LOOKAHEAD_BYTES.end) } else { LOOKAHEAD_BYTES.start };
                self.from = at.saturating_sub(CONTEXT_BYTES);
                let most = end + self.ahead + CONTEXT_BYTES - self.from;
                self.part.clear();
                PositionedReader { file, at: skip + self.from }.take(most).read_to_end(&mut self.part)?;
                let to = self.from + self.part.len() as u64;
                let from = if self.from == 0 { 0 } else { self.from + CONTEXT_BYTES };
                let whole = (self.part.len() as u64) < most;
                self.covered = from..if whole { u64::MAX } else { to - CONTEXT_BYTES };
                let begin_line = self.pem_context.begin_line(file, skip, self.from, &self.part)?;
                if begin_line.is_empty() {
                    self.finder.find(&self.part)
                } else {
                    ahead_of_it = begin_line.len();
                    self.finder.find(&[begin_line, &self.part].concat())
                }
            }
        };
        let found = found.map_err(|RedactError(why)| io::Error::other(why))?;
        let place = |at: usize| self.from + at.saturating_sub(ahead_of_it) as u64;
        let secrets = found.iter().map(|SecretSpan { span, placeholder }| {
            (place(span.start)..place(span.end), placeholder.clone())
        });
        self.secrets = secrets.collect();
        Ok(())
    }
}

/// Reads a file from an offset with `pread`, independent of the handle's position.
pub(crate) struct PositionedReader<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) at: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = rustix::io::pread(self.file, buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
