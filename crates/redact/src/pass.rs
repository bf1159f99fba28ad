//! One look over a text, piece by piece. INVARIANT: what is found at a place depends on nothing but the bytes from
//! [`BACK`] before it to [`AHEAD`] after it (for what runs on longer, [`LONG`]), so that it does not matter in which
//! pieces the text arrives.

use memchr::memmem;

use crate::bytes::{at, begins, part, run};
use crate::context::{Given, assigned};
use crate::finding::{Cluster, Layer, Span, merge};
use crate::judge::{Standing, is_secret};
use crate::live::Live;
use crate::names::{Promise, ends_telling, promise};
use crate::placeholder::{self, MARK};
use crate::rules::Target;
use crate::{header, pem, url};

/// Bytes before a place that count.
pub(crate) const BACK: usize = 512;
/// Bytes after a place that count.
pub(crate) const AHEAD: usize = 4096;
/// Bytes of one key or token that are held at once; longer ones are replaced in parts.
pub(crate) const LONG: usize = 1 << 16;
/// A little more, for letters of several bytes.
pub(crate) const SLACK: usize = 16;

/// What runs on without an end in sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endless {
    /// The lines of a private key.
    Key,
    /// A run of visible characters.
    Run,
}

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
    tail: Option<Tail>,
    /// The end of the last that was settled.
    settled: usize,
}

impl Pass {
    pub(crate) fn new(reach: Where) -> Self {
        Self { reach, at: 0, spans: Vec::new(), waiting: Vec::new(), placeholders: Vec::new(), tail: None, settled: 0 }
    }

    /// Looks at what has come; `end` says that nothing follows.
    pub(crate) fn advance(&mut self, live: &Live, text: &[u8], end: bool) -> Result<(), String> {
        let limit = if end { text.len() } else { text.len().saturating_sub(AHEAD + SLACK) };
        if self.follow_tail(text, end).is_err() {
            return Ok(());
        }
        while self.at < limit {
            let (from, to) = self.zone(text, limit);
            self.at = from;
            while let Some(place) = self.next(live, text, to) {
                let known = self.spans.len();
                match self.look(live, text, place, end)? {
                    Ok(()) => self.at = place + 1,
                    Err(More) => {
                        self.spans.truncate(known);
                        self.at = place;
                        return Ok(());
                    }
                }
                if self.follow_tail(text, end).is_err() {
                    return Ok(());
                }
            }
            self.at = to.max(self.at);
        }
        Ok(())
    }

    /// The next stretch to look at.
    fn zone(&self, text: &[u8], limit: usize) -> (usize, usize) {
        if self.reach == Where::All {
            return (self.at, limit);
        }
        let behind = self.at.saturating_sub(BACK + placeholder::LONGEST_KIND + MARK.len() + 16);
        match memmem::find(part(text, behind, text.len()), MARK) {
            None => (limit, limit),
            Some(mark) => {
                let mark = behind + mark;
                let end = placeholder::read(text, mark).map_or(mark + MARK.len(), |(end, _)| end) + BACK;
                if end <= self.at {
                    // Behind us; the next one, byte by byte, is looked for from after it.
                    let further = memmem::find(part(text, mark + 1, text.len()), MARK).map(|more| mark + 1 + more);
                    return match further {
                        None => (limit, limit),
                        Some(mark) => self.around(text, mark, limit),
                    };
                }
                self.around(text, mark, limit)
            }
        }
    }

    fn around(&self, text: &[u8], mark: usize, limit: usize) -> (usize, usize) {
        let end = placeholder::read(text, mark).map_or(mark + MARK.len(), |(end, _)| end) + BACK;
        let from = mark.saturating_sub(AHEAD).max(self.at).min(limit);
        (from, end.min(limit).max(from + 1).min(limit))
    }

