//! Secrets of a file that is searched. A matching line that holds a secret is matched again with the secret masked, and a
//! match that touches a secret does not count; so the result of a search does not depend on secrets.
//!
//! Checking only the lines that match unmasked is enough: a match in the masked line that touches no secret is also a match
//! in the original line.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vambrace_core::redacted::{RedactError, SecretSpan};

use super::pem_context::PemContext;
use crate::edit::{SECRET_CONTEXT_BYTES, mask_spans, overlaps_any};

const CONTEXT_BYTES: u64 = SECRET_CONTEXT_BYTES as u64;
/// Bytes scanned after a line: initially, and at most when nearby lines follow (doubled each time).
const LOOKAHEAD_BYTES: Range<u64> = 16 * 1024..512 * 1024;

/// Finds the secrets of a text, in order.
#[derive(Clone)]
pub struct SecretFinder(Arc<FindSecrets>);

type FindSecrets = dyn Fn(&[u8]) -> Result<Vec<SecretSpan>, RedactError> + Send + Sync;

impl SecretFinder {
    /// Wraps a detector.
    pub fn new(find: impl Fn(&[u8]) -> Result<Vec<SecretSpan>, RedactError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// The text with its secrets masked; every other byte keeps its offset.
    pub(crate) fn masked<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, RedactError> {
        let spans: Vec<_> = (self.0)(text.as_bytes())?.into_iter().map(|secret| secret.span).collect();
        if spans.is_empty() {
            return Ok(text.into());
        }
        let mut bytes = text.as_bytes().to_vec();
        mask_spans(&mut bytes, &spans);
        String::from_utf8(bytes).map(Cow::from).map_err(|error| RedactError(error.to_string()))
    }
}

impl fmt::Debug for SecretFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretFinder")
    }
}

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
    pub(crate) fn in_line(&mut self, at: u64, line: &[u8]) -> io::Result<LineSecrets> {
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
        let mut found = LineSecrets::default();
        for (span, mark) in inside {
            found.spans.push(place(span.start)..place(span.end));
            found.placeholders.push(mark.clone());
        }
        Ok(found)
    }

    fn scan(&mut self, at: u64, end: u64) -> io::Result<()> {
        let mut ahead_of_it = 0;
        let found = match self.source {
            SecretText::Text(text) => {
                self.covered = 0..u64::MAX;
                (self.finder.0)(text)
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
                    (self.finder.0)(&self.part)
                } else {
                    ahead_of_it = begin_line.len();
                    (self.finder.0)(&[begin_line, &self.part].concat())
                }
            }
        };
        self.secrets.clear();
        for SecretSpan { span, placeholder: mark } in
            found.map_err(|RedactError(why)| io::Error::other(why))?
        {
            let place = |at: usize| self.from + at.saturating_sub(ahead_of_it) as u64;
            let span = place(span.start)..place(span.end);
            match self.secrets.last_mut() {
                Some((last, _)) if span.start < last.end => last.end = last.end.max(span.end),
                _ => self.secrets.push((span, mark)),
            }
        }
        Ok(())
    }
}

/// The secrets of one line, sorted and not overlapping.
#[derive(Default)]
pub(crate) struct LineSecrets {
    spans: Vec<Range<usize>>,
    placeholders: Vec<String>,
}

impl LineSecrets {
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.spans.len()).unwrap_or(u32::MAX)
    }

    /// The line with its secrets masked.
    pub(crate) fn masked(&self, line: &[u8]) -> Vec<u8> {
        let mut line = line.to_vec();
        mask_spans(&mut line, &self.spans);
        line
    }

    /// Whether a match depends on a secret; with `uses_word_boundary` it also depends on the characters beside it.
    pub(crate) fn touches(&self, found: &Range<usize>, uses_word_boundary: bool) -> bool {
        let beside = |span: &Range<usize>| span.start == found.end || span.end == found.start;
        overlaps_any(&self.spans, found) || (uses_word_boundary && self.spans.iter().any(beside))
    }

    /// The line with placeholders instead of secrets, and the new offset of `place`, which is outside of them. The length
    /// of the result reveals nothing about the length of a secret.
    pub(crate) fn with_placeholders(&self, line: &[u8], place: usize) -> (Vec<u8>, usize) {
        let (mut shown, mut from, mut now) = (Vec::with_capacity(line.len()), 0, place);
        for (span, mark) in self.spans.iter().zip(&self.placeholders) {
            shown.extend_from_slice(line.get(from..span.start).unwrap_or_default());
            shown.extend_from_slice(mark.as_bytes());
            // A line ending is kept, also inside a multi-line key.
            let secret = line.get(span.clone()).unwrap_or_default();
            let end = secret.iter().rev().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            from = span.end - end;
            if span.end <= place {
                now = shown.len() + (place - from);
            }
        }
        shown.extend_from_slice(line.get(from..).unwrap_or_default());
        (shown, now)
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
