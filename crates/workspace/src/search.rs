//! Searching text with a pattern of an agent: ripgrep's engine over our own walk of directory handles, with
//! what `rg` would find by default and nothing that is blocked. The pattern is hostile until proven linear,
//! and linear is not enough: compiling and matching run under a budget on threads that can be left behind.
//!
//! Not here: walking by path, memory maps (a file cut short meanwhile would kill the process), patterns over
//! several lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vambrace_core::path::ScopedPath;

use crate::fault::{FileFault, shown};
use crate::resolve::{Kind, Resolved};
use crate::visible::Visible;
use crate::workspace::Workspace;

mod armour;
mod crew;
mod detail;
mod fault;
mod hunt;
mod ignore;
mod pattern;
mod queue;
mod shade;
mod sink;
mod snippet;
mod tally;
mod worker;

pub use armour::Armour;
pub(crate) use crew::{Begun, Strays, begin, within};
pub use detail::Detail;
pub use fault::SearchFault;
use hunt::{Hunt, Work};
use ignore::Level;
pub(crate) use pattern::check_syntax;
pub use shade::SecretFinder;
pub(crate) use shade::{Shade, Source};
use tally::Tally;

/// What is wanted of the matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMode {
    /// Matching lines with their surroundings.
    Lines,
    /// How many single matches there are, in how many files.
    Count,
}

/// What to search for.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    /// A regular expression, matched line by line.
    pub regex: String,
    /// Also in folders below.
    pub recursive: bool,
    /// Lines returned at most; all are counted.
    pub max_matches: usize,
    /// Lines before and after each match.
    pub context_lines: usize,
    /// Longer lines are cut around their match.
    pub max_line_chars: usize,
    /// Past this, detail is given up step by step.
    pub max_output_bytes: usize,
    /// For compiling, and for matching 8 MiB of one file.
    pub regex_budget: Duration,
    /// For the whole search.
    pub total_deadline: Duration,
    /// 0 is as many as there are processors.
    pub threads: usize,
    /// Whether ignore files narrow the search.
    pub respect_ignore: bool,
    /// Lines or counts.
    pub mode: SearchMode,
    /// Only these files are searched; all of them when left out.
    pub visible: Option<Visible>,
    /// Where every other name of a file must lie; anywhere in scope when left out.
    pub kin: Option<Visible>,
    /// Finds secrets: what touches one is no match, and they are shown as their marks. Without it files are as they are.
    pub secrets: Option<SecretFinder>,
}

impl Default for SearchRequest {
    fn default() -> Self {
        Self {
            regex: String::new(),
            recursive: true,
            max_matches: 200,
            context_lines: 2,
            max_line_chars: 300,
            max_output_bytes: 64 * 1024,
            regex_budget: Duration::from_millis(100),
            total_deadline: Duration::from_secs(20),
            threads: 0,
            respect_ignore: true,
            mode: SearchMode::Lines,
            visible: None,
            kin: None,
            secrets: None,
        }
    }
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineMatch {
    /// The file's spelling.
    pub path: String,
    /// From 1.
    pub line: u64,
    /// Of the first match in the line, from 1, in characters.
    pub column: u64,
    /// The line without its end.
    pub text: String,
    /// Lines before it.
    pub before: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
    /// Secrets in these lines, which are shown as their marks.
    pub masked: u32,
}

/// How many matches a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCount {
    /// The file's spelling.
    pub path: String,
    /// Matching lines.
    pub count: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// By path, then by line.
    pub matches: Vec<LineMatch>,
    /// Matching lines, or single matches when counting; also those not returned.
    pub total: u64,
    /// Files with matches.
    pub files: u64,
    /// Whether there is more than is returned.
    pub truncated: bool,
    /// How much detail fitted.
    pub detail: Detail,
    /// Only when nothing more fitted.
    pub per_file: Vec<FileCount>,
    /// Files that could not be searched: unreadable, a line over 8 MiB, or names outside the scope.
    pub skipped: u64,
    /// False when the deadline ended the search early.
    pub complete: bool,
}

impl Workspace {
    /// Searches a file or a folder.
    pub fn search(&self, path: &ScopedPath, want: &SearchRequest) -> Result<SearchResult, SearchFault> {
        self.search_open(self.resolve(path)?, want)
    }

    /// Searches what was opened before: what its name means by now does not matter.
    pub fn search_open(&self, start: Resolved, want: &SearchRequest) -> Result<SearchResult, SearchFault> {
        let path = start.path.clone();
        let deadline = Instant::now() + want.total_deadline;
        self.strays().admit()?;
        let pattern = pattern::compile(self.strays(), &want.regex, want.regex_budget)?;
        let threads = match (start.kind, want.threads) {
            (Kind::File, _) => 1,
            (Kind::Folder, 0) => std::thread::available_parallelism().map_or(2, usize::from),
            (Kind::Folder, threads) => threads.min(64),
        };
        let named = start.kind == Kind::File;
        let first = if named {
            self.check_visible(&start, want.visible.as_ref())?;
            self.check_names(&start, want.kin.as_ref())?;
            let place = start.place.clone();
            Work::File { place, facts: start.facts, file: start.into_handle() }
        } else {
            let rules = if want.respect_ignore {
                Level::above(self, &start.place)
            } else {
                Arc::new(Level::outermost(self, false))
            };
            Work::Folder { place: start.place, rules }
        };
        let hunt = Arc::new(Hunt::new(self.clone(), want.clone(), pattern, threads, first));
        let mut end = crew::run(&hunt, threads, deadline)?;
        if let (crew::End::Done, Some(linked)) = (&end, hunt.take_linked()) {
            hunt.queue.refill(linked);
            end = crew::run(&hunt, 1, deadline)?;
        }
        let tally = hunt.take_tally();
        if named && tally.binary > 0 && tally.files == 0 {
            return Err(FileFault::Binary { path: shown(&path.to_string()) }.into());
        }
        conclude(tally, want, matches!(end, crew::End::Done))
    }
}

fn conclude(tally: Tally, want: &SearchRequest, complete: bool) -> Result<SearchResult, SearchFault> {
    if let Some(why) = tally.blind {
        // A file that is left out only where a secret was met would tell of it.
        return Err(SearchFault::Broken { why });
    }
    if want.mode == SearchMode::Count && !complete {
        // A count that is too small would make an ambiguous edit look safe.
        return Err(SearchFault::Deadline { after: want.total_deadline });
    }
    Ok(detail::fit(tally, want, complete))
}
