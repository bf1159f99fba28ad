//! Finding and replacing secrets in text. So far one layer: the values of the broker's own environment, as they
//! are. Each is replaced by `[REDACTED:env:<8 hex>]`, where the hex digits are a fingerprint keyed by the
//! installation: equal secrets look equal, and nobody without the key can test a guess.

mod environment;

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use sha2::{Digest, Sha256};
use vambrace_core::redacted::{Masked, Redact, RedactError};

pub use environment::is_secret;

/// Shorter lines of a value are not secrets by themselves.
const LEAST_LINE: usize = 8;
/// Shorter pieces at a cut say too little.
const LEAST_PIECE: usize = 4;

/// Replaces known values.
#[derive(Debug)]
pub struct KnownValues {
    values: Option<AhoCorasick>,
    /// The values as they are, for pieces of them.
    whole: Vec<String>,
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
        // Somebody may read a value of several lines line by line.
        let lines: Vec<String> = values
            .iter()
            .filter(|value| value.contains('\n'))
            .flat_map(|value| value.lines().filter(|line| line.len() >= LEAST_LINE).map(str::to_owned))
            .collect();
        values.extend(lines);
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        let placeholders = values.iter().map(|value| placeholder(value, key)).collect();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&values)
            .map_err(|error| RedactError(error.to_string()))?;
        Ok(Self { values: (!values.is_empty()).then_some(matcher), whole: values, placeholders })
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

    fn redact_cut<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let masked = self.redact(text)?;
        let (head, tail) = (self.piece_at_start(&masked.text), self.piece_at_end(&masked.text));
        if head.is_none() && tail.is_none() {
            return Ok(masked);
        }
        let mut clean = masked.text.into_owned();
        let mut count = masked.count;
        if let Some((length, placeholder)) = tail {
            clean.truncate(clean.len() - length);
            clean.push_str(placeholder);
            count += 1;
        }
        if let Some((length, placeholder)) = head {
            clean.replace_range(..length.min(clean.len()), placeholder);
            count += 1;
        }
        Ok(Masked { text: Cow::Owned(clean), count })
    }
}

impl KnownValues {
    /// The longest end of a value that the text begins with.
    fn piece_at_start(&self, text: &str) -> Option<(usize, &str)> {
        self.longest_piece(|value, from| value.get(from..).filter(|piece| text.starts_with(piece)))
    }

    /// The longest beginning of a value that the text ends with.
    fn piece_at_end(&self, text: &str) -> Option<(usize, &str)> {
        self.longest_piece(|value, cut| {
            value.get(..value.len().saturating_sub(cut)).filter(|piece| text.ends_with(piece))
        })
    }

    fn longest_piece<'a>(
        &'a self,
        piece: impl Fn(&'a str, usize) -> Option<&'a str>,
    ) -> Option<(usize, &'a str)> {
        let pieces = self.whole.iter().zip(&self.placeholders).filter_map(|(value, placeholder)| {
            let most = value.len().saturating_sub(LEAST_PIECE);
            let found = (1..=most).find_map(|cut| piece(value, cut))?;
            Some((found.len(), placeholder.as_str()))
        });
        pieces.max_by_key(|(length, _)| *length)
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
    fn cutting_a_value_does_not_free_it() {
        let redactor = redactor(&["sk-abcdef0123456789XYZ", "first line of a key\nsecond line of a key"]);
        for text in ["key=sk-abcdef0123456789XY", "key=sk-ab", "9XYZ and more", "second line of a key"] {
            let masked = redactor.redact_cut(text).unwrap();
            assert_eq!(masked.count, 1, "{text}: {masked:?}");
            assert!(
                !masked.text.contains("sk-ab")
                    && !masked.text.contains("9XYZ")
                    && !masked.text.contains("second")
            );
        }
        assert_eq!(redactor.redact_cut("nothing of it sk-").unwrap().count, 0);
    }

    #[test]
    fn fingerprints_depend_on_the_installation() {
        let of = |key| KnownValues::new(vec!["hunter2hunter2".to_owned()], &[key; 32]).unwrap();
        let text = |redactor: &KnownValues| redactor.redact("hunter2hunter2").unwrap().text.into_owned();
        assert_eq!(text(&of(1)), text(&of(1)));
        assert_ne!(text(&of(1)), text(&of(2)));
    }
}
