//! Ending a run before its time.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

/// Asks a run to end as its deadline would: SIGTERM for the whole tree, the grace of its limits, SIGKILL. A run that is begun
/// afterwards ends at once. Clones ask for the same.
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// For one run, or several that end together.
    pub fn new() -> std::io::Result<Self> {
        let asked = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(asked)))
    }

    /// Asks.
    pub fn ask(&self) {
        // Refused only where it was asked very often already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Readable once it was asked.
    pub(crate) fn asked(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
