//! Takes the matching lines of one file from the searcher. Between any two lines, and between any two matches
//! in a line, it asks whether the search should stop: a pattern can be slow by matching too often.

use std::collections::VecDeque;
use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::hunt::Hunt;
use super::snippet::{around, column, context, plain};
use super::{LineMatch, SearchMode};

/// The findings in one file.
pub(crate) struct FileSink<'a> {
    hunt: &'a Hunt,
    matcher: &'a RegexMatcher,
    place: &'a str,
    path: String,
    keeps: Option<bool>,
    total: u64,
    lines: Vec<LineMatch>,
    /// The last lines seen, for the surroundings of the next match.
    recent: VecDeque<(u64, String)>,
    pub(crate) binary: bool,
}

impl<'a> FileSink<'a> {
    pub(crate) fn new(hunt: &'a Hunt, matcher: &'a RegexMatcher, place: &'a str) -> Self {
        Self {
            hunt,
            matcher,
            place,
            path: String::new(),
            keeps: None,
            total: 0,
            lines: Vec::new(),
            recent: VecDeque::new(),
            binary: false,
        }
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

    fn count(&mut self, line: &[u8]) -> io::Result<bool> {
        let mut stopped = false;
        let found = self.matcher.find_iter(plain_end(line), |_| {
            self.total += 1;
            stopped = self.hunt.stopped();
            !stopped
        });
        found.map_err(io::Error::other)?;
        Ok(!stopped)
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

    fn keep(&mut self, number: u64, line: &[u8]) -> io::Result<()> {
        let most = self.hunt.want.max_line_chars;
        let found = self.matcher.find(plain_end(line)).map_err(io::Error::other)?;
        let at = found.map_or(0, |found| found.start());
        let text = around(line, at, most);
        let span = self.hunt.want.context_lines as u64;
        let before = self.recent.iter().filter(|(seen, _)| seen + span >= number);
        let before = before.map(|(_, text)| text.clone()).collect();
        if span > 0 {
            self.surround(number, text.clone());
        }
        self.lines.push(LineMatch {
            path: self.path.clone(),
            line: number,
            column: column(line, at),
            text,
            before,
            after: Vec::new(),
        });
        Ok(())
    }

    /// A line near a match: after earlier ones, perhaps before the next.
    fn surround(&mut self, number: u64, text: String) {
        let span = self.hunt.want.context_lines;
        for found in self.lines.iter_mut().rev().take(span) {
            if found.line < number && found.line + span as u64 >= number {
                found.after.push(text.clone());
            }
        }
        self.recent.push_back((number, text));
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
        if self.hunt.want.mode == SearchMode::Count {
            return self.count(found.bytes());
        }
        self.total += 1;
        if self.keeps_lines() {
            self.keep(found.line_number().unwrap_or(0), found.bytes())?;
        } else if self.hunt.want.context_lines > 0 && self.keeps == Some(true) {
            let text = context(found.bytes(), self.hunt.want.max_line_chars);
            self.surround(found.line_number().unwrap_or(0), text);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        if self.keeps != Some(false) {
            let text = context(line.bytes(), self.hunt.want.max_line_chars);
            self.surround(line.line_number().unwrap_or(0), text);
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
