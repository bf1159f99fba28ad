//! Rejects changes that add a secret (T7) or a placeholder of a redacted secret, which would destroy the original. The text
//! around every change is scanned before and after, so a secret that is completed by unchanged lines is detected too; a
//! secret that was there before is not new.

use std::collections::BTreeMap;
use std::ops::Range;

use vambrace_core::change::{FileChange, Splice};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::RedactError;
use vambrace_workspace::{ContextWindow, SecretFinder, TextSecrets, context_windows};

use crate::secret_exposure::failed;

/// Start of every placeholder, compared without case.
const PLACEHOLDER_START: &str = "[redacted";
/// Maximum length of a placeholder, in bytes.
const MAX_PLACEHOLDER_BYTES: usize = 200;

/// Rejects new secrets and placeholders in a file; the error names kind and line.
pub(crate) fn check(file: &FileChange, base: &[u8], finder: &SecretFinder) -> Result<(), CallError> {
    let Some(after) = file.after().filter(|after| !after.splices.is_empty()) else { return Ok(()) };
    let regions = changed_regions(base, &after.splices);
    let new_texts: Vec<Vec<u8>> = regions.iter().map(|region| region.new_text(base)).collect();
    let old_texts = || regions.iter().map(|region| region.old_text(base));
    let line = |found: &NewPlaceholder| line_number(base, &after.splices, &regions, &new_texts, found);
    let new_literals = new_texts.iter().map(|text| literal_placeholders(text));
    if let Some(found) = first_new(new_literals, old_texts().map(literal_placeholders)) {
        let why = format!(
            "line {} of the new content of `{}` contains the placeholder of a redacted secret; writing it would destroy the original",
            line(&found),
            after.path
        );
        return Err(CallError::new(ErrorCode::SecretInContent, why)
            .suggest("leave the line with the secret unchanged: edit around it"));
    }
    let find = |text: &[u8]| finder.find(text);
    let new: Vec<TextSecrets> =
        new_texts.iter().map(|text| find(text)).collect::<Result<_, RedactError>>().map_err(failed)?;
    if new.iter().all(TextSecrets::is_empty) {
        return Ok(());
    }
    let old: Vec<TextSecrets> = old_texts().map(find).collect::<Result<_, RedactError>>().map_err(failed)?;
    if let Some(found) = first_new(new.iter().map(placeholders_of), old.iter().map(placeholders_of)) {
        let (line, kind) = (line(&found), kind(&found.placeholder));
        let why = format!("line {line} of the new content of `{}` contains a secret ({kind})", after.path);
        return Err(CallError::new(ErrorCode::SecretInContent, why));
    }
    Ok(())
}

/// A region of the old content, and the splices in it.
pub(crate) struct ChangedRegion<'c> {
    pub(crate) span: Range<usize>,
    pub(crate) splices: &'c [Splice],
}

impl ChangedRegion<'_> {
    pub(crate) fn old_text<'b>(&self, base: &'b [u8]) -> &'b [u8] {
        base.get(self.span.clone()).unwrap_or_default()
    }

    pub(crate) fn new_text(&self, base: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.span.len());
        let mut at = self.span.start;
        for splice in self.splices {
            let cut = splice_range(splice);
            text.extend_from_slice(base.get(at..cut.start).unwrap_or_default());
            text.extend_from_slice(&splice.insert);
            at = cut.end;
        }
        text.extend_from_slice(base.get(at..self.span.end).unwrap_or_default());
        text
    }
}

/// The bytes of the old content that a splice removes.
pub(crate) fn splice_range(splice: &Splice) -> Range<usize> {
    let offset = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    offset(splice.at)..offset(splice.at.saturating_add(splice.remove))
}

/// The regions around the splices, with the context that their secrets need.
pub(crate) fn changed_regions<'c>(base: &[u8], splices: &'c [Splice]) -> Vec<ChangedRegion<'c>> {
    let region = |ContextWindow { span, parts }| ChangedRegion {
        span,
        splices: splices.get(parts).unwrap_or_default(),
    };
    context_windows(base, splices.iter().map(splice_range)).into_iter().map(region).collect()
}

/// Offsets and placeholders, in order.
type PlaceholderList = Vec<(usize, String)>;

/// A placeholder that occurs more often than before.
struct NewPlaceholder {
    /// Index of the region, and the offset in its new text.
    region: usize,
    at: usize,
    placeholder: String,
}

