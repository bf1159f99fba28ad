//! Finding and replacing secrets in text. So far one layer: the values of the broker's own environment, as they
//! are. Each is replaced by `[REDACTED:env:<8 hex>]`, where the hex digits are a fingerprint keyed by the
//! installation: equal secrets look equal, and nobody without the key can test a guess.

mod environment;

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use sha2::{Digest, Sha256};
use vambrace_core::redacted::{Masked, Redact, RedactError};

pub use environment::is_secret;

/// Replaces known values.
#[derive(Debug)]
pub struct KnownValues {
    values: Option<AhoCorasick>,
    placeholders: Vec<String>,
}

impl KnownValues {
    /// Takes the environment and keeps what may be a secret in it (see [`is_secret`]).
    pub fn of_environment(
        variables: impl IntoIterator<Item = (String, String)>,
        key: &[u8; 32],
    ) -> Result<Self, RedactError> {
        let secrets = variables.into_iter().filter(|(name, value)| is_secret(name, value));
        Self::new(secrets.map(|(_, value)| value).collect(), key)
    }

    /// Replaces exactly these values.
    pub fn new(mut values: Vec<String>, key: &[u8; 32]) -> Result<Self, RedactError> {
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        let placeholders = values.iter().map(|value| placeholder(value, key)).collect();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&values)
            .map_err(|error| RedactError(error.to_string()))?;
        Ok(Self { values: (!values.is_empty()).then_some(matcher), placeholders })
    }
}

impl Redact for KnownValues {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let untouched = Masked { text: Cow::Borrowed(text), count: 0 };
        let Some(values) = &self.values else { return Ok(untouched) };
        let mut clean = String::new();
        let (mut count, mut from) = (0, 0);
        for hit in values.find_iter(text) {
            let before = text.get(from..hit.start()).ok_or_else(|| cut_inside_a_character(hit.start()))?;
            let placeholder = self
                .placeholders
                .get(hit.pattern().as_usize())
                .ok_or_else(|| RedactError("a match without its placeholder".to_owned()))?;
            clean.push_str(before);
            clean.push_str(placeholder);
            (count, from) = (count + 1, hit.end());
        }
        if count == 0 {
            return Ok(untouched);
        }
        clean.push_str(text.get(from..).ok_or_else(|| cut_inside_a_character(from))?);
        Ok(Masked { text: Cow::Owned(clean), count })
    }
}

fn cut_inside_a_character(at: usize) -> RedactError {
    RedactError(format!("a match ends inside a character at byte {at}"))
}

fn placeholder(value: &str, key: &[u8; 32]) -> String {
    let mut hash = Sha256::new();
    hash.update(key);
    hash.update(value.as_bytes());
    let digest = hash.finalize();
    let print: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("[REDACTED:env:{print}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(values: &[&str]) -> KnownValues {
        KnownValues::new(values.iter().map(|&value| value.to_owned()).collect(), &[7; 32]).unwrap()
    }

    // T21
    #[test]
    fn known_values_are_replaced_wherever_they_stand() {
        let redactor = redactor(&["hunter2hunter2", "hunter2", "s\u{e9}cret-\u{1f511}-value"]);
        let masked =
            redactor.redact("a=hunter2hunter2; b=hunter2, c=s\u{e9}cret-\u{1f511}-value\u{e9}").unwrap();
        assert_eq!(masked.count, 3);
        assert!(!masked.text.contains("hunter2") && !masked.text.contains("cret-"), "{}", masked.text);
        assert!(masked.text.starts_with("a=[REDACTED:env:") && masked.text.ends_with("]\u{e9}"));
    }

    #[test]
    fn redacting_twice_changes_nothing_and_clean_text_is_not_copied() {
        let redactor = redactor(&["hunter2hunter2"]);
        let once = redactor.redact("x hunter2hunter2 y").unwrap().text.into_owned();
        assert_eq!(redactor.redact(&once).unwrap(), Masked { text: Cow::Borrowed(&*once), count: 0 });
        assert!(matches!(redactor.redact("nothing here").unwrap().text, Cow::Borrowed(_)));
    }

    #[test]
    fn fingerprints_depend_on_the_installation() {
        let of = |key| KnownValues::new(vec!["hunter2hunter2".to_owned()], &[key; 32]).unwrap();
        let text = |redactor: &KnownValues| redactor.redact("hunter2hunter2").unwrap().text.into_owned();
        assert_eq!(text(&of(1)), text(&of(1)));
        assert_ne!(text(&of(1)), text(&of(2)));
    }
}
