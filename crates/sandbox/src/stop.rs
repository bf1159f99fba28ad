//! Ending a run before its time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::EventfdFlags;

/// Asks a run to end as its deadline would: SIGTERM for the whole tree, the grace of its limits, SIGKILL. A run that is begun
/// afterwards ends at once. Clones ask for the same.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Asked>);

#[derive(Debug)]
struct Asked {
    handle: OwnedFd,
    signal: AtomicI32,
}

impl Stop {
    /// For one run, or several that end together.
    pub fn new() -> std::io::Result<Self> {
        let handle = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Asked { handle, signal: AtomicI32::new(libc::SIGTERM) })))
    }

    /// Asks, because of this signal: the code of who is stopped tells it.
    pub fn ask(&self, signal: i32) {
        self.0.signal.store(signal, Ordering::Relaxed);
        // Refused only where it was asked very often already.
        let _ = rustix::io::write(&self.0.handle, &1_u64.to_ne_bytes());
    }

    /// The signal that it was asked because of.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.0.signal.load(Ordering::Relaxed)
    }
}

/// Readable once it was asked.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handle.as_fd()
    }
}
