//! The redactor: rules, known values and the installation's key. Cheap to clone; known values can be replaced while it
//! is in use.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use vambrace_core::redacted::{Redact, RedactError, RedactOutput, SecretSpan};

use crate::assignment::Separator;
use crate::bytes::{rest, slice};
use crate::classify::{ValueContext, is_secret};
use crate::cut_edges;
use crate::finding::{Cluster, SecretFinding};
use crate::known::{KnownValue, MIN_KNOWN_VALUE_BYTES, MIN_SEARCHABLE_BYTES};
use crate::placeholder::{self, Fingerprint, FingerprintKey};
use crate::rules::RuleSet;
use crate::scan_pass::{ScanPass, ScanScope};
use crate::scanner::Scanner;
use crate::secret_names::name_hint;
use crate::stream::{RedactStream, SCAN_PASSES, finding, fingerprint_of};

/// Finds and replaces secrets.
#[derive(Clone)]
pub struct Redactor {
    inner: Arc<RedactorInner>,
}

struct RedactorInner {
    rules: Arc<RuleSet>,
    key: FingerprintKey,
    not_secret: Vec<Vec<u8>>,
    /// Minimum length of a known value, in bytes; shorter values are ignored.
    min_length: usize,
    scanner: RwLock<Arc<Scanner>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("rules", &self.inner.rules.count()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Builds a redactor from rules, known values, texts that are never secrets whatever they look like, and the
    /// installation's key.
    #[must_use]
    pub fn new(rules: RuleSet, values: &[KnownValue], not_secret: &[String], key: &[u8; 32]) -> Self {
        Self::with_min_length(rules, values, not_secret, MIN_KNOWN_VALUE_BYTES, key)
    }

    /// Like [`Redactor::new`], with another minimum length for known values, in bytes.
    #[must_use]
    pub fn with_min_length(
        rules: RuleSet,
        values: &[KnownValue],
        not_secret: &[String],
        min_length: usize,
        key: &[u8; 32],
    ) -> Self {
        let (rules, key, min_length) =
            (Arc::new(rules), FingerprintKey::new(key), min_length.max(MIN_SEARCHABLE_BYTES));
        let not_secret: Vec<Vec<u8>> = not_secret.iter().map(|text| text.as_bytes().to_vec()).collect();
        let usable = usable_values(values, &not_secret, min_length);
        let scanner = RwLock::new(Arc::new(Scanner::new(Arc::clone(&rules), &usable, &key)));
        Self { inner: Arc::new(RedactorInner { rules, key, not_secret, min_length, scanner }) }
    }

    /// Replaces the known values. Texts and streams in progress use the new ones from their next chunk on.
    pub fn replace_known_values(&self, values: &[KnownValue]) {
        let inner = &self.inner;
        let usable = usable_values(values, &inner.not_secret, inner.min_length);
        let scanner = Scanner::new(Arc::clone(&inner.rules), &usable, &inner.key);
        *inner.scanner.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(scanner);
    }

    pub(crate) fn scanner(&self) -> Arc<Scanner> {
        Arc::clone(&self.inner.scanner.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn fingerprint(&self, secret: &[u8]) -> Fingerprint {
        self.inner.key.fingerprint(secret)
    }

    /// Whether a finding is one of the texts that are never secrets.
    pub(crate) fn is_allowed(&self, text: &[u8], cluster: &Cluster) -> bool {
        let found = slice(text, cluster.start, cluster.end);
        self.inner.not_secret.iter().any(|allowed| allowed == found)
    }

    /// Starts a new stream.
    #[must_use]
    pub fn stream(&self) -> RedactStream {
        RedactStream::new(self.clone())
    }

    /// Replaces every secret in `text` and returns the result with the number of replacements.
    pub fn redact_bytes<'a>(&self, text: &'a [u8]) -> Result<(Cow<'a, [u8]>, u32), RedactError> {
        let scanner = self.scanner();
        let mut clean = Cow::Borrowed(text);
        let mut count = 0;
        for n in 0..SCAN_PASSES {
            let scope = if n == 0 { ScanScope::All } else { ScanScope::AroundPlaceholders };
            let (clusters, marked) = self.scan(&scanner, &clean, scope)?;
            if clusters.is_empty() && (n > 0 || !marked) {
                break;
            }
            count += clusters.len();
            if !clusters.is_empty() {
                clean = Cow::Owned(self.with_placeholders(&scanner, &clean, &clusters));
            }
        }
        Ok((clean, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Returns the secrets in a text, with their positions.
    pub fn findings(&self, text: &[u8]) -> Result<Vec<SecretFinding>, RedactError> {
        let scanner = self.scanner();
        let (clusters, _) = self.scan(&scanner, text, ScanScope::All)?;
        Ok(clusters
            .iter()
            .map(|cluster| finding(&scanner, cluster, fingerprint_of(self, text, cluster), 0))
            .collect())
    }

    /// Returns the clusters that were found, and whether the text holds the start of a placeholder.
    fn scan(
        &self,
        scanner: &Scanner,
        text: &[u8],
        scope: ScanScope,
    ) -> Result<(Vec<Cluster>, bool), RedactError> {
        let mut pass = ScanPass::new(scope);
        pass.advance(scanner, text, true).map_err(RedactError)?;
        let marked = pass.saw_placeholder_start();
        let (mut clusters, _) = pass.settle(text, true);
        clusters.retain(|cluster| !self.is_allowed(text, cluster));
        Ok((clusters, marked))
    }

    pub(crate) fn with_placeholders(&self, scanner: &Scanner, text: &[u8], clusters: &[Cluster]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + clusters.len() * 16);
        let mut from = 0;
        for cluster in clusters {
            out.extend_from_slice(slice(text, from, cluster.start));
            placeholder::write(
                &mut out,
                scanner.name(cluster.main.kind),
                fingerprint_of(self, text, cluster),
            );
            from = cluster.end;
        }
        out.extend_from_slice(rest(text, from));
        out
    }

    /// Whether the value of a field is a secret, given the hint in the field's name.
    fn is_secret_field(&self, name: &str, text: &str) -> bool {
        let context = ValueContext {
            quoted: true,
            separator: Separator::Equals,
            starts_line: true,
            in_list: false,
            uppercase_name: false,
            keyword_last: true,
        };
        name_hint(name.as_bytes()).is_some_and(|hint| is_secret(hint, text.as_bytes(), context))
    }
}

impl Redact for Redactor {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        let (clean, count) = self.redact_bytes(text.as_bytes())?;
        match clean {
            Cow::Borrowed(_) => Ok(RedactOutput { text: Cow::Borrowed(text), count }),
            Cow::Owned(bytes) => Ok(RedactOutput { text: Cow::Owned(to_text(bytes)?), count }),
        }
    }

    fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        let masked = self.redact(text)?;
        if masked.count > 0
            || text.len() < 4
            || !self.is_secret_field(name, text)
            || self.inner.not_secret.iter().any(|allowed| allowed == text.as_bytes())
        {
            return Ok(masked);
        }
        let mut out = Vec::new();
        placeholder::write(
            &mut out,
            self.inner.rules.name(self.inner.rules.kinds.secret),
            self.fingerprint(text.as_bytes()),
        );
        Ok(RedactOutput { text: Cow::Owned(to_text(out)?), count: 1 })
    }

    fn redact_cut<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        let scanner = self.scanner();
        let edges = cut_edges::edges(&scanner, text.as_bytes()).map_err(RedactError)?;
        if edges.is_empty() {
            return self.redact(text);
        }
        let edged = to_text(self.with_placeholders(
            &scanner,
            text.as_bytes(),
            &crate::finding::merge(edges.clone()),
        ))?;
        let masked = self.redact(&edged)?;
        let count = masked.count + u32::try_from(edges.len()).unwrap_or(u32::MAX);
        Ok(RedactOutput { text: Cow::Owned(masked.text.into_owned()), count })
    }

    fn secrets(&self, text: &str) -> Result<Vec<SecretSpan>, RedactError> {
        let scanner = self.scanner();
        let (mut clean, mut found) = (Cow::Borrowed(text.as_bytes()), Vec::new());
        for n in 0..SCAN_PASSES {
            let scope = if n == 0 { ScanScope::All } else { ScanScope::AroundPlaceholders };
            let (clusters, marked) = self.scan(&scanner, &clean, scope)?;
            if clusters.is_empty() && (n > 0 || !marked) {
                break;
            }
            let secret = |cluster: &Cluster| {
                let mut words = Vec::new();
                placeholder::write(
                    &mut words,
                    scanner.name(cluster.main.kind),
                    fingerprint_of(self, &clean, cluster),
                );
                Ok(SecretSpan { span: cluster.start..cluster.end, placeholder: to_text(words)? })
            };
            let later = clusters.iter().map(secret).collect::<Result<Vec<_>, RedactError>>()?;
            found = in_original(found, later);
            if !clusters.is_empty() {
                clean = Cow::Owned(self.with_placeholders(&scanner, &clean, &clusters));
            }
        }
        Ok(found)
    }
}

/// Adds what was found in a text whose secrets were replaced by placeholders, with the positions in the original. A secret
/// that contains a placeholder replaces the one that the placeholder stands for.
fn in_original(earlier: Vec<SecretSpan>, later: Vec<SecretSpan>) -> Vec<SecretSpan> {
    if earlier.is_empty() {
        return later;
    }
    let mut all = Vec::with_capacity(earlier.len() + later.len());
    let mut earlier = earlier.into_iter().peekable();
    // How many bytes the placeholders so far are longer than their secrets.
    let mut growth = 0_isize;
    for SecretSpan { span, placeholder } in later {
        let in_clean = |secret: &SecretSpan, growth: isize| {
            let start = secret.span.start.saturating_add_signed(growth);
            start..start + secret.placeholder.len()
        };
        let grown = |secret: &SecretSpan, growth: isize| {
            growth
                .saturating_add_unsigned(secret.placeholder.len())
                .saturating_sub_unsigned(secret.span.len())
        };
        while let Some(before) = earlier.next_if(|secret| in_clean(secret, growth).end <= span.start) {
            growth = grown(&before, growth);
            all.push(before);
        }
        let mut start = span.start.saturating_add_signed(growth.saturating_neg());
        let mut last_end = None;
        while let Some(inside) = earlier.next_if(|secret| in_clean(secret, growth).start < span.end) {
            let place = in_clean(&inside, growth);
            start = start.min(inside.span.start);
            last_end = (place.end >= span.end).then_some(inside.span.end);
            growth = grown(&inside, growth);
        }
        let end = last_end.unwrap_or_else(|| span.end.saturating_add_signed(growth.saturating_neg()));
        all.push(SecretSpan { span: start..end.max(start), placeholder });
    }
    all.extend(earlier);
    all
}

fn to_text(bytes: Vec<u8>) -> Result<String, RedactError> {
    String::from_utf8(bytes).map_err(|_| RedactError("a replacement split a UTF-8 character".to_owned()))
}

/// Keeps the values that can be searched for: long enough, and not in the list of texts that are never secrets.
fn usable_values(values: &[KnownValue], not_secret: &[Vec<u8>], min_length: usize) -> Vec<KnownValue> {
    let fits = |value: &&KnownValue| {
        let bytes = value.value.expose().trim_ascii();
        bytes.len() >= min_length && !not_secret.iter().any(|allowed| allowed == bytes)
    };
    values.iter().filter(fits).cloned().collect()
}
