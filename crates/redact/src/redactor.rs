//! The redactor: rules, known values and the installation's key. Cheap to clone; values are exchanged while it works.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use vambrace_core::redacted::{Masked, Redact, RedactError, Secret};

use crate::bytes::{part, rest};
use crate::context::Given;
use crate::cut;
use crate::finding::{Cluster, Finding};
use crate::judge::{Standing, is_secret};
use crate::known::{KnownValue, LEAST_VALUE, SHORTEST_VALUE};
use crate::live::Live;
use crate::names::promise;
use crate::pass::{Pass, Where};
use crate::placeholder::{self, Key, Print};
use crate::rules::Rules;
use crate::stream::{LOOKS, Stream, finding, print_of};

/// Finds and replaces secrets.
#[derive(Clone)]
pub struct Redactor {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Arc<Rules>,
    key: Key,
    not_secret: Vec<Vec<u8>>,
    /// Shorter values are not looked for.
    least: usize,
    live: RwLock<Arc<Live>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("rules", &self.shared.rules.count()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// From rules, known values, texts that are no secrets whatever they look like, and the installation's key.
    #[must_use]
    pub fn new(rules: Rules, values: &[KnownValue], not_secret: &[String], key: &[u8; 32]) -> Self {
        Self::with_least(rules, values, not_secret, LEAST_VALUE, key)
    }

    /// The same with another least length of a value that is looked for.
    #[must_use]
    pub fn with_least(
        rules: Rules,
        values: &[KnownValue],
        not_secret: &[String],
        least: usize,
        key: &[u8; 32],
    ) -> Self {
        let (rules, key, least) = (Arc::new(rules), Key::new(key), least.max(SHORTEST_VALUE));
        let not_secret: Vec<Vec<u8>> = not_secret.iter().map(|text| text.as_bytes().to_vec()).collect();
        let usable = usable(values, &not_secret, least);
        let live = RwLock::new(Arc::new(Live::new(Arc::clone(&rules), &usable, &key)));
        Self { shared: Arc::new(Shared { rules, key, not_secret, least, live }) }
    }

    /// Exchanges the known values. Texts and streams under way see the new ones from their next piece on.
    pub fn exchange(&self, values: &[KnownValue]) {
        let shared = &self.shared;
        let usable = usable(values, &shared.not_secret, shared.least);
        let live = Live::new(Arc::clone(&shared.rules), &usable, &shared.key);
        *shared.live.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
    }

    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.shared.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn print(&self, secret: &[u8]) -> Print {
        self.shared.key.print(secret)
    }

    /// Whether a finding is one of the texts that are no secrets.
    pub(crate) fn is_allowed(&self, text: &[u8], cluster: &Cluster) -> bool {
        let found = part(text, cluster.start, cluster.end);
        self.shared.not_secret.iter().any(|allowed| allowed == found)
    }

    /// A stream of its own.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// Replaces every secret in a text of bytes; the number of replacements beside it.
    pub fn redact_bytes<'a>(&self, text: &'a [u8]) -> Result<(Cow<'a, [u8]>, u32), RedactError> {
        let live = self.live();
        let mut clean = Cow::Borrowed(text);
        let mut count = 0;
        for n in 0..LOOKS {
            let reach = if n == 0 { Where::All } else { Where::AroundPlaceholders };
            let (clusters, marked) = self.look(&live, &clean, reach)?;
            if clusters.is_empty() && (n > 0 || !marked) {
                break;
            }
            count += clusters.len();
            if !clusters.is_empty() {
                clean = Cow::Owned(self.replaced(&live, &clean, &clusters));
            }
        }
        Ok((clean, u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// The secrets in a text, with their places.
    pub fn findings(&self, text: &[u8]) -> Result<Vec<Finding>, RedactError> {
        let live = self.live();
        let (clusters, _) = self.look(&live, text, Where::All)?;
        Ok(clusters.iter().map(|cluster| finding(&live, cluster, print_of(self, text, cluster), 0)).collect())
    }

    /// What is found, and whether the text holds what a placeholder begins with.
    fn look(&self, live: &Live, text: &[u8], reach: Where) -> Result<(Vec<Cluster>, bool), RedactError> {
        let mut pass = Pass::new(reach);
        pass.advance(live, text, true).map_err(RedactError)?;
        let marked = pass.met_mark();
        let (mut clusters, _) = pass.settle(text, true);
        clusters.retain(|cluster| !self.is_allowed(text, cluster));
        Ok((clusters, marked))
    }

    pub(crate) fn replaced(&self, live: &Live, text: &[u8], clusters: &[Cluster]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + clusters.len() * 16);
        let mut from = 0;
        for cluster in clusters {
            out.extend_from_slice(part(text, from, cluster.start));
            placeholder::write(&mut out, live.name(cluster.main.kind), print_of(self, text, cluster));
            from = cluster.end;
        }
        out.extend_from_slice(rest(text, from));
        out
    }

    /// The value of a field whose name is known: what the name promises counts too.
    fn named(&self, name: &str, text: &str) -> bool {
        let standing = Standing {
            quoted: true,
            given: Given::Equals,
            own_line: true,
            listed: false,
            capitals: false,
            last: true,
        };
        promise(name.as_bytes()).is_some_and(|promise| is_secret(promise, text.as_bytes(), standing))
    }
}

impl Redact for Redactor {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let (clean, count) = self.redact_bytes(text.as_bytes())?;
        match clean {
            Cow::Borrowed(_) => Ok(Masked { text: Cow::Borrowed(text), count }),
            Cow::Owned(bytes) => Ok(Masked { text: Cow::Owned(to_text(bytes)?), count }),
        }
    }

    fn redact_named<'a>(&self, name: &str, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let masked = self.redact(text)?;
        if masked.count > 0
            || text.len() < 4
            || !self.named(name, text)
            || self.shared.not_secret.iter().any(|allowed| allowed == text.as_bytes())
        {
            return Ok(masked);
        }
        let mut out = Vec::new();
        placeholder::write(
            &mut out,
            self.shared.rules.name(self.shared.rules.kinds.secret),
            self.print(text.as_bytes()),
        );
        Ok(Masked { text: Cow::Owned(to_text(out)?), count: 1 })
    }

