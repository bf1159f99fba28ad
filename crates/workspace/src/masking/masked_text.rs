//! File content with its secrets masked. Matching runs on the masked text, so whether, how often and where a pattern
//! matches reveals nothing about them: an attacker who guesses a secret letter by letter learns nothing from the results.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use vambrace_core::redacted::RedactError;

use super::{SecretFinder, TextSecrets};
use crate::edit::EditError;

/// A file whose secrets are detected on first use.
pub(crate) struct MaskedText<'a> {
    base: &'a Arc<Vec<u8>>,
    /// `None`: nothing is masked.
    finder: Option<&'a SecretFinder>,
    masked: OnceCell<(TextSecrets, Arc<Vec<u8>>)>,
}

impl<'a> MaskedText<'a> {
    pub(crate) fn new(base: &'a Arc<Vec<u8>>, finder: Option<&'a SecretFinder>) -> Self {
        Self { base, finder, masked: OnceCell::new() }
    }

    /// The masked content, with every byte at its original offset; the file itself if it has no secrets.
    pub(crate) fn text(&self) -> Result<&Arc<Vec<u8>>, EditError> {
        self.masked().map(|(_, text)| text)
    }

    /// The secrets.
    pub(crate) fn secrets(&self) -> Result<&TextSecrets, EditError> {
        self.masked().map(|(secrets, _)| secrets)
    }

    fn masked(&self) -> Result<&(TextSecrets, Arc<Vec<u8>>), EditError> {
        if self.masked.get().is_none() {
            let found = self.finder.map(|finder| finder.find(self.base)).transpose().map_err(scan_error)?;
            let (secrets, mut text) = (found.unwrap_or_default(), Arc::clone(self.base));
            if !secrets.is_empty() {
                secrets.mask(Arc::<Vec<u8>>::make_mut(&mut text));
            }
            let _ = self.masked.set((secrets, text));
        }
        self.masked.get().ok_or_else(|| EditError::SecretScan("no result".to_owned()))
    }

    /// Whether any of these ranges of the unmasked file overlaps a secret. Only the text around them is scanned.
    pub(crate) fn any_overlaps_secret(
        &self,
        found: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Result<bool, EditError> {
        let Some(finder) = self.finder else { return Ok(false) };
        let secrets = finder.find_around(self.base, found.clone()).map_err(scan_error)?;
        Ok(found.into_iter().any(|span| secrets.overlaps(&span)))
    }
}

fn scan_error(RedactError(why): RedactError) -> EditError {
    EditError::SecretScan(why)
}
