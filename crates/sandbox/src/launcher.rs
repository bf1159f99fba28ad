//! The launcher: a small single-threaded process that creates cells, limits them, kills them at their deadline and
//! cleans up. The broker starts it once (the same executable with [`ARGUMENT`]) and talks to it over the launcher's
//! standard input, so a large broker never forks. When the broker exits or dies, the launcher kills every cell and
//! leaves nothing behind.

mod active_run;
mod cgroup;
mod identity;
mod idmap;
mod probe;
mod warm_pool;
mod zygote;

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::cell;
use crate::filter::Confinement;
use crate::run_dirs;
use crate::spec::{NetworkMode, Observe};
use crate::sys::message;
use crate::tier::Tier;
use crate::wire::{self, Bytes, CellStart, ExpectedFilter, LauncherRequest, RunHeader, RunReport};
use active_run::ActiveRun;
use cgroup::CgroupRoots;
pub(crate) use identity::{LauncherIdentity, unowned};
use idmap::IdMaps;
use warm_pool::{CellHandle, CellRequest, NextRunGuess, ZygoteSlot};
use zygote::ZygoteKind;

/// Hidden argument that turns the executable into the launcher.
pub const ARGUMENT: &str = "sandbox-launcher";

/// How long the launcher must be idle before it prepares a warm cell.
const IDLE_BEFORE_WARMING: Duration = Duration::from_millis(1);
/// The same while something runs: preparing a cell takes as long as a short program, and would compete with it.
const IDLE_BEFORE_WARMING_BUSY: Duration = Duration::from_millis(30);
/// Maximum wait for all cells to end after the broker is gone.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(3);

