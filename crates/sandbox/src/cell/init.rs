//! The init of a cell while the program runs: reaps orphans, forwards the request to end, and polls memory where the
//! kernel does not limit it, and scratch directories. When it exits, the kernel kills everything else in its pid
//! namespace.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::usage::{DiskLimit, UsageMonitor};
use super::{CellRun, HANDLED_SIGNALS, send_report};
use crate::error::{FailedStep, StepContext as _};
use crate::sys::process;
use crate::wire::{RunReport, RunRequest};

/// Waits until the program and all other processes of the cell have ended. The pipes stay open to the end: the broker
/// is then woken once, by the report, and not by each closed pipe.
pub(super) fn wait(program: Pid, run: &CellRun) -> Result<(), FailedStep> {
    let CellRun { report, request, go, .. } = run;
    let mut monitor =
        UsageMonitor::new((!go.memory_limited).then_some(request.limits.memory), scratch(request));
    let mut asked = false;
    loop {
        let signal = process::wait_signal(HANDLED_SIGNALS, monitor.wait_ms());
        if let Some(over) = monitor.check(all_pids) {
            return send_report(report.as_fd(), &over.report(), &[]).step("report");
        }
        match signal {
            Some(number) if number == Signal::TERM.as_raw() => {
                asked = true;
                process::signal_all(Signal::TERM);
            }
            Some(_) => {
                if let Some(status) = reap(program) {
                    kill_all();
                    send_report(report.as_fd(), &exited(status, asked, go.memory_limited), &[])
                        .step("report")?;
                    let_broker_continue(report, status);
                    return Ok(());
                }
            }
            None => {}
        }
    }
}

/// Scratch directories are on the host's disk: limits what the program writes there.
fn scratch(request: &RunRequest) -> Option<DiskLimit> {
    let workspace = Path::new(OsStr::from_bytes(&request.workspace));
    let dirs = request.scratch.iter().map(|one| workspace.join(OsStr::from_bytes(&one.name))).collect();
    // A file timestamp may lag behind the clock by one tick.
    let since = Some(crate::run::now() - 50_000_000);
    (!request.scratch.is_empty()).then_some(DiskLimit { dirs, most: request.limits.scratch, since })
}

/// Kills and reaps all remaining processes, so that the caller need not wait for the kernel to tear down the
/// namespace.
fn kill_all() {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            // Every process of the namespace is below this one, so none is left.
            Err(Errno::CHILD) => return,
            Ok(None) => {
                process::signal_all(Signal::KILL);
                let _ = rustix::process::wait(WaitOptions::empty());
            }
            _ => {}
        }
    }
}

/// Lets the broker continue before this process exits: the kernel has much to tear down, possibly on the CPU where
/// the broker would run. A process that was killed may have been OOM-killed: then the broker waits for the launcher,
/// which waits for us.
pub(super) fn let_broker_continue(report: &OwnedFd, status: i32) {
    const MAX_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    if !crate::run_loop::killed(status) {
        let mut list = [PollFd::new(report, PollFlags::empty())];
        let _ = rustix::event::poll(&mut list, Some(&MAX_WAIT));
    }
}

pub(super) fn exited(status: i32, asked: bool, memory_limited: bool) -> RunReport {
    RunReport::Exited { status, asked, peak_memory: process::peak_memory_of_children(), memory_limited }
}

/// Reaps every process that has ended; returns the program's status when it is among them.
pub(super) fn reap(program: Pid) -> Option<i32> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == program {
            ended = Some(status.as_raw());
        }
    }
    ended
}

/// Pids of all processes in the namespace.
#[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes in this namespace")]
fn all_pids() -> Vec<i32> {
    let Ok(list) = std::fs::read_dir("/proc") else { return Vec::new() };
    list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
