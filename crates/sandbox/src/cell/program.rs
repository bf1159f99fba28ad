//! The program's process before the exec: forked together with the cell, it drops what it will not need and installs
//! the expected filter, while the cell builds its root or waits for a request.
//!
//! INVARIANT: it shares the cell's memory (`sys::shared_process`). Until [`ProgramProcess::request_start`] it only
//! makes system calls; from then on until it has left this memory, the cell only makes system calls. It executes the
//! program when the cell has no privilege left either.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

use super::confine::{self, EarlyConfinement, PreparedFilter};
use super::{CellRun, Prebuilt, become_program, send_report};
use crate::error::{FailedStep, StepContext as _};
use crate::filter::Confinement;
use crate::sys::mount;
use crate::sys::shared_process::{OneShotEvent, SharedProcess};
use crate::wire::{ExpectedFilter, RunIdentity, RunReport};

pub(super) struct ProgramProcess {
    process: SharedProcess,
    shared: Arc<ProgramState>,
}

#[derive(Default)]
struct ProgramState {
    /// What it did in advance; valid once `prepared` is set.
    ready: Mutex<EarlyConfinement>,
    prepared: OneShotEvent,
    /// CPUs that it may use.
    allowed_cpus: Mutex<Option<CpuSet>>,
    /// The run; valid once `requested` is set.
    run: Mutex<Option<(Arc<CellRun>, Prebuilt, u64)>>,
    requested: OneShotEvent,
    /// Set when the cell has dropped its privileges too.
    cell_unprivileged: OneShotEvent,
}

impl ProgramProcess {
    pub(super) fn make(
        identity: RunIdentity,
        expected: Option<ExpectedFilter>,
        prebuilt: &Prebuilt,
    ) -> Result<Self, FailedStep> {
        let shared = Arc::<ProgramState>::default();
        let planned =
            expected.map(|expected| PreparedFilter::new(Confinement::Namespaces, expected, prebuilt));
        let own = Arc::clone(&shared);
        let process = SharedProcess::start(Box::new(move || own.run_until_exec(identity, planned)));
        Ok(Self { process: process.step("program's process")?, shared })
    }

    /// Sends the seccomp listener to the broker, as soon as there is one.
    pub(super) fn send_listener(&self, report: BorrowedFd<'_>) -> Result<(), FailedStep> {
        // If it was killed, that is noticed when it should start.
        self.shared.prepared.wait_while(|| self.process.is_here());
        match self.shared.ready.lock().take_listener() {
            Some(listener) => {
                send_report(report, &RunReport::Listener, &[listener.as_fd()]).step("seccomp listener")
            }
            None => Ok(()),
        }
    }

    /// Requests the start. All mounts are done, except that the old root still covers the new one: the process waits until
    /// that is gone. `root` is the mount id of the new root.
    pub(super) fn request_start(&self, run: Arc<CellRun>, prebuilt: Prebuilt, root: u64) {
        *self.shared.run.lock() = Some((run, prebuilt, root));
        if self.shared.allowed_cpus.lock().is_some() {
            self.pin_to_this_cpu();
        }
        self.shared.requested.set();
    }

    /// Pins the other process to this CPU, since this process is about to block in the kernel. Any other CPU may be
    /// asleep, and waking it takes longer than building the mounts did.
    fn pin_to_this_cpu(&self) {
        let mut here = CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        // If that fails, the kernel chooses a CPU.
        let _ = rustix::thread::sched_setaffinity(Some(self.process.pid), &here);
    }

    /// Lets it execute the program, and waits until it has, or has ended.
    pub(super) fn begin(self) -> Pid {
        self.shared.cell_unprivileged.set();
        self.process.wait_until_gone();
        self.process.pid
    }

    /// Kills it before it starts.
    pub(super) fn stop(&self) {
        let _ = rustix::process::kill_process(self.process.pid, Signal::KILL);
        self.process.wait_until_gone();
    }
}

impl ProgramState {
    fn run_until_exec(&self, identity: RunIdentity, planned: Option<PreparedFilter>) {
        let ready = confine::confine_early(identity, planned);
        *self.ready.lock() = ready;
        *self.allowed_cpus.lock() = rustix::thread::sched_getaffinity(None).ok();
        self.prepared.set();
        self.requested.wait();
        if let Some(allowed_cpus) = *self.allowed_cpus.lock() {
            let _ = rustix::thread::sched_setaffinity(None, &allowed_cpus);
        }
        let Some((run, mut prebuilt, root)) = self.run.lock().take() else { return };
        while !mount::is_uncovered_root(root) {
            // The cell kills us if it cannot detach the old root.
            rustix::thread::sched_yield();
        }
        let ready = std::mem::take(&mut *self.ready.lock());
        become_program(&run, Confinement::Namespaces, identity, ready, &mut prebuilt, &|| {
            self.wait_for_cell()
        })
    }

    fn wait_for_cell(&self) {
        self.cell_unprivileged.wait();
        // The cell has nothing left to do but wait for us. Until it blocks, the kernel would start the program on
        // another CPU.
        rustix::thread::sched_yield();
    }
}
