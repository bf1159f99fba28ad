//! What a diff omits. A person who approves the deletion of a hundred megabytes does not read them: of a long run of
//! removed lines the diff shows the first and the last ones, of a long line the part that changes, and a marker line
//! gives the number of omitted lines or bytes. Added content is always written out, unless it existed before; only
//! after [`MAX_DIFF_BYTES`] hunks are counted and identified by a digest instead.

use std::ops::Range;

use crate::change::Splice;
use crate::digest::Digest;
use memchr::memrchr;

use super::{LineTokens, line_count, line_end};

/// Maximum bytes of a run of lines that is written out in full; of a longer one, an eighth of that is written at each
/// end, in whole lines.
const MAX_RUN_BYTES: usize = 256 * 1024;
/// The same limit after [`SHORT_RUNS_FROM_BYTES`] of a diff, so that many runs do not make a long diff.
const SHORT_RUN_BYTES: usize = 4 * 1024;
const SHORT_RUNS_FROM_BYTES: usize = 1 << 20;
/// Maximum bytes of a line that is written out in full.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Bytes of a longer line that are written on both sides of its change.
const LINE_CONTEXT_BYTES: usize = 1024;
/// Hunks are written until the diff has this many bytes.
const MAX_DIFF_BYTES: usize = 8 << 20;
const REMOVED_LINES: &str = "removed";
const ADDED_LINES: &str = "added";
const CUT_BYTES: &str = "bytes,";
const FURTHER_HUNKS: &str = "further";

/// How much of a change a diff shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffDetail {
    /// All of it: the diff can be applied.
    Full,
    /// For approvers: all added content, and the ends of long runs of removed lines.
    AllAdded,
    /// For rollbacks: the ends of long runs only, since the added content existed before.
    RunEnds,
}

/// What one marker line says is omitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Omission {
    /// Number of removed lines.
    pub old: u64,
    /// Number of added lines.
    pub new: u64,
    /// The line above is shown in part: number of its bytes before the shown part.
    pub front: Option<u64>,
    /// Number of hunks that are not shown at all, added lines included.
    pub hunks: u64,
}

impl Omission {
    /// Parses a marker line of a diff. Content lines begin with ` `, `-` or `+`, so content cannot forge a marker.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let marker = std::str::from_utf8(line.strip_prefix(b"\\ ")?).ok()?;
        let mut words = marker.split(' ');
        let count = words.next()?.parse().ok()?;
        match words.next()? {
            REMOVED_LINES => Some(Self { old: count, ..Self::default() }),
            ADDED_LINES => Some(Self { new: count, ..Self::default() }),
            CUT_BYTES => Some(Self { front: Some(words.next()?.parse().ok()?), ..Self::default() }),
            FURTHER_HUNKS => Some(Self { hunks: count, ..Self::default() }),
            _ => None,
        }
    }
}

/// A run of removed, added or unchanged lines, and the byte range in it that differs from the other side.
pub(super) struct LineRun<'t> {
    text: &'t [u8],
    mark: u8,
    changed: Range<usize>,
    detail: DiffDetail,
    /// Maximum bytes that are written if lines may be omitted.
    max_bytes: usize,
}

impl<'t> LineRun<'t> {
    /// The removed lines and the lines that replace them; `before` is the length of the diff so far, in bytes.
    pub(super) fn pair(old: &'t [u8], new: &'t [u8], detail: DiffDetail, before: usize) -> [Self; 2] {
        let long = detail != DiffDetail::Full && old.len().max(new.len()) > MAX_LINE_BYTES;
        let splice = long.then(|| Splice::between(old, new).pop()).flatten();
        let span = |text: &[u8], length: fn(&Splice) -> usize| {
            splice.as_ref().map_or(0..text.len(), |splice| {
                let from = usize::try_from(splice.at).unwrap_or(0);
                from..from + length(splice)
            })
        };
        let removed = span(old, |splice| usize::try_from(splice.remove).unwrap_or(usize::MAX));
        let added = span(new, |splice| splice.insert.len());
        let max_bytes = if before < SHORT_RUNS_FROM_BYTES { MAX_RUN_BYTES } else { SHORT_RUN_BYTES };
        [
            Self { text: old, mark: b'-', changed: removed, detail, max_bytes },
            Self { text: new, mark: b'+', changed: added, detail, max_bytes },
        ]
    }

    /// Unchanged lines.
    pub(super) fn unchanged(text: &'t [u8], detail: DiffDetail) -> Self {
        Self { text, mark: b' ', changed: 0..0, detail, max_bytes: MAX_RUN_BYTES }
    }

