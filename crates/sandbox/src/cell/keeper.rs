//! The keeper of a program without namespaces: every orphan below it becomes its child, so it finds and ends all of
//! them. It stays outside the walls, and the program cannot signal it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::meter::{Disk, Meter, Over};
use super::rehearsal::rehearse;
use super::watch::{exited, let_go_first, reap};
use super::{Errand, HEARD, Stock, become_program, confine, receive, tell};
use crate::filter::Walls;
use crate::sys::process;
use crate::wire::{Expected, Identity};

/// Keeps one run of tier no-userns; never returns.
pub(crate) fn keep(channel: OwnedFd, identity: Identity, expected: Option<Expected>, stock: Stock) -> ! {
    let code = match run(channel, identity, expected, stock) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    process::leave(code)
}

/// The program's process is made at once and waits for the order itself, so nobody has to be woken between the order and
/// the program. Until the program begins it shares memory and descriptors with this process, which stands still.
fn run(
    channel: OwnedFd,
    identity: Identity,
    expected: Option<Expected>,
    mut stock: Stock,
) -> Result<(), Errno> {
    // Never ended with the launcher, but told: whatever the program has made by then is ended by this process first. It
    // stands still until the program begins, so what waits for the order looks itself whether the launcher is there.
    let launcher = rustix::process::getppid().ok_or(Errno::SRCH)?;
    let launcher = rustix::process::pidfd_open(launcher, PidfdFlags::empty())?;
    rustix::process::set_parent_process_death_signal(Some(Signal::INT))?;
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me))?;
    let mut planned = expected.map(|expected| confine::Planned::new(Walls::LandlockOnly, expected, &stock));
    let mut channel = Some(channel);
    let mut came: Option<Errand> = None;
    let program = process::start_sharing(&mut || {
        let ready = confine::get_ready(identity, planned.take());
        // The keeper was ended before our death was tied to its: nobody would end us.
        if rustix::process::getppid() != Some(me) {
            process::leave(1)
        }
        let order = |channel: OwnedFd| {
            rehearse(channel.as_fd());
            wait_for_order(&channel, &launcher).and_then(|()| receive(channel.as_fd()))
        };
        let Some(Ok(mut errand)) = channel.take().map(order) else { process::leave(1) };
        errand.order.guarded.push(me.as_raw_nonzero().get().unsigned_abs());
        let errand = came.insert(errand);
        become_program(errand, Walls::LandlockOnly, identity, ready, &mut stock, &|| ())
    })?;
    // Without an order nobody waits for anything.
    // The pipes stay open to the end: whoever reads them is woken by the report, once, and not by every end of a pipe.
    let Some(Errand { report, order, go, streams: _open, .. }) = came else { return Ok(()) };
    // The folders of the run lie beside its home.
    let home = Path::new(std::ffi::OsStr::from_bytes(&order.home));
    let disk = home.parent().map(|folder| Disk {
        folders: vec![folder.to_owned()],
        most: order.limits.disk,
        since: None,
    });
    let ended = wait(program, Meter::new((!go.memory_limited).then_some(order.limits.memory), disk));
    end_all();
    let told = match ended {
        End::Status { status, asked } => {
            tell(report.as_fd(), &exited(status, asked, go.memory_limited), &[])?;
            let_go_first(&report, status);
            return Ok(());
        }
        End::Over(over) => over.report(),
        // The launcher tells why.
        End::Asked => return Ok(()),
    };
    tell(report.as_fd(), &told, &[])
}

/// Until there is something to read, or the launcher is gone.
fn wait_for_order(channel: &OwnedFd, launcher: &OwnedFd) -> Result<(), Errno> {
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

enum End {
    Status { status: i32, asked: bool },
    Over(Over),
    Asked,
}

fn wait(program: Pid, mut meter: Meter) -> End {
    let mut asked = false;
    let everybody = || tree(&[]).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    loop {
        let signal = process::wait_signal(HEARD, meter.patience());
        if let Some(over) = meter.look(everybody) {
            return End::Over(over);
        }
        match signal {
            Some(number) if number == Signal::TERM.as_raw() => {
                asked = true;
                signal_tree(Signal::TERM);
            }
            Some(number) if number == Signal::INT.as_raw() => return End::Asked,
            Some(_) => {
                if let Some(status) = reap(program) {
                    return End::Status { status, asked };
                }
            }
            None => {}
        }
    }
}

/// Ends every process below this one. Stopped first, so that none makes another while we look.
fn end_all() {
    loop {
        // Until nobody is left: every orphan becomes our child. Mostly nobody is, and no list has to be read.
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

/// Ends every process below this one but those named and theirs.
pub(crate) fn end_strays(kept: &[Pid]) {
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
        // It may have ended; then there is nothing to signal.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Every process below this one, without some and what is below them.
#[expect(clippy::disallowed_methods, reason = "the kernel's own list of processes")]
fn tree(without: &[Pid]) -> Vec<Pid> {
    let Ok(list) = std::fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(Pid, Pid)> = list
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let text = std::fs::read(entry.path().join("stat")).ok()?;
            // After the name, which may hold anything: state, parent.
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
