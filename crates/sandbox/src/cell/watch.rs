//! The first process of a cell once the program runs: reaps what is orphaned, passes the request to end on, watches the
//! memory where the kernel does not, and build folders. When it ends, the kernel ends everything else in here.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::meter::{Disk, Meter};
use super::{Errand, HEARD, tell};
use crate::fault::{Named as _, Step};
use crate::sys::process;
use crate::wire::{Order, Report};

/// Until the program has ended, and everybody else in here. Its pipes stay open to the end: whoever reads them is woken by
/// the report, once, and not by every end of a pipe.
pub(super) fn wait(program: Pid, errand: &Errand) -> Result<(), Step> {
    let Errand { report, order, go, .. } = errand;
    let mut meter = Meter::new((!go.memory_limited).then_some(order.limits.memory), scratch(order));
    let mut asked = false;
    loop {
        let signal = process::wait_signal(HEARD, meter.patience());
        if let Some(over) = meter.look(everybody) {
            return tell(report.as_fd(), &over.report(), &[]).step("report");
        }
        match signal {
            Some(number) if number == Signal::TERM.as_raw() => {
                asked = true;
                process::signal_all(Signal::TERM);
            }
            Some(_) => {
                if let Some(status) = reap(program) {
                    end_all();
                    tell(report.as_fd(), &exited(status, asked, go.memory_limited), &[]).step("report")?;
                    let_go_first(report, status);
                    return Ok(());
                }
            }
            None => {}
        }
    }
}

/// Build folders lie on the machine's disk: what the program writes there is watched.
fn scratch(order: &Order) -> Option<Disk> {
    let workspace = Path::new(OsStr::from_bytes(&order.workspace));
    let folders = order.scratch.iter().map(|one| workspace.join(OsStr::from_bytes(&one.name))).collect();
    // A stamp may lag behind the clock by a tick.
    let since = Some(crate::run::now() - 50_000_000);
    (!order.scratch.is_empty()).then_some(Disk { folders, most: order.limits.scratch, since })
}

/// Ends and takes whoever is left, so that the caller need not wait for the kernel to take the walls down.
fn end_all() {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            // Whoever is in here is below this process, so nobody is.
            Err(Errno::CHILD) => return,
            Ok(None) => {
                process::signal_all(Signal::KILL);
                let _ = rustix::process::wait(WaitOptions::empty());
            }
            _ => {}
        }
    }
}

/// Whoever waits for the run goes on before this process ends: the kernel has much to take down with it, and may do so where
/// that one is to run. One that was killed may have been so for want of memory: then the launcher is waited for, who waits
/// for us.
pub(super) fn let_go_first(report: &OwnedFd, status: i32) {
    const AT_MOST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    if !crate::talk::killed(status) {
        let mut list = [PollFd::new(report, PollFlags::empty())];
        let _ = rustix::event::poll(&mut list, Some(&AT_MOST));
    }
}

pub(super) fn exited(status: i32, asked: bool, memory_limited: bool) -> Report {
    Report::Exited { status, asked, peak_memory: process::peak_memory_of_children(), memory_limited }
}

/// Takes every process that has ended; the program's status when it is among them.
pub(super) fn reap(program: Pid) -> Option<i32> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == program {
            ended = Some(status.as_raw());
        }
    }
    ended
}

/// Every process in here.
#[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes in this namespace")]
fn everybody() -> Vec<i32> {
    let Ok(list) = std::fs::read_dir("/proc") else { return Vec::new() };
    list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
