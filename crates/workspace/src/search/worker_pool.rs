//! Worker threads that can be abandoned. A regular expression cannot be interrupted inside one match, so the caller polls
//! its workers' clocks, asks them to stop, and after a grace period continues without those that do not respond. The number
//! of abandoned threads is bounded; at the limit, searches are denied until some end. An abandoned thread runs at the lowest
//! priority and ends when its match does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::error::SearchError;
use super::search_state::SearchState;
use super::worker::Worker;

/// Abandoned threads at which searches are denied.
const MAX_ABANDONED_THREADS: usize = 4;
/// Polling interval for the workers' clocks.
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Time for workers to notice the stop request.
const STOP_GRACE: Duration = Duration::from_millis(8);

/// Default stack size of a thread, in bytes.
const DEFAULT_STACK_BYTES: usize = 2 * 1024 * 1024;

const RUNNING: u8 = 0;
const ABANDONED: u8 = 1;
const ENDED: u8 = 2;

/// Counts the abandoned threads of a workspace that still run.
#[derive(Debug, Default)]
pub(crate) struct AbandonedThreads {
    count: AtomicUsize,
}

impl AbandonedThreads {
    /// Fails when too many still run.
    pub(crate) fn check_limit(&self) -> Result<(), SearchError> {
        if self.count.load(Ordering::Relaxed) < MAX_ABANDONED_THREADS {
            Ok(())
        } else {
            Err(SearchError::Busy)
        }
    }
}

/// How a search ended.
#[derive(Debug)]
pub(crate) enum SearchEnd {
    /// Everything was searched.
    Done,
    /// The deadline came first.
    Deadline,
}

/// Runs a closure on a thread of its own; `None` when it takes longer than the budget.
pub(crate) fn run_with_budget<T: Send + 'static>(
    abandoned_threads: &Arc<AbandonedThreads>,
    budget: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, SearchError> {
    spawn_task(abandoned_threads, DEFAULT_STACK_BYTES, move || (work(), ()))?.wait(budget)
}

/// Starts a closure on a thread with the given stack size; the caller continues meanwhile. Besides its result the closure
/// may return a value to drop after the result was sent, so that the caller does not wait for the drop.
pub(crate) fn spawn_task<T: Send + 'static, K>(
    abandoned_threads: &Arc<AbandonedThreads>,
    stack: usize,
    work: impl FnOnce() -> (T, K) + Send + 'static,
) -> Result<DetachedTask<T>, SearchError> {
    let (sender, receiver) = channel();
    let slot = spawn(abandoned_threads, stack, move || {
        let (value, rest) = work();
        let _ = sender.send(value);
        drop(rest);
    })?;
    Ok(DetachedTask {
        receiver,
        slot: Some(slot),
        abandoned_threads: Arc::clone(abandoned_threads),
        since: Instant::now(),
    })
}

/// A closure that runs on its own thread. Dropping this abandons the thread.
pub(crate) struct DetachedTask<T> {
    receiver: Receiver<T>,
    /// `Some` until the result has arrived.
    slot: Option<Arc<ThreadSlot>>,
    abandoned_threads: Arc<AbandonedThreads>,
    since: Instant,
}

impl<T> DetachedTask<T> {
    /// Waits for the result; `None` when it takes longer than the budget, counted from its start.
    pub(crate) fn wait(mut self, budget: Duration) -> Result<Option<T>, SearchError> {
        let received = self.receiver.recv_timeout(budget.saturating_sub(self.since.elapsed()));
        if !matches!(received, Err(RecvTimeoutError::Timeout)) {
            self.slot = None;
        }
        match received {
            Ok(value) => Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(worker_panicked()),
        }
    }
}

impl<T> Drop for DetachedTask<T> {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.abandon(&self.abandoned_threads);
        }
    }
}

