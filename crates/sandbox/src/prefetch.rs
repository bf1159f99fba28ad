//! Background setup and teardown: a thread creates the pipes of the next run and drops what the last run used, so that no
//! run waits for it. The thread starts with the end of the second run: a process that runs one program only does not
//! need it.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::pipe::PipeFlags;

use crate::error::SandboxError;
use crate::run_dirs::RunDirPool;
use crate::sys::message;

/// Maximum number of runs whose resources wait to be dropped; beyond it, the run drops them itself.
const MAX_QUEUED_DROPS: usize = 64;

/// The unused pipes and the socket that every run needs.
#[derive(Debug)]
pub(crate) struct RunPipes {
    /// Read end, write end.
    pub(crate) request: (OwnedFd, OwnedFd),
    pub(crate) out: (OwnedFd, OwnedFd),
    pub(crate) err: (OwnedFd, OwnedFd),
    /// Ours, theirs.
    pub(crate) report: (OwnedFd, OwnedFd),
}

impl RunPipes {
    fn make() -> Result<Self, SandboxError> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SandboxError::system("a pipe"));
        let stream = || pipe().inspect(|(_, write)| allow_reopening(write, 0o666));
        Ok(Self {
            request: pipe()?,
            out: stream()?,
            err: stream()?,
            report: message::pair().map_err(SandboxError::system("the run's socket"))?,
        })
    }
}

/// Root's programs run as another user, which may reopen its own streams through `/dev/stdin` and the like. A pipe has no
/// name, so only a process that already has it can open it. If the mode cannot be set, only reopening fails.
pub(crate) fn allow_reopening(pipe: &OwnedFd, mode: u32) {
    if rustix::process::geteuid().is_root() {
        let _ = rustix::fs::fchmod(pipe, Mode::from_raw_mode(mode));
    }
}

type Discarded = Box<dyn Any + Send>;

#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    shared: Arc<PrefetchState>,
    /// Whether a run has ended before.
    ran_before: AtomicBool,
    thread: Mutex<Option<(SyncSender<Discarded>, JoinHandle<()>)>>,
}

#[derive(Debug, Default)]
struct PrefetchState {
    next: Mutex<Option<RunPipes>>,
    run_dirs: Arc<RunDirPool>,
}

impl Prefetcher {
    pub(crate) fn run_dirs(&self) -> &Arc<RunDirPool> {
        &self.shared.run_dirs
    }

    /// The pipes for a new run: the prepared ones, or new ones.
    pub(crate) fn run_pipes(&self) -> Result<RunPipes, SandboxError> {
        let made = self.shared.next.lock().take();
        made.map_or_else(RunPipes::make, Ok)
    }

    /// Drops in the background what a run no longer needs.
    pub(crate) fn drop_later(&self, left: impl Any + Send) {
        if !self.ran_before.swap(true, Ordering::Relaxed) {
            return self.shared.run_dirs.check_returned();
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = self.shared.start();
        }
        match &*thread {
            // When the queue is full, it is dropped here and now.
            Some((give, _)) => drop(give.try_send(Box::new(left))),
            None => self.shared.run_dirs.check_returned(),
        }
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        if let Some((give, thread)) = self.thread.get_mut().take() {
            drop(give);
            let _ = thread.join();
        }
    }
}

impl PrefetchState {
    /// `None` if the thread cannot be spawned; then every run creates and drops its own pipes.
    fn start(self: &Arc<Self>) -> Option<(SyncSender<Discarded>, JoinHandle<()>)> {
        let (give, take) = sync_channel(MAX_QUEUED_DROPS);
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("sandbox prefetch".to_owned());
        let thread = thread.spawn(move || shared.work(&take)).ok()?;
        Some((give, thread))
    }

    fn work(&self, take: &Receiver<Discarded>) {
        while let Ok(left) = take.recv() {
            drop(left);
            let missing = self.next.lock().is_none();
            if missing && let Ok(made) = RunPipes::make() {
                self.next.lock().get_or_insert(made);
            }
            self.run_dirs.check_returned();
        }
    }
}
