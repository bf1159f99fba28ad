//! The subreaper of a program without namespaces: it adopts every orphan below it, so it can find and kill all of
//! them. It is not confined, and the program cannot signal it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};

use super::init::{exited, let_broker_continue, reap};
use super::prefault::prefault;
use super::usage::{DiskLimit, ExceededLimit, UsageMonitor};
use super::{
    CellRun, HANDLED_SIGNALS, Prebuilt, become_program, confine, raise_oom_score, receive, send_report,
};
use crate::filter::Confinement;
use crate::sys::process;
use crate::wire::{ExpectedFilter, RunIdentity};

/// Runs one subreaper (tier no-userns); never returns.
pub(crate) fn run_subreaper(
    channel: OwnedFd,
    identity: RunIdentity,
    expected: Option<ExpectedFilter>,
    prebuilt: Prebuilt,
) -> ! {
    let code = match run(channel, identity, expected, prebuilt) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    process::leave(code)
}

/// The program's process is forked at once and waits for the request itself, which saves a wake-up between request
/// and exec. Until the exec it shares memory and descriptors with this process, which is suspended (`CLONE_VFORK`).
fn run(
    channel: OwnedFd,
    identity: RunIdentity,
    expected: Option<ExpectedFilter>,
    mut prebuilt: Prebuilt,
) -> Result<(), Errno> {
    // Not killed with the launcher, but signalled: this process kills everything that the program has started first.
    // It is suspended until the exec, so the process that waits for the request checks itself whether the launcher
    // still exists.
    let launcher = rustix::process::getppid().ok_or(Errno::SRCH)?;
    let launcher = rustix::process::pidfd_open(launcher, PidfdFlags::empty())?;
    rustix::process::set_parent_process_death_signal(Some(Signal::INT))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    raise_oom_score();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me))?;
    let mut planned =
        expected.map(|expected| confine::PreparedFilter::new(Confinement::LandlockOnly, expected, &prebuilt));
    let mut channel = Some(channel);
    let mut came: Option<CellRun> = None;
    let program = process::vfork_sharing(&mut || {
        let ready = confine::confine_early(identity, planned.take());
        // The subreaper died before our death signal was set: nothing would kill us.
        if rustix::process::getppid() != Some(me) {
            process::leave(1)
        }
        let request = |channel: OwnedFd| {
            prefault(channel.as_fd());
            wait_for_request(&channel, &launcher).and_then(|()| receive(channel.as_fd()))
        };
        let Some(Ok(mut run)) = channel.take().map(request) else { process::leave(1) };
        run.request.guarded.push(me.as_raw_nonzero().get().unsigned_abs());
        let run = came.insert(run);
        become_program(run, Confinement::LandlockOnly, identity, ready, &mut prebuilt, &|| ())
    })?;
    // Without a request there is nothing to report. The pipes stay open to the end: the broker is then woken once, by
    // the report, and not by each closed pipe.
    let Some(CellRun { report, request, go, streams: _open, .. }) = came else { return Ok(()) };
    // The run's directories are siblings of its home.
    let home = Path::new(std::ffi::OsStr::from_bytes(&request.home));
    let disk = home.parent().map(|dir| DiskLimit {
        dirs: vec![dir.to_owned()],
        most: request.limits.disk,
        since: None,
    });
    let ended = wait(program, UsageMonitor::new((!go.memory_limited).then_some(request.limits.memory), disk));
    kill_all();
    let reported = match ended {
        SubreaperEnd::Status { status, asked } => {
            send_report(report.as_fd(), &exited(status, asked, go.memory_limited), &[])?;
            let_broker_continue(&report, status);
            return Ok(());
        }
        SubreaperEnd::ExceededLimit(over) => over.report(),
        // The launcher reports why.
        SubreaperEnd::Asked => return Ok(()),
    };
    send_report(report.as_fd(), &reported, &[])
}

/// Waits until there is something to read, or the launcher is gone.
fn wait_for_request(channel: &OwnedFd, launcher: &OwnedFd) -> Result<(), Errno> {
    let mut list = [PollFd::new(launcher, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut list, None) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) if list.first().is_some_and(|launcher| !launcher.revents().is_empty()) => {
                return Err(Errno::SRCH);
            }
            Ok(_) => return Ok(()),
        }
    }
}

enum SubreaperEnd {
    Status { status: i32, asked: bool },
    ExceededLimit(ExceededLimit),
    Asked,
}

fn wait(program: Pid, mut monitor: UsageMonitor) -> SubreaperEnd {
    let mut asked = false;
    let all_pids = || tree(&[]).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    loop {
        let signal = process::wait_signal(HANDLED_SIGNALS, monitor.wait_ms());
        if let Some(over) = monitor.check(all_pids) {
            return SubreaperEnd::ExceededLimit(over);
        }
        match signal {
            Some(number) if number == Signal::TERM.as_raw() => {
                asked = true;
                signal_tree(Signal::TERM);
            }
            Some(number) if number == Signal::INT.as_raw() => return SubreaperEnd::Asked,
            Some(_) => {
                if let Some(status) = reap(program) {
                    return SubreaperEnd::Status { status, asked };
                }
            }
            None => {}
        }
    }
}

/// Kills every process below this one. Stops them first, so that none can fork meanwhile.
fn kill_all() {
    loop {
        // Until no child is left: every orphan becomes our child. Usually there is none, and /proc need not be read.
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(None) => {
                signal_tree(Signal::STOP);
                signal_tree(Signal::KILL);
                process::wait_signal(&[Signal::CHILD], Some(5));
            }
            _ => {}
        }
    }
}

/// Kills every process below this one, except the given ones and their descendants.
pub(crate) fn kill_strays(kept: &[Pid]) {
    loop {
        let strays = tree(kept);
        if strays.is_empty() {
            return;
        }
        for pid in &strays {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        for pid in strays {
            // Those that are not our children become so when their parents have ended.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

fn signal_tree(signal: Signal) {
    for pid in tree(&[]) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Every process below this one, except the given ones and their descendants.
#[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes")]
fn tree(without: &[Pid]) -> Vec<Pid> {
    let Ok(list) = std::fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(Pid, Pid)> = list
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read(entry.path().join("stat")).ok()?;
            // After the name, which may contain anything: state, parent pid.
            let close = text.iter().rposition(|byte| *byte == b')')?;
            let rest = String::from_utf8_lossy(text.get(close + 1..)?).into_owned();
            let parent: i32 = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((Pid::from_raw(pid)?, Pid::from_raw(parent)?))
        })
        .collect();
    let mut found = vec![rustix::process::getpid()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let below = parents.iter().filter(|(pid, above)| *above == parent && !without.contains(pid));
        found.extend(below.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
