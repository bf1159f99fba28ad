//! One scan pass over a text that arrives in chunks. INVARIANT: what is found at a position depends only on the bytes
//! from [`LOOKBEHIND_BYTES`] before it to [`LOOKAHEAD_BYTES`] after it (for open-ended matches, [`crate::open_ended::MAX_OPEN_BYTES`]), so
//! the result does not depend on how the text is split into chunks.

use std::collections::HashSet;

use memchr::memmem;

use crate::bytes::{at, slice};
use crate::candidates::{Candidates, OpenEnded};
use crate::finding::{Cluster, DetectionLayer, Span, merge};
use crate::open_ended::{NeedMore, OpenTail, TailEnd, find_end};
use crate::placeholder::{self, PLACEHOLDER_START};
use crate::rules::AnchorTarget;
use crate::scanner::Scanner;

/// Bytes before a position that can influence a match.
pub(crate) const LOOKBEHIND_BYTES: usize = 512;
/// Bytes after a position that can influence a match.
pub(crate) const LOOKAHEAD_BYTES: usize = 4096;
/// Length in bytes from which a value in a context may continue beyond the window.
const MAYBE_CUT_BYTES: usize = 2000;
/// Bytes of unescaped text to unescape again when the window cut it off.
const REDECODE_BYTES: usize = 1024;
/// Minimum number of span ends to keep.
const MIN_KEPT_ENDS: usize = 64;
/// Extra bytes for multi-byte characters.
pub(crate) const UTF8_SLACK_BYTES: usize = 16;

/// Which part of a text a pass scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanScope {
    /// The whole text.
    All,
    /// Only around placeholders: after a replacement, nothing new can appear anywhere else.
    AroundPlaceholders,
}

/// A scan in progress. Positions are offsets into the buffer that the caller keeps.
#[derive(Debug)]
pub(crate) struct ScanPass {
    scope: ScanScope,
    /// Every four-byte group before this position has been scanned.
    at: usize,
    spans: Vec<Span>,
    /// Tokens without a proven end. Each becomes a match if another match begins where it stops.
    unproven: Vec<Span>,
    placeholders: Vec<(usize, usize)>,
    /// Whether the start of a placeholder was seen.
    saw_placeholder_start: bool,
    tail: Option<OpenTail>,
    /// Ends of spans, as far as a token may begin there.
    ends: Vec<usize>,
    /// Number of entries in `ends` that triggers removal of old ones.
    max_ends: usize,
    /// The span that reaches furthest, merged with those that touch it.
    furthest: (usize, usize),
    /// End of the last settled cluster.
    settled: usize,
    /// End of the zone around the current placeholder, and where to search for the next placeholder.
    zone_to: usize,
    next_placeholder_from: usize,
    /// Buffer length below which there is nothing to do.
    min_len: usize,
    /// Rules without a keyword have searched the lines before this position.
    line: usize,
    /// Bytes walked to find the end of open-ended matches.
    walked: usize,
    /// Escapes before this position have been decoded.
    decoded_to: usize,
}

impl ScanPass {
    pub(crate) fn new(scope: ScanScope) -> Self {
        Self {
            scope,
            at: 0,
            spans: Vec::new(),
            unproven: Vec::new(),
            placeholders: Vec::new(),
            saw_placeholder_start: false,
            tail: None,
            ends: Vec::new(),
            max_ends: MIN_KEPT_ENDS,
            furthest: (0, 0),
            settled: 0,
            zone_to: 0,
            next_placeholder_from: 0,
            min_len: 0,
            line: 0,
            walked: 0,
            decoded_to: 0,
        }
    }

