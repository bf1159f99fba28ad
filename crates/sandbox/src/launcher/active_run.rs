//! One run as the launcher sees it: a process to be killed at its deadline, a cgroup, a directory to be removed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use super::cgroup::RunCgroup;
use super::warm_pool::CellHandle;
use crate::cell;
use crate::run_dirs;
use crate::sys::process::Child;
use crate::tier::Tier;
use crate::wire::{Bytes, RunHeader, RunIdentity, RunReport};

/// How long a subreaper may take to kill its tree before it is killed itself.
const SUBREAPER_KILL_TIMEOUT: Duration = Duration::from_millis(400);

/// Deadline of a run without one: 100 years.
const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(super) struct ActiveRun {
    child: Child,
    identity: RunIdentity,
    report: OwnedFd,
    group: RunCgroup,
    header: RunHeader,
    phase: RunPhase,
    /// The zygote that made it.
    made_by: Pid,
    timed_out: bool,
    oom: bool,
}

enum RunPhase {
    /// Running until this deadline.
    Running(Instant),
    /// SIGTERM was sent; grace period until this moment.
    Grace(Instant),
    /// Being killed; a subreaper has until this moment.
    Ending(Option<Instant>),
}

impl ActiveRun {
    pub(super) fn new(cell: CellHandle, report: OwnedFd, header: RunHeader) -> Self {
        let now = Instant::now();
        let phase = RunPhase::Running(now.checked_add(header.limits.time).unwrap_or(now + UNLIMITED));
        let CellHandle { child, identity, group, zygote: made_by, .. } = cell;
        Self { child, identity, report, group, header, phase, made_by, timed_out: false, oom: false }
    }

    pub(super) fn handle(&self) -> &OwnedFd {
        &self.child.handle
    }

    /// The report socket, which signals that the broker no longer waits. `None` once the run is being killed: a
    /// hung-up socket would be ready forever and starve the rest of the loop.
    pub(super) fn report(&self) -> Option<&OwnedFd> {
        (!matches!(self.phase, RunPhase::Ending(_))).then_some(&self.report)
    }

    /// Poll flags for the report socket besides hang-up: `RDHUP`, until the run was asked to stop.
    pub(super) fn report_poll_flags(&self) -> PollFlags {
        match self.phase {
            RunPhase::Running(_) => PollFlags::RDHUP,
            _ => PollFlags::empty(),
        }
    }

    /// Readable once memory ran out; `None` after that happened.
    pub(super) fn oom_event(&self) -> Option<&OwnedFd> {
        self.group.oom_event().filter(|_| !self.oom)
    }

    /// The kernel OOM-killed one process: kills the others too.
    pub(super) fn out_of_memory(&mut self) {
        self.oom = true;
        self.kill();
    }

    pub(super) fn identity(&self) -> RunIdentity {
        self.identity
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            RunPhase::Running(moment) | RunPhase::Grace(moment) => Some(moment),
            RunPhase::Ending(moment) => moment,
        }
    }

    /// Acts on deadlines that have passed.
    pub(super) fn check_deadlines(&mut self, now: Instant) {
        match self.phase {
            RunPhase::Running(moment) if moment <= now => {
                self.timed_out = true;
                self.stop(now);
            }
            RunPhase::Grace(moment) if moment <= now => self.kill(),
            RunPhase::Ending(Some(moment)) if moment <= now => {
                self.group.kill();
                self.signal(Signal::KILL);
                self.phase = RunPhase::Ending(None);
            }
            _ => {}
        }
    }

    /// Sends SIGTERM to the whole tree.
    pub(super) fn stop(&mut self, now: Instant) {
        if matches!(self.phase, RunPhase::Running(_)) {
            self.signal(Signal::TERM);
            self.phase = RunPhase::Grace(now + self.header.limits.grace);
        }
    }

    /// Kills the whole tree.
    pub(super) fn kill(&mut self) {
        if matches!(self.phase, RunPhase::Ending(_)) {
            return;
        }
        if self.header.tier == Tier::NoUserns {
            self.signal(Signal::INT);
            self.phase = RunPhase::Ending(Some(Instant::now() + SUBREAPER_KILL_TIMEOUT));
        } else {
            // When the init of a pid namespace dies, the kernel kills the rest.
            self.signal(Signal::KILL);
            self.phase = RunPhase::Ending(None);
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended already, which the next iteration notices.
        let _ = rustix::process::pidfd_send_signal(&self.child.handle, signal);
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut list = [PollFd::new(&self.child.handle, PollFlags::IN)];
        rustix::event::poll(&mut list, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Reaps the process and reports what the cgroup saw. Returns the run directory, the zygote and the cgroup.
    /// `kept` are the first processes of other runs, and the zygotes.
    pub(super) fn finish(self, kept: &[Pid]) -> (Option<Bytes>, Pid, RunCgroup) {
        let _ = rustix::process::waitpid(Some(self.child.pid), WaitOptions::empty());
        if self.header.tier == Tier::NoUserns {
            // Processes that escaped the subreaper.
            self.group.kill();
            cell::kill_strays(kept);
        }
        let ended = RunReport::Ended {
            oom: self.oom || self.group.saw_oom(),
            timed_out: self.timed_out,
            peak_memory: self.group.peak_memory(),
            memory_limited: self.group.limits_memory(),
        };
        // A broker that is gone is noticed in the next iteration, and the directory is removed then.
        let _ = cell::send_report(self.report.as_fd(), &ended, &[]);
        (self.header.run_dirs, self.made_by, self.group)
    }
}

/// Removes a run directory; no process is left that writes there.
pub(super) fn remove(dir: &[u8]) {
    run_dirs::remove_all(Path::new(std::ffi::OsStr::from_bytes(dir)));
}

pub(super) fn exists(dir: &[u8]) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(dir)).symlink_metadata().is_ok()
}
