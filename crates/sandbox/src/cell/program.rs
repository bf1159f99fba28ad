//! The program's process before it is the program: made with the cell, it gives up everything that it will not need and
//! puts itself under the filter that is expected, while the cell builds the walls or waits for an order.
//!
//! INVARIANT: it shares the cell's memory (`sys::beside`). Until [`Program::go`] it only makes system calls; from then on
//! until it has left this memory, the cell only does. It begins when the cell has no power left either.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

use super::confine::{self, Planned, Ready};
use super::{Errand, Stock, become_program, tell};
use crate::fault::{Named as _, Step};
use crate::filter::Walls;
use crate::sys::beside::{Beside, Moment};
use crate::sys::mounting;
use crate::wire::{Expected, Identity, Report};

pub(super) struct Program {
    process: Beside,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What it did in advance, once `prepared` has come.
    ready: Mutex<Ready>,
    prepared: Moment,
    /// Which processors it may use.
    anywhere: Mutex<Option<CpuSet>>,
    /// What it is to do, once `ordered` has come.
    errand: Mutex<Option<(Arc<Errand>, Stock, u64)>>,
    ordered: Moment,
    /// The cell has given up its powers too.
    powerless: Moment,
}

impl Program {
    pub(super) fn make(identity: Identity, expected: Option<Expected>, stock: &Stock) -> Result<Self, Step> {
        let shared = Arc::<Shared>::default();
        let planned = expected.map(|expected| Planned::new(Walls::Namespaces, expected, stock));
        let own = Arc::clone(&shared);
        let process = Beside::start(Box::new(move || own.live(identity, planned)));
        Ok(Self { process: process.step("program's process")?, shared })
    }

    /// Says where its calls are to be answered, as soon as that is known.
    pub(super) fn announce(&self, report: BorrowedFd<'_>) -> Result<(), Step> {
        // One that was ended by somebody is heard of when it is to begin.
        self.shared.prepared.wait_while(|| self.process.is_here());
        match self.shared.ready.lock().take_listener() {
            Some(listener) => tell(report, &Report::Listener, &[listener.as_fd()]).step("seccomp listener"),
            None => Ok(()),
        }
    }

    /// The walls stand, but for the old root that still lies over the new one: it waits for that to go, and begins.
    /// `root` is the new one.
    pub(super) fn go(&self, errand: Arc<Errand>, stock: Stock, root: u64) {
        *self.shared.errand.lock() = Some((errand, stock, root));
        if self.shared.anywhere.lock().is_some() {
            self.bring_here();
        }
        self.shared.ordered.come();
    }

    /// This process is about to wait for the kernel: the other goes on where it stood. Any other processor may be asleep,
    /// and takes longer to wake than the walls took to build.
    fn bring_here(&self) {
        let mut here = CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        // Where that is refused, the kernel chooses.
        let _ = rustix::thread::sched_setaffinity(Some(self.process.pid), &here);
    }

    /// Lets it begin, and waits until it is the program, or has ended.
    pub(super) fn begin(self) -> Pid {
        self.shared.powerless.come();
        self.process.left();
        self.process.pid
    }

    /// It never begins.
    pub(super) fn stop(&self) {
        let _ = rustix::process::kill_process(self.process.pid, Signal::KILL);
        self.process.left();
    }
}

impl Shared {
    fn live(&self, identity: Identity, planned: Option<Planned>) {
        let ready = confine::get_ready(identity, planned);
        *self.ready.lock() = ready;
        *self.anywhere.lock() = rustix::thread::sched_getaffinity(None).ok();
        self.prepared.come();
        self.ordered.wait();
        if let Some(anywhere) = *self.anywhere.lock() {
            let _ = rustix::thread::sched_setaffinity(None, &anywhere);
        }
        let Some((errand, mut stock, root)) = self.errand.lock().take() else { return };
        while !mounting::is_bare_root(root) {
            // The cell ends us where it cannot take the old root away.
            rustix::thread::sched_yield();
        }
        let ready = std::mem::take(&mut *self.ready.lock());
        become_program(&errand, Walls::Namespaces, identity, ready, &mut stock, &|| self.wait_for_the_cell())
    }

    fn wait_for_the_cell(&self) {
        self.powerless.wait();
        // It has nothing left to do but to wait for us. As long as it does not yet, the kernel would have the program begin on
        // another processor.
        rustix::thread::sched_yield();
    }
}