    /// Scans what has arrived; `end` means that nothing follows.
    pub(crate) fn advance(&mut self, scanner: &Scanner, text: &[u8], end: bool) -> Result<(), String> {
        if !end && text.len() < self.min_len {
            return Ok(());
        }
        if self.scope == ScanScope::All && !scanner.rules.without_keyword.is_empty() {
            self.scan_lines(scanner, text, end);
        }
        let limit =
            if end { text.len() } else { text.len().saturating_sub(LOOKAHEAD_BYTES + UTF8_SLACK_BYTES) };
        loop {
            // An unfinished key or token delays what comes after it, not what comes before.
            let stop = match self.follow_tail(text, end) {
                Ok(()) => limit,
                Err(NeedMore) => {
                    let from = self.tail.map_or(limit, |tail| tail.from);
                    self.wait_from(from, text.len());
                    from.min(limit)
                }
            };
            if self.at >= stop {
                return Ok(());
            }
            let (from, to) = self.next_zone(text, stop);
            self.at = from;
            let Some(place) = self.next_candidate(scanner, text, to) else {
                self.at = to.max(self.at);
                continue;
            };
            let known = (self.spans.len(), self.unproven.len(), self.placeholders.len());
            match self.run_anchors(scanner, text, place, end)? {
                Ok(()) => {
                    self.at = place + 1;
                    self.record_ends(known.0);
                }
                Err(NeedMore) => {
                    self.spans.truncate(known.0);
                    self.unproven.truncate(known.1);
                    self.placeholders.truncate(known.2);
                    self.at = place;
                    self.wait_from(place, text.len());
                    return Ok(());
                }
            }
        }
    }

    /// Searches whole lines for the rules without a keyword, long lines in parts. INVARIANT: `line` is ahead of `at`,
    /// so nothing leaves the pass unsearched.
    fn scan_lines(&mut self, scanner: &Scanner, text: &[u8], end: bool) {
        while self.line < text.len() {
            let max_end = (self.line + LOOKAHEAD_BYTES).min(text.len());
            let newline =
                memchr::memchr(b'\n', slice(text, self.line, max_end)).map(|there| self.line + there);
            let to = match newline {
                Some(newline) => newline,
                None if max_end == self.line + LOOKAHEAD_BYTES || end => max_end,
                None => return,
            };
            let known = self.spans.len();
            for rule in scanner.rules.without_keyword.iter().filter_map(|n| scanner.rules.imports.get(*n)) {
                rule.find_in_line(text, self.line, to, |start, end| {
                    let span =
                        Span { start, end, kind: rule.kind, layer: DetectionLayer::Form, fingerprint: None };
                    self.spans.push(widened(text, span));
                });
            }
            // How far the lines were searched depends on the chunks; `furthest` must not.
            let furthest = self.furthest;
            self.record_ends(known);
            self.furthest = furthest;
            self.line = to + usize::from(newline.is_some());
        }
    }

    /// Records the ends of the spans added since index `from`.
    fn record_ends(&mut self, from: usize) {
        for span in self.spans.get(from..).unwrap_or_default() {
            self.ends.push(span.end);
            let (first, last) = self.furthest;
            if span.start <= last && span.end >= first {
                self.furthest = (first.min(span.start), last.max(span.end));
            } else if span.end > last {
                self.furthest = (span.start, span.end);
            }
        }
        if self.ends.len() > self.max_ends {
            let oldest = self.at.saturating_sub(LOOKBEHIND_BYTES + UTF8_SLACK_BYTES);
            self.ends.retain(|end| *end >= oldest);
            self.max_ends = MIN_KEPT_ENDS.max(2 * self.ends.len());
        }
    }

    /// An open-ended match is walked again only after a good deal more input, so that tiny chunks cost no more.
    fn wait_from(&mut self, from: usize, length: usize) {
        self.min_len = length + LOOKAHEAD_BYTES.max(length.saturating_sub(from) / 2);
    }

