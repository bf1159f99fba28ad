//! Stops a run before its deadline.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::EventfdFlags;

/// Stops a run like its deadline would: SIGTERM to the whole tree, the grace period of its limits, SIGKILL. A run
/// that starts afterwards ends at once. Clones share the same state.
#[derive(Debug, Clone)]
pub struct StopHandle(Arc<StopState>);

#[derive(Debug)]
struct StopState {
    handle: OwnedFd,
    signal: AtomicI32,
}

impl StopHandle {
    /// For one run, or several that are stopped together.
    pub fn new() -> std::io::Result<Self> {
        let handle = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(StopState { handle, signal: AtomicI32::new(libc::SIGTERM) })))
    }

    /// Requests the stop because of this signal, which determines the exit code.
    pub fn request(&self, signal: i32) {
        self.0.signal.store(signal, Ordering::Relaxed);
        // Fails only if the counter is at its maximum.
        let _ = rustix::io::write(&self.0.handle, &1_u64.to_ne_bytes());
    }

    /// Requests the stop as by SIGTERM.
    pub fn terminate(&self) {
        self.request(libc::SIGTERM);
    }

    /// The signal that caused the stop.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.0.signal.load(Ordering::Relaxed)
    }
}

/// Readable once the stop was requested.
impl AsFd for StopHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handle.as_fd()
    }
}