    fn redact_cut<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        let live = self.live();
        let edges = cut::edges(&live, text.as_bytes()).map_err(RedactError)?;
        if edges.is_empty() {
            return self.redact(text);
        }
        let edged = to_text(self.replaced(&live, text.as_bytes(), &crate::finding::merge(edges.clone())))?;
        let masked = self.redact(&edged)?;
        let count = masked.count + u32::try_from(edges.len()).unwrap_or(u32::MAX);
        Ok(Masked { text: Cow::Owned(masked.text.into_owned()), count })
    }

    fn secrets(&self, text: &str) -> Result<Vec<Secret>, RedactError> {
        let live = self.live();
        let (clusters, _) = self.look(&live, text.as_bytes(), Where::All)?;
        let secret = |cluster: &Cluster| {
            let mut mark = Vec::new();
            let print = print_of(self, text.as_bytes(), cluster);
            placeholder::write(&mut mark, live.name(cluster.main.kind), print);
            Ok(Secret { span: cluster.start..cluster.end, mark: to_text(mark)? })
        };
        clusters.iter().map(secret).collect()
    }
}

fn to_text(bytes: Vec<u8>) -> Result<String, RedactError> {
    String::from_utf8(bytes).map_err(|_| RedactError("a replacement cut a character".to_owned()))
}

/// Values that can be looked for: long enough, and not among those that are no secrets.
fn usable(values: &[KnownValue], not_secret: &[Vec<u8>], least: usize) -> Vec<KnownValue> {
    let fits = |value: &&KnownValue| {
        let bytes = value.value.expose().trim_ascii();
        bytes.len() >= least && !not_secret.iter().any(|allowed| allowed == bytes)
    };
    values.iter().filter(fits).cloned().collect()
}