    /// Returns the next range to scan.
    fn next_zone(&mut self, text: &[u8], stop: usize) -> (usize, usize) {
        if self.scope == ScanScope::All {
            return (self.at, stop);
        }
        if self.at >= self.zone_to {
            let Some(placeholder_at) =
                memmem::find(slice(text, self.next_placeholder_from, text.len()), PLACEHOLDER_START)
                    .map(|placeholder_at| self.next_placeholder_from + placeholder_at)
            else {
                self.next_placeholder_from =
                    self.next_placeholder_from.max(text.len().saturating_sub(PLACEHOLDER_START.len() - 1));
                return (stop, stop);
            };
            let from = placeholder_at.saturating_sub(LOOKAHEAD_BYTES).max(self.at);
            if from >= stop {
                self.next_placeholder_from = placeholder_at;
                return (stop, stop);
            }
            self.next_placeholder_from = placeholder_at + 1;
            self.zone_to = placeholder_at
                + PLACEHOLDER_START.len()
                + placeholder::MAX_KIND_BYTES
                + 16
                + LOOKBEHIND_BYTES;
            self.at = from;
        }
        (self.at, self.zone_to.min(stop).max(self.at))
    }

    fn next_candidate(&self, scanner: &Scanner, text: &[u8], to: usize) -> Option<usize> {
        let groups = scanner.prefilter.next(text, self.at, to, |anchor, start| {
            scanner.candidate_at(anchor, text, start, &self.ends).is_some()
        });
        let mut first = groups.unwrap_or(usize::MAX);
        for (finder, _) in &scanner.short_anchors {
            let stop = to.min(first).saturating_add(1).min(text.len());
            if let Some(found) = finder.find(slice(text, self.at, stop)) {
                first = first.min(self.at + found);
            }
        }
        (first < to).then_some(first)
    }

    /// Runs every anchor that matches at one position.
    fn run_anchors(
        &mut self,
        scanner: &Scanner,
        text: &[u8],
        place: usize,
        end: bool,
    ) -> Result<Result<(), NeedMore>, String> {
        let (from, to) = (place.saturating_sub(LOOKBEHIND_BYTES), (place + LOOKAHEAD_BYTES).min(text.len()));
        let short = scanner
            .short_anchors
            .iter()
            .filter(|(finder, _)| crate::bytes::rest(text, place).starts_with(finder.needle()));
        let mut decoded_to = self.decoded_to;
        let anchors = scanner.prefilter.at(text, place).chain(short.map(|(_, anchor)| (*anchor, place)));
        for (anchor, start) in anchors {
            let Some((target, after)) = scanner.candidate_at(anchor, text, start, &self.ends) else {
                continue;
            };
            let view = slice(text, from, to);
            let (Some(start), Some(after)) = (start.checked_sub(from), after.checked_sub(from)) else {
                continue;
            };
            // A match inside a span that covers the whole window adds nothing. This keeps a text of nothing but token
            // prefixes linear: it is walked once, not once per prefix.
            let (first, last) = self.furthest;
            if target != AnchorTarget::Placeholder && first <= from + start && last >= to {
                continue;
            }
            // Likewise, a text of nothing but escapes is decoded once, not once per escape.
            if target == AnchorTarget::Escaped && from + start < self.decoded_to {
                continue;
            }
            let mut found = Candidates::new(scanner, view);
            match target {
                AnchorTarget::Placeholder => {
                    self.saw_placeholder_start = true;
                    if let Some((end, kind)) = placeholder::read(view, start)
                        && scanner.is_kind(kind)
                    {
                        self.placeholders.push((from + start, from + end));
                    }
                }
                target => found.at(target, start, after, |edge| self.ends.contains(&(from + edge)))?,
            }
            let Candidates { spans, unproven, open_ended, decoded_to: view_decoded_to, .. } = found;
            // Text that the window cut off is decoded again together with what follows.
            let again = if view_decoded_to == view.len() { REDECODE_BYTES } else { 0 };
            decoded_to = decoded_to.max((from + view_decoded_to).saturating_sub(again));
            self.unproven.extend(unproven.into_iter().map(|span| shifted(span, from)));
            for span in spans {
                let mut span = shifted(span, from);
                let continuation = match open_ended {
                    Some(continuation) => Some(continuation),
                    // The span reaches the end of the window, or is long enough that it may have been cut.
                    None if span.layer != DetectionLayer::Known
                        && ((span.end == to && to < text.len())
                            || (span.layer == DetectionLayer::Context
                                && span.end - span.start >= MAYBE_CUT_BYTES)) =>
                    {
                        Some(OpenEnded::Run)
                    }
                    None => None,
                };
                if let Some(continuation) = continuation {
                    let tail = OpenTail { from: span.end, continuation, kind: span.kind, layer: span.layer };
                    match find_end(text, span.start, tail, end) {
                        Err(NeedMore) => return Ok(Err(NeedMore)),
                        Ok(TailEnd { end: last, body, open, cut }) => {
                            self.walked += last.saturating_sub(span.end);
                            let real = body;
                            if cut || (open && end) {
                                self.tail = Some(OpenTail { from: last, ..tail });
                            }
                            if !real {
                                continue;
                            }
                            span.end = last;
                        }
                    }
                }
                self.spans.push(widened(text, span));
            }
        }
        self.decoded_to = decoded_to;
        Ok(Ok(()))
    }

