//! Findings, and how several become one: overlapping ones are merged, the longest gives kind and fingerprint.

use crate::placeholder::Print;

/// Why something is held for a secret, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// A value that is known.
    Known,
    /// A form that only secrets have: a token's mark, a private key.
    Form,
    /// What surrounds it: an assignment, an address with a password, a header.
    Context,
}

impl Layer {
    /// In a word.
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
pub struct Finding {
    /// The byte where it begins.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// Its kind.
    pub kind: String,
    /// Its fingerprint.
    pub print: Print,
    /// Why.
    pub layer: Layer,
}

/// The same while a text is looked at; places count in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: u16,
    pub(crate) layer: Layer,
    /// Known values bring theirs along.
    pub(crate) print: Option<Print>,
}

impl Span {
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// Which of two says what the whole is.
    fn outweighs(&self, other: &Self) -> bool {
        let rank = |span: &Self| {
            (span.len(), std::cmp::Reverse(span.layer), std::cmp::Reverse((span.start, span.kind)))
        };
        rank(self) > rank(other)
    }
}

/// Spans that overlap, as one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The longest of them.
    pub(crate) main: Span,
}

/// A cluster that has grown so long takes nothing in any more.
pub(crate) const LONGEST_CLUSTER: usize = 1 << 16;

/// Merges spans in the order of their beginnings.
pub(crate) fn merge(mut spans: Vec<Span>) -> Vec<Cluster> {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end), span.layer, span.kind));
    let mut clusters: Vec<Cluster> = Vec::new();
    for mut span in spans {
        match clusters.last_mut() {
            Some(last)
                if span.start < last.end
                    || (span.start == last.end && span.print.is_some() && span.print == last.main.print) =>
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
