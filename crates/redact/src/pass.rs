//! One look over a text, piece by piece. INVARIANT: what is found at a place depends on nothing but the bytes from
//! [`BACK`] before it to [`AHEAD`] after it (for what runs on longer, [`crate::ending::LONG`]), so that it does not matter in which
//! pieces the text arrives.

use std::collections::HashSet;

use memchr::memmem;

use crate::bytes::{at, part};
use crate::ending::{Ending, More, Tail, ending};
use crate::finding::{Cluster, Layer, Span, merge};
use crate::found::{Endless, Found};
use crate::live::Live;
use crate::placeholder::{self, MARK};
use crate::rules::Target;

/// Bytes before a place that count.
pub(crate) const BACK: usize = 512;
/// Bytes after a place that count.
pub(crate) const AHEAD: usize = 4096;
/// A value in a context that is longer may go on after what was looked at.
const CUT: usize = 2000;
/// So much of what was read is read again when it was cut off.
const READ_AGAIN: usize = 1024;
/// Ends of spans that are always kept.
const LEAST_ENDS: usize = 64;
/// A little more, for letters of several bytes.
pub(crate) const SLACK: usize = 16;

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Everywhere.
    All,
    /// Around placeholders: after a replacement, only there anything can be new.
    AroundPlaceholders,
}

/// A look under way; places count in the buffer that the caller keeps.
#[derive(Debug)]
pub(crate) struct Pass {
    reach: Where,
    /// Every group before this place was looked at.
    at: usize,
    spans: Vec<Span>,
    /// Tokens that only lack an end: one, when another finding begins there.
    waiting: Vec<Span>,
    placeholders: Vec<(usize, usize)>,
    /// Whether anything began as placeholders do.
    met_mark: bool,
    tail: Option<Tail>,
    /// Where spans end, as far as something may begin there.
    ends: Vec<usize>,
    /// So many of them are kept before old ones are forgotten.
    most_ends: usize,
    /// The span that reaches furthest, with those that touch it.
    furthest: (usize, usize),
    /// The end of the last that was settled.
    settled: usize,
    /// Where looking around a placeholder ends, and where the next placeholder is looked for.
    zone_to: usize,
    mark_from: usize,
    /// Nothing is to be done before the buffer is so long.
    wait_for: usize,
    /// Lines before this place were searched by the rules that have no keyword.
    line: usize,
    /// Bytes that were walked to find where something long ends.
    walked: usize,
    /// Escapes before this place were read.
    read: usize,
}

impl Pass {
    pub(crate) fn new(reach: Where) -> Self {
        Self {
            reach,
            at: 0,
            spans: Vec::new(),
            waiting: Vec::new(),
            placeholders: Vec::new(),
            met_mark: false,
            tail: None,
            ends: Vec::new(),
            most_ends: LEAST_ENDS,
            furthest: (0, 0),
            settled: 0,
            zone_to: 0,
            mark_from: 0,
            wait_for: 0,
            line: 0,
            walked: 0,
            read: 0,
        }
    }

    /// Looks at what has come; `end` says that nothing follows.
    pub(crate) fn advance(&mut self, live: &Live, text: &[u8], end: bool) -> Result<(), String> {
        if !end && text.len() < self.wait_for {
            return Ok(());
        }
        if self.reach == Where::All && !live.rules.loose.is_empty() {
            self.lines(live, text, end);
        }
        let limit = if end { text.len() } else { text.len().saturating_sub(AHEAD + SLACK) };
        loop {
            // A key or token that goes on holds up what comes after it, not what comes before.
            let stop = match self.follow_tail(text, end) {
                Ok(()) => limit,
                Err(More) => {
                    let from = self.tail.map_or(limit, |tail| tail.from);
                    self.wait_from(from, text.len());
                    from.min(limit)
                }
            };
            if self.at >= stop {
                return Ok(());
            }
            let (from, to) = self.zone(text, stop);
            self.at = from;
            let Some(place) = self.next(live, text, to) else {
                self.at = to.max(self.at);
                continue;
            };
            let known = (self.spans.len(), self.waiting.len(), self.placeholders.len());
            match self.look(live, text, place, end)? {
                Ok(()) => {
                    self.at = place + 1;
                    self.note_ends(known.0);
                }
                Err(More) => {
                    self.spans.truncate(known.0);
                    self.waiting.truncate(known.1);
                    self.placeholders.truncate(known.2);
                    self.at = place;
                    self.wait_from(place, text.len());
                    return Ok(());
                }
            }
        }
    }

    /// Searches whole lines for the rules without a keyword; long ones in parts. INVARIANT: this is further on than `at`, so that nothing is
    /// given out that was not searched.
    fn lines(&mut self, live: &Live, text: &[u8], end: bool) {
        while self.line < text.len() {
            let most = (self.line + AHEAD).min(text.len());
            let newline = memchr::memchr(b'\n', part(text, self.line, most)).map(|there| self.line + there);
            let to = match newline {
                Some(newline) => newline,
                None if most == self.line + AHEAD || end => most,
                None => return,
            };
            let known = self.spans.len();
            for rule in live.rules.loose.iter().filter_map(|n| live.rules.imports.get(*n)) {
                rule.find_in_line(text, self.line, to, |start, end| {
                    let span = Span { start, end, kind: rule.kind, layer: Layer::Form, print: None };
                    self.spans.push(widened(text, span));
                });
            }
            // How far lines were searched depends on what has come; what they cover must not.
            let furthest = self.furthest;
            self.note_ends(known);
            self.furthest = furthest;
            self.line = to + usize::from(newline.is_some());
        }
    }

