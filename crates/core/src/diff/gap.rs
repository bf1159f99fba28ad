//! What a diff leaves out. A person who agrees to the loss of a hundred megabytes reads none of them: of a long run of
//! lines the first and the last are written, of a long line what changes in it, and a line says how much is not. What
//! comes is always written out, unless it was there before; only behind so much of a diff that nobody reads it, hunks are
//! counted, and named by a digest.

use std::ops::Range;

use crate::change::Splice;
use crate::digest::Digest;
use memchr::memrchr;

use super::{Lines, line_count, line_end};

/// A run of lines is written out up to here; of a longer one an eighth of that is written of each end, in whole lines.
const LONGEST_RUN: usize = 256 * 1024;
/// The same behind so much of a diff, so that many runs are no long diff.
const LATER_RUN: usize = 4 * 1024;
const LATER: usize = 1 << 20;
/// A line is written out up to here.
const LONGEST_LINE: usize = 16 * 1024;
/// Of a longer one so much is written on both sides of what changes.
const AROUND: usize = 1024;
/// Hunks are written out until the diff is so long.
const LONGEST_DIFF: usize = 8 << 20;
const OLD: &str = "removed";
const NEW: &str = "added";
const CUT: &str = "bytes,";
const FURTHER: &str = "further";

/// How much of a change its diff shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Showing {
    /// All of it: it can be applied.
    Whole,
    /// For who decides: all that comes, and of what goes the ends of long runs.
    New,
    /// For who undoes: what comes was there before.
    Ends,
}

/// Something that is left out of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gap {
    /// Lines that go.
    pub old: u64,
    /// Lines that come.
    pub new: u64,
    /// Of the line above a part is shown: so many of its bytes stand in front of that.
    pub front: Option<u64>,
    /// Hunks that are not shown at all, with what comes in them.
    pub hunks: u64,
}

impl Gap {
    /// What a line of a diff says of what is left out. Content stands behind a sign, so none can say it.
    #[must_use]
    pub fn told(line: &[u8]) -> Option<Self> {
        let told = std::str::from_utf8(line.strip_prefix(b"\\ ")?).ok()?;
        let mut words = told.split(' ');
        let count = words.next()?.parse().ok()?;
        match words.next()? {
            OLD => Some(Self { old: count, ..Self::default() }),
            NEW => Some(Self { new: count, ..Self::default() }),
            CUT => Some(Self { front: Some(words.next()?.parse().ok()?), ..Self::default() }),
            FURTHER => Some(Self { hunks: count, ..Self::default() }),
            _ => None,
        }
    }
}

/// Lines that go or that come, and what of them is not the same on the other side.
pub(super) struct Run<'t> {
    text: &'t [u8],
    mark: u8,
    changed: Range<usize>,
    showing: Showing,
    /// How much is written of what may be left out.
    longest: usize,
}

impl<'t> Run<'t> {
    /// Lines that go, and those that come instead, behind so much of the diff.
    pub(super) fn pair(old: &'t [u8], new: &'t [u8], showing: Showing, before: usize) -> [Self; 2] {
        let long = showing != Showing::Whole && old.len().max(new.len()) > LONGEST_LINE;
        let splice = long.then(|| Splice::between(old, new).pop()).flatten();
        let span = |text: &[u8], length: fn(&Splice) -> usize| {
            splice.as_ref().map_or(0..text.len(), |splice| {
                let from = usize::try_from(splice.at).unwrap_or(0);
                from..from + length(splice)
            })
        };
        let gone = span(old, |splice| usize::try_from(splice.remove).unwrap_or(usize::MAX));
        let come = span(new, |splice| splice.insert.len());
        let longest = if before < LATER { LONGEST_RUN } else { LATER_RUN };
        [
            Self { text: old, mark: b'-', changed: gone, showing, longest },
            Self { text: new, mark: b'+', changed: come, showing, longest },
        ]
    }

    /// Lines that stay.
    pub(super) fn kept(text: &'t [u8], showing: Showing) -> Self {
        Self { text, mark: b' ', changed: 0..0, showing, longest: LONGEST_RUN }
    }

