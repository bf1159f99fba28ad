//! Searches text with a pattern from an agent: ripgrep's engine over our own walk of directory handles. It finds what `rg`
//! finds by default, except blocked files. The pattern is untrusted: only linear-time constructs are accepted, and
//! compiling and matching run under a time budget on threads that can be abandoned.
//!
//! Deliberately absent: walking by path, memory maps (truncating a mapped file would kill the process), multi-line
//! patterns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vambrace_core::path::ScopedPath;

use crate::error::{FileError, display_path};
use crate::masking::SecretFinder;
use crate::path_filter::PathFilter;
use crate::resolve::{Resolved, ResolvedKind};
use crate::workspace::Workspace;

mod detail;
mod error;
mod ignore;
mod pattern;
mod result_collector;
mod search_state;
mod sink;
mod snippet;
mod work_queue;
mod worker;
mod worker_pool;

pub use detail::SearchDetail;
pub use error::SearchError;
use ignore::IgnoreLevel;
pub(crate) use pattern::check_syntax;
use result_collector::ResultCollector;
use search_state::{SearchState, SearchTask};
pub(crate) use worker_pool::{AbandonedThreads, DetachedTask, run_with_budget, spawn_task};

/// What a search returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMode {
    /// Matching lines with context.
    Lines,
    /// The number of single matches and of files with matches.
    Count,
}

/// What to search for.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    /// A regular expression, matched line by line.
    pub regex: String,
    /// Also search subdirectories.
    pub recursive: bool,
    /// Maximum number of lines returned; all are counted.
    pub max_matches: usize,
    /// Lines before and after each match.
    pub context_lines: usize,
    /// Longer lines are cut around their match.
    pub max_line_chars: usize,
    /// A larger result loses detail step by step.
    pub max_output_bytes: usize,
    /// Time for compiling, and for matching each 8 MiB of one file.
    pub regex_budget: Duration,
    /// Time for the whole search.
    pub total_deadline: Duration,
    /// 0 means one per processor.
    pub threads: usize,
    /// Whether ignore files apply.
    pub respect_ignore: bool,
    /// Lines or counts.
    pub mode: SearchMode,
    /// Only paths that it admits are searched; all when left out.
    pub path_filter: Option<PathFilter>,
    /// Which paths the other hard links of a file may have; anywhere in scope when left out.
    pub hard_link_filter: Option<PathFilter>,
    /// Finds secrets: a match that touches one does not count, and placeholders replace them. Without it nothing is masked.
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
            path_filter: None,
            hard_link_filter: None,
            secrets: None,
        }
    }
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineMatch {
    /// The file's canonical path.
    pub path: String,
    /// From 1.
    pub line: u64,
    /// Of the first match in the line, from 1, in characters.
    pub column: u64,
    /// The line without its line ending.
    pub text: String,
    /// Lines before it.
    pub before: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
    /// Number of secrets in these lines replaced by placeholders.
    pub masked: u32,
}

/// Number of matches in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCount {
    /// The file's canonical path.
    pub path: String,
    /// Matching lines.
    pub count: u64,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// Sorted by path, then by line.
    pub matches: Vec<LineMatch>,
    /// Matching lines, or single matches when counting; includes those not returned.
    pub total: u64,
    /// Files with matches.
    pub files: u64,
    /// Whether there are more matches than returned.
    pub truncated: bool,
    /// How much detail fitted into `max_output_bytes`.
    pub detail: SearchDetail,
    /// Only for [`SearchDetail::Counts`].
    pub per_file: Vec<FileCount>,
    /// Files that were not searched: unreadable, a line over 8 MiB, or hard links outside the scope.
    pub skipped: u64,
    /// False when the deadline ended the search early.
    pub complete: bool,
}

impl Workspace {
    /// Searches a file or a directory.
    pub fn search(&self, path: &ScopedPath, request: &SearchRequest) -> Result<SearchResult, SearchError> {
        self.search_open(self.resolve(path)?, request)
    }

    /// Searches a file or directory that is already open; what its path names by now does not matter.
    pub fn search_open(&self, start: Resolved, request: &SearchRequest) -> Result<SearchResult, SearchError> {
        let path = start.path.clone();
        let deadline = Instant::now() + request.total_deadline;
        self.abandoned_threads().check_limit()?;
        let pattern = pattern::compile(self.abandoned_threads(), &request.regex, request.regex_budget)?;
        let threads = match (start.kind, request.threads) {
            (ResolvedKind::File, _) => 1,
            (ResolvedKind::Directory, 0) => std::thread::available_parallelism().map_or(2, usize::from),
            (ResolvedKind::Directory, threads) => threads.min(64),
        };
        let is_file = start.kind == ResolvedKind::File;
        let first = if is_file {
            self.check_path_filter(&start, request.path_filter.as_ref())?;
            self.check_hard_links(&start, request.hard_link_filter.as_ref())?;
            let rel_path = start.rel_path.clone();
            SearchTask::File { rel_path, stat: start.stat, file: start.into_handle() }
        } else {
            let rules = if request.respect_ignore {
                IgnoreLevel::above(self, &start.rel_path)
            } else {
                Arc::new(IgnoreLevel::outermost(self, false))
            };
            SearchTask::Directory { rel_path: start.rel_path, rules }
        };
        let search = Arc::new(SearchState::new(self.clone(), request.clone(), pattern, threads, first));
        let mut end = worker_pool::run(&search, threads, deadline)?;
        if let (worker_pool::SearchEnd::Done, Some(linked)) = (&end, search.take_deferred()) {
            search.queue.refill(linked);
            end = worker_pool::run(&search, 1, deadline)?;
        }
        let results = search.take_results();
        if is_file && results.binary > 0 && results.files == 0 {
            return Err(FileError::Binary { path: display_path(&path.to_string()) }.into());
        }
        conclude(results, request, matches!(end, worker_pool::SearchEnd::Done))
    }
}

fn conclude(
    results: ResultCollector,
    request: &SearchRequest,
    complete: bool,
) -> Result<SearchResult, SearchError> {
    if let Some(why) = results.secret_scan_error {
        // Skipping just this file would reveal that it holds a secret.
        return Err(SearchError::Internal { why });
    }
    if request.mode == SearchMode::Count && !complete {
        // A low count would make an ambiguous edit look safe.
        return Err(SearchError::Deadline { after: request.total_deadline });
    }
    Ok(detail::fit(results, request, complete))
}
