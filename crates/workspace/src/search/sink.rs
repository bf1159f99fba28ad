//! Receives the matching lines of one file from the searcher. Between two lines, and between two matches in a line, it
//! checks whether the search should stop: a pattern can be slow by matching too often. Lines with secrets are matched with
//! the secrets masked and shown with placeholders.

use std::collections::VecDeque;
use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::search_state::SearchState;
use super::snippet::{column, context, cut_around, without_line_ending};
use super::{LineMatch, SearchMode};
use crate::masking::{FileSecrets, SecretText, TextSecrets};

/// Results of one file.
pub(crate) struct FileSink<'a> {
    search: &'a SearchState,
    worker: usize,
    matcher: &'a RegexMatcher,
    file_secrets: Option<FileSecrets<'a>>,
    rel_path: &'a str,
    path: String,
    returns_lines: Option<bool>,
    total: u64,
    lines: Vec<LineMatch>,
    /// The last lines seen, as context of the next match: number, text, secrets masked.
    recent: VecDeque<(u64, String, u32)>,
    pub(crate) binary: bool,
}

impl<'a> FileSink<'a> {
    pub(crate) fn new(
        search: &'a SearchState,
        worker: usize,
        matcher: &'a RegexMatcher,
        rel_path: &'a str,
    ) -> Self {
        Self {
            search,
            worker,
            matcher,
            file_secrets: None,
            rel_path,
            path: String::new(),
            returns_lines: None,
            total: 0,
            lines: Vec::new(),
            recent: VecDeque::new(),
            binary: false,
        }
    }

    /// Sets the text in which secrets are detected.
    pub(crate) fn set_secret_text(&mut self, source: SecretText<'a>) {
        self.file_secrets =
            self.search.request.secrets.as_ref().map(|finder| FileSecrets::new(finder, source));
    }

    /// Adds the results to those of the search.
    pub(crate) fn finish_file(mut self) {
        if self.total == 0 {
            return;
        }
        if self.path.is_empty() {
            self.path = self.search.ws.scope().path_text(self.rel_path);
        }
        self.search.with_results(|results| results.add(self.path, self.total, self.lines));
    }

    /// The secrets of a line. Detecting them does not count against the pattern's budget, so its clock is stopped.
    fn secrets(&mut self, at: u64, line: &[u8]) -> io::Result<TextSecrets> {
        let Some(file_secrets) = &mut self.file_secrets else { return Ok(TextSecrets::default()) };
        let spent = self.search.end_matching(self.worker);
        let found = file_secrets.in_line(at, line);
        self.search.begin_matching(self.worker, spent);
        if let Err(error) = &found
            && error.kind() == io::ErrorKind::Other
        {
            self.search.with_results(|results| results.secret_scan_error = Some(error.to_string()));
        }
        found
    }

    /// The number of matches in a line, up to `max_count`, and the offset of the first. `None` when the search should stop.
    fn matches(
        &self,
        line: &[u8],
        secrets: &TextSecrets,
        max_count: u64,
    ) -> io::Result<Option<(u64, usize)>> {
        let masked = (!secrets.is_empty()).then(|| secrets.masked(line));
        let (mut count, mut first, mut stopped) = (0, 0, false);
        let found = self.matcher.find_iter(without_newline(masked.as_deref().unwrap_or(line)), |found| {
            let span = found.start()..found.end();
            if secrets.is_empty() || !secrets.touches(&span, self.search.pattern.uses_word_boundary) {
                first = if count == 0 { span.start } else { first };
                count += 1;
            }
            stopped = self.search.stopped();
            !stopped && count < max_count
        });
        found.map_err(io::Error::other)?;
        Ok((!stopped).then_some((count, first)))
    }

    fn should_return_lines(&mut self) -> bool {
        if self.lines.len() >= self.search.request.max_matches {
            return false;
        }
        if self.returns_lines.is_none() {
            self.path = self.search.ws.scope().path_text(self.rel_path);
            self.returns_lines = Some(self.search.with_results(|results| results.can_return(&self.path)));
        }
        self.returns_lines == Some(true)
    }

    fn keep(&mut self, number: u64, line: &[u8], at: usize, masked_count: u32) {
        let text = cut_around(line, at, self.search.request.max_line_chars);
        let span = self.search.request.context_lines as u64;
        let before = self.recent.iter().filter(|(seen, ..)| seen + span >= number);
        let masked = before.clone().map(|(.., masked_count)| masked_count).sum::<u32>() + masked_count;
        let before = before.map(|(_, text, _)| text.clone()).collect();
        if span > 0 {
            self.add_context(number, text.clone(), masked_count);
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

    fn add_masked_context(&mut self, number: u64, line: &[u8], secrets: &TextSecrets) {
        let max_count = self.search.request.max_line_chars;
        let text = if secrets.is_empty() {
            context(line, max_count)
        } else {
            context(&secrets.with_placeholders(line), max_count)
        };
        self.add_context(number, text, secrets.count());
    }

    /// Adds a context line to the matches before it and keeps it for the next match.
    fn add_context(&mut self, number: u64, text: String, masked_count: u32) {
        let span = self.search.request.context_lines;
        for found in self.lines.iter_mut().rev().take(span) {
            if found.line < number && found.line + span as u64 >= number {
                found.after.push(text.clone());
                found.masked += masked_count;
            }
        }
        self.recent.push_back((number, text, masked_count));
        if self.recent.len() > span {
            self.recent.pop_front();
        }
    }
}

impl Sink for &mut FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.search.stopped() {
            return Ok(false);
        }
        let line = found.bytes();
        let secrets = self.secrets(found.absolute_byte_offset(), line)?;
        let counts = self.search.request.mode == SearchMode::Count;
        // A line without secrets is known to match; the position is computed only if it is shown.
        let (count, at) = if counts || !secrets.is_empty() {
            let max_count = if counts { u64::MAX } else { 1 };
            let Some(found) = self.matches(line, &secrets, max_count)? else { return Ok(false) };
            found
        } else {
            (1, 0)
        };
        self.total += count;
        if counts {
            return Ok(true);
        }
        let number = found.line_number().unwrap_or(0);
        if count > 0 && self.should_return_lines() {
            if secrets.is_empty() {
                let at = self.matcher.find(without_newline(line)).map_err(io::Error::other)?;
                self.keep(number, line, at.map_or(0, |found| found.start()), 0);
            } else {
                let (line, at) = secrets.with_placeholders_at(line, at);
                self.keep(number, &line, at, secrets.count());
            }
        } else if self.search.request.context_lines > 0
            && (self.returns_lines == Some(true) || (count == 0 && self.returns_lines.is_none()))
        {
            self.add_masked_context(number, line, &secrets);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        if self.returns_lines != Some(false) {
            let secrets = self.secrets(line.absolute_byte_offset(), line.bytes())?;
            self.add_masked_context(line.line_number().unwrap_or(0), line.bytes(), &secrets);
        }
        Ok(!self.search.stopped())
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(true)
    }
}

/// Strips the newline before matching, so that `$` and the empty pattern match once, at the end.
fn without_newline(line: &[u8]) -> &[u8] {
    let without = line.strip_suffix(b"\n").unwrap_or(line);
    debug_assert!(without.len() >= without_line_ending(line).len());
    without
}
