//! Masking: which parts of a file are secrets, and what stands in their place. Read, search, list, edit and diff decide and
//! mask here and nowhere else, so the same content is masked alike in each of them: what one of them hides, no other shows.
//!
//! - [`SecretFinder`] decides: it asks the redactor about bytes, with every byte at its own offset.
//! - A secret is recognised by the text around it, which may lie outside the part that is shown or matched.
//!   [`ContextWindow`] is the part that has to be scanned for that.
//! - [`TextSecrets`] performs: placeholders where text is shown, mask bytes where it is matched. A placeholder keeps the line
//!   ending of what it replaces, also inside a key of several lines.
//!
//! A file that is read as a whole is masked by the broker's redaction of the result: `Redact::redact` replaces exactly what
//! `Redact::secrets` reports.
//!
//! Deliberately absent: what a secret looks like (crate `redact`), and which edits may touch one (crate `tools`).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use vambrace_core::redacted::{Redact, RedactError, SecretSpan};

mod context_window;
mod file_secrets;
mod masked_text;
mod pem_context;
mod text_secrets;

pub use context_window::{ContextWindow, context_windows};
pub(crate) use file_secrets::{FileSecrets, PositionedReader, SecretText};
pub(crate) use masked_text::MaskedText;
pub use text_secrets::TextSecrets;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Finds the secrets of a text.
#[derive(Clone)]
pub struct SecretFinder(Arc<dyn Redact>);

impl SecretFinder {
    /// Finds what this redactor detects.
    #[must_use]
    pub fn new(redactor: Arc<dyn Redact>) -> Self {
        Self(redactor)
    }

    /// The secrets of a whole text.
    pub fn find(&self, text: &[u8]) -> Result<TextSecrets, RedactError> {
        self.find_in(text, 0..text.len()).map(TextSecrets::new)
    }

    /// The secrets in and around some parts of a text, in ascending order; the rest of the text is not scanned.
    pub fn find_around(
        &self,
        text: &[u8],
        parts: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<TextSecrets, RedactError> {
        let mut found = Vec::new();
        for window in context_windows(text, parts) {
            found.extend(self.find_in(text, window.span)?);
        }
        Ok(TextSecrets::new(found))
    }

    /// The text with its secrets masked; every other byte keeps its offset.
    pub(crate) fn masked<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, RedactError> {
        let secrets = self.find(text.as_bytes())?;
        if secrets.is_empty() {
            return Ok(text.into());
        }
        let masked = secrets.masked(text.as_bytes());
        String::from_utf8(masked).map(Cow::from).map_err(|error| RedactError(error.to_string()))
    }

    fn find_in(&self, text: &[u8], part: Range<usize>) -> Result<Vec<SecretSpan>, RedactError> {
        let bytes = text.get(part.clone()).unwrap_or_default();
        // A mark in front of the first word is not a part of it.
        let (bytes, start) = match bytes.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => (rest, part.start + BYTE_ORDER_MARK.len()),
            None => (bytes, part.start),
        };
        let found = match str::from_utf8(bytes) {
            Ok(text) => self.0.secrets(text)?,
            Err(_) => self.0.secrets(&lossy_same_length(bytes))?,
        };
        let moved = |SecretSpan { span, placeholder }: SecretSpan| SecretSpan {
            span: start + span.start..start + span.end.min(bytes.len()),
            placeholder,
        };
        Ok(found.into_iter().map(moved).collect())
    }
}

impl fmt::Debug for SecretFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretFinder")
    }
}

/// The bytes as text in which every byte keeps its offset; each invalid byte becomes `\u{1a}`.
fn lossy_same_length(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1a}'));
    }
    text
}