    /// Remembers where the spans end that were found just now.
    fn note_ends(&mut self, from: usize) {
        for span in self.spans.get(from..).unwrap_or_default() {
            self.ends.push(span.end);
            let (first, last) = self.furthest;
            if span.start <= last && span.end >= first {
                self.furthest = (first.min(span.start), last.max(span.end));
            } else if span.end > last {
                self.furthest = (span.start, span.end);
            }
        }
        if self.ends.len() > self.most_ends {
            let oldest = self.at.saturating_sub(BACK + SLACK);
            self.ends.retain(|end| *end >= oldest);
            self.most_ends = LEAST_ENDS.max(2 * self.ends.len());
        }
    }

    /// Something long is walked again only when a good deal more of it has come, so that tiny pieces cost no more.
    fn wait_from(&mut self, from: usize, length: usize) {
        self.wait_for = length + AHEAD.max(length.saturating_sub(from) / 2);
    }

    /// The next stretch to look at.
    fn zone(&mut self, text: &[u8], stop: usize) -> (usize, usize) {
        if self.reach == Where::All {
            return (self.at, stop);
        }
        if self.at >= self.zone_to {
            let Some(mark) =
                memmem::find(part(text, self.mark_from, text.len()), MARK).map(|mark| self.mark_from + mark)
            else {
                self.mark_from = self.mark_from.max(text.len().saturating_sub(MARK.len() - 1));
                return (stop, stop);
            };
            let from = mark.saturating_sub(AHEAD).max(self.at);
            if from >= stop {
                self.mark_from = mark;
                return (stop, stop);
            }
            self.mark_from = mark + 1;
            self.zone_to = mark + MARK.len() + placeholder::LONGEST_KIND + 16 + BACK;
            self.at = from;
        }
        (self.at, self.zone_to.min(stop).max(self.at))
    }

    fn next(&self, live: &Live, text: &[u8], to: usize) -> Option<usize> {
        let groups = live
            .grams
            .next(text, self.at, to, |anchor, start| live.worth(anchor, text, start, &self.ends).is_some());
        let mut first = groups.unwrap_or(usize::MAX);
        for (finder, _) in &live.short {
            let stop = to.min(first).saturating_add(1).min(text.len());
            if let Some(found) = finder.find(part(text, self.at, stop)) {
                first = first.min(self.at + found);
            }
        }
        (first < to).then_some(first)
    }

