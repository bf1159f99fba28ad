//! Takes the matching lines of one file from the searcher. Between any two lines, and between any two matches
//! in a line, it asks whether the search should stop: a pattern can be slow by matching too often. Lines with secrets are
//! matched and shown without them.

use std::collections::VecDeque;
use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::hunt::Hunt;
use super::shade::{Shade, Shaded, Source};
use super::snippet::{around, column, context, plain};
use super::{LineMatch, SearchMode};

/// The findings in one file.
pub(crate) struct FileSink<'a> {
    hunt: &'a Hunt,
    worker: usize,
    matcher: &'a RegexMatcher,
    shade: Option<Shade<'a>>,
    place: &'a str,
    path: String,
    keeps: Option<bool>,
    total: u64,
    lines: Vec<LineMatch>,
    /// The last lines seen, for the surroundings of the next match.
    recent: VecDeque<(u64, String, u32)>,
    pub(crate) binary: bool,
}

impl<'a> FileSink<'a> {
    pub(crate) fn new(hunt: &'a Hunt, worker: usize, matcher: &'a RegexMatcher, place: &'a str) -> Self {
        Self {
            hunt,
            worker,
            matcher,
            shade: None,
            place,
            path: String::new(),
            keeps: None,
            total: 0,
            lines: Vec::new(),
            recent: VecDeque::new(),
            binary: false,
        }
    }

    /// Says what is searched, where secrets are to be looked for.
    pub(crate) fn reads(&mut self, source: Source<'a>) {
        self.shade = self.hunt.want.secrets.as_ref().map(|finder| Shade::new(finder, source));
    }

    /// Hands the findings over.
    pub(crate) fn finish_file(mut self) {
        if self.total == 0 {
            return;
        }
        if self.path.is_empty() {
            self.path = self.hunt.ws.scope().spell_text(self.place);
        }
        self.hunt.with_tally(|tally| tally.add(self.path, self.total, self.lines));
    }

    /// The secrets of a line. Looking for them is not the pattern's fault, so its clock stands.
    fn secrets(&mut self, at: u64, line: &[u8]) -> io::Result<Shaded> {
        let Some(shade) = &mut self.shade else { return Ok(Shaded::default()) };
        let spent = self.hunt.end_matching(self.worker);
        let shaded = shade.of_line(at, line);
        self.hunt.begin_matching(self.worker, spent);
        if let Err(error) = &shaded
            && error.kind() == io::ErrorKind::Other
        {
            self.hunt.with_tally(|tally| tally.blind = Some(error.to_string()));
        }
        shaded
    }

    /// How many matches a line has, at most so many, and where the first begins. `None` when the search should stop.
    fn matches(&self, line: &[u8], secrets: &Shaded, most: u64) -> io::Result<Option<(u64, usize)>> {
        let blotted = (!secrets.is_empty()).then(|| secrets.blotted(line));
        let (mut count, mut first, mut stopped) = (0, 0, false);
        let found = self.matcher.find_iter(plain_end(blotted.as_deref().unwrap_or(line)), |found| {
            let span = found.start()..found.end();
            if secrets.is_empty() || !secrets.touches(&span, self.hunt.pattern.looks_around) {
                first = if count == 0 { span.start } else { first };
                count += 1;
            }
            stopped = self.hunt.stopped();
            !stopped && count < most
        });
        found.map_err(io::Error::other)?;
        Ok((!stopped).then_some((count, first)))
    }

    fn keeps_lines(&mut self) -> bool {
        if self.lines.len() >= self.hunt.want.max_matches {
            return false;
        }
        if self.keeps.is_none() {
            self.path = self.hunt.ws.scope().spell_text(self.place);
            self.keeps = Some(self.hunt.with_tally(|tally| tally.wants(&self.path)));
        }
        self.keeps == Some(true)
    }

    fn keep(&mut self, number: u64, line: &[u8], at: usize, marks: u32) {
        let text = around(line, at, self.hunt.want.max_line_chars);
        let span = self.hunt.want.context_lines as u64;
        let before = self.recent.iter().filter(|(seen, ..)| seen + span >= number);
        let masked = before.clone().map(|(.., marks)| marks).sum::<u32>() + marks;
        let before = before.map(|(_, text, _)| text.clone()).collect();
        if span > 0 {
            self.surround(number, text.clone(), marks);
        }
        self.lines.push(LineMatch {
            path: self.path.clone(),
            line: number,
            column: column(line, at),
            text,
            before,
            after: Vec::new(),
            masked,
        });
    }

    fn surround_with(&mut self, number: u64, line: &[u8], secrets: &Shaded) {
        let most = self.hunt.want.max_line_chars;
        let text =
            if secrets.is_empty() { context(line, most) } else { context(&secrets.marked(line, 0).0, most) };
        self.surround(number, text, secrets.count());
    }

    /// A line near a match: after earlier ones, perhaps before the next.
    fn surround(&mut self, number: u64, text: String, marks: u32) {
        let span = self.hunt.want.context_lines;
        for found in self.lines.iter_mut().rev().take(span) {
            if found.line < number && found.line + span as u64 >= number {
                found.after.push(text.clone());
                found.masked += marks;
            }
        }
        self.recent.push_back((number, text, marks));
        if self.recent.len() > span {
            self.recent.pop_front();
        }
    }
}

impl Sink for &mut FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.hunt.stopped() {
            return Ok(false);
        }
        let line = found.bytes();
        let secrets = self.secrets(found.absolute_byte_offset(), line)?;
        let counts = self.hunt.want.mode == SearchMode::Count;
        // That a line without secrets matches is known; where is asked when it is shown.
        let (count, at) = if counts || !secrets.is_empty() {
            let most = if counts { u64::MAX } else { 1 };
            let Some(found) = self.matches(line, &secrets, most)? else { return Ok(false) };
            found
        } else {
            (1, 0)
        };
        self.total += count;
        if counts {
            return Ok(true);
        }
        let number = found.line_number().unwrap_or(0);
        if count > 0 && self.keeps_lines() {
            if secrets.is_empty() {
                let at = self.matcher.find(plain_end(line)).map_err(io::Error::other)?;
                self.keep(number, line, at.map_or(0, |found| found.start()), 0);
            } else {
                let (line, at) = secrets.marked(line, at);
                self.keep(number, &line, at, secrets.count());
            }
        } else if self.hunt.want.context_lines > 0
            && (self.keeps == Some(true) || (count == 0 && self.keeps.is_none()))
        {
            self.surround_with(number, line, &secrets);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        if self.keeps != Some(false) {
            let secrets = self.secrets(line.absolute_byte_offset(), line.bytes())?;
            self.surround_with(line.line_number().unwrap_or(0), line.bytes(), &secrets);
        }
        Ok(!self.hunt.stopped())
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(true)
    }
}

/// Matches are looked for without the line's end, so that `$` and the empty pattern match once, at the end.
fn plain_end(line: &[u8]) -> &[u8] {
    let without = line.strip_suffix(b"\n").unwrap_or(line);
    debug_assert!(without.len() >= plain(line).len());
    without
}
