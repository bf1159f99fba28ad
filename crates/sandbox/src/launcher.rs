//! The launcher: a small process with one thread that makes cells, bounds them, ends them in time and cleans up after
//! them. The broker starts it once (the same program with [`ARGUMENT`]) and talks to it over its standard input, so a
//! large broker never forks. When the broker goes, however it goes, the launcher ends every cell and leaves nothing.

mod cgroup;
mod footing;
mod idmap;
mod pool;
mod probe;
mod run;
mod stage;

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
use crate::filter::Walls;
use crate::spec::{Network, Observe};
use crate::sys::message;
use crate::task;
use crate::tier::Tier;
use crate::wire::{self, Bytes, Expected, Go, Header, Report, Request};
use cgroup::Groups;
pub(crate) use footing::{Footing, unowned};
use idmap::IdMaps;
use pool::{Asked, Cell, Guess, Staged};
use run::Run;
use stage::Kind;

/// The hidden argument that makes a program the launcher.
pub const ARGUMENT: &str = "sandbox-launcher";

/// So long nothing else happened before a cell is made in advance.
const QUIET: Duration = Duration::from_millis(1);
/// So long while something runs: making a cell takes as long as a short program, and would be in its way.
const QUIET_BESIDE_RUNS: Duration = Duration::from_millis(30);
/// How long the ends of all cells are waited for when the broker is gone.
const LAST_WAIT: Duration = Duration::from_secs(3);

