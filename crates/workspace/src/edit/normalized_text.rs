//! A file's text as patterns match it: without its byte order mark, every line ending a `\n`. Spans are mapped back to the
//! bytes of the file, and inserted text takes the file's own line endings.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter};

/// The byte order mark of UTF-8.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Text with one line ending style, and the mapping back to the original bytes.
#[derive(Debug)]
pub(crate) struct NormalizedText<'a> {
    text: Cow<'a, [u8]>,
    /// Bytes of the file before the text.
    skipped: usize,
    /// Offsets in `text` of the `\n` that were `\r\n`.
    pairs: Vec<usize>,
}

impl<'a> NormalizedText<'a> {
    /// Unchanged, without the byte order mark.
    pub(crate) fn raw(base: &'a [u8]) -> Self {
        let text = base.strip_prefix(BOM).unwrap_or(base);
        Self { text: Cow::Borrowed(text), skipped: base.len() - text.len(), pairs: Vec::new() }
    }

    /// With every line ending a `\n`.
    pub(crate) fn lines(base: &'a [u8]) -> Self {
        let raw = Self::raw(base);
        if memchr(b'\r', &raw.text).is_none() {
            return raw;
        }
        if memchr(b'\n', &raw.text).is_none() {
            // Classic Mac OS line endings: `\r` alone.
            let text = raw.text.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
            return Self { text: Cow::Owned(text), ..raw };
        }
        let mut text = Vec::with_capacity(raw.text.len());
        let mut pairs = Vec::new();
        let mut from = 0;
        for at in memchr_iter(b'\r', &raw.text) {
            if raw.text.get(at + 1) == Some(&b'\n') {
                text.extend_from_slice(raw.text.get(from..at).unwrap_or_default());
                pairs.push(text.len());
                from = at + 1;
            }
        }
        text.extend_from_slice(raw.text.get(from..).unwrap_or_default());
        Self { text: Cow::Owned(text), skipped: raw.skipped, pairs }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Maps a span of the text to bytes of the file. A span never splits a `\r\n`.
    pub(crate) fn span(&self, of: Range<usize>) -> Range<usize> {
        self.offset(of.start)..self.offset(of.end)
    }

    fn offset(&self, at: usize) -> usize {
        self.skipped + at + self.pairs.partition_point(|pair| *pair < at)
    }
}

/// The line ending that a file uses; `None` for a file without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineEnding(pub(crate) Option<&'static [u8]>);

const LF: &[u8] = b"\n";
const CRLF: &[u8] = b"\r\n";
const CR: &[u8] = b"\r";

impl LineEnding {
    /// The most frequent one; on a tie the first in the file.
    pub(crate) fn of(base: &[u8]) -> Self {
        let newlines = memchr_iter(b'\n', base).count();
        if newlines == 0 {
            return Self(memchr(b'\r', base).map(|_| CR));
        }
        let after_cr = |at: usize| at.checked_sub(1).and_then(|at| base.get(at)) == Some(&b'\r');
        if memchr(b'\r', base).is_none() {
            return Self(Some(LF));
        }
        let pairs = memchr_iter(b'\n', base).filter(|at| after_cr(*at)).count();
        let first_is_pair = memchr(b'\n', base).is_some_and(after_cr);
        let pair_wins = pairs * 2 > newlines || (pairs * 2 == newlines && first_is_pair);
        Self(Some(if pair_wins { CRLF } else { LF }))
    }

    /// Gives the lines of a new text the endings of the replaced lines, and further lines the file's ending. A file without
    /// line endings takes the text unchanged.
    pub(crate) fn fit(self, content: &[u8], replaced: &[u8]) -> Vec<u8> {
        let Some(own) = self.0 else { return content.to_vec() };
        if memchr(b'\n', content).is_none() {
            return content.to_vec();
        }
        let mut ends = ends_of(replaced, own);
        let mut out = Vec::with_capacity(content.len() + 16);
        let mut from = 0;
        for at in memchr_iter(b'\n', content) {
            let line = content.get(from..at).unwrap_or_default();
            out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
            out.extend_from_slice(ends.next().unwrap_or(own));
            from = at + 1;
        }
        out.extend_from_slice(content.get(from..).unwrap_or_default());
        out
    }
}

fn ends_of<'a>(text: &'a [u8], own: &'static [u8]) -> Box<dyn Iterator<Item = &'static [u8]> + 'a> {
    if own == CR {
        return Box::new(memchr_iter(b'\r', text).map(|_| CR));
    }
    Box::new(memchr_iter(b'\n', text).map(|at| {
        let pair = at.checked_sub(1).and_then(|at| text.get(at)) == Some(&b'\r');
        if pair { CRLF } else { LF }
    }))
}

/// A caller's text with every line ending a `\n`.
pub(crate) fn plain_ends(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_of_the_text_maps_to_a_span_of_the_file() {
        let base = b"\xef\xbb\xbfa\r\nb\nc\r\n\rd";
        let view = NormalizedText::lines(base);
        assert_eq!(view.text(), b"a\nb\nc\n\rd");
        for (span, bytes) in [
            (0..1, "a"),
            (0..2, "a\r\n"),
            (1..2, "\r\n"),
            (2..4, "b\n"),
            (4..6, "c\r\n"),
            (6..8, "\rd"),
            (1..1, ""),
        ] {
            assert_eq!(&base[view.span(span.clone())], bytes.as_bytes(), "{span:?}");
        }
        assert_eq!(NormalizedText::lines(b"a\rb").text(), b"a\nb");
    }

    #[test]
    fn new_lines_take_the_endings_of_the_replaced_lines_and_then_of_the_file() {
        for (base, replaced, content, expected) in [
            ("a\r\nb\r\n", "a", "x\ny", "x\r\ny"),
            ("a\nb\n", "a", "x\r\ny", "x\ny"),
            ("a\r\nb\nc\n", "a\r\nb", "1\n2\n3", "1\r\n2\n3"),
            ("a\r\nb\nc\r\n", "b", "1\n2", "1\r\n2"),
            ("a\r\nb\n", "b", "1\n2", "1\r\n2"),
            ("abc", "b", "1\r\n2\n", "1\r\n2\n"),
            ("a\rb\r", "a", "1\n2", "1\r2"),
        ] {
            let got = LineEnding::of(base.as_bytes()).fit(content.as_bytes(), replaced.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), expected, "{base:?}");
        }
    }
}
