//! One run as the launcher sees it: a process to be ended in time, a control group, a folder to be removed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use super::cgroup::Group;
use super::pool::Cell;
use crate::cell;
use crate::sys::process::Child;
use crate::task;
use crate::tier::Tier;
use crate::wire::{Bytes, Header, Identity, Report};

/// How long a keeper may take to end its tree before it is ended itself.
const KEEPERS_TIME: Duration = Duration::from_millis(400);

/// Nobody waits longer.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(super) struct Run {
    child: Child,
    identity: Identity,
    report: OwnedFd,
    group: Group,
    header: Header,
    phase: Phase,
    /// The process that made it.
    made_by: Pid,
    timed_out: bool,
    oom: bool,
}

enum Phase {
    /// Until this moment it may run.
    Running(Instant),
    /// It was asked to end; until this moment it may.
    Grace(Instant),
    /// It is being ended; a keeper until this moment.
    Ending(Option<Instant>),
}

impl Run {
    pub(super) fn new(cell: Cell, report: OwnedFd, header: Header) -> Self {
        let now = Instant::now();
        let phase = Phase::Running(now.checked_add(header.limits.time).unwrap_or(now + FOR_EVER));
        let Cell { child, identity, group, stage: made_by, .. } = cell;
        Self { child, identity, report, group, header, phase, made_by, timed_out: false, oom: false }
    }

    pub(super) fn handle(&self) -> &OwnedFd {
        &self.child.handle
    }

    /// Says when nobody waits for the run any more; asked until it is being ended, because from then on it says so
    /// without end, and whoever is to end would not get to it.
    pub(super) fn report(&self) -> Option<&OwnedFd> {
        (!matches!(self.phase, Phase::Ending(_))).then_some(&self.report)
    }

    /// What is waited for at the report, besides its end: that nothing more comes, until it was asked to end.
    pub(super) fn asks(&self) -> PollFlags {
        match self.phase {
            Phase::Running(_) => PollFlags::RDHUP,
            _ => PollFlags::empty(),
        }
    }

    /// Readable once memory ran out; asked for until that happened.
    pub(super) fn alarm(&self) -> Option<&OwnedFd> {
        self.group.alarm().filter(|_| !self.oom)
    }

    /// The kernel ended one process for want of memory: the others end with it.
    pub(super) fn out_of_memory(&mut self) {
        self.oom = true;
        self.kill();
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// When to look again.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running(moment) | Phase::Grace(moment) => Some(moment),
            Phase::Ending(moment) => moment,
        }
    }

    /// Does what is due.
    pub(super) fn keep_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Running(moment) if moment <= now => {
                self.timed_out = true;
                self.stop(now);
            }
            Phase::Grace(moment) if moment <= now => self.kill(),
            Phase::Ending(Some(moment)) if moment <= now => {
                self.group.kill();
                self.signal(Signal::KILL);
                self.phase = Phase::Ending(None);
            }
            _ => {}
        }
    }

    /// Asks the whole tree to end.
    pub(super) fn stop(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Running(_)) {
            self.signal(Signal::TERM);
            self.phase = Phase::Grace(now + self.header.limits.grace);
        }
    }

    /// Ends the whole tree.
    pub(super) fn kill(&mut self) {
        if matches!(self.phase, Phase::Ending(_)) {
            return;
        }
        if self.header.tier == Tier::NoUserns {
            self.signal(Signal::INT);
            self.phase = Phase::Ending(Some(Instant::now() + KEEPERS_TIME));
        } else {
            // The first process of a pid namespace takes all others with it.
            self.signal(Signal::KILL);
            self.phase = Phase::Ending(None);
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended already; its end is noticed in the next round.
        let _ = rustix::process::pidfd_send_signal(&self.child.handle, signal);
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut list = [PollFd::new(&self.child.handle, PollFlags::IN)];
        rustix::event::poll(&mut list, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Takes the ended process, tells what the control group saw, and leaves nothing behind but the folder of its task,
    /// who made it and its group, which it gives. `kept` are the first processes of other runs, and the stages.
    pub(super) fn finish(self, kept: &[Pid]) -> (Option<Bytes>, Pid, Group) {
        let _ = rustix::process::waitpid(Some(self.child.pid), WaitOptions::empty());
        if self.header.tier == Tier::NoUserns {
            // Whoever the keeper did not get.
            self.group.kill();
            cell::end_strays(kept);
        }
        let ended = Report::Ended {
            oom: self.oom || self.group.saw_oom(),
            timed_out: self.timed_out,
            peak_memory: self.group.peak_memory(),
            memory_limited: self.group.limits_memory(),
        };
        // A broker that is gone is noticed in the next round, and the folder is removed then.
        let _ = cell::tell(self.report.as_fd(), &ended, &[]);
        (self.header.task, self.made_by, self.group)
    }
}

/// Removes the folder of a task; nobody is left who writes there.
pub(super) fn remove(task: &[u8]) {
    task::remove_all(Path::new(std::ffi::OsStr::from_bytes(task)));
}

pub(super) fn exists(task: &[u8]) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(task)).symlink_metadata().is_ok()
}