/// Runs the workers of a search until the queue is empty, the regex budget is exceeded or the deadline passes.
pub(crate) fn run(
    search: &Arc<SearchState>,
    threads: usize,
    deadline: Instant,
) -> Result<SearchEnd, SearchError> {
    let (sender, receiver) = channel();
    let mut slots = Vec::with_capacity(threads);
    for index in 0..threads {
        let (search, notice) = (Arc::clone(search), ExitNotice(sender.clone()));
        let abandoned_threads = Arc::clone(search.ws.abandoned_threads());
        slots.push(spawn(&abandoned_threads, DEFAULT_STACK_BYTES, move || {
            let notice = notice;
            Worker::new(&search, index).run();
            let _ = notice.0.send(WorkerExit::Completed);
        })?);
    }
    drop(sender);
    let mut completed = 0;
    let mut stopping: Option<(Instant, Result<SearchEnd, SearchError>)> = None;
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(WorkerExit::Completed) => completed += 1,
            Ok(WorkerExit::Dropped) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if stopping.as_ref().is_some_and(|(since, _)| now.duration_since(*since) > STOP_GRACE) {
                    slots.iter().for_each(|slot| slot.abandon(search.ws.abandoned_threads()));
                    break;
                }
                if stopping.is_none() && search.over_budget() {
                    let budget = search.request.regex_budget;
                    let what = "matching one file";
                    stopping = Some((now, Err(SearchError::OverBudget { what, budget })));
                } else if stopping.is_none() && now > deadline {
                    stopping = Some((now, Ok(SearchEnd::Deadline)));
                }
                if stopping.is_some() {
                    search.stop();
                }
            }
        }
    }
    match stopping {
        Some((_, end)) => end,
        None if completed == threads => Ok(SearchEnd::Done),
        None => Err(worker_panicked()),
    }
}

fn worker_panicked() -> SearchError {
    SearchError::Internal { why: "a worker thread panicked".to_owned() }
}

enum WorkerExit {
    Completed,
    Dropped,
}

/// Reports on drop that a worker ended, also by a panic.
struct ExitNotice(Sender<WorkerExit>);

impl Drop for ExitNotice {
    fn drop(&mut self) {
        let _ = self.0.send(WorkerExit::Dropped);
    }
}

/// State shared between the caller and one thread.
#[derive(Debug, Default)]
struct ThreadSlot {
    state: AtomicU8,
    thread: AtomicI32,
}

impl ThreadSlot {
    /// Counts the thread as abandoned unless it has ended already.
    fn abandon(&self, abandoned_threads: &AbandonedThreads) {
        abandoned_threads.count.fetch_add(1, Ordering::Relaxed);
        if self.state.compare_exchange(RUNNING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            abandoned_threads.count.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if let Some(thread) = rustix::process::Pid::from_raw(self.thread.load(Ordering::Relaxed)) {
            // Linux accepts a thread id here and lowers only that thread.
            let _ = rustix::process::setpriority_process(Some(thread), 19);
        }
    }
}

/// Lives on the thread and corrects the count when the thread ends, also by a panic.
struct ThreadGuard {
    slot: Arc<ThreadSlot>,
    abandoned_threads: Arc<AbandonedThreads>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if self.slot.state.swap(ENDED, Ordering::AcqRel) == ABANDONED {
            self.abandoned_threads.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn spawn(
    abandoned_threads: &Arc<AbandonedThreads>,
    stack: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<Arc<ThreadSlot>, SearchError> {
    let slot = Arc::<ThreadSlot>::default();
    let guard = ThreadGuard { slot: Arc::clone(&slot), abandoned_threads: Arc::clone(abandoned_threads) };
    let run = move || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        guard.slot.thread.store(thread, Ordering::Relaxed);
        work();
        drop(guard);
    };
    std::thread::Builder::new()
        .name("search".to_owned())
        .stack_size(stack)
        .spawn(run)
        .map(|_| slot)
        .map_err(|error| SearchError::Internal { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // T10
    #[test]
    fn abandoned_threads_are_counted_until_they_end_and_limit_searches() {
        let abandoned_threads = Arc::<AbandonedThreads>::default();
        let mut gates = Vec::new();
        for _ in 0..MAX_ABANDONED_THREADS {
            let (open, gate) = channel::<()>();
            gates.push(open);
            let waited = run_with_budget(&abandoned_threads, Duration::from_millis(1), move || gate.recv());
            assert!(waited.unwrap().is_none());
        }
        assert_eq!(abandoned_threads.check_limit(), Err(SearchError::Busy));
        drop(gates);
        let begun = Instant::now();
        while abandoned_threads.count.load(Ordering::Relaxed) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert_eq!(abandoned_threads.check_limit(), Ok(()));
    }

    #[test]
    fn a_panic_returns_an_error_and_does_not_hang() {
        let abandoned_threads = Arc::<AbandonedThreads>::default();
        let got =
            run_with_budget(&abandoned_threads, Duration::from_secs(20), || -> u8 { panic!("on purpose") });
        assert!(matches!(got, Err(SearchError::Internal { .. })));
    }
}
