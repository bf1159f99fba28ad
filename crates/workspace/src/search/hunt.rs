//! One search in progress: what its workers share, and what each of them is doing right now, so that the
//! caller can see from outside when a match takes too long.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Stat;

use super::SearchRequest;
use super::ignore::Level;
use super::pattern::Pattern;
use super::queue::Queue;
use super::tally::Tally;
use crate::workspace::Workspace;

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Look through a folder.
    Folder { place: String, rules: Arc<Level> },
    /// Search some files of an open folder.
    Files { folder: Arc<OpenFolder>, names: Vec<CString> },
    /// Search one open file.
    File { place: String, facts: Stat, file: OwnedFd },
    /// Count the names of these files, and search those that are all inside.
    Linked(Vec<Linked>),
}

/// A folder whose files are being searched.
#[derive(Debug)]
pub(crate) struct OpenFolder {
    pub(crate) place: String,
    pub(crate) handle: OwnedFd,
}

/// A file with several names, put off.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) place: String,
    pub(crate) facts: Stat,
}

/// What the workers of a search share.
#[derive(Debug)]
pub(crate) struct Hunt {
    pub(crate) ws: Workspace,
    pub(crate) want: SearchRequest,
    pub(crate) pattern: Pattern,
    pub(crate) threads: usize,
    pub(crate) queue: Queue<Work>,
    tally: Mutex<Tally>,
    linked: Mutex<Vec<Linked>>,
    stopped: AtomicBool,
    begun: Instant,
    /// By worker: when its present matching began, in nanoseconds since `begun`; 0 while it does not match.
    matching: Vec<AtomicU64>,
}

impl Hunt {
    pub(crate) fn new(
        ws: Workspace,
        want: SearchRequest,
        pattern: Pattern,
        threads: usize,
        first: Work,
    ) -> Self {
        Self {
            tally: Mutex::new(Tally::new(want.max_matches)),
            ws,
            want,
            pattern,
            threads,
            queue: Queue::new(first),
            linked: Mutex::default(),
            stopped: AtomicBool::new(false),
            begun: Instant::now(),
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
        let budget = u64::try_from(self.want.regex_budget.as_nanos()).unwrap_or(u64::MAX);
        self.matching
            .iter()
            .map(|since| since.load(Ordering::Relaxed))
            .any(|since| since != 0 && now.saturating_sub(since) > budget)
    }

    /// A worker starts matching, having `spent` some of its budget already.
    pub(crate) fn begin_matching(&self, worker: usize, spent: Duration) {
        if let Some(since) = self.matching.get(worker) {
            let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            since.store(self.now().saturating_sub(spent).max(1), Ordering::Relaxed);
        }
    }

    /// A worker stops matching; tells how much it has spent.
    pub(crate) fn end_matching(&self, worker: usize) -> Duration {
        let since = self.matching.get(worker).map_or(0, |since| since.swap(0, Ordering::Relaxed));
        if since == 0 { Duration::ZERO } else { Duration::from_nanos(self.now() - since.min(self.now())) }
    }

    pub(crate) fn with_tally<T>(&self, use_it: impl FnOnce(&mut Tally) -> T) -> T {
        use_it(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_tally(&self) -> Tally {
        self.with_tally(std::mem::take)
    }

    pub(crate) fn put_off(&self, file: Linked) {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// What was put off, as work.
    pub(crate) fn take_linked(&self) -> Option<Work> {
        let linked = std::mem::take(&mut *self.linked.lock().unwrap_or_else(PoisonError::into_inner));
        (!linked.is_empty()).then_some(Work::Linked(linked))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