    /// Writes the lines, as far as they are shown, and counts all of them.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> usize {
        let Some(hidden) = self.hidden() else { return self.write_lines(out, 0..self.text.len()) };
        self.write_lines(out, 0..hidden.start)
            + self.tell(out, self.text.get(hidden.clone()).unwrap_or_default())
            + self.write_lines(out, hidden.end..self.text.len())
    }

    /// Whether what goes or comes here may be left out.
    fn shortens(&self) -> bool {
        match self.showing {
            Showing::Whole => false,
            Showing::New => self.mark == b'-',
            Showing::Ends => self.mark != b' ',
        }
    }

    /// The lines that are not written.
    fn hidden(&self) -> Option<Range<usize>> {
        if !self.shortens() || self.text.len() <= self.longest {
            return None;
        }
        let shown = |(body, _): (Range<usize>, bool)| self.shown(&body).len() + 1;
        if self.bodies(0..self.text.len()).map(shown).sum::<usize>() <= self.longest {
            return None;
        }
        let end = self.longest / 8;
        let head =
            self.text.get(..end).and_then(|head| memrchr(b'\n', head)).map_or(0, |newline| newline + 1);
        Some(head..line_end(self.text, self.text.len().saturating_sub(end)))
    }

    /// Says what is not written; returns how many lines that is.
    fn tell(&self, out: &mut Vec<u8>, hidden: &[u8]) -> usize {
        let lines = line_count(hidden);
        let what = if self.mark == b'-' { OLD } else { NEW };
        let told = format!("\\ {lines} {what} lines with {} bytes are not shown\n", hidden.len());
        out.extend_from_slice(told.as_bytes());
        lines
    }

    /// Where lines stand without their ends, and whether they have one.
    fn bodies(&self, part: Range<usize>) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut at = part.start;
        Lines(self.text.get(part).unwrap_or_default()).iter().map(move |line| {
            let (start, ends) = (at, line.ends_with(b"\n"));
            at += line.len();
            (start..at - usize::from(ends), ends)
        })
    }

    /// The part of a line that is written: all of it, or what changes and a little around.
    fn shown(&self, body: &Range<usize>) -> Range<usize> {
        if self.showing == Showing::Whole || body.len() <= LONGEST_LINE {
            return body.clone();
        }
        let from = self.changed.start.saturating_sub(AROUND).max(body.start);
        let to = self.changed.end.saturating_add(AROUND).min(body.end);
        match from < to {
            true if self.shortens() => from..to.min(from + LONGEST_LINE),
            true => from..to,
            // Nothing of it changes.
            false => body.start..body.start + AROUND,
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
                let told =
                    format!("\\ {hidden} {CUT} {front} of them in front, are not shown of this line\n");
                out.extend_from_slice(told.as_bytes());
            }
            if !ends {
                out.extend_from_slice(b"\\ No newline at end of file\n");
            }
            count += 1;
        }
        count
    }
}

/// The hunks that are not written any more.
pub(super) struct Rest {
    hunks: u64,
    bytes: usize,
    digest: Digest,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { hunks: 0, bytes: 0, digest: Digest::ZERO }
    }

    /// Whether a diff is so long that nothing is added to it.
    pub(super) fn begins(out: &[u8], showing: Showing) -> bool {
        showing != Showing::Whole && out.len() > LONGEST_DIFF
    }

    pub(super) fn take(&mut self, hunk: &[u8]) {
        self.hunks += 1;
        self.bytes += hunk.len();
        self.digest = Digest::of_parts([self.digest.as_bytes().as_slice(), hunk]);
    }

    pub(super) fn tell(&self, out: &mut Vec<u8>) {
        let Self { hunks, bytes, digest } = self;
        if *hunks > 0 {
            let told = format!("\\ {hunks} {FURTHER} hunks with {bytes} bytes are not shown: {digest}\n");
            out.extend_from_slice(told.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Short and very long stretches of few letters, some of them lines.
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

        // B2: what comes and is not shown stands at the same place of what goes, from one of its ends
        #[test]
        fn nothing_that_comes_is_left_out(
            old in any_text(),
            edits in prop::collection::vec((any::<prop::sample::Index>(), "[a-c\n]{0,3}"), 0..3),
            other in prop::option::of(any_text()),
        ) {
            let mut new = other.unwrap_or_else(|| old.clone());
            for (at, insert) in edits {
                let at = at.index(new.len() + 1);
                new.splice(at..at, insert.into_bytes());
            }
            let [_, come] = Run::pair(&old, &new, Showing::New, 0);
            prop_assert_eq!(come.hidden(), None);
            for (body, _) in come.bodies(0..new.len()) {
                let shown = come.shown(&body);
                prop_assert!(body.start <= shown.start && shown.end <= body.end);
                for part in [body.start..shown.start, shown.end..body.end] {
                    let from_end = (old.len() + part.start).checked_sub(new.len());
                    let places = [Some(part.start), from_end].into_iter().flatten();
                    let mut there = places.map(|from| old.get(from..from + part.len()));
                    prop_assert!(part.is_empty() || there.any(|there| there == new.get(part.clone())));
                }
            }
        }
    }
}
