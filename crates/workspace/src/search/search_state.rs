//! State of one running search: what its workers share, and since when each of them has been matching, so that the caller
//! can detect a match that takes too long.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Stat;

use super::SearchRequest;
use super::ignore::IgnoreLevel;
use super::pattern::SearchPattern;
use super::result_collector::ResultCollector;
use super::work_queue::WorkQueue;
use crate::workspace::Workspace;

/// A task of a worker.
#[derive(Debug)]
pub(crate) enum SearchTask {
    /// Read a directory and queue its entries.
    Directory { rel_path: String, rules: Arc<IgnoreLevel> },
    /// Search some files of an open directory.
    Files { dir: Arc<OpenDir>, names: Vec<CString> },
    /// Search one open file.
    File { rel_path: String, stat: Stat, file: OwnedFd },
    /// Count the hard links of these files, and search those that are entirely in scope.
    HardLinked(Vec<HardLinkedFile>),
}

/// A directory whose files are being searched.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) rel_path: String,
    pub(crate) handle: OwnedFd,
}

/// A file with several hard links; searched at the end.
#[derive(Debug)]
pub(crate) struct HardLinkedFile {
    pub(crate) rel_path: String,
    pub(crate) stat: Stat,
}

/// State shared by the workers of a search.
#[derive(Debug)]
pub(crate) struct SearchState {
    pub(crate) ws: Workspace,
    pub(crate) request: SearchRequest,
    pub(crate) pattern: SearchPattern,
    pub(crate) threads: usize,
    pub(crate) queue: WorkQueue<SearchTask>,
    results: Mutex<ResultCollector>,
    deferred: Mutex<Vec<HardLinkedFile>>,
    stopped: AtomicBool,
    start: Instant,
    /// Per worker: when its current matching began, in ns since `start`; 0 while it does not match.
    matching: Vec<AtomicU64>,
}

impl SearchState {
    pub(crate) fn new(
        ws: Workspace,
        request: SearchRequest,
        pattern: SearchPattern,
        threads: usize,
        first: SearchTask,
    ) -> Self {
        Self {
            results: Mutex::new(ResultCollector::new(request.max_matches)),
            ws,
            request,
            pattern,
            threads,
            queue: WorkQueue::new(first),
            deferred: Mutex::default(),
            stopped: AtomicBool::new(false),
            start: Instant::now(),
            matching: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.queue.stop();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether any worker has been matching for longer than the budget.
    pub(crate) fn over_budget(&self) -> bool {
        let now = self.now();
        let budget = u64::try_from(self.request.regex_budget.as_nanos()).unwrap_or(u64::MAX);
        self.matching
            .iter()
            .map(|since| since.load(Ordering::Relaxed))
            .any(|since| since != 0 && now.saturating_sub(since) > budget)
    }

    /// A worker starts matching; `spent` of its budget is already used.
    pub(crate) fn begin_matching(&self, worker: usize, spent: Duration) {
        if let Some(since) = self.matching.get(worker) {
            let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            since.store(self.now().saturating_sub(spent).max(1), Ordering::Relaxed);
        }
    }

    /// A worker stops matching; returns the time it used.
    pub(crate) fn end_matching(&self, worker: usize) -> Duration {
        let since = self.matching.get(worker).map_or(0, |since| since.swap(0, Ordering::Relaxed));
        if since == 0 { Duration::ZERO } else { Duration::from_nanos(self.now() - since.min(self.now())) }
    }

    pub(crate) fn with_results<T>(&self, update: impl FnOnce(&mut ResultCollector) -> T) -> T {
        update(&mut self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_results(&self) -> ResultCollector {
        self.with_results(std::mem::take)
    }

    pub(crate) fn defer(&self, file: HardLinkedFile) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// The deferred files as one task.
    pub(crate) fn take_deferred(&self) -> Option<SearchTask> {
        let deferred = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
        (!deferred.is_empty()).then_some(SearchTask::HardLinked(deferred))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
