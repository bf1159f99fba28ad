//! A lock between processes. The kernel grants an `flock` in the order of the requests, so no process starves
//! as it can with the retries of `BEGIN IMMEDIATE`; and the lock ends with its holder, so a crash leaves
//! nothing behind.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::StoreError;

/// A lock file of the state directory.
#[derive(Debug)]
pub(crate) struct StateDirLock {
    file: Arc<File>,
    /// A waiter thread that was still waiting when we timed out.
    waiter: Option<LockWaiter>,
}

/// A thread that waits for the lock through our open file.
#[derive(Debug)]
struct LockWaiter {
    answer: Receiver<io::Result<()>>,
    state: Arc<Mutex<WaiterState>>,
}

/// State of a waiter thread. It must not keep a lock that no caller waits for: every other process would wait
/// for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    /// A caller waits for its result.
    Wanted,
    /// The caller timed out; the thread releases the lock as soon as it gets it.
    Abandoned,
    /// The thread no longer touches the file.
    Done,
}

impl StateDirLock {
    pub(crate) fn new(file: File) -> Self {
        Self { file: Arc::new(file), waiter: None }
    }

    /// Takes the lock, or fails after `lock_timeout`: a stopped process must not block us forever. `flock` has
    /// no deadline, so a thread waits for it; only if the lock is held, which is rare.
    pub(crate) fn acquire(&mut self, lock_timeout: Duration) -> Result<(), StoreError> {
        if self.try_acquire()? {
            return Ok(());
        }
        let waiter = match self.waiter.take().filter(LockWaiter::resume) {
            Some(waiter) => waiter,
            None => self.spawn_waiter()?,
        };
        match waiter.wait(lock_timeout) {
            Ok(answer) => {
                answer.map_err(|error| StoreError::io("waiting for the lock of the state directory", error))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.waiter = Some(waiter);
                let text = format!("the lock was not free within {} s", lock_timeout.as_secs_f32());
                Err(StoreError::Locked(text))
            }
            Err(RecvTimeoutError::Disconnected) => Err(StoreError::Closed),
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(&self) -> Result<bool, StoreError> {
        if self.waiter.as_ref().is_some_and(|waiter| *waiter.state.lock() != WaiterState::Done) {
            // The waiter thread uses the same open file and would release the lock that we take.
            return Ok(false);
        }
        match retry(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(StoreError::io("locking the state directory", error)),
        }
    }

    /// Releases the lock. Closing the file does the same, so a failure here has no lasting effect.
    pub(crate) fn release(&self) {
        let _ = retry(&self.file, FlockOperation::Unlock);
    }

    fn spawn_waiter(&self) -> Result<LockWaiter, StoreError> {
        let (send, answer) = sync_channel(1);
        let state = Arc::new(Mutex::new(WaiterState::Wanted));
        let (file, shared) = (Arc::clone(&self.file), Arc::clone(&state));
        std::thread::Builder::new()
            .name("vambrace-lock".into())
            .spawn(move || {
                let taken = retry(&file, FlockOperation::LockExclusive);
                let mut state = shared.lock();
                if *state == WaiterState::Wanted {
                    // If the store was closed meanwhile, dropping the file releases the lock.
                    let _ = send.send(taken);
                } else if taken.is_ok() {
                    let _ = retry(&file, FlockOperation::Unlock);
                }
                *state = WaiterState::Done;
            })
            .map_err(|error| StoreError::io("spawning a thread", error))?;
        Ok(LockWaiter { answer, state })
    }
}

impl LockWaiter {
    /// Waits for this thread again; `false` if it has ended and holds nothing.
    fn resume(&self) -> bool {
        let mut state = self.state.lock();
        let asks = *state != WaiterState::Done;
        if asks {
            *state = WaiterState::Wanted;
        }
        asks
    }

    /// The result; after a timeout the waiter is abandoned.
    fn wait(&self, lock_timeout: Duration) -> Result<io::Result<()>, RecvTimeoutError> {
        let timeout = match self.answer.recv_timeout(lock_timeout) {
            Err(RecvTimeoutError::Timeout) => RecvTimeoutError::Timeout,
            other => return other,
        };
        let mut state = self.state.lock();
        // The result may have arrived since the timeout.
        self.answer.try_recv().map_err(|_| {
            *state = WaiterState::Abandoned;
            timeout
        })
    }
}

fn retry(file: &File, operation: FlockOperation) -> io::Result<()> {
    loop {
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::StateDir;

    #[test]
    fn acquire_times_out_on_a_held_lock_and_succeeds_after_release() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        let mut first = StateDirLock::new(dir.writer_lock().unwrap());
        let mut second = StateDirLock::new(dir.writer_lock().unwrap());
        first.acquire(Duration::from_secs(1)).unwrap();
        let error = second.acquire(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, StoreError::Locked(_)), "{error}");
        assert!(!second.try_acquire().unwrap());
        first.release();
        second.acquire(Duration::from_secs(5)).unwrap();
        assert!(!first.try_acquire().unwrap());
        second.release();
        assert!(first.try_acquire().unwrap());
    }

    #[test]
    fn an_abandoned_waiter_blocks_no_other_process() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        let [mut first, mut second, mut third] =
            [(); 3].map(|()| StateDirLock::new(dir.writer_lock().unwrap()));
        for _ in 0..50 {
            first.acquire(Duration::from_secs(5)).unwrap();
            assert!(second.acquire(Duration::from_millis(1)).is_err());
            first.release();
            third.acquire(Duration::from_secs(5)).unwrap();
            third.release();
        }
        second.acquire(Duration::from_secs(5)).unwrap();
        assert!(!first.try_acquire().unwrap());
        second.release();
        first.acquire(Duration::from_secs(5)).unwrap();
    }
}
