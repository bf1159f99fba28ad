//! Threads that may be left behind. A regular expression cannot be interrupted inside one match, so the
//! caller never waits for it: it watches the clocks of its workers, tells them to stop, and after a moment
//! goes on without those that do not hear. How many may be left behind is bounded; past that, searching waits
//! until they end. A stray runs at the lowest priority and ends when its match does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::fault::SearchFault;
use super::hunt::Hunt;
use super::worker::Worker;

/// Threads left behind before searching is refused.
const MAX_STRAYS: usize = 4;
/// How often the clocks are looked at.
const TICK: Duration = Duration::from_millis(4);
/// What workers have to notice that they should stop.
const GRACE: Duration = Duration::from_millis(8);

/// What a thread gets for its stack unless it asks for more.
const STACK: usize = 2 * 1024 * 1024;

const RUNNING: u8 = 0;
const STRAY: u8 = 1;
const ENDED: u8 = 2;

/// The threads of a workspace that were left behind and still run.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    count: AtomicUsize,
}

impl Strays {
    /// Refuses when too many still run.
    pub(crate) fn admit(&self) -> Result<(), SearchFault> {
        if self.count.load(Ordering::Relaxed) < MAX_STRAYS { Ok(()) } else { Err(SearchFault::Busy) }
    }
}

/// How a crew came to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// Everything was searched.
    Done,
    /// The deadline came first.
    Deadline,
}

/// Runs a closure on a thread of its own; `None` when it takes longer than the budget.
pub(crate) fn within<T: Send + 'static>(
    strays: &Arc<Strays>,
    budget: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, SearchFault> {
    begin(strays, STACK, move || (work(), ()))?.end(budget)
}

/// Begins the same with so much room for recursion; the caller does something else meanwhile. Beside its result the work may
/// give what is to be dropped afterwards, when nobody waits any more.
pub(crate) fn begin<T: Send + 'static, K>(
    strays: &Arc<Strays>,
    stack: usize,
    work: impl FnOnce() -> (T, K) + Send + 'static,
) -> Result<Begun<T>, SearchFault> {
    let (sender, receiver) = channel();
    let slot = spawn(strays, stack, move || {
        let (value, rest) = work();
        let _ = sender.send(value);
        drop(rest);
    })?;
    Ok(Begun { receiver, slot: Some(slot), strays: Arc::clone(strays), since: Instant::now() })
}

/// Work that was begun. Whoever lets go of it leaves its thread behind.
pub(crate) struct Begun<T> {
    receiver: Receiver<T>,
    /// Until its result is there.
    slot: Option<Arc<Slot>>,
    strays: Arc<Strays>,
    since: Instant,
}

impl<T> Begun<T> {
    /// Its result; `None` when it takes longer than the budget, counted from its beginning.
    pub(crate) fn end(mut self, budget: Duration) -> Result<Option<T>, SearchFault> {
        let received = self.receiver.recv_timeout(budget.saturating_sub(self.since.elapsed()));
        if !matches!(received, Err(RecvTimeoutError::Timeout)) {
            self.slot = None;
        }
        match received {
            Ok(value) => Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(broken()),
        }
    }
}

impl<T> Drop for Begun<T> {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            slot.leave_behind(&self.strays);
        }
    }
}

/// Runs the workers of a hunt until the work, the budget or the time is at its end.
pub(crate) fn run(hunt: &Arc<Hunt>, threads: usize, deadline: Instant) -> Result<End, SearchFault> {
    let (sender, receiver) = channel();
    let mut slots = Vec::with_capacity(threads);
    for index in 0..threads {
        let (hunt, report) = (Arc::clone(hunt), Report(sender.clone()));
        let strays = Arc::clone(hunt.ws.strays());
        slots.push(spawn(&strays, STACK, move || {
            let report = report;
            Worker::new(&hunt, index).run();
            let _ = report.0.send(Ended::Well);
        })?);
    }
    drop(sender);
    let mut well = 0;
    let mut over: Option<(Instant, Result<End, SearchFault>)> = None;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(Ended::Well) => well += 1,
            Ok(Ended::Anyhow) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if over.as_ref().is_some_and(|(since, _)| now.duration_since(*since) > GRACE) {
                    slots.iter().for_each(|slot| slot.leave_behind(hunt.ws.strays()));
                    break;
                }
                if over.is_none() && hunt.over_budget() {
                    let budget = hunt.want.regex_budget;
                    let what = "matching one file";
                    over = Some((now, Err(SearchFault::OverBudget { what, budget })));
                } else if over.is_none() && now > deadline {
                    over = Some((now, Ok(End::Deadline)));
                }
                if over.is_some() {
                    hunt.stop();
                }
            }
        }
    }
    match over {
        Some((_, end)) => end,
        None if well == threads => Ok(End::Done),
        None => Err(broken()),
    }
}

fn broken() -> SearchFault {
    SearchFault::Broken { why: "a worker ended early".to_owned() }
}

enum Ended {
    Well,
    Anyhow,
}

/// Says that a worker ended, whichever way.
struct Report(Sender<Ended>);

impl Drop for Report {
    fn drop(&mut self) {
        let _ = self.0.send(Ended::Anyhow);
    }
}

/// What the caller and a thread know of each other.
#[derive(Debug, Default)]
struct Slot {
    state: AtomicU8,
    thread: AtomicI32,
}

impl Slot {
    /// Counts the thread as a stray unless it has ended already.
    fn leave_behind(&self, strays: &Strays) {
        strays.count.fetch_add(1, Ordering::Relaxed);
        if self.state.compare_exchange(RUNNING, STRAY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            strays.count.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if let Some(thread) = rustix::process::Pid::from_raw(self.thread.load(Ordering::Relaxed)) {
            // Linux takes a thread's id here and lowers that thread alone.
            let _ = rustix::process::setpriority_process(Some(thread), 19);
        }
    }
}

/// Lives in the thread and settles the count when it ends, also by a panic.
struct Tenure {
    slot: Arc<Slot>,
    strays: Arc<Strays>,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if self.slot.state.swap(ENDED, Ordering::AcqRel) == STRAY {
            self.strays.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn spawn(
    strays: &Arc<Strays>,
    stack: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<Arc<Slot>, SearchFault> {
    let slot = Arc::<Slot>::default();
    let tenure = Tenure { slot: Arc::clone(&slot), strays: Arc::clone(strays) };
    let run = move || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        tenure.slot.thread.store(thread, Ordering::Relaxed);
        work();
        drop(tenure);
    };
    std::thread::Builder::new()
        .name("search".to_owned())
        .stack_size(stack)
        .spawn(run)
        .map(|_| slot)
        .map_err(|error| SearchFault::Broken { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // T10
    #[test]
    fn strays_are_counted_until_they_end_and_bound_further_searches() {
        let strays = Arc::<Strays>::default();
        let mut gates = Vec::new();
        for _ in 0..MAX_STRAYS {
            let (open, gate) = channel::<()>();
            gates.push(open);
            let waited = within(&strays, Duration::from_millis(1), move || gate.recv());
            assert!(waited.unwrap().is_none());
        }
        assert_eq!(strays.admit(), Err(SearchFault::Busy));
        drop(gates);
        let begun = Instant::now();
        while strays.count.load(Ordering::Relaxed) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert_eq!(strays.admit(), Ok(()));
    }

    #[test]
    fn a_panic_is_an_answer_and_not_a_hang() {
        let strays = Arc::<Strays>::default();
        let got = within(&strays, Duration::from_secs(20), || -> u8 { panic!("on purpose") });
        assert!(matches!(got, Err(SearchFault::Broken { .. })));
    }
}
