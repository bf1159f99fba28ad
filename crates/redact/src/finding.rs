//! Findings, and how overlapping ones are merged into one: the longest gives kind and fingerprint.

use crate::placeholder::Fingerprint;

/// Which detection layer found a secret, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DetectionLayer {
    /// A known value.
    Known,
    /// A format that only secrets have: a token's prefix, a private key.
    Form,
    /// What surrounds it: an assignment, a URL with a password, a header.
    Context,
}

impl DetectionLayer {
    /// The word for reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Form => "form",
            Self::Context => "context",
        }
    }
}

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFinding {
    /// Offset of its first byte.
    pub start: u64,
    /// Offset after its last byte.
    pub end: u64,
    /// Its kind, as in the placeholder.
    pub kind: String,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The layer that found it.
    pub layer: DetectionLayer,
}

/// A finding during a scan. Positions are offsets into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: u16,
    pub(crate) layer: DetectionLayer,
    /// Set for known values: the fingerprint of the plain value.
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Span {
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// Which of two spans gives the cluster its kind.
    fn outweighs(&self, other: &Self) -> bool {
        let rank = |span: &Self| {
            (span.len(), std::cmp::Reverse(span.layer), std::cmp::Reverse((span.start, span.kind)))
        };
        rank(self) > rank(other)
    }
}

/// Overlapping spans, merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The longest of the spans.
    pub(crate) main: Span,
}

/// Length in bytes from which a cluster absorbs no further spans.
pub(crate) const LONGEST_CLUSTER: usize = 1 << 16;

/// Merges spans, in order of their start.
pub(crate) fn merge(mut spans: Vec<Span>) -> Vec<Cluster> {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end), span.layer, span.kind));
    let mut clusters: Vec<Cluster> = Vec::new();
    for mut span in spans {
        match clusters.last_mut() {
            Some(last)
                if span.start < last.end
                    || (span.start == last.end
                        && span.fingerprint.is_some()
                        && span.fingerprint == last.main.fingerprint) =>
            {
                if span.end <= last.end || last.end - last.start < LONGEST_CLUSTER {
                    last.end = last.end.max(span.end);
                    if span.outweighs(&last.main) {
                        last.main = span;
                    }
                } else {
                    span.start = last.end;
                    clusters.push(Cluster { start: span.start, end: span.end, main: span });
                }
            }
            _ => clusters.push(Cluster { start: span.start, end: span.end, main: span }),
        }
    }
    clusters
}
