//! File content with its secrets masked. Matching runs on the masked text, so whether, how often and where a pattern
//! matches reveals nothing about them: an attacker who guesses a secret letter by letter learns nothing from the results.
//! Deliberately absent: detecting the secrets ([`FindSecretSpans`]).

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use vambrace_core::redacted::RedactError;

use super::error::EditError;
use super::matches::SpanMatch;
use crate::search::PemContext;

/// Finds the byte ranges of the secrets of a text, in order.
pub type FindSecretSpans<'s> = &'s dyn Fn(&[u8]) -> Result<Vec<Range<usize>>, RedactError>;

/// Context needed to detect a secret, in bytes: the length of the longest one.
pub const SECRET_CONTEXT_BYTES: usize = 66 * 1024;
/// Replaces each byte of a secret except line endings. A letter, so that most patterns written for a value still match.
const MASK_BYTE: u8 = b'x';

/// The secrets' ranges, sorted and not overlapping, and the masked content.
type MaskedContent = (Vec<Range<usize>>, Arc<Vec<u8>>);

/// A file whose secrets are detected on first use.
pub(crate) struct MaskedText<'a> {
    base: &'a Arc<Vec<u8>>,
    secrets: FindSecretSpans<'a>,
    masked: OnceCell<MaskedContent>,
}

impl<'a> MaskedText<'a> {
    pub(crate) fn new(base: &'a Arc<Vec<u8>>, secrets: FindSecretSpans<'a>) -> Self {
        Self { base, secrets, masked: OnceCell::new() }
    }

    /// The masked content, with every byte at its original offset; the file itself if it has no secrets.
    pub(crate) fn text(&self) -> Result<&Arc<Vec<u8>>, EditError> {
        self.masked().map(|(_, text)| text)
    }

    /// The byte ranges of the secrets.
    pub(crate) fn spans(&self) -> Result<&[Range<usize>], EditError> {
        self.masked().map(|(spans, _)| spans.as_slice())
    }

    fn masked(&self) -> Result<&MaskedContent, EditError> {
        if self.masked.get().is_none() {
            let spans = self.secrets_in(0..self.base.len())?;
            let mut text = Arc::clone(self.base);
            if !spans.is_empty() {
                mask_spans(Arc::<Vec<u8>>::make_mut(&mut text), &spans);
            }
            let _ = self.masked.set((spans, text));
        }
        self.masked.get().ok_or_else(|| EditError::SecretScan("no result".to_owned()))
    }

    fn secrets_in(&self, part: Range<usize>) -> Result<Vec<Range<usize>>, EditError> {
        let text = self.base.get(part.clone()).unwrap_or_default();
        let found = (self.secrets)(text).map_err(|RedactError(why)| EditError::SecretScan(why))?;
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for span in found {
            let (start, end) = (part.start + span.start, (part.start + span.end).min(part.end));
            match merged.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => merged.push(start..end),
            }
        }
        Ok(merged)
    }

    /// Whether any of these matches in the unmasked file overlaps a secret. Only the text around the matches is scanned.
    pub(crate) fn any_overlaps_secret(&self, found: &[SpanMatch]) -> Result<bool, EditError> {
        let (mut parts, mut pem_context): (Vec<Range<usize>>, _) = (Vec::new(), PemContext::default());
        for SpanMatch { span, .. } in found {
            let from = pem_context.context_start(self.base, span.start);
            let to = span.end.saturating_add(SECRET_CONTEXT_BYTES);
            match parts.last_mut() {
                Some(part) if from <= part.end => part.end = to.min(self.base.len()),
                _ => parts.push(from..to.min(self.base.len())),
            }
        }
        for part in parts {
            let secrets = self.secrets_in(part)?;
            if found.iter().any(|found| overlaps_any(&secrets, &found.span)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Masks parts of a text; every byte keeps its offset.
pub(crate) fn mask_spans(text: &mut [u8], spans: &[Range<usize>]) {
    for span in spans {
        let own = text.get_mut(span.clone()).unwrap_or_default();
        own.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = MASK_BYTE);
    }
}

/// Whether any secret overlaps a range. The secrets are sorted and do not overlap.
pub(crate) fn overlaps_any(secrets: &[Range<usize>], span: &Range<usize>) -> bool {
    let next = secrets.partition_point(|secret| secret.end <= span.start);
    secrets.get(next).is_some_and(|secret| secret.start < span.end)
}

/// Whether a range begins or ends inside a secret.
pub(crate) fn cuts_any(secrets: &[Range<usize>], span: &Range<usize>) -> bool {
    let inside = |point: usize| {
        let next = secrets.partition_point(|secret| secret.end <= point);
        secrets.get(next).is_some_and(|secret| secret.start < point)
    };
    inside(span.start) || inside(span.end)
}