/// The first placeholder of the new regions that occurs more often than in the old ones.
fn first_new(
    new: impl Iterator<Item = PlaceholderList>,
    old: impl Iterator<Item = PlaceholderList>,
) -> Option<NewPlaceholder> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for (_, placeholder) in old.flatten() {
        *left.entry(placeholder).or_default() += 1;
    }
    for (region, placeholders) in new.enumerate() {
        for (at, placeholder) in placeholders {
            match left.get_mut(&placeholder) {
                Some(count) if *count > 0 => *count -= 1,
                _ => return Some(NewPlaceholder { region, at, placeholder }),
            }
        }
    }
    None
}

/// The secrets of a text as placeholders.
fn placeholders_of(secrets: &TextSecrets) -> PlaceholderList {
    secrets.iter().map(|secret| (secret.span.start, secret.placeholder.clone())).collect()
}

/// The placeholders that a text itself contains.
fn literal_placeholders(text: &[u8]) -> PlaceholderList {
    let mut found = Vec::new();
    let mut from = 0;
    // Offsets count bytes of the original: a replaced byte may change its length.
    for chunk in text.utf8_chunks() {
        found.extend(placeholders(chunk.valid()).map(|(at, words)| (from + at, words.to_owned())));
        from += chunk.valid().len() + chunk.invalid().len();
    }
    found
}

/// The placeholders of a text with their offsets.
fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr::memchr(b'[', text.as_bytes().get(from..)?)?;
            from = at + 1;
            let tail = text.get(at..)?;
            let named = tail
                .get(..PLACEHOLDER_START.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(PLACEHOLDER_START));
            // `[redacted]` in prose is not a placeholder.
            let ours = match tail.as_bytes().get(PLACEHOLDER_START.len()) {
                Some(b':') => named,
                Some(b']') => named && tail.starts_with("[REDACTED"),
                _ => false,
            };
            if ours {
                let end = tail.find(']').map_or(tail.len(), |end| end + 1).min(MAX_PLACEHOLDER_BYTES);
                let placeholder = tail.get(..end).or(tail.get(..PLACEHOLDER_START.len()))?;
                from = at + placeholder.len();
                return Some((at, placeholder));
            }
        }
    })
}