    /// Writes the lines that are shown; returns the number of all lines.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> usize {
        let Some(hidden) = self.hidden() else { return self.write_lines(out, 0..self.text.len()) };
        self.write_lines(out, 0..hidden.start)
            + self.write_marker(out, self.text.get(hidden.clone()).unwrap_or_default())
            + self.write_lines(out, hidden.end..self.text.len())
    }

    /// Whether lines of this run may be omitted.
    fn may_omit(&self) -> bool {
        match self.detail {
            DiffDetail::Full => false,
            DiffDetail::AllAdded => self.mark == b'-',
            DiffDetail::RunEnds => self.mark != b' ',
        }
    }

    /// The byte range of the lines that are omitted.
    fn hidden(&self) -> Option<Range<usize>> {
        if !self.may_omit() || self.text.len() <= self.max_bytes {
            return None;
        }
        let shown = |(body, _): (Range<usize>, bool)| self.shown(&body).len() + 1;
        if self.bodies(0..self.text.len()).map(shown).sum::<usize>() <= self.max_bytes {
            return None;
        }
        let end = self.max_bytes / 8;
        let head =
            self.text.get(..end).and_then(|head| memrchr(b'\n', head)).map_or(0, |newline| newline + 1);
        Some(head..line_end(self.text, self.text.len().saturating_sub(end)))
    }

    /// Writes the marker line for omitted lines; returns their number.
    fn write_marker(&self, out: &mut Vec<u8>, hidden: &[u8]) -> usize {
        let lines = line_count(hidden);
        let what = if self.mark == b'-' { REMOVED_LINES } else { ADDED_LINES };
        let marker = format!("\\ {lines} {what} lines with {} bytes are not shown\n", hidden.len());
        out.extend_from_slice(marker.as_bytes());
        lines
    }

    /// Byte ranges of the lines without their newline, and whether they have one.
    fn bodies(&self, part: Range<usize>) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut at = part.start;
        LineTokens(self.text.get(part).unwrap_or_default()).iter().map(move |line| {
            let (start, ends) = (at, line.ends_with(b"\n"));
            at += line.len();
            (start..at - usize::from(ends), ends)
        })
    }

    /// The byte range of a line that is written: the whole line, or its change with some bytes around it.
    fn shown(&self, body: &Range<usize>) -> Range<usize> {
        if self.detail == DiffDetail::Full || body.len() <= MAX_LINE_BYTES {
            return body.clone();
        }
        let from = self.changed.start.saturating_sub(LINE_CONTEXT_BYTES).max(body.start);
        let to = self.changed.end.saturating_add(LINE_CONTEXT_BYTES).min(body.end);
        match from < to {
            true if self.may_omit() => from..to.min(from + MAX_LINE_BYTES),
            true => from..to,
            // The line does not change.
            false => body.start..body.start + LINE_CONTEXT_BYTES,
        }
    }

    fn write_lines(&self, out: &mut Vec<u8>, part: Range<usize>) -> usize {
        let mut count = 0;
        for (body, ends) in self.bodies(part) {
            let shown = self.shown(&body);
            out.push(self.mark);
            out.extend_from_slice(self.text.get(shown.clone()).unwrap_or_default());
            out.push(b'\n');
            if shown.len() < body.len() {
                let (hidden, front) = (body.len() - shown.len(), shown.start - body.start);
                let marker =
                    format!("\\ {hidden} {CUT_BYTES} {front} of them in front, are not shown of this line\n");
                out.extend_from_slice(marker.as_bytes());
            }
            if !ends {
                out.extend_from_slice(b"\\ No newline at end of file\n");
            }
            count += 1;
        }
        count
    }
}

/// Counts the hunks that are omitted at the end of a long diff.
pub(super) struct OmittedHunks {
    hunks: u64,
    bytes: usize,
    digest: Digest,
}

impl OmittedHunks {
    pub(super) fn new() -> Self {
        Self { hunks: 0, bytes: 0, digest: Digest::ZERO }
    }

    /// Whether the diff is too long for further hunks.
    pub(super) fn is_due(out: &[u8], detail: DiffDetail) -> bool {
        detail != DiffDetail::Full && out.len() > MAX_DIFF_BYTES
    }

    pub(super) fn take(&mut self, hunk: &[u8]) {
        self.hunks += 1;
        self.bytes += hunk.len();
        self.digest = Digest::of_parts([self.digest.as_bytes().as_slice(), hunk]);
    }

    pub(super) fn write_marker(&self, out: &mut Vec<u8>) {
        let Self { hunks, bytes, digest } = self;
        if *hunks > 0 {
            let marker =
                format!("\\ {hunks} {FURTHER_HUNKS} hunks with {bytes} bytes are not shown: {digest}\n");
            out.extend_from_slice(marker.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Short and very long runs of few letters, some of them ending in a newline.
    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let stretch = (prop::sample::select(b"ab".to_vec()), prop_oneof![0..4_usize, 16_000..20_000_usize]);
        let ended = (stretch, any::<bool>()).prop_map(|((letter, length), ends)| {
            let mut text = vec![letter; length];
            text.extend(ends.then_some(b'\n'));
            text
        });
        prop::collection::vec(ended, 0..6).prop_map(|all| all.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        // B2: added bytes that are not shown exist at the same offset of the removed lines, from the start or the end
        #[test]
        fn no_new_content_is_omitted(
            old in any_text(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), "[a-c\n]{0,3}"), 0..3),
            other in prop::option::of(any_text()),
        ) {
            let mut new = other.unwrap_or_else(|| old.clone());
            for (at, insert) in edits {
                let at = at.index(new.len() + 1);
                new.splice(at..at, insert.into_bytes());
            }
            let [_, added] = LineRun::pair(&old, &new, DiffDetail::AllAdded, 0);
            prop_assert_eq!(added.hidden(), None);
            for (body, _) in added.bodies(0..new.len()) {
                let shown = added.shown(&body);
                prop_assert!(body.start <= shown.start && shown.end <= body.end);
                for part in [body.start..shown.start, shown.end..body.end] {
                    let from_end = (old.len() + part.start).checked_sub(new.len());
                    let offsets = [Some(part.start), from_end].into_iter().flatten();
                    let mut existing = offsets.map(|from| old.get(from..from + part.len()));
                    prop_assert!(part.is_empty() || existing.any(|existing| existing == new.get(part.clone())));
                }
            }
        }
    }
}
