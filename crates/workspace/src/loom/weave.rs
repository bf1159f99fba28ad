//! From edits to splices. Every edit is resolved against the same content, never against what another one made of it;
//! the number of matches must be the expected one, and no two edits may touch the same bytes. Then, and only then, all of
//! them become one list of splices.

use std::ops::Range;

use memchr::memchr_iter;
use vambrace_core::change::Splice;

use super::fault::LoomFault;
use super::found::{Found, Matches};
use super::near::{near, place};
use super::veil::Veil;
use super::{EditRequest, MatchMode, Operation};

/// Places told in a message.
const MAX_PLACES: usize = 10;

/// A match with the edit it belongs to.
struct Claim {
    edit: usize,
    /// The matched bytes.
    span: Range<usize>,
    splice: Splice,
}

impl Claim {
    fn new(edit: usize, operation: Operation, found: Found) -> Self {
        let Found { span, insert } = found;
        let (at, remove, insert) = match operation {
            Operation::Replace => (span.start, span.len(), insert),
            Operation::Delete => (span.start, span.len(), Vec::new()),
            Operation::AppendAfter => (span.end, 0, insert),
            Operation::PrependBefore => (span.start, 0, insert),
        };
        Self { edit, span, splice: Splice { at: at as u64, remove: remove as u64, insert } }
    }

    fn inserts(&self) -> bool {
        self.splice.remove == 0
    }

    /// Whether both cannot happen. Sorted: `self` does not start after `other`.
    fn meets(&self, other: &Self) -> bool {
        match (self.inserts(), other.inserts()) {
            // Two texts at one point have no order; around one text they have.
            (true, true) => self.splice.at == other.splice.at,
            // What an insertion hangs on must stay.
            _ => {
                let inside = |point: &Range<usize>, span: &Range<usize>| {
                    point.is_empty() && span.start < point.start && point.start < span.end
                };
                (self.span.start < other.span.end && other.span.start < self.span.end)
                    || inside(&self.span, &other.span)
                    || inside(&other.span, &self.span)
                    || (self.span.is_empty() && self.span == other.span)
            }
        }
    }
}

/// The splices of all edits, or why there are none.
pub(crate) fn weave(
    veil: &Veil<'_>,
    path: &str,
    edits: &[EditRequest],
    mut find: impl FnMut(&EditRequest) -> Result<Matches, LoomFault>,
) -> Result<Vec<Splice>, LoomFault> {
    let mut claims = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let number = index + 1;
        check(edit, number)?;
        let matches = find(edit)?;
        if matches.found.len() != edit.count {
            return Err(miscounted(veil.text()?, path, edit, number, &matches));
        }
        if let Some(at) = matches.ambiguous {
            return Err(LoomFault::Ambiguous {
                edit: number,
                path: path.to_owned(),
                line: line_of(veil.text()?, at),
            });
        }
        claims.extend(matches.found.into_iter().map(|found| Claim::new(number, edit.operation, found)));
    }
    claims.sort_by_key(|claim| (claim.span.start, claim.span.end));
    refuse_overlaps(veil, path, &claims)?;
    // An insertion at the start of a replaced text comes before it.
    claims.sort_by_key(|claim| (claim.splice.at, claim.splice.remove));
    Ok(Splice::merged(claims.into_iter().map(|claim| claim.splice).collect()))
}

fn check(edit: &EditRequest, number: usize) -> Result<(), LoomFault> {
    let bad = |why: &str| Err(LoomFault::BadRequest { why: format!("edit {number}: {why}") });
    if edit.spec.is_empty() {
        return bad("`spec` is empty; it says what to find");
    }
    if edit.count == 0 {
        return bad("`count` is the number of matches that must be found, at least 1");
    }
    if edit.operation != Operation::Delete && edit.operation != Operation::Replace && edit.content.is_empty()
    {
        return bad("`content` is empty; there is nothing to insert");
    }
    Ok(())
}

fn refuse_overlaps(veil: &Veil<'_>, path: &str, claims: &[Claim]) -> Result<(), LoomFault> {
    // Sorted by start: a claim can meet only those before it that end at or behind its start.
    let mut open: Vec<&Claim> = Vec::new();
    for claim in claims {
        open.retain(|other| other.span.end >= claim.span.start);
        if let Some(other) = open.iter().find(|other| other.meets(claim)) {
            let (first, second) = (other.edit.min(claim.edit), other.edit.max(claim.edit));
            let line = line_of(veil.text()?, claim.span.start);
            return Err(LoomFault::Overlap { first, second, line, path: path.to_owned() });
        }
        open.push(claim);
    }
    Ok(())
}

fn miscounted(base: &[u8], path: &str, edit: &EditRequest, number: usize, matches: &Matches) -> LoomFault {
    let (mut line, mut counted) = (1_u64, 0);
    let mut places = Vec::new();
    for found in matches.found.iter().take(MAX_PLACES) {
        line += memchr_iter(b'\n', base.get(counted..found.span.start).unwrap_or_default()).count() as u64;
        counted = found.span.start;
        places.push(place(base, found.span.start, line));
    }
    let nothing = matches.found.is_empty() && edit.match_mode == MatchMode::Exact;
    LoomFault::Count {
        edit: number,
        path: path.to_owned(),
        expected: edit.count,
        found: matches.found.len(),
        places,
        near: if nothing { near(base, &edit.spec) } else { Vec::new() },
    }
}

fn line_of(base: &[u8], at: usize) -> u64 {
    memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() as u64 + 1
}
