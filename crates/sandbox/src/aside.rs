//! What a run does not have to wait for: making what the next one needs, and letting go of what the last one had. Done by
//! a thread of its own, from the second run on: whoever runs one program only has no use for it.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::pipe::PipeFlags;

use crate::fault::SandboxFault;
use crate::sys::message;
use crate::task::Tasks;

/// So much is left lying at most; then a run clears away itself.
const MOST_LEFT: usize = 64;

/// What every run needs: pipes and a socket, none of them used before.
#[derive(Debug)]
pub(crate) struct Fittings {
    /// Read from, written to.
    pub(crate) order: (OwnedFd, OwnedFd),
    pub(crate) out: (OwnedFd, OwnedFd),
    pub(crate) err: (OwnedFd, OwnedFd),
    /// Ours, theirs.
    pub(crate) report: (OwnedFd, OwnedFd),
}

impl Fittings {
    fn make() -> Result<Self, SandboxFault> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SandboxFault::system("a pipe"));
        let stream = || pipe().inspect(|(_, write)| let_others_open(write, 0o666));
        Ok(Self {
            order: pipe()?,
            out: stream()?,
            err: stream()?,
            report: message::pair().map_err(SandboxFault::system("the run's socket"))?,
        })
    }
}

/// A program of root's is another user, and opens its own streams once more by `/dev/stdin` and the like. Nobody gets to a
/// pipe without a name but who has it already. Where the mode cannot be set, nothing else is lost.
pub(crate) fn let_others_open(pipe: &OwnedFd, mode: u32) {
    if rustix::process::geteuid().is_root() {
        let _ = rustix::fs::fchmod(pipe, Mode::from_raw_mode(mode));
    }
}

type Left = Box<dyn Any + Send>;

#[derive(Debug, Default)]
pub(crate) struct Aside {
    shared: Arc<Shared>,
    /// Whether a run has ended.
    again: AtomicBool,
    thread: Mutex<Option<(SyncSender<Left>, JoinHandle<()>)>>,
}

#[derive(Debug, Default)]
struct Shared {
    next: Mutex<Option<Fittings>>,
    tasks: Arc<Tasks>,
}

impl Aside {
    pub(crate) fn tasks(&self) -> &Arc<Tasks> {
        &self.shared.tasks
    }

    /// For a run that begins.
    pub(crate) fn fittings(&self) -> Result<Fittings, SandboxFault> {
        let made = self.shared.next.lock().take();
        made.map_or_else(Fittings::make, Ok)
    }

    /// Takes what a run has no use for any more.
    pub(crate) fn leave(&self, left: impl Any + Send) {
        if !self.again.swap(true, Ordering::Relaxed) {
            return self.shared.tasks.look_into();
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = self.shared.start();
        }
        match &*thread {
            // Where too much lies there, it goes here and now.
            Some((give, _)) => drop(give.try_send(Box::new(left))),
            None => self.shared.tasks.look_into(),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some((give, thread)) = self.thread.get_mut().take() {
            drop(give);
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Nothing where no thread can be had; then every run makes and clears its own.
    fn start(self: &Arc<Self>) -> Option<(SyncSender<Left>, JoinHandle<()>)> {
        let (give, take) = sync_channel(MOST_LEFT);
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("sandbox aside".to_owned());
        let thread = thread.spawn(move || shared.work(&take)).ok()?;
        Some((give, thread))
    }

    fn work(&self, take: &Receiver<Left>) {
        while let Ok(left) = take.recv() {
            drop(left);
            let missing = self.next.lock().is_none();
            if missing && let Ok(made) = Fittings::make() {
                self.next.lock().get_or_insert(made);
            }
            self.tasks.look_into();
        }
    }
}
