//! One run as the launcher sees it: a process to be ended in time, a control group, a folder to be removed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::process::{Pid, Signal, WaitOptions};

use super::cgroup::Group;
use crate::cell;
use crate::order::Task;
use crate::sys::process::Child;
use crate::tier::Tier;
use crate::wire::{Bytes, Header, Identity, Report};

/// How long a keeper may take to end its tree before it is ended itself.
const KEEPERS_TIME: Duration = Duration::from_millis(400);

pub(super) struct Run {
    child: Child,
    identity: Identity,
    report: OwnedFd,
    group: Group,
    header: Header,
    stage: Stage,
    timed_out: bool,
    oom: bool,
}

enum Stage {
    /// Until this moment it may run.
    Running(Instant),
    /// It was asked to end; until this moment it may.
    Grace(Instant),
    /// It is being ended; a keeper until this moment.
    Ending(Option<Instant>),
}

/// Makes whom the program runs as the owner of its folders.
pub(super) fn hand_over(task: &[u8], identity: Identity) -> Result<(), rustix::io::Errno> {
    let (uid, gid) = (Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
    let task = Path::new(std::ffi::OsStr::from_bytes(task));
    rustix::fs::chownat(rustix::fs::CWD, task, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    for part in Task::PARTS {
        rustix::fs::chownat(rustix::fs::CWD, task.join(part), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

impl Run {
    pub(super) fn new(
        child: Child,
        identity: Identity,
        report: OwnedFd,
        group: Group,
        header: Header,
    ) -> Self {
        let stage = Stage::Running(Instant::now() + header.limits.time);
        Self { child, identity, report, group, header, stage, timed_out: false, oom: false }
    }

    pub(super) fn handle(&self) -> &OwnedFd {
        &self.child.handle
    }

    pub(super) fn report(&self) -> &OwnedFd {
        &self.report
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
        match self.stage {
            Stage::Running(moment) | Stage::Grace(moment) => Some(moment),
            Stage::Ending(moment) => moment,
        }
    }

    /// Does what is due.
    pub(super) fn keep_time(&mut self, now: Instant) {
        match self.stage {
            Stage::Running(moment) if moment <= now => {
                self.timed_out = true;
                self.signal(Signal::TERM);
                self.stage = Stage::Grace(now + self.header.limits.grace);
            }
            Stage::Grace(moment) if moment <= now => self.kill(),
            Stage::Ending(Some(moment)) if moment <= now => {
                self.group.kill();
                self.signal(Signal::KILL);
                self.stage = Stage::Ending(None);
            }
            _ => {}
        }
    }

    /// Ends the whole tree.
    pub(super) fn kill(&mut self) {
        if matches!(self.stage, Stage::Ending(_)) {
            return;
        }
        if self.header.tier == Tier::NoUserns {
            self.signal(Signal::INT);
            self.stage = Stage::Ending(Some(Instant::now() + KEEPERS_TIME));
        } else {
            // The first process of a pid namespace takes all others with it.
            self.signal(Signal::KILL);
            self.stage = Stage::Ending(None);
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
    /// which it gives. `kept` are the first processes of other runs.
    pub(super) fn finish(mut self, kept: &[Pid]) -> Option<Bytes> {
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
        // Nobody has to wait for this.
        self.group.remove();
        self.header.task
    }
}

/// Removes the folder of a task; nobody is left who writes there.
pub(super) fn remove(task: &[u8]) {
    let _ = std::fs::remove_dir_all(Path::new(std::ffi::OsStr::from_bytes(task)));
}

pub(super) fn exists(task: &[u8]) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(task)).symlink_metadata().is_ok()
}
