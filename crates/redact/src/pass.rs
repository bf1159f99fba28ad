//! One look over a text, piece by piece. INVARIANT: what is found at a place depends on nothing but the bytes from
//! [`BACK`] before it to [`AHEAD`] after it (for what runs on longer, [`LONG`]), so that it does not matter in which
//! pieces the text arrives.

use memchr::memmem;

use crate::bytes::{at, part, run};
use crate::finding::{Cluster, Layer, Span, merge};
use crate::found::{Endless, Found};
use crate::live::Live;
use crate::pem;
use crate::placeholder::{self, MARK};
use crate::rules::Target;

/// Bytes before a place that count.
pub(crate) const BACK: usize = 512;
/// Bytes after a place that count.
pub(crate) const AHEAD: usize = 4096;
/// Bytes of one key or token that are held at once; longer ones are replaced in parts.
pub(crate) const LONG: usize = 1 << 16;
/// A little more, for letters of several bytes.
pub(crate) const SLACK: usize = 16;

/// A key or token whose end is not seen yet.
#[derive(Debug, Clone, Copy)]
struct Tail {
    from: usize,
    what: Endless,
    kind: u16,
    layer: Layer,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Everywhere.
    All,
    /// Around placeholders: after a replacement, only there anything can be new.
    AroundPlaceholders,
}

/// More of the text is needed to go on.
struct More;

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
    /// The end of the last that was settled.
    settled: usize,
    /// Where looking around a placeholder ends, and where the next placeholder is looked for.
    zone_to: usize,
    mark_from: usize,
    /// Nothing is to be done before the buffer is so long.
    wait_for: usize,
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
            settled: 0,
            zone_to: 0,
            mark_from: 0,
            wait_for: 0,
        }
    }

    /// Looks at what has come; `end` says that nothing follows.
    pub(crate) fn advance(&mut self, live: &Live, text: &[u8], end: bool) -> Result<(), String> {
        if !end && text.len() < self.wait_for {
            return Ok(());
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
            let known = self.spans.len();
            match self.look(live, text, place, end)? {
                Ok(()) => self.at = place + 1,
                Err(More) => {
                    self.spans.truncate(known);
                    self.at = place;
                    self.wait_from(place, text.len());
                    return Ok(());
                }
            }
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
            .next(text, self.at, to, |anchor, start| live.worth(anchor, text, start, &self.spans).is_some());
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
        let anchors = live.grams.at(text, place).chain(short.map(|(_, anchor)| (*anchor, place)));
        for (anchor, start) in anchors {
            let Some((target, after)) = live.worth(anchor, text, start, &self.spans) else { continue };
            let view = part(text, from, to);
            let (Some(start), Some(after)) = (start.checked_sub(from), after.checked_sub(from)) else {
                continue;
            };
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
                target => found
                    .at(target, start, after, |edge| self.spans.iter().any(|span| span.end == from + edge))?,
            }
            let Found { spans, waiting, endless, .. } = found;
            self.waiting.extend(waiting.into_iter().map(|span| shifted(span, from)));
            for span in spans {
                let mut span = shifted(span, from);
                let what = match endless {
                    Some(what) => Some(what),
                    // It runs into the end of what counts.
                    None if span.end == to && to < text.len() && span.layer != Layer::Known => {
                        Some(Endless::Run)
                    }
                    None => None,
                };
                if let Some(what) = what {
                    let tail = Tail { from: span.end, what, kind: span.kind, layer: span.layer };
                    match ending(text, span.start, tail, end) {
                        Err(More) => return Ok(Err(More)),
                        Ok(Ending { end: last, body, open, cut }) => {
                            let real = what == Endless::Run || body;
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
        Ok(Ok(()))
    }

    fn follow_tail(&mut self, text: &[u8], end: bool) -> Result<(), More> {
        while let Some(tail) = self.tail {
            if tail.from >= text.len() {
                return if end { Ok(()) } else { Err(More) };
            }
            let Ending { end: last, open, cut, .. } = ending(text, tail.from, tail, end)?;
            if last > tail.from {
                self.spans.push(widened(
                    text,
                    Span { start: tail.from, end: last, kind: tail.kind, layer: tail.layer, print: None },
                ));
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
        // One that begins where another ends gives that one its end.
        let mut waiting = std::mem::take(&mut self.waiting);
        loop {
            let (ended, rest): (Vec<Span>, Vec<Span>) =
                waiting.into_iter().partition(|wait| spans.iter().any(|span| span.start == wait.end));
            waiting = rest;
            if ended.is_empty() {
                break;
            }
            self.spans.extend(&ended);
            spans.extend(ended);
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
            for &(from, to) in
                self.placeholders.iter().filter(|(from, to)| *from < span.end && *to > span.start)
            {
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
        count
    }

    /// Goes on after a text that was flushed at this place as if it had ended there.
    pub(crate) fn resume(&mut self, at: usize) {
        self.at = at;
        self.settled = at;
    }
}

/// Where something endless ends.
struct Ending {
    end: usize,
    /// Whether it is long enough to be a key.
    body: bool,
    /// Whether it reaches the end of the text.
    open: bool,
    /// Whether it was cut because it is too long to hold.
    cut: bool,
}

fn ending(text: &[u8], start: usize, tail: Tail, end: bool) -> Result<Ending, More> {
    let most = (start + LONG).max(tail.from);
    let limit = most.min(text.len());
    let ending = match tail.what {
        Endless::Key(prefix) => {
            let walked = pem::walk(text, tail.from, limit, start == tail.from, &prefix);
            let last = if walked.open && limit == most { limit } else { walked.end };
            Ending { end: last, body: walked.is_key(), open: walked.open, cut: walked.open && limit == most }
        }
        Endless::Run => {
            let last = run(text, tail.from, limit, |byte| {
                byte > b' '
                    && byte != 0x7f
                    && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';')
            });
            Ending { end: last, body: true, open: last == limit, cut: last == limit && limit == most }
        }
    };
    if ending.open && !ending.cut && !end { Err(More) } else { Ok(ending) }
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