/// Serves the broker on standard input until it is gone. Must be called first in `main`, before there are other
/// threads.
#[must_use]
pub fn main() -> ExitCode {
    let control = std::io::stdin();
    let run_dirs_base = std::env::args_os().nth(2).map(PathBuf::from);
    match Launcher::new(run_dirs_base).map(|mut launcher| launcher.serve(control.as_fd())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Launcher {
    groups: CgroupRoots,
    maps: IdMaps,
    runs: Vec<ActiveRun>,
    zygotes: Vec<ZygoteSlot>,
    warm: Vec<CellHandle>,
    wanted_warm: usize,
    /// Subreapers are small: one is kept ready as soon as the first was needed.
    wanted_subreapers: usize,
    guess: NextRunGuess,
    /// Number of cells made so far; also the number of the last one.
    made: u64,
    /// Directories of ended runs that still exist.
    run_dirs: Vec<Bytes>,
    /// The broker process, a pidfd of it, and where the directories of its runs are created.
    broker: Option<(Pid, OwnedFd, PathBuf)>,
    /// Whether the broker announced that it continues without this launcher.
    released: bool,
    launcher_identity: LauncherIdentity,
    /// Whether `/proc` can be mounted; known after a probe or a run.
    proc: bool,
    landlock_abi: i32,
}

/// Poll results of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunEvents {
    ended: bool,
    /// The broker closed the report socket: it no longer waits.
    left: bool,
    /// The broker shut down its side of the report socket: it wants the run to stop.
    stopped: bool,
    out_of_memory: bool,
}

impl Launcher {
    fn new(run_dirs_base: Option<PathBuf>) -> Result<Self, Errno> {
        let broker = rustix::process::getppid().zip(run_dirs_base).and_then(|(pid, base)| {
            Some((pid, rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?, base))
        });
        // A terminal's interrupt is handled by the broker; the launcher notices the broker's exit and cleans up.
        let _ = rustix::process::setsid();
        // Adopt the orphans of a subreaper that was killed.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
        Ok(Self {
            groups: CgroupRoots::find(),
            maps: IdMaps::default(),
            runs: Vec::new(),
            zygotes: Vec::new(),
            warm: Vec::new(),
            wanted_warm: 0,
            wanted_subreapers: 0,
            guess: NextRunGuess::default(),
            made: 0,
            run_dirs: Vec::new(),
            broker,
            released: false,
            launcher_identity: LauncherIdentity::now(),
            proc: true,
            landlock_abi: cell::landlock_abi(),
        })
    }

    fn serve(&mut self, control: BorrowedFd<'_>) {
        while self.step(control) {}
        self.kill_everything();
    }

    /// One iteration; `false` when the broker is gone.
    fn step(&mut self, control: BorrowedFd<'_>) -> bool {
        let now = Instant::now();
        for run in &mut self.runs {
            run.check_deadlines(now);
        }
        let refill = self.next_to_warm();
        let next = self.runs.iter().filter_map(ActiveRun::next_deadline).min();
        let wait = next.map(|moment| moment.saturating_duration_since(now));
        let quiet = if self.runs.is_empty() { IDLE_BEFORE_WARMING } else { IDLE_BEFORE_WARMING_BUSY };
        let wait = if refill.is_some() { Some(wait.map_or(quiet, |wait| wait.min(quiet))) } else { wait };
        let (asked, runs) = match self.poll(control, wait) {
            Ok(ready) => ready,
            Err(_) => return false,
        };
        let quiet = asked.is_empty() && runs.iter().all(|run| *run == RunEvents::default());
        for (run, happened) in self.runs.iter_mut().zip(&runs) {
            if happened.out_of_memory {
                run.out_of_memory();
            } else if happened.left && !happened.ended {
                run.kill();
            } else if happened.stopped {
                run.stop(Instant::now());
            }
        }
        let ended: Vec<usize> =
            runs.iter().enumerate().filter(|(_, happened)| happened.ended).map(|(at, _)| at).collect();
        for at in ended.into_iter().rev() {
            self.finish(at);
        }
        if asked.contains(PollFlags::IN) {
            match message::receive(control) {
                Ok(received) if !received.bytes.is_empty() => self.answer(received),
                _ => return false,
            }
        } else if asked.intersects(PollFlags::HUP | PollFlags::ERR) {
            return false;
        } else if let Some(confinement) = refill.filter(|_| quiet) {
            self.prepare(confinement, control);
        }
        true
    }

    /// Waits for requests of the broker and for events of its runs.
    fn poll(
        &self,
        control: BorrowedFd<'_>,
        wait: Option<Duration>,
    ) -> Result<(PollFlags, Vec<RunEvents>), Errno> {
        let mut list = vec![PollFd::from_borrowed_fd(control, PollFlags::IN)];
        for run in &self.runs {
            list.push(PollFd::new(run.handle(), PollFlags::IN));
            list.extend(run.report().map(|report| PollFd::new(report, run.report_poll_flags())));
            list.extend(run.oom_event().map(|oom_event| PollFd::new(oom_event, PollFlags::IN)));
        }
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match rustix::event::poll(&mut list, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut flags = list.iter().map(PollFd::revents);
        let mut next = || flags.next().unwrap_or_else(PollFlags::empty);
        let asked = next();
        let happened = self.runs.iter().map(|run| {
            let ended = next().contains(PollFlags::IN);
            let said = run.report().map_or_else(PollFlags::empty, |_| next());
            RunEvents {
                ended,
                left: said.intersects(PollFlags::HUP | PollFlags::ERR),
                stopped: said.contains(PollFlags::RDHUP),
                out_of_memory: run.oom_event().is_some() && next().contains(PollFlags::IN),
            }
        });
        Ok((asked, happened.collect()))
    }

    fn answer(&mut self, received: message::Received) {
        let mut handles = received.handles.into_iter();
        match wire::unpack::<LauncherRequest>(&received.bytes) {
            Ok(LauncherRequest::Probe) => {
                let Some(report) = handles.next() else { return };
                let features = probe::probe(&self.groups, self.launcher_identity);
                self.proc = features.works(crate::tier::FeatureKind::Proc);
                // A broker that is gone is noticed in the next iteration.
                let _ = cell::send_report(report.as_fd(), &RunReport::Features(features), &[]);
            }
            Ok(LauncherRequest::Warm(wanted)) => self.wanted_warm = wanted,
            Ok(LauncherRequest::Begun { header, cell }) => {
                match handles.next() {
                    Some(report) => self.begun(header, cell, report),
                    // Without a report socket its end could not be reported.
                    None => self.discard_warm(cell),
                }
            }
            Ok(LauncherRequest::Return(number)) => self.discard_warm(number),
            Ok(LauncherRequest::Leave) => self.released = true,
            Ok(LauncherRequest::Run { header, cell }) => {
                let handles: Vec<OwnedFd> = handles.collect();
                if let Some(report) = handles.get(1)
                    && let Err((step, errno)) = self.start(header, cell, &handles)
                {
                    let failed = RunReport::Failed { step, errno: errno.raw_os_error() };
                    let _ = cell::send_report(report.as_fd(), &failed, &[]);
                }
            }
            // A different version, or not a broker: all handles are dropped, so the sender sees its report socket
            // closed.
            Err(_) => {}
        }
    }

    /// Starts a run in a warm cell that was offered, or in a new one.
    fn start(
        &mut self,
        header: RunHeader,
        number: Option<u64>,
        handles: &[OwnedFd],
    ) -> Result<(), (String, Errno)> {
        let at = |step: &'static str| move |errno: Errno| (step.to_owned(), errno);
        let report = handles.get(1).ok_or(("run request".to_owned(), Errno::BADMSG))?;
        let (confinement, proc) = match header.tier {
            Tier::NoUserns => (Confinement::LandlockOnly, self.proc),
            tier => (Confinement::Namespaces, tier == Tier::Full),
        };
        let kind = ZygoteKind { confinement, report_denials: header.observe == Observe::All };
        let mut cell = match number.and_then(|number| self.take_warm(number)) {
            Some(cell) => cell,
            None => {
                let own_network = header.network != NetworkMode::None;
                let (home, tier) = (header.home.clone(), header.tier);
                let expected = ExpectedFilter::of(&header, self.landlock_abi);
                let asked = CellRequest { proc, own_network, expected, home, tier };
                self.make_cell(kind, asked, &header.limits)?
            }
        };
        self.learn(&header);
        let mut lent: Vec<BorrowedFd<'_>> = handles.iter().take(5).map(|handle| handle.as_fd()).collect();
        let maps;
        if cell.identity.must_switch && header.tier != Tier::NoUserns {
            maps = self.maps.get(header.owner, cell.identity).map_err(at("id map"))?;
            lent.push(maps.0.as_fd());
            lent.push(maps.1.as_fd());
        }
        if let (Some(dir), true) = (&header.run_dirs, cell.identity.must_switch) {
            let dir = Path::new(OsStr::from_bytes(dir));
            run_dirs::set_owner(dir, cell.identity).map_err(at("run directory"))?;
        }
        cell.group.bound(&header.limits);
        let go = CellStart { memory_limited: cell.group.limits_memory(), others: None };
        let report = rustix::io::fcntl_dupfd_cloexec(report, 0).map_err(at("report"))?;
        let packed = wire::pack(&go).map_err(at("run request"))?;
        let sent = message::send(cell.channel.as_fd(), &packed, &lent).map_err(at("run request"));
        self.runs.push(ActiveRun::new(cell, report, header));
        sent
    }

    /// The broker itself has started a run in a cell that was offered.
    fn begun(&mut self, header: RunHeader, number: u64, report: OwnedFd) {
        self.learn(&header);
        // No cell with this number was offered: the report socket closes, which the broker notices.
        if let Some(cell) = self.take_warm(number) {
            self.runs.push(ActiveRun::new(cell, report, header));
        }
    }

    fn kill_everything(&mut self) {
        let mut groups = Vec::new();
        for cell in self.warm.drain(..) {
            warm_pool::end(&cell.child);
            groups.push(cell.group);
        }
        // A cell that was started by a broker which could not announce it any more is no longer idle.
        let (runs, zygotes) = (self.runs.iter().map(ActiveRun::pid), self.zygotes.iter());
        let kept: Vec<Pid> = runs.chain(zygotes.map(|slot| slot.zygote.pid)).collect();
        cell::kill_strays(&kept);
        let start = Instant::now();
        for run in &mut self.runs {
            run.kill();
        }
        while !self.runs.is_empty() && start.elapsed() < SHUTDOWN_WAIT {
            let mut list: Vec<PollFd<'_>> =
                self.runs.iter().map(|run| PollFd::new(run.handle(), PollFlags::IN)).collect();
            let _ = rustix::event::poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
            let ended: Vec<usize> = (0..self.runs.len())
                .filter(|at| self.runs.get(*at).is_some_and(ActiveRun::has_ended))
                .collect();
            for at in ended.into_iter().rev() {
                self.finish(at);
            }
            for run in &mut self.runs {
                run.check_deadlines(Instant::now());
            }
        }
        // A cgroup can be removed when it has no process: kill the zygotes first.
        for slot in self.zygotes.drain(..) {
            drop(slot.zygote);
            groups.extend(slot.group);
        }
        drop(groups);
        for dir in self.run_dirs.drain(..) {
            active_run::remove(&dir);
        }
        self.remove_unannounced();
        self.groups.leave();
    }

    /// Removes the directory of a run that a killed broker could not announce. A broker that still runs has other
    /// launchers, with their runs.
    fn remove_unannounced(&self) {
        let Some((pid, handle, base)) = self.broker.as_ref().filter(|_| !self.released) else { return };
        let bound = Timespec::try_from(SHUTDOWN_WAIT).ok();
        let mut list = [PollFd::new(handle, PollFlags::IN)];
        // The broker's socket closes a moment before the process is gone.
        if rustix::event::poll(&mut list, bound.as_ref()).is_ok_and(|ready| ready > 0) {
            run_dirs::sweep_of(base, |owner| owner.parse() == Ok(pid.as_raw_nonzero().get()));
        }
    }

    /// Reaps an ended run and cleans up after it.
    fn finish(&mut self, at: usize) {
        let run = self.runs.swap_remove(at);
        let (runs, warm) =
            (self.runs.iter().map(ActiveRun::pid), self.warm.iter().map(|cell| cell.child.pid));
        let kept: Vec<Pid> =
            runs.chain(warm).chain(self.zygotes.iter().map(|slot| slot.zygote.pid)).collect();
        // The broker removes the directory after it has read it; if the broker is gone by then, the launcher does.
        self.run_dirs.retain(|dir| active_run::exists(dir));
        let (dir, zygote, group) = run.finish(&kept);
        self.run_dirs.extend(dir.filter(|dir| !self.run_dirs.contains(dir)));
        self.return_cgroup(zygote, group);
    }
}