    /// Looks at one place.
    fn look(
        &mut self,
        live: &Live,
        text: &[u8],
        place: usize,
        end: bool,
    ) -> Result<Result<(), More>, String> {
        let (from, to) = (place.saturating_sub(BACK), (place + AHEAD).min(text.len()));
        let short = live
            .short
            .iter()
            .filter(|(finder, _)| crate::bytes::rest(text, place).starts_with(finder.needle()));
        let mut read = self.read;
        let anchors = live.grams.at(text, place).chain(short.map(|(_, anchor)| (*anchor, place)));
        for (anchor, start) in anchors {
            let Some((target, after)) = live.worth(anchor, text, start, &self.ends) else { continue };
            let view = part(text, from, to);
            let (Some(start), Some(after)) = (start.checked_sub(from), after.checked_sub(from)) else {
                continue;
            };
            // What lies in a span that reaches past everything that counts here adds nothing to it. So a text of nothing but beginnings
            // of tokens is walked once and not once for each.
            let (first, last) = self.furthest;
            if target != Target::Placeholder && first <= from + start && last >= to {
                continue;
            }
            // A text of nothing but escapes is read once and not once for each.
            if target == Target::Spelled && from + start < self.read {
                continue;
            }
            let mut found = Found::new(live, view);
            match target {
                Target::Placeholder => {
                    self.met_mark = true;
                    if let Some((end, kind)) = placeholder::read(view, start)
                        && live.is_kind(kind)
                    {
                        self.placeholders.push((from + start, from + end));
                    }
                }
                target => found.at(target, start, after, |edge| self.ends.contains(&(from + edge)))?,
            }
            let Found { spans, waiting, endless, read_to, .. } = found;
            // What was cut off is read again with what follows it.
            let again = if read_to == view.len() { READ_AGAIN } else { 0 };
            read = read.max((from + read_to).saturating_sub(again));
            self.waiting.extend(waiting.into_iter().map(|span| shifted(span, from)));
            for span in spans {
                let mut span = shifted(span, from);
                let what = match endless {
                    Some(what) => Some(what),
                    // It runs into the end of what counts, or is so long that it may have been cut.
                    None if span.layer != Layer::Known
                        && ((span.end == to && to < text.len())
                            || (span.layer == Layer::Context && span.end - span.start >= CUT)) =>
                    {
                        Some(Endless::Run)
                    }
                    None => None,
                };
                if let Some(what) = what {
                    let tail = Tail { from: span.end, what, kind: span.kind, layer: span.layer };
                    match ending(text, span.start, tail, end) {
                        Err(More) => return Ok(Err(More)),
                        Ok(Ending { end: last, body, open, cut }) => {
                            self.walked += last.saturating_sub(span.end);
                            let real = body;
                            if cut || (open && end) {
                                self.tail = Some(Tail { from: last, ..tail });
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
        self.read = read;
        Ok(Ok(()))
    }

    fn follow_tail(&mut self, text: &[u8], end: bool) -> Result<(), More> {
        while let Some(tail) = self.tail {
            if tail.from >= text.len() {
                return if end { Ok(()) } else { Err(More) };
            }
            let Ending { end: last, open, cut, .. } = ending(text, tail.from, tail, end)?;
            self.walked += last.saturating_sub(tail.from);
            if last > tail.from {
                let known = self.spans.len();
                self.spans.push(widened(
                    text,
                    Span { start: tail.from, end: last, kind: tail.kind, layer: tail.layer, print: None },
                ));
                self.note_ends(known);
            }
            self.tail = (cut || (open && end)).then_some(Tail { from: last.max(tail.from), ..tail });
            if end && !cut {
                break;
            }
        }
        Ok(())
    }

    /// Whether anything began as placeholders do.
    pub(crate) fn met_mark(&self) -> bool {
        self.met_mark
    }

    /// What is certain by now: replacements, and up to where the text is done with.
    pub(crate) fn settle(&mut self, text: &[u8], end: bool) -> (Vec<Cluster>, usize) {
        let limit = if end { text.len() } else { self.at.saturating_sub(BACK) };
        let mut spans = self.outside_placeholders();
        let mut undecided = limit;
        // One that begins where another ends gives that one its end; from the last to the first, because one may end another.
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|wait| std::cmp::Reverse(wait.start));
        if !waiting.is_empty() {
            let mut starts: HashSet<usize> = spans.iter().map(|span| span.start).collect();
            waiting.retain(|wait| {
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
            waiting.retain(|wait| wait.end >= limit);
            undecided = waiting.iter().map(|wait| wait.start).fold(undecided, usize::min);
            self.waiting = waiting;
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
        // What lies inside a placeholder is in no cluster, and done with all the same.
        let done_with = self.settled.max(upto);
        self.spans.retain(|span| span.end > done_with);
        self.placeholders.retain(|(_, last)| *last > upto.saturating_sub(BACK));
        if end {
            (self.spans, self.placeholders) = (Vec::new(), Vec::new());
        }
        (done, upto)
    }

    /// Spans without what is a placeholder already and without what is settled.
    fn outside_placeholders(&self) -> Vec<Span> {
        let mut spans = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let mut start = span.start.max(self.settled);
            // INVARIANT: they are met in their order and never overlap.
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

    /// Forgets the first bytes of the buffer, as far as it can; tells how many.
    pub(crate) fn forget(&mut self, upto: usize) -> usize {
        let count = upto.min(self.at).saturating_sub(BACK + SLACK);
        let less = |place: &mut usize| *place = place.saturating_sub(count);
        less(&mut self.at);
        less(&mut self.settled);
        less(&mut self.zone_to);
        less(&mut self.mark_from);
        less(&mut self.line);
        less(&mut self.read);
        less(&mut self.wait_for);
        self.spans.iter_mut().chain(&mut self.waiting).for_each(|span| {
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

    /// Goes on after a text that was flushed at this place as if it had ended there.
    pub(crate) fn resume(&mut self, at: usize) {
        self.at = at;
        self.settled = at;
        self.line = self.line.max(at);
    }
}

fn shifted(span: Span, by: usize) -> Span {
    Span { start: span.start + by, end: span.end + by, ..span }
}

/// Never cuts a letter of several bytes.
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
    use crate::ending::LONG;
    use crate::placeholder::Key;
    use crate::rules::Rules;

    // T21: a text of nothing but beginnings of tokens is walked about once, not once for each of them
    #[test]
    fn work_grows_with_the_text_and_not_with_its_square() {
        let rules = Arc::new(Rules::built_in().unwrap());
        let live = Live::new(Arc::clone(&rules), &[], &Key::new(&[7; 32]));
        let mut beginnings: Vec<&[u8]> = rules.beginnings().into_iter().step_by(300).collect();
        beginnings.extend([b"glpat-".as_slice(), b"password=", b"token: \""]);
        for beginning in beginnings {
            let text: Vec<u8> = beginning.iter().copied().cycle().take(LONG + AHEAD).collect();
            let mut pass = Pass::new(Where::All);
            pass.advance(&live, &text, true).unwrap();
            let told = String::from_utf8_lossy(beginning);
            assert!(pass.walked <= 2 * text.len(), "{told}: {} bytes walked of {}", pass.walked, text.len());
            assert!(pass.ends.len() <= 2 * AHEAD, "{told}: {} ends kept", pass.ends.len());
        }
    }
}
