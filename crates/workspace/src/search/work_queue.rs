//! The pending tasks of a search, shared by its workers: last in, first out, so that a directory is finished (and its handle
//! closed) before the next one is opened.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A stack of tasks, and the number of workers that may still add to it.
#[derive(Debug)]
pub(crate) struct WorkQueue<W> {
    state: Mutex<WorkQueueState<W>>,
    changed: Condvar,
}

#[derive(Debug)]
struct WorkQueueState<W> {
    stack: Vec<W>,
    busy: usize,
    stopped: bool,
}

impl<W> WorkQueue<W> {
    pub(crate) fn new(first: W) -> Self {
        let state = WorkQueueState { stack: vec![first], busy: 0, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a task after the queue was drained, for a second run.
    pub(crate) fn refill(&self, first: W) {
        self.lock().stack.push(first);
    }

    /// The next task; waits while busy workers may still add some. `None` when all are done or the queue was stopped.
    pub(crate) fn take(&self) -> Option<TakenTask<'_, W>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                return Some(TakenTask { queue: self, work: Some(work) });
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn add(&self, work: impl IntoIterator<Item = W>) {
        self.lock().stack.extend(work);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, WorkQueueState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task whose worker counts as busy until this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct TakenTask<'q, W> {
    queue: &'q WorkQueue<W>,
    work: Option<W>,
}

impl<W> TakenTask<'_, W> {
    /// The task itself; `None` the second time.
    pub(crate) fn work(&mut self) -> Option<W> {
        self.work.take()
    }
}

impl<W> Drop for TakenTask<'_, W> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.busy -= 1;
        if state.busy == 0 && state.stack.is_empty() {
            self.queue.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn every_task_is_done_once_and_every_worker_ends() {
        let queue = WorkQueue::new(12_u64);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(mut taken) = queue.take() {
                        let depth = taken.work().unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                        queue.add((0..2).filter(|_| depth > 0).map(|_| depth - 1));
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), (1 << 13) - 1);
    }
}
