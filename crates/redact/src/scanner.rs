//! The rules and the current known values in one prefilter, ready to scan.

use std::sync::Arc;

use memchr::memmem;

use crate::escape;
use crate::known::{KnownValue, Needle, needles};
use crate::placeholder::FingerprintKey;
use crate::prefilter::{AnchorCompare, Prefilter, PrefilterBuilder};
use crate::rules::{AnchorTarget, RuleSet};

/// Rules and known values, ready to scan.
pub(crate) struct Scanner {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) prefilter: Prefilter,
    pub(crate) needles: Vec<Needle>,
    /// Names of kinds that only known values have; numbered after those of the rules.
    pub(crate) kinds: Vec<String>,
    /// Anchors of two bytes: too short for the prefilter.
    pub(crate) short_anchors: Vec<(memmem::Finder<'static>, u32)>,
}

impl Scanner {
    pub(crate) fn new(rules: Arc<RuleSet>, values: &[KnownValue], key: &FingerprintKey) -> Self {
        let mut builder = PrefilterBuilder::new();
        let mut scanner = Self {
            rules,
            prefilter: PrefilterBuilder::new().build(),
            needles: Vec::new(),
            kinds: Vec::new(),
            short_anchors: Vec::new(),
        };
        let rules = Arc::clone(&scanner.rules);
        for (n, anchor) in rules.anchors.iter().enumerate() {
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            match anchor.bytes.len() {
                0 | 1 => {}
                2 => scanner.short_anchors.push((memmem::Finder::new(&anchor.bytes).into_owned(), n)),
                length => {
                    let compare =
                        if anchor.ignore_case { AnchorCompare::IgnoreCase } else { AnchorCompare::Exact };
                    let follows = if length == 3 { rules.follows(anchor) } else { None };
                    builder.add(n, &anchor.bytes, compare, follows);
                }
            }
        }
        for value in values {
            let kind = scanner.kind(&value.kind);
            for needle in needles(&value.value, kind, key) {
                let n = u32::try_from(rules.anchors.len() + scanner.needles.len()).unwrap_or(u32::MAX);
                builder.add(n, needle.bytes(), AnchorCompare::GroupOnly, None);
                // A line break can fall into one group, but not into two that are apart.
                builder.add_at(n, needle.bytes(), 0, AnchorCompare::GroupOnly);
                for group in needle.extra_groups() {
                    builder.add_at(n, &group, 0, AnchorCompare::GroupOnly);
                }
                scanner.needles.push(needle);
            }
        }
        scanner.prefilter = builder.build();
        scanner
    }

    fn kind(&mut self, name: &str) -> u16 {
        let known = self.rules.names.iter().chain(&self.kinds).position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.kinds.push(name.to_owned());
            self.rules.names.len() + self.kinds.len() - 1
        });
        u16::try_from(place).unwrap_or(0)
    }

    /// The name of a kind.
    pub(crate) fn name(&self, kind: u16) -> &str {
        let own = usize::from(kind).checked_sub(self.rules.names.len()).and_then(|n| self.kinds.get(n));
        own.map_or_else(|| self.rules.name(kind), String::as_str)
    }

    /// Whether a kind is ours, so that a placeholder of this kind is ours too.
    pub(crate) fn is_kind(&self, name: &[u8]) -> bool {
        name == b"env" || self.rules.names.iter().chain(&self.kinds).any(|known| known.as_bytes() == name)
    }

    /// The target of an anchor and the anchor's end, if the anchor is there and the precheck accepts it. A token may
    /// directly follow another match, or an escape whose last letter is not part of a word.
    pub(crate) fn candidate_at(
        &self,
        anchor: u32,
        text: &[u8],
        start: usize,
        ends: &[usize],
    ) -> Option<(AnchorTarget, usize)> {
        let (target, after) = self.target(anchor, text, start)?;
        let joins = |place: usize| ends.contains(&place) || escape::ends_at(text, place);
        let open = match target {
            AnchorTarget::Token(n) => self
                .rules
                .tokens
                .get(usize::from(n))
                .is_some_and(|rule| rule.precheck().may_match(text, start, joins)),
            AnchorTarget::Import(n) => self
                .rules
                .imports
                .get(usize::from(n))
                .is_some_and(|rule| rule.precheck.may_match(text, start, |_| false)),
            _ => true,
        };
        open.then_some((target, after))
    }

    /// The target of an anchor, if the anchor is there.
    fn target(&self, anchor: u32, view: &[u8], start: usize) -> Option<(AnchorTarget, usize)> {
        let n = usize::try_from(anchor).ok()?;
        match self.rules.anchors.get(n) {
            Some(anchor) => {
                let end = start + anchor.bytes.len();
                let there = view.get(start..end)?;
                let same = if anchor.ignore_case {
                    there.eq_ignore_ascii_case(&anchor.bytes)
                } else {
                    there == anchor.bytes
                };
                same.then_some((anchor.target, end))
            }
            None => {
                let n = n - self.rules.anchors.len();
                let first = self.needles.get(n)?.bytes().first()?;
                let there = view.get(start)?.eq_ignore_ascii_case(first);
                there.then_some((AnchorTarget::Needle(u32::try_from(n).ok()?), start))
            }
        }
    }
}
