//! What is looked for right now: the rules and the known values, in one table for the first look.

use std::sync::Arc;

use memchr::memmem;

use crate::escape;
use crate::grams::{Collected, Compare, Grams};
use crate::known::{KnownValue, Needle, needles};
use crate::placeholder::Key;
use crate::rules::{Rules, Target};

/// Rules and values, ready to scan.
pub(crate) struct Live {
    pub(crate) rules: Arc<Rules>,
    pub(crate) grams: Grams,
    pub(crate) needles: Vec<Needle>,
    /// Names of kinds that known values brought along, after those of the rules.
    pub(crate) kinds: Vec<String>,
    /// Anchors of two bytes: too short for groups of four.
    pub(crate) short: Vec<(memmem::Finder<'static>, u32)>,
}

impl Live {
    pub(crate) fn new(rules: Arc<Rules>, values: &[KnownValue], key: &Key) -> Self {
        let mut grams = Collected::new();
        let mut live = Self {
            rules,
            grams: Collected::new().sorted(),
            needles: Vec::new(),
            kinds: Vec::new(),
            short: Vec::new(),
        };
        let rules = Arc::clone(&live.rules);
        for (n, anchor) in rules.anchors.iter().enumerate() {
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            match anchor.bytes.len() {
                0 | 1 => {}
                2 => live.short.push((memmem::Finder::new(&anchor.bytes).into_owned(), n)),
                length => {
                    let compare = if anchor.fold { Compare::Folded } else { Compare::Exactly };
                    let follows = if length == 3 { rules.follows(anchor) } else { None };
                    grams.add(n, &anchor.bytes, compare, follows);
                }
            }
        }
        for value in values {
            let kind = live.kind(&value.kind);
            for needle in needles(&value.value, kind, key) {
                let n = u32::try_from(rules.anchors.len() + live.needles.len()).unwrap_or(u32::MAX);
                grams.add(n, needle.bytes(), Compare::GroupOnly, None);
                // A line break may fall into one group; not into two that stand apart.
                grams.add_at(n, needle.bytes(), 0, Compare::GroupOnly);
                for group in needle.groups() {
                    grams.add_at(n, &group, 0, Compare::GroupOnly);
                }
                live.needles.push(needle);
            }
        }
        live.grams = grams.sorted();
        live
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

    /// Whether a kind is one of ours, so that its placeholder is one of ours too.
    pub(crate) fn is_kind(&self, name: &[u8]) -> bool {
        name == b"env" || self.rules.names.iter().chain(&self.kinds).any(|known| known.as_bytes() == name)
    }

    /// What an anchor leads to and where it ends, when it stands there and something may come of it. Tokens may follow
    /// right after another finding, and after an escape whose last letter is none of a word.
    pub(crate) fn worth(
        &self,
        anchor: u32,
        text: &[u8],
        start: usize,
        ends: &[usize],
    ) -> Option<(Target, usize)> {
        let (target, after) = self.target(anchor, text, start)?;
        let joins = |place: usize| ends.contains(&place) || escape::ends_at(text, place);
        let open = match target {
            Target::Token(n) => {
                self.rules.tokens.get(usize::from(n)).is_some_and(|rule| rule.gate().lets(text, start, joins))
            }
            Target::Import(n) => self
                .rules
                .imports
                .get(usize::from(n))
                .is_some_and(|rule| rule.gate.lets(text, start, |_| false)),
            _ => true,
        };
        open.then_some((target, after))
    }

    /// What an anchor leads to, when it stands there.
    fn target(&self, anchor: u32, view: &[u8], start: usize) -> Option<(Target, usize)> {
        let n = usize::try_from(anchor).ok()?;
        match self.rules.anchors.get(n) {
            Some(anchor) => {
                let end = start + anchor.bytes.len();
                let there = view.get(start..end)?;
                let same = if anchor.fold {
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
                there.then_some((Target::Needle(u32::try_from(n).ok()?), start))
            }
        }
    }
}
