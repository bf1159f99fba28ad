//! Combines edits into splices. Every edit is matched against the same base content, never against the result of another
//! edit; the number of matches must be the expected one, and no two edits may touch the same bytes. Only then do they become
//! one list of splices.

use std::ops::Range;

use memchr::memchr_iter;
use vambrace_core::change::Splice;

use super::error::EditError;
use super::matches::{Matches, SpanMatch};
use super::near_match::{match_line, near};
use super::{EditOperation, EditRequest, MatchMode};
use crate::masking::MaskedText;

/// Matching lines listed in an error message.
const MAX_LISTED_MATCHES: usize = 10;

/// A match and the edit it belongs to.
struct EditMatch {
    edit: usize,
    /// The matched bytes.
    span: Range<usize>,
    splice: Splice,
}

impl EditMatch {
    fn new(edit: usize, operation: EditOperation, found: SpanMatch) -> Self {
        let SpanMatch { span, insert } = found;
        let (at, remove, insert) = match operation {
            EditOperation::Replace => (span.start, span.len(), insert),
            EditOperation::Delete => (span.start, span.len(), Vec::new()),
            EditOperation::AppendAfter => (span.end, 0, insert),
            EditOperation::PrependBefore => (span.start, 0, insert),
        };
        Self { edit, span, splice: Splice { at: at as u64, remove: remove as u64, insert } }
    }

    fn inserts(&self) -> bool {
        self.splice.remove == 0
    }

    /// Whether the two conflict. Sorted: `self` does not start after `other`.
    fn conflicts_with(&self, other: &Self) -> bool {
        match (self.inserts(), other.inserts()) {
            // Two insertions at the same offset have no defined order.
            (true, true) => self.splice.at == other.splice.at,
            // The text that anchors an insertion must not be replaced.
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

/// The splices of all edits.
pub(crate) fn splices_of(
    masked: &MaskedText<'_>,
    path: &str,
    edits: &[EditRequest],
    mut find: impl FnMut(&EditRequest) -> Result<Matches, EditError>,
) -> Result<Vec<Splice>, EditError> {
    let mut matched = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let number = index + 1;
        check(edit, number)?;
        let matches = find(edit)?;
        if matches.found.len() != edit.count {
            return Err(count_mismatch(masked.text()?, path, edit, number, &matches));
        }
        if let Some(at) = matches.ambiguous {
            return Err(EditError::Ambiguous {
                edit: number,
                path: path.to_owned(),
                line: line_of(masked.text()?, at),
            });
        }
        matched.extend(matches.found.into_iter().map(|found| EditMatch::new(number, edit.operation, found)));
    }
    matched.sort_by_key(|edit_match| (edit_match.span.start, edit_match.span.end));
    reject_overlaps(masked, path, &matched)?;
    // An insertion at the start of a replaced text comes before it.
    matched.sort_by_key(|edit_match| (edit_match.splice.at, edit_match.splice.remove));
    Ok(Splice::merged(matched.into_iter().map(|edit_match| edit_match.splice).collect()))
}

fn check(edit: &EditRequest, number: usize) -> Result<(), EditError> {
    let bad = |why: &str| Err(EditError::BadRequest { why: format!("edit {number}: {why}") });
    if edit.spec.is_empty() {
        return bad("`spec` is empty; it is the text or pattern to find");
    }
    if edit.count == 0 {
        return bad("`count` is the required number of matches, at least 1");
    }
    if edit.operation != EditOperation::Delete
        && edit.operation != EditOperation::Replace
        && edit.content.is_empty()
    {
        return bad("`content` is empty; there is nothing to insert");
    }
    Ok(())
}

fn reject_overlaps(masked: &MaskedText<'_>, path: &str, matched: &[EditMatch]) -> Result<(), EditError> {
    // Sorted by start: an edit can conflict only with earlier ones that end at or after its start.
    let mut open: Vec<&EditMatch> = Vec::new();
    for edit_match in matched {
        open.retain(|other| other.span.end >= edit_match.span.start);
        if let Some(other) = open.iter().find(|other| other.conflicts_with(edit_match)) {
            let (first, second) = (other.edit.min(edit_match.edit), other.edit.max(edit_match.edit));
            let line = line_of(masked.text()?, edit_match.span.start);
            return Err(EditError::Overlap { first, second, line, path: path.to_owned() });
        }
        open.push(edit_match);
    }
    Ok(())
}

fn count_mismatch(
    base: &[u8],
    path: &str,
    edit: &EditRequest,
    number: usize,
    matches: &Matches,
) -> EditError {
    let (mut line, mut counted) = (1_u64, 0);
    let mut lines = Vec::new();
    for found in matches.found.iter().take(MAX_LISTED_MATCHES) {
        line += memchr_iter(b'\n', base.get(counted..found.span.start).unwrap_or_default()).count() as u64;
        counted = found.span.start;
        lines.push(match_line(base, found.span.start, line));
    }
    let nothing = matches.found.is_empty() && edit.match_mode == MatchMode::Exact;
    EditError::MatchCount {
        edit: number,
        path: path.to_owned(),
        expected: edit.count,
        found: matches.found.len(),
        matches: lines,
        near: if nothing { near(base, &edit.spec) } else { Vec::new() },
    }
}

fn line_of(base: &[u8], at: usize) -> u64 {
    memchr_iter(b'\n', base.get(..at).unwrap_or_default()).count() as u64 + 1
}
