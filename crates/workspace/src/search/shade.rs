//! The secrets of a file that is searched. A line that matches and holds one is matched again with it blotted out, and
//! what then touches one is no match; so what is found does not depend on them.
//!
//! It is enough to look at lines that match as they are: a match in the blotted line that touches no secret is one in the
//! line itself, which then matches too.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vambrace_core::redacted::{RedactError, Secret};

use super::armour::Armour;
use crate::loom::{SECRET_REACH, blot, meet};

const REACH: u64 = SECRET_REACH as u64;
/// So much is looked at behind a line at first, and at most when lines nearby follow.
const AHEAD: Range<u64> = 16 * 1024..512 * 1024;

/// Tells where the secrets of a text stand, in order.
#[derive(Clone)]
pub struct SecretFinder(Arc<Find>);

type Find = dyn Fn(&[u8]) -> Result<Vec<Secret>, RedactError> + Send + Sync;

impl SecretFinder {
    /// One that asks this.
    pub fn new(find: impl Fn(&[u8]) -> Result<Vec<Secret>, RedactError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// A text without its secrets, each byte where it was.
    pub(crate) fn blotted<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, RedactError> {
        let spans: Vec<_> = (self.0)(text.as_bytes())?.into_iter().map(|secret| secret.span).collect();
        if spans.is_empty() {
            return Ok(text.into());
        }
        let mut bytes = text.as_bytes().to_vec();
        blot(&mut bytes, &spans);
        String::from_utf8(bytes).map(Cow::from).map_err(|error| RedactError(error.to_string()))
    }
}

impl fmt::Debug for SecretFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretFinder")
    }
}

/// What is searched.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Text(&'a [u8]),
    /// A file from this byte on.
    File(BorrowedFd<'a>, u64),
}

/// A file's secrets, as far as they were needed.
pub(crate) struct Shade<'a> {
    finder: &'a SecretFinder,
    source: Source<'a>,
    /// The part that was looked at last.
    from: u64,
    part: Vec<u8>,
    /// What of it is so far from its ends that every secret there was seen.
    sure: Range<u64>,
    ahead: u64,
    armour: Armour,
    secrets: Vec<(Range<u64>, String)>,
}

impl<'a> Shade<'a> {
    pub(crate) fn new(finder: &'a SecretFinder, source: Source<'a>) -> Self {
        Self {
            finder,
            source,
            from: 0,
            part: Vec::new(),
            sure: 0..0,
            ahead: AHEAD.start,
            armour: Armour::default(),
            secrets: Vec::new(),
        }
    }

    /// The secrets in a line.
    pub(crate) fn of_line(&mut self, at: u64, line: &[u8]) -> io::Result<Shaded> {
        let end = at + line.len() as u64;
        if at < self.sure.start || end > self.sure.end {
            self.look(at, end)?;
        }
        if matches!(self.source, Source::File(..)) {
            let place = usize::try_from(at - self.from).unwrap_or(usize::MAX);
            let seen = self.part.get(place..).unwrap_or_default();
            if !seen.starts_with(line) {
                let why = "the file changed while its secrets were looked for";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
        }
        let first = self.secrets.partition_point(|(span, _)| span.end <= at);
        let inside = self.secrets.iter().skip(first).take_while(|(span, _)| span.start < end);
        let place = |at_file: u64| usize::try_from(at_file.clamp(at, end) - at).unwrap_or(line.len());
        let mut shaded = Shaded::default();
        for (span, mark) in inside {
            shaded.spans.push(place(span.start)..place(span.end));
            shaded.marks.push(mark.clone());
        }
        Ok(shaded)
    }

    fn look(&mut self, at: u64, end: u64) -> io::Result<()> {
        let mut ahead_of_it = 0;
        let found = match self.source {
            Source::Text(text) => {
                self.sure = 0..u64::MAX;
                (self.finder.0)(text)
            }
            Source::File(file, skip) => {
                let near = at < self.from + self.part.len() as u64 + REACH;
                self.ahead = if near { (self.ahead * 2).min(AHEAD.end) } else { AHEAD.start };
                self.from = at.saturating_sub(REACH);
                let most = end + self.ahead + REACH - self.from;
                self.part.clear();
                FileFrom { file, at: skip + self.from }.take(most).read_to_end(&mut self.part)?;
                let to = self.from + self.part.len() as u64;
                let from = if self.from == 0 { 0 } else { self.from + REACH };
                let whole = (self.part.len() as u64) < most;
                self.sure = from..if whole { u64::MAX } else { to - REACH };
                let first_line = self.armour.first_line(file, skip, self.from, &self.part)?;
                if first_line.is_empty() {
                    (self.finder.0)(&self.part)
                } else {
                    ahead_of_it = first_line.len();
                    (self.finder.0)(&[first_line, &self.part].concat())
                }
            }
        };
        self.secrets.clear();
        for Secret { span, mark } in found.map_err(|RedactError(why)| io::Error::other(why))? {
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

/// The secrets of one line, in order and apart.
#[derive(Default)]
pub(crate) struct Shaded {
    spans: Vec<Range<usize>>,
    marks: Vec<String>,
}

impl Shaded {
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.spans.len()).unwrap_or(u32::MAX)
    }

    /// The line without them.
    pub(crate) fn blotted(&self, line: &[u8]) -> Vec<u8> {
        let mut line = line.to_vec();
        blot(&mut line, &self.spans);
        line
    }

    /// Whether a match depends on one of them, where it may also depend on the letters beside it.
    pub(crate) fn touches(&self, found: &Range<usize>, looks_around: bool) -> bool {
        let beside = |span: &Range<usize>| span.start == found.end || span.end == found.start;
        meet(&self.spans, found) || (looks_around && self.spans.iter().any(beside))
    }

    /// The line with their marks instead, and where a place outside of them is then. Its length tells nothing of theirs.
    pub(crate) fn marked(&self, line: &[u8], place: usize) -> (Vec<u8>, usize) {
        let (mut shown, mut from, mut now) = (Vec::with_capacity(line.len()), 0, place);
        for (span, mark) in self.spans.iter().zip(&self.marks) {
            shown.extend_from_slice(line.get(from..span.start).unwrap_or_default());
            shown.extend_from_slice(mark.as_bytes());
            // The end of a line stays one, also inside of a key.
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

/// Reads a file from a place on, whatever its handle is at.
pub(crate) struct FileFrom<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) at: u64,
}

impl Read for FileFrom<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = rustix::io::pread(self.file, buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