    fn next(&self, live: &Live, text: &[u8], to: usize) -> Option<usize> {
        let groups = live.grams.next(text, self.at, to);
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
    fn look(&mut self, live: &Live, text: &[u8], place: usize, end: bool) -> Result<Result<(), More>, String> {
        let (from, to) = (place.saturating_sub(BACK), (place + AHEAD).min(text.len()));
        let short = live.short.iter().filter(|(finder, _)| crate::bytes::rest(text, place).starts_with(finder.needle()));
        let anchors = live.grams.at(text, place).chain(short.map(|(_, anchor)| (*anchor, place)));
        for (anchor, start) in anchors {
            let Some((target, after)) = live.target(anchor, text, start) else { continue };
            let view = part(text, from, to);
            let (Some(start), Some(after)) = (start.checked_sub(from), after.checked_sub(from)) else { continue };
            let mut found = Found { live, view, spans: Vec::new(), waiting: Vec::new(), endless: None };
            match target {
                Target::Placeholder => {
                    if let Some((end, kind)) = placeholder::read(view, start)
                        && live.is_kind(kind)
                    {
                        self.placeholders.push((from + start, from + end));
                    }
                }
                target => found.at(target, start, after, |edge| self.spans.iter().any(|span| span.end == from + edge))?,
            }
            let Found { spans, waiting, endless, .. } = found;
            self.waiting.extend(waiting.into_iter().map(|span| shifted(span, from)));
            for span in spans {
                let mut span = shifted(span, from);
                let what = match endless {
                    Some(what) => Some(what),
                    // It runs into the end of what counts.
                    None if span.end == to && to < text.len() && span.layer != Layer::Known => Some(Endless::Run),
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
                self.spans.push(widened(text, Span { start: tail.from, end: last, kind: tail.kind, layer: tail.layer, print: None }));
            }
            self.tail = (cut || (open && end)).then_some(Tail { from: last.max(tail.from), ..tail });
            if end && !cut {
                break;
            }
        }
        Ok(())
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
            for &(from, to) in self.placeholders.iter().filter(|(from, to)| *from < span.end && *to > span.start) {
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
        Endless::Key => {
            let walked = pem::walk(text, tail.from, limit, start == tail.from);
            let last = if walked.open && limit == most { limit } else { walked.end };
            Ending { end: last, body: walked.is_key(), open: walked.open, cut: walked.open && limit == most }
        }
        Endless::Run => {
            let last = run(text, tail.from, limit, |byte| byte > b' ' && byte != 0x7f && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';'));
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

/// What one anchor yields; places count in the view.
struct Found<'a> {
    live: &'a Live,
    view: &'a [u8],
    spans: Vec<Span>,
    waiting: Vec<Span>,
    endless: Option<Endless>,
}

impl Found<'_> {
    fn push(&mut self, (start, end): (usize, usize), kind: u16, layer: Layer) {
        if start < end {
            self.spans.push(Span { start, end, kind, layer, print: None });
        }
    }

    fn at(&mut self, target: Target, start: usize, after: usize, joins: impl Fn(usize) -> bool) -> Result<(), String> {
        let (rules, kinds, view) = (&self.live.rules, self.live.rules.kinds, self.view);
        match target {
            Target::Needle(n) => {
                let needle = usize::try_from(n).ok().and_then(|n| self.live.needles.get(n));
                if let Some(needle) = needle
                    && let Some((start, end)) = needle.stands(view, start)
                {
                    self.spans.push(Span { start, end, kind: needle.kind, layer: Layer::Known, print: Some(needle.print) });
                }
            }
            Target::Token(n) => {
                if let Some(rule) = rules.tokens.get(usize::from(n))
                    && let Some(token) = rule.find(view, start, joins)?
                {
                    let span = Span { start: token.start, end: token.end, kind: rule.kind, layer: Layer::Form, print: None };
                    if token.ended { &mut self.spans } else { &mut self.waiting }.push(span);
                }
            }
            Target::Import(n) => {
                if let Some(rule) = rules.imports.get(usize::from(n)) {
                    let mut spans = Vec::new();
                    rule.find(view, start, |from, to| spans.push((from, to)));
                    spans.into_iter().for_each(|span| self.push(span, rule.kind, Layer::Form));
                }
            }
            Target::Near(n) => {
                if let Some(rule) = rules.near.get(usize::from(n))
                    && let Some(found) = assigned(view, start, after)
                    && found.given != Given::Blank
                    && rule.fits(part(view, found.name.0, found.name.1), part(view, found.value.0, found.value.1))?
                {
                    self.push(found.value, rule.kind, Layer::Context);
                }
            }
            Target::Name => self.name(start, after),
            Target::Service => {
                if let Some(found) = assigned(view, start, after) {
                    let name = part(view, found.name.0, found.name.1);
                    self.judge(&found, promise(name).unwrap_or(Promise::Service));
                }
            }
            Target::Url => {
                if let Some(login) = url::login(view, after) {
                    self.push(login.secret, if login.database { kinds.database } else { kinds.url }, Layer::Context);
                }
            }
            Target::Pem => {
                let begin = after - b"BEGIN ".len();
                if let Some((start, end)) = pem::first_line(view, begin) {
                    self.push((start, end), kinds.private_key, Layer::Form);
                    self.endless = Some(Endless::Key);
                }
            }
            Target::Bearer => {
                if let Some(span) = header::bearer(view, after) {
                    self.push(span, kinds.bearer, Layer::Context);
                }
            }
            Target::Basic => {
                if let Some(span) = header::basic(view, after) {
                    self.push(span, kinds.basic, Layer::Context);
                }
            }
            Target::Login => {
                if let Some(span) = header::command_login(view, start, after) {
                    self.push(span, kinds.basic, Layer::Context);
                }
            }
            Target::Placeholder => {}
        }
        Ok(())
    }

    fn name(&mut self, start: usize, after: usize) {
        let (view, kinds) = (self.view, self.live.rules.kinds);
        if begins(part(view, start, start + 8), b"password")
            && let Some(span) = header::netrc(view, start, start + 8)
        {
            self.push(span, kinds.password, Layer::Context);
        }
        let Some(found) = assigned(view, start, after) else { return };
        let name = part(view, found.name.0, found.name.1);
        let value = part(view, found.value.0, found.value.1);
        if (name.eq_ignore_ascii_case(b"auth") || name.eq_ignore_ascii_case(b"_auth")) && header::is_pair(value) {
            self.push(found.value, kinds.basic, Layer::Context);
        } else if let Some(promise) = promise(name) {
            self.judge(&found, promise);
        }
    }

    fn judge(&mut self, found: &crate::context::Assigned, promise: Promise) {
        let kinds = self.live.rules.kinds;
        let name = part(self.view, found.name.0, found.name.1);
        let capitals = name.iter().all(|byte| !byte.is_ascii_lowercase());
        let standing = Standing { quoted: found.quoted, given: found.given, own_line: found.own_line, capitals, last: ends_telling(name) };
        let value = part(self.view, found.value.0, found.value.1);
        // The tokens in the addresses of badges are public.
        if part(self.view, 0, found.name.0).ends_with(b".svg?") {
            return;
        }
        if is_secret(promise, value, standing) && !value.eq_ignore_ascii_case(name) {
            let kind = match promise {
                Promise::Password => kinds.password,
                Promise::Token => kinds.secret,
                Promise::Key | Promise::AnyKey => kinds.key,
                Promise::Service => kinds.service,
            };
            self.push(found.value, kind, Layer::Context);
        }
    }
}
