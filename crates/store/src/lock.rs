//! A lock between processes. The kernel hands an `flock` on in the order of asking, so nobody starves as with
//! the retries of `BEGIN IMMEDIATE`; and it ends with its holder, so nothing is left behind by a crash.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::StoreError;

/// A lock file of the state folder.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: Arc<File>,
    /// A helper that is still asking, because we once lost patience.
    asking: Option<Receiver<io::Result<()>>>,
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
        let asking = match self.asking.take() {
            Some(asking) => asking,
            None => self.ask()?,
        };
        match asking.recv_timeout(patience) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StoreError::io("waiting for the lock of the state folder", error)),
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
        if self.asking.is_some() {
            // The helper asks through the same open file; its answer must be taken first.
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

    fn ask(&self) -> Result<Receiver<io::Result<()>>, StoreError> {
        let (answer, asking) = sync_channel(1);
        let file = Arc::clone(&self.file);
        std::thread::Builder::new()
            .name("vambrace-lock".into())
            .spawn(move || {
                // When nobody waits any more, dropping the file gives the lock back.
                let _ = answer.send(retry(&file, FlockOperation::LockExclusive));
            })
            .map_err(|error| StoreError::io("starting a thread", error))?;
        Ok(asking)
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
}