    fn follow_tail(&mut self, text: &[u8], end: bool) -> Result<(), NeedMore> {
        while let Some(tail) = self.tail {
            if tail.from >= text.len() {
                return if end { Ok(()) } else { Err(NeedMore) };
            }
            let TailEnd { end: last, open, cut, .. } = find_end(text, tail.from, tail, end)?;
            self.walked += last.saturating_sub(tail.from);
            if last > tail.from {
                let known = self.spans.len();
                self.spans.push(widened(
                    text,
                    Span {
                        start: tail.from,
                        end: last,
                        kind: tail.kind,
                        layer: tail.layer,
                        fingerprint: None,
                    },
                ));
                self.record_ends(known);
            }
            self.tail = (cut || (open && end)).then_some(OpenTail { from: last.max(tail.from), ..tail });
            if end && !cut {
                break;
            }
        }
        Ok(())
    }

    /// Whether the start of a placeholder was seen.
    pub(crate) fn saw_placeholder_start(&self) -> bool {
        self.saw_placeholder_start
    }

    /// Returns the clusters that are final, and the position up to which the text is done.
    pub(crate) fn settle(&mut self, text: &[u8], end: bool) -> (Vec<Cluster>, usize) {
        let limit = if end { text.len() } else { self.at.saturating_sub(LOOKBEHIND_BYTES) };
        let mut spans = self.outside_placeholders();
        let mut undecided = limit;
        // A match that begins where a waiting token stops proves that token's end. From last to first, because a proven
        // token can end another.
        let mut unproven = std::mem::take(&mut self.unproven);
        unproven.sort_by_key(|wait| std::cmp::Reverse(wait.start));
        if !unproven.is_empty() {
            let mut starts: HashSet<usize> = spans.iter().map(|span| span.start).collect();
            unproven.retain(|wait| {
                let ended = starts.contains(&wait.end);
                if ended {
                    starts.insert(wait.start);
                    self.spans.push(*wait);
                    spans.push(*wait);
                }
                !ended
            });
        }
        if !end {
            unproven.retain(|wait| wait.end >= limit);
            undecided = unproven.iter().map(|wait| wait.start).fold(undecided, usize::min);
            self.unproven = unproven;
        }
        let mut done = Vec::new();
        let mut upto = undecided;
        for cluster in merge(spans) {
            if end || (cluster.end < limit && cluster.start < undecided) {
                done.push(cluster);
            } else {
                upto = upto.min(cluster.start);
                break;
            }
        }
        if let Some(last) = done.last() {
            self.settled = last.end;
            upto = upto.max(last.end);
        }
        // Spans inside a placeholder belong to no cluster, but are done as well.
        let done_with = self.settled.max(upto);
        self.spans.retain(|span| span.end > done_with);
        self.placeholders.retain(|(_, last)| *last > upto.saturating_sub(LOOKBEHIND_BYTES));
        if end {
            (self.spans, self.placeholders) = (Vec::new(), Vec::new());
        }
        (done, upto)
    }