/// The line of the new content that contains the placeholder or secret.
fn line_number(
    base: &[u8],
    splices: &[Splice],
    regions: &[ChangedRegion<'_>],
    new_texts: &[Vec<u8>],
    found: &NewPlaceholder,
) -> usize {
    let breaks = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count();
    let start = regions.get(found.region).map_or(0, |region| region.span.start);
    let (mut removed, mut added) = (0, 0);
    for splice in splices.iter().take_while(|splice| splice_range(splice).start < start) {
        removed += breaks(base.get(splice_range(splice)).unwrap_or_default());
        added += breaks(&splice.insert);
    }
    let above = (breaks(base.get(..start).unwrap_or_default()) + added).saturating_sub(removed);
    let text = new_texts.get(found.region).and_then(|text| text.get(..found.at)).unwrap_or_default();
    above + breaks(text) + 1
}

fn kind(placeholder: &str) -> &str {
    let inner = placeholder
        .get(PLACEHOLDER_START.len()..)
        .unwrap_or_default()
        .trim_start_matches(':')
        .trim_end_matches(']');
    match inner.split(':').next() {
        Some(kind) if !kind.is_empty() => kind,
        _ => "secret",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use vambrace_core::change::{BaseFile, TargetFile, spliced};
    use vambrace_core::digest::Digest;
    use vambrace_core::path::AskedPath;

    use vambrace_core::redacted::{Redact, RedactOutput, SecretSpan};

    use super::*;

    struct FakeRedactor;
    impl Redact for FakeRedactor {
        fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            let secrets = ["hunter2", "swordfish", "BEGIN\nabc\nEND"];
            let count = secrets.iter().map(|secret| text.matches(secret).count()).sum::<usize>();
            let text = secrets.iter().zip(1..).fold(text.to_owned(), |text, (secret, number)| {
                text.replace(secret, &format!("[REDACTED:env:{number}]"))
            });
            Ok(RedactOutput { text: text.into(), count: u32::try_from(count).unwrap() })
        }

        fn secrets(&self, text: &str) -> Result<Vec<SecretSpan>, RedactError> {
            let mut found = Vec::new();
            for (secret, number) in ["hunter2", "swordfish", "BEGIN\nabc\nEND"].iter().zip(1..) {
                let span = |at: usize| SecretSpan {
                    span: at..at + secret.len(),
                    placeholder: format!("[REDACTED:env:{number}]"),
                };
                found.extend(text.match_indices(secret).map(|(at, _)| span(at)));
            }
            Ok(found)
        }
    }

    fn error_of_splices(old: &str, splices: Vec<Splice>) -> Option<String> {
        let new = spliced(old.as_bytes(), &splices).unwrap();
        let path = AskedPath::new("x").parse().unwrap();
        let before = BaseFile { hash: Digest::of(old.as_bytes()), size: old.len() as u64, mode: 0o644 };
        let after = TargetFile {
            path: path.clone(),
            hash: Digest::of(&new),
            size: new.len() as u64,
            mode: None,
            splices,
        };
        let change = FileChange::modify(path, before, after).unwrap();
        check(&change, old.as_bytes(), &SecretFinder::new(Arc::new(FakeRedactor))).err().map(|error| {
            assert_eq!(error.code, ErrorCode::SecretInContent);
            assert!(!error.message.contains("hunter2"));
            error.message
        })
    }

    fn error_of(old: &str, new: &str) -> Option<String> {
        error_of_splices(old, Splice::between(old.as_bytes(), new.as_bytes()))
    }

    // T7
    #[test]
    fn a_new_secret_is_named_by_kind_and_line_never_by_value() {
        let message = error_of("a\nb\n", "a\nfine\np = hunter2\nb\n").unwrap();
        assert!(message.contains("line 3 ") && message.contains("(env)"), "{message}");
        assert_eq!(error_of("a\n", "b\n"), None);
        // In the context or removed: not new.
        assert_eq!(error_of("hunter2\nb\n", "b\n"), None);
        assert_eq!(error_of("hunter2\nb\n", "hunter2\nc\n"), None);
    }

    // T7: unchanged lines are scanned together with new ones
    #[test]
    fn a_secret_completed_by_unchanged_lines_is_rejected() {
        assert!(error_of("x\nabc\ny\n", "x\nBEGIN\nabc\nEND\ny\n").unwrap().contains("line 2 "));
        assert!(error_of("x\nBEGIN\nabc\ny\n", "x\nBEGIN\nabc\nEND\ny\n").is_some());
        // Nothing is added at all.
        assert!(error_of("BEGIN\nnoise\nabc\nEND\n", "BEGIN\nabc\nEND\n").is_some());
        assert!(error_of("hunt\nmore\ner2\n", "hunter2\n").is_some());
        // One half is moved from one end of the file to the other.
        let far = "z\n".repeat(200_000);
        let (old, half) = (format!("hunt\n{far}er2\n"), 5);
        let there = (half + far.len()) as u64;
        let moved = vec![
            Splice { at: 0, remove: half as u64, insert: Vec::new() },
            Splice { at: there, remove: 0, insert: b"hunt".to_vec() },
        ];
        let message = error_of_splices(&old, moved).unwrap();
        assert!(message.contains("line 200001 "), "{message}");
    }

    #[test]
    fn the_line_is_correct_after_a_multi_line_secret() {
        let old = "BEGIN\nabc\nEND\nx\ny\n";
        assert!(error_of(old, "BEGIN\nabc\nEND\nx\nhunter2\ny\n").unwrap().contains("line 5 "));
    }

    #[test]
    fn an_existing_secret_may_stay_or_move_but_not_be_replaced_by_another() {
        assert_eq!(error_of("p = hunter2 # old\n", "p = hunter2 # new\n"), None);
        assert_eq!(error_of("hunter2\na\nb\n", "a\nb\nhunter2\n"), None);
        assert!(error_of("p = hunter2\n", "p = swordfish\n").is_some());
        assert!(error_of("a\np = hunter2\n", "a\np = hunter2; q = hunter2\n").unwrap().contains("line 2 "));
    }

    #[test]
    fn a_placeholder_is_not_written_over_the_original() {
        for new in ["p = [REDACTED:env:1111]", "[redacted:env:1111]", "[Redacted:x", "[REDACTED]"] {
            assert!(error_of("p = x", new).unwrap().contains("placeholder"), "{new}");
        }
        assert_eq!(error_of("say [REDACTED:env:1] a", "say [REDACTED:env:1] b"), None);
        for prose in
            ["[REDACTEDly] spoken", "[redacted] by the court", "redacted: [x]", "\u{e4}[redacte\u{e4}d"]
        {
            assert_eq!(error_of("a", prose), None, "{prose}");
        }
    }
}
