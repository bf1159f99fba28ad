//! A lock between processes. The kernel hands an `flock` on in the order of asking, so nobody starves as with
//! the retries of `BEGIN IMMEDIATE`; and it ends with its holder, so nothing is left behind by a crash.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::StoreError;

/// A lock file of the state folder.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: Arc<File>,
    /// A helper that was still asking when we lost patience.
    asking: Option<Asking>,
}

/// A helper thread that asks for the lock through our open file.
#[derive(Debug)]
struct Asking {
    answer: Receiver<io::Result<()>>,
    state: Arc<Mutex<State>>,
}

/// How a helper stands. It must not keep a lock that nobody waits for: everybody else would wait for it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Somebody waits for its answer.
    Wanted,
    /// Nobody does; it gives the lock back as soon as it gets it.
    Unwanted,
    /// It will not touch the file any more.
    Done,
}

impl FolderLock {
    pub(crate) fn new(file: File) -> Self {
        Self { file: Arc::new(file), asking: None }
    }

    /// Takes the lock, or gives up after a while: a stopped process must not hang us for ever. There is no
    /// `flock` with a deadline, so a helper thread asks; only when the lock is taken, which is rare.
    pub(crate) fn acquire(&mut self, patience: Duration) -> Result<(), StoreError> {
        if self.try_acquire()? {
            return Ok(());
        }
        let asking = match self.asking.take().filter(Asking::want) {
            Some(asking) => asking,
            None => self.ask()?,
        };
        match asking.wait(patience) {
            Ok(answer) => {
                answer.map_err(|error| StoreError::io("waiting for the lock of the state folder", error))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.asking = Some(asking);
                let text = format!("the lock was not free within {} s", patience.as_secs_f32());
                Err(StoreError::Locked(text))
            }
            Err(RecvTimeoutError::Disconnected) => Err(StoreError::Closed),
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(&self) -> Result<bool, StoreError> {
        if self.asking.as_ref().is_some_and(|asking| *asking.state.lock() != State::Done) {
            // The helper asks through the same open file, and would give back what we take.
            return Ok(false);
        }
        match retry(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(StoreError::io("locking the state folder", error)),
        }
    }

    /// Gives the lock back. Closing the file does the same, so a failure here has no lasting effect.
    pub(crate) fn release(&self) {
        let _ = retry(&self.file, FlockOperation::Unlock);
    }

    fn ask(&self) -> Result<Asking, StoreError> {
        let (send, answer) = sync_channel(1);
        let state = Arc::new(Mutex::new(State::Wanted));
        let (file, shared) = (Arc::clone(&self.file), Arc::clone(&state));
        std::thread::Builder::new()
            .name("vambrace-lock".into())
            .spawn(move || {
                let taken = retry(&file, FlockOperation::LockExclusive);
                let mut state = shared.lock();
                if *state == State::Wanted {
                    // When the store has gone meanwhile, dropping the file gives the lock back.
                    let _ = send.send(taken);
                } else if taken.is_ok() {
                    let _ = retry(&file, FlockOperation::Unlock);
                }
                *state = State::Done;
            })
            .map_err(|error| StoreError::io("starting a thread", error))?;
        Ok(Asking { answer, state })
    }
}

impl Asking {
    /// Waits for it again; `false` when it has ended and holds nothing.
    fn want(&self) -> bool {
        let mut state = self.state.lock();
        let asks = *state != State::Done;
        if asks {
            *state = State::Wanted;
        }
        asks
    }

    /// The answer; nobody waits for it any more after a timeout.
    fn wait(&self, patience: Duration) -> Result<io::Result<()>, RecvTimeoutError> {
        let timeout = match self.answer.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => RecvTimeoutError::Timeout,
            other => return other,
        };
        let mut state = self.state.lock();
        // It may have come in this very moment.
        self.answer.try_recv().map_err(|_| {
            *state = State::Unwanted;
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
    fn a_held_lock_is_waited_for_only_so_long_and_then_still_comes() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        let mut first = FolderLock::new(dir.writer_lock().unwrap());
        let mut second = FolderLock::new(dir.writer_lock().unwrap());
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
    fn who_lost_patience_keeps_nobody_waiting() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        let [mut first, mut second, mut third] =
            [(); 3].map(|()| FolderLock::new(dir.writer_lock().unwrap()));
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