/// Serves the broker at standard input until it is gone. The first thing a program does, before it has threads.
#[must_use]
pub fn main() -> ExitCode {
    let control = std::io::stdin();
    let tasks = std::env::args_os().nth(2).map(PathBuf::from);
    match Launcher::new(tasks).map(|mut launcher| launcher.serve(control.as_fd())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Launcher {
    groups: Groups,
    maps: IdMaps,
    runs: Vec<Run>,
    stages: Vec<Staged>,
    warm: Vec<Cell>,
    wanted_warm: usize,
    /// Keepers are small: one waits as soon as the first was needed.
    wanted_keepers: usize,
    guess: Guess,
    /// How many cells were made; the number of the last.
    made: u64,
    /// Folders of runs that have ended, as long as they are there.
    tasks: Vec<Bytes>,
    /// Whose launcher this is, and where the folders of its runs are made.
    broker: Option<(Pid, OwnedFd, PathBuf)>,
    /// Whether it said that it lives on.
    released: bool,
    footing: Footing,
    /// Whether `/proc` can be mounted; known once probed or once a run said so.
    proc: bool,
    landlock_abi: i32,
}

/// What happened to a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Happened {
    ended: bool,
    /// Its broker does not wait for it any more.
    left: bool,
    /// Its broker waits, but wants no more of it.
    stopped: bool,
    out_of_memory: bool,
}

impl Launcher {
    fn new(tasks: Option<PathBuf>) -> Result<Self, Errno> {
        let broker = rustix::process::getppid().zip(tasks).and_then(|(pid, tasks)| {
            Some((pid, rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?, tasks))
        });
        // A terminal's interrupt is the broker's business; we see it go and clean up.
        let _ = rustix::process::setsid();
        // What a keeper that was killed leaves becomes ours.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
        Ok(Self {
            groups: Groups::find(),
            maps: IdMaps::default(),
            runs: Vec::new(),
            stages: Vec::new(),
            warm: Vec::new(),
            wanted_warm: 0,
            wanted_keepers: 0,
            guess: Guess::default(),
            made: 0,
            tasks: Vec::new(),
            broker,
            released: false,
            footing: Footing::now(),
            proc: true,
            landlock_abi: cell::landlock_abi(),
        })
    }

    fn serve(&mut self, control: BorrowedFd<'_>) {
        while self.step(control) {}
        self.end_everything();
    }

    /// One round; `false` when the broker is gone.
    fn step(&mut self, control: BorrowedFd<'_>) -> bool {
        let now = Instant::now();
        for run in &mut self.runs {
            run.keep_time(now);
        }
        let refill = self.missing();
        let next = self.runs.iter().filter_map(Run::next_moment).min();
        let wait = next.map(|moment| moment.saturating_duration_since(now));
        let quiet = if self.runs.is_empty() { QUIET } else { QUIET_BESIDE_RUNS };
        let wait = if refill.is_some() { Some(wait.map_or(quiet, |wait| wait.min(quiet))) } else { wait };
        let (asked, runs) = match self.poll(control, wait) {
            Ok(ready) => ready,
            Err(_) => return false,
        };
        let quiet = asked.is_empty() && runs.iter().all(|run| *run == Happened::default());
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
        } else if let Some(walls) = refill.filter(|_| quiet) {
            self.prepare(walls, control);
        }
        true
    }

    /// Waits for the broker and for what happens to its runs.
    fn poll(
        &self,
        control: BorrowedFd<'_>,
        wait: Option<Duration>,
    ) -> Result<(PollFlags, Vec<Happened>), Errno> {
        let mut list = vec![PollFd::from_borrowed_fd(control, PollFlags::IN)];
        for run in &self.runs {
            list.push(PollFd::new(run.handle(), PollFlags::IN));
            list.extend(run.report().map(|report| PollFd::new(report, run.asks())));
            list.extend(run.alarm().map(|alarm| PollFd::new(alarm, PollFlags::IN)));
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
            Happened {
                ended,
                left: said.intersects(PollFlags::HUP | PollFlags::ERR),
                stopped: said.contains(PollFlags::RDHUP),
                out_of_memory: run.alarm().is_some() && next().contains(PollFlags::IN),
            }
        });
        Ok((asked, happened.collect()))
    }

    fn answer(&mut self, received: message::Received) {
        let mut handles = received.handles.into_iter();
        match wire::unpack::<Request>(&received.bytes) {
            Ok(Request::Probe) => {
                let Some(report) = handles.next() else { return };
                let features = probe::probe(&self.groups, self.footing);
                self.proc = features.works(crate::tier::FeatureKind::Proc);
                // A broker that went away meanwhile is noticed in the next round.
                let _ = cell::tell(report.as_fd(), &Report::Features(features), &[]);
            }
            Ok(Request::Warm(wanted)) => self.wanted_warm = wanted,
            Ok(Request::Begun { header, cell }) => {
                match handles.next() {
                    Some(report) => self.begun(header, cell, report),
                    // Nobody could hear of its end.
                    None => self.take_back(cell),
                }
            }
            Ok(Request::Return(number)) => self.take_back(number),
            Ok(Request::Leave) => self.released = true,
            Ok(Request::Run { header, cell }) => {
                let handles: Vec<OwnedFd> = handles.collect();
                if let Some(report) = handles.get(1)
                    && let Err((step, errno)) = self.start(header, cell, &handles)
                {
                    let failed = Report::Failed { step, errno: errno.raw_os_error() };
                    let _ = cell::tell(report.as_fd(), &failed, &[]);
                }
            }
            // Of another version, or not a broker at all: no handle is kept, so it sees its report closed.
            Err(_) => {}
        }
    }

    /// Starts a run in a cell that was offered, or in one of its own.
    fn start(
        &mut self,
        header: Header,
        number: Option<u64>,
        handles: &[OwnedFd],
    ) -> Result<(), (String, Errno)> {
        let at = |step: &'static str| move |errno: Errno| (step.to_owned(), errno);
        let report = handles.get(1).ok_or(("order".to_owned(), Errno::BADMSG))?;
        let (walls, proc) = match header.tier {
            Tier::NoUserns => (Walls::LandlockOnly, self.proc),
            tier => (Walls::Namespaces, tier == Tier::Full),
        };
        let kind = Kind { walls, told: header.observe == Observe::All };
        let mut cell = match number.and_then(|number| self.take_offered(number)) {
            Some(cell) => cell,
            None => {
                let own_network = header.network != Network::None;
                let (home, tier) = (header.home.clone(), header.tier);
                let expected = Expected::of(&header, self.landlock_abi);
                let asked = Asked { proc, own_network, expected, home, tier };
                self.make_cell(kind, asked, &header.limits)?
            }
        };
        self.learn(&header);
        let mut lent: Vec<BorrowedFd<'_>> = handles.iter().take(5).map(|handle| handle.as_fd()).collect();
        let maps;
        if cell.identity.taken && header.tier != Tier::NoUserns {
            maps = self.maps.get(header.owner, cell.identity).map_err(at("id map"))?;
            lent.push(maps.0.as_fd());
            lent.push(maps.1.as_fd());
        }
        if let (Some(task), true) = (&header.task, cell.identity.taken) {
            let folder = Path::new(OsStr::from_bytes(task));
            task::hand_over(folder, cell.identity).map_err(at("task folder"))?;
        }
        cell.group.bound(&header.limits);
        let go = Go { memory_limited: cell.group.limits_memory(), others: None };
        let report = rustix::io::fcntl_dupfd_cloexec(report, 0).map_err(at("report"))?;
        let packed = wire::pack(&go).map_err(at("order"))?;
        let sent = message::send(cell.channel.as_fd(), &packed, &lent).map_err(at("order"));
        self.runs.push(Run::new(cell, report, header));
        sent
    }

    /// A cell that was offered has got its order from the broker itself.
    fn begun(&mut self, header: Header, number: u64, report: OwnedFd) {
        self.learn(&header);
        // Of another number nothing was offered: the report closes, and who waits hears that.
        if let Some(cell) = self.take_offered(number) {
            self.runs.push(Run::new(cell, report, header));
        }
    }

    fn end_everything(&mut self) {
        let mut groups = Vec::new();
        for cell in self.warm.drain(..) {
            pool::end(&cell.child);
            groups.push(cell.group);
        }
        // A cell that got its order from a broker who could not tell us any more was no longer waiting.
        let (runs, stages) = (self.runs.iter().map(Run::pid), self.stages.iter());
        let kept: Vec<Pid> = runs.chain(stages.map(|staged| staged.stage.pid)).collect();
        cell::end_strays(&kept);
        let start = Instant::now();
        for run in &mut self.runs {
            run.kill();
        }
        while !self.runs.is_empty() && start.elapsed() < LAST_WAIT {
            let mut list: Vec<PollFd<'_>> =
                self.runs.iter().map(|run| PollFd::new(run.handle(), PollFlags::IN)).collect();
            let _ = rustix::event::poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
            let ended: Vec<usize> =
                (0..self.runs.len()).filter(|at| self.runs.get(*at).is_some_and(Run::has_ended)).collect();
            for at in ended.into_iter().rev() {
                self.finish(at);
            }
            for run in &mut self.runs {
                run.keep_time(Instant::now());
            }
        }
        // A group goes when nobody is in it any more: the stages first.
        for staged in self.stages.drain(..) {
            drop(staged.stage);
            groups.extend(staged.group);
        }
        drop(groups);
        for task in self.tasks.drain(..) {
            run::remove(&task);
        }
        self.remove_untold();
        self.groups.leave();
    }

    /// A broker that was killed may have made a folder for a run that it could not tell us of. One that lives has other
    /// launchers, and their runs.
    fn remove_untold(&self) {
        let Some((pid, handle, tasks)) = self.broker.as_ref().filter(|_| !self.released) else { return };
        let bound = Timespec::try_from(LAST_WAIT).ok();
        let mut list = [PollFd::new(handle, PollFlags::IN)];
        // Its socket is closed a moment before it is gone.
        if rustix::event::poll(&mut list, bound.as_ref()).is_ok_and(|ready| ready > 0) {
            task::sweep_of(tasks, |owner| owner.parse() == Ok(pid.as_raw_nonzero().get()));
        }
    }

    /// Takes an ended run and what it left.
    fn finish(&mut self, at: usize) {
        let run = self.runs.swap_remove(at);
        let (runs, warm) = (self.runs.iter().map(Run::pid), self.warm.iter().map(|cell| cell.child.pid));
        let kept: Vec<Pid> =
            runs.chain(warm).chain(self.stages.iter().map(|staged| staged.stage.pid)).collect();
        // The broker removes the folder when it has taken what is in it; when it goes before that, we do.
        self.tasks.retain(|task| run::exists(task));
        let (task, stage, group) = run.finish(&kept);
        self.tasks.extend(task.filter(|task| !self.tasks.contains(task)));
        self.give_back(stage, group);
    }
}