    /// The spans, without the parts that are placeholders or already settled.
    fn outside_placeholders(&self) -> Vec<Span> {
        let mut spans = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let mut start = span.start.max(self.settled);
            // INVARIANT: placeholders are found in order and never overlap.
            let first = self.placeholders.partition_point(|(_, to)| *to <= span.start);
            let there = self.placeholders.get(first..).unwrap_or_default();
            for &(from, to) in there.iter().take_while(|(from, _)| *from < span.end) {
                if from > start {
                    spans.push(Span { start, end: from, ..*span });
                }
                start = start.max(to);
            }
            if start < span.end {
                spans.push(Span { start, ..*span });
            }
        }
        spans
    }

    /// Drops as many of the first bytes of the buffer as possible; returns how many.
    pub(crate) fn drop_consumed(&mut self, upto: usize) -> usize {
        let count = upto.min(self.at).saturating_sub(LOOKBEHIND_BYTES + UTF8_SLACK_BYTES);
        let less = |place: &mut usize| *place = place.saturating_sub(count);
        less(&mut self.at);
        less(&mut self.settled);
        less(&mut self.zone_to);
        less(&mut self.next_placeholder_from);
        less(&mut self.line);
        less(&mut self.decoded_to);
        less(&mut self.min_len);
        self.spans.iter_mut().chain(&mut self.unproven).for_each(|span| {
            less(&mut span.start);
            less(&mut span.end);
        });
        self.placeholders.iter_mut().for_each(|(from, to)| {
            less(from);
            less(to);
        });
        if let Some(tail) = &mut self.tail {
            less(&mut tail.from);
        }
        self.ends.retain(|end| *end >= count);
        self.ends.iter_mut().for_each(less);
        less(&mut self.furthest.0);
        less(&mut self.furthest.1);
        count
    }

    /// Continues after a flush at this position, as if the text had ended there.
    pub(crate) fn resume(&mut self, at: usize) {
        self.at = at;
        self.settled = at;
        self.line = self.line.max(at);
    }
}

fn shifted(span: Span, by: usize) -> Span {
    Span { start: span.start + by, end: span.end + by, ..span }
}

/// Widens a span so that it never cuts a multi-byte character.
fn widened(text: &[u8], mut span: Span) -> Span {
    let inside = |place: usize| at(text, place) & 0xc0 == 0x80;
    let (start, end) = (span.start, span.end);
    while span.start > 0 && start - span.start < 3 && inside(span.start) {
        span.start -= 1;
    }
    while span.end - end < 3 && inside(span.end) {
        span.end += 1;
    }
    span
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::open_ended::MAX_OPEN_BYTES;
    use crate::placeholder::FingerprintKey;
    use crate::rules::RuleSet;

    // T21: a text of nothing but token prefixes is walked about once, not once per prefix
    #[test]
    fn scan_time_is_linear_in_the_text() {
        let rules = Arc::new(RuleSet::built_in().unwrap());
        let scanner = Scanner::new(Arc::clone(&rules), &[], &FingerprintKey::new(&[7; 32]));
        let mut beginnings: Vec<&[u8]> = rules.anchor_texts().into_iter().step_by(300).collect();
        beginnings.extend([b"glpat-".as_slice(), b"password=", b"token: \""]);
        for beginning in beginnings {
            let text: Vec<u8> =
                beginning.iter().copied().cycle().take(MAX_OPEN_BYTES + LOOKAHEAD_BYTES).collect();
            let mut pass = ScanPass::new(ScanScope::All);
            pass.advance(&scanner, &text, true).unwrap();
            let shown = String::from_utf8_lossy(beginning);
            assert!(pass.walked <= 2 * text.len(), "{shown}: {} bytes walked of {}", pass.walked, text.len());
            assert!(pass.ends.len() <= 2 * LOOKAHEAD_BYTES, "{shown}: {} ends kept", pass.ends.len());
        }
    }
}
