//! The secrets of a text, and the text without them: with placeholders to be shown, or masked to be matched.

use std::ops::Range;

use vambrace_core::redacted::SecretSpan;

/// Replaces each byte of a secret except line endings. A letter, so that most patterns written for a value still match.
const MASK_BYTE: u8 = b'x';

/// The secrets of a text or a part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextSecrets {
    // INVARIANT: sorted, and none overlaps another.
    secrets: Vec<SecretSpan>,
}

impl TextSecrets {
    /// Sorts them and merges those that overlap; the first placeholder counts.
    pub(crate) fn new(mut found: Vec<SecretSpan>) -> Self {
        found.sort_by_key(|secret| secret.span.start);
        let mut secrets: Vec<SecretSpan> = Vec::with_capacity(found.len());
        for secret in found {
            match secrets.last_mut() {
                Some(last) if secret.span.start < last.span.end => {
                    last.span.end = last.span.end.max(secret.span.end);
                }
                _ => secrets.push(secret),
            }
        }
        Self { secrets }
    }

    /// The secrets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &SecretSpan> {
        self.secrets.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.secrets.len()).unwrap_or(u32::MAX)
    }

    /// The secrets of a part of the text, cut to it and relative to it.
    #[must_use]
    pub fn within(&self, part: &Range<usize>) -> Self {
        let first = self.secrets.partition_point(|secret| secret.span.end <= part.start);
        let own = self.secrets.iter().skip(first).take_while(|secret| secret.span.start < part.end);
        let cut = |secret: &SecretSpan| SecretSpan {
            span: secret.span.start.max(part.start) - part.start..secret.span.end.min(part.end) - part.start,
            placeholder: secret.placeholder.clone(),
        };
        Self { secrets: own.map(cut).collect() }
    }

    /// These and others of the same text.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Self::new(self.secrets.into_iter().chain(other.secrets).collect()),
        }
    }

    /// The text with placeholders instead of secrets. Its length reveals nothing about the length of a secret.
    #[must_use]
    pub fn with_placeholders(&self, text: &[u8]) -> Vec<u8> {
        self.with_placeholders_at(text, 0).0
    }

    /// Like [`Self::with_placeholders`], and the new offset of `place`, which is outside of the secrets.
    pub(crate) fn with_placeholders_at(&self, text: &[u8], place: usize) -> (Vec<u8>, usize) {
        let (mut shown, mut from, mut now) = (Vec::with_capacity(text.len()), 0, place);
        for SecretSpan { span, placeholder } in &self.secrets {
            shown.extend_from_slice(text.get(from..span.start).unwrap_or_default());
            shown.extend_from_slice(placeholder.as_bytes());
            // A line ending is kept, also inside a multi-line key.
            let secret = text.get(span.clone()).unwrap_or_default();
            let end = secret.iter().rev().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            from = span.end - end;
            if span.end <= place {
                now = shown.len() + (place - from);
            }
        }
        shown.extend_from_slice(text.get(from..).unwrap_or_default());
        (shown, now)
    }

    /// The text with its secrets masked; every byte keeps its offset.
    pub(crate) fn masked(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        self.mask(&mut text);
        text
    }

    /// Masks the secrets of a text.
    pub(crate) fn mask(&self, text: &mut [u8]) {
        for SecretSpan { span, .. } in &self.secrets {
            let own = text.get_mut(span.clone()).unwrap_or_default();
            own.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = MASK_BYTE);
        }
    }

    /// Whether any secret overlaps a range.
    pub(crate) fn overlaps(&self, span: &Range<usize>) -> bool {
        let next = self.secrets.partition_point(|secret| secret.span.end <= span.start);
        self.secrets.get(next).is_some_and(|secret| secret.span.start < span.end)
    }

    /// Whether a range begins or ends inside a secret, or between two that touch each other.
    pub(crate) fn cuts(&self, span: &Range<usize>) -> bool {
        let inside = |point: usize| {
            let next = self.secrets.partition_point(|secret| secret.span.end <= point);
            let Some(secret) = self.secrets.get(next) else { return false };
            let before = next.checked_sub(1).and_then(|before| self.secrets.get(before));
            let touches = before.is_some_and(|before| before.span.end == point);
            secret.span.start < point || (secret.span.start == point && touches)
        };
        inside(span.start) || inside(span.end)
    }

    /// Whether a match depends on a secret; with `uses_word_boundary` it also depends on the characters beside it.
    pub(crate) fn touches(&self, found: &Range<usize>, uses_word_boundary: bool) -> bool {
        let beside = |secret: &SecretSpan| secret.span.start == found.end || secret.span.end == found.start;
        self.overlaps(found) || (uses_word_boundary && self.secrets.iter().any(beside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets<const N: usize>(spans: [(usize, usize); N]) -> TextSecrets {
        let secret = |(n, (start, end)): (usize, (usize, usize))| SecretSpan {
            span: start..end,
            placeholder: format!("[{n}]"),
        };
        TextSecrets::new(spans.into_iter().enumerate().map(secret).collect())
    }

    #[test]
    fn overlapping_secrets_are_one_and_touching_ones_are_two() {
        let found = secrets([(4, 6), (0, 3), (2, 4)]);
        let spans: Vec<_> = found.iter().map(|secret| secret.span.clone()).collect();
        assert_eq!(spans, [0..4, 4..6]);
        assert_eq!(found.with_placeholders(b"abcdefg"), b"[1][0]g");
        assert!(found.cuts(&(4..9)) && found.cuts(&(0..5)) && !found.cuts(&(0..6)) && !found.cuts(&(6..7)));
        assert!(found.overlaps(&(5..9)) && !found.overlaps(&(6..9)));
        let joined = secrets([(0, 3)]).join(secrets([(2, 5)]));
        assert_eq!((joined.count(), joined.with_placeholders(b"abcdefg")), (1, b"[0]fg".to_vec()));
    }

    #[test]
    fn every_line_of_a_secret_keeps_its_ending() {
        let text = b"k = AA\r\nBB\r\nCC\r\nend";
        let found = secrets([(4, 16)]);
        let lines = [0..8, 8..12, 12..16, 16..19];
        let shown = lines.map(|line| {
            let own = found.within(&line);
            String::from_utf8(own.with_placeholders(&text[line])).unwrap()
        });
        assert_eq!(shown, ["k = [0]\r\n", "[0]\r\n", "[0]\r\n", "end"]);
        assert_eq!(found.with_placeholders(text), b"k = [0]\r\nend");
        assert_eq!(found.masked(text), b"k = xx\r\nxx\r\nxx\r\nend");
    }

    #[test]
    fn place_after_a_secret_moves_with_it() {
        let found = secrets([(2, 8)]);
        assert_eq!(found.with_placeholders_at(b"a=secret b", 9), (b"a=[0] b".to_vec(), 6));
        assert_eq!(found.with_placeholders_at(b"a=secret b", 1).1, 1);
    }
}
