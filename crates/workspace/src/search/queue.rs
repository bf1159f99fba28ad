//! The work of a search that is still to be done, shared by its workers: last in, first out, so that a folder
//! is finished (and its handle closed) before the next is opened.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A stack of work, and how many workers may still add to it.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<W> {
    stack: Vec<W>,
    busy: usize,
    stopped: bool,
}

impl<W> Queue<W> {
    pub(crate) fn new(first: W) -> Self {
        let state = State { stack: vec![first], busy: 0, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Starts again with new work after everything was done.
    pub(crate) fn refill(&self, first: W) {
        self.lock().stack.push(first);
    }

    /// The next piece of work; waits while others may still bring some. `None` when all is done.
    pub(crate) fn take(&self) -> Option<Taken<'_, W>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                return Some(Taken { queue: self, work: Some(work) });
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

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of work that counts as busy until it is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Taken<'q, W> {
    queue: &'q Queue<W>,
    work: Option<W>,
}

impl<W> Taken<'_, W> {
    /// The work itself; `None` the second time.
    pub(crate) fn work(&mut self) -> Option<W> {
        self.work.take()
    }
}

impl<W> Drop for Taken<'_, W> {
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
    fn all_work_is_done_once_and_everybody_ends() {
        let queue = Queue::new(12_u64);
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
