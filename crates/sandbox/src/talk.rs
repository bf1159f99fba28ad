//! The conversation of one run: reports of launcher and cell, output, calls that wait for the observer. One loop.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::Shutdown;

use parking_lot::Mutex;

use crate::audit::Audit;
use crate::denial::Told;
use crate::fault::SandboxFault;
use crate::network::{Door, PORTS, Sockets};
use crate::observe::Observer;
use crate::offer::Untold;
use crate::outcome::{Captured, Exit};
use crate::run::{Attempt, Output, Stream};
use crate::spec::Spec;
use crate::stop::Stop;
use crate::sys::message;
use crate::wire::{self, Order, Report};

/// When the launcher is gone, and nobody says whether the last process has ended.
const DRAIN: Duration = Duration::from_millis(200);
/// A pipe holds less than so many pieces.
const MOST_LEFT: usize = 64;
/// After so long without output whoever shows it is told.
const IDLE: Duration = Duration::from_millis(50);
const PIECE: usize = 64 << 10;
/// So long at most the launcher does not know of a run.
const UNTOLD: Duration = Duration::from_millis(1);

/// The conversation of one run.
pub(crate) struct Talk<'a> {
    pub(crate) order: &'a Order,
    pub(crate) door: Option<Arc<dyn Door>>,
    pub(crate) report: OwnedFd,
    pub(crate) streams: [Reading; 2],
    pub(crate) most: usize,
    pub(crate) observer: Option<Observer>,
    pub(crate) told: Option<Arc<Mutex<Told>>>,
    pub(crate) audit: Option<Audit>,
    pub(crate) layers: Vec<OwnedFd>,
    pub(crate) said: Said,
    pub(crate) untold: Option<Untold>,
    /// Until it was asked.
    pub(crate) stop: Option<Stop>,
}

/// What was reported so far.
#[derive(Default)]
pub(crate) struct Said {
    failed: Option<String>,
    replaced: bool,
    not_started: Option<Errno>,
    status: Option<i32>,
    over_memory: bool,
    over_disk: bool,
    oom: bool,
    /// Asked to end, by its deadline unless it was to stop.
    timed_out: bool,
    stopped: Option<i32>,
    pub(crate) peak_memory: Option<u64>,
    pub(crate) memory_limited: bool,
    ended: bool,
}

impl Said {
    pub(crate) fn exit(&self, spec: &Spec) -> Result<Exit, Attempt> {
        if let Some(errno) = self.not_started {
            let program = spec.program.display().to_string();
            return Err(SandboxFault::CouldNotStart { program, why: errno.to_string() }.into());
        }
        if self.replaced {
            let program = spec.program.display().to_string();
            return Err(SandboxFault::Replaced { program }.into());
        }
        if let Some(step) = &self.failed {
            return Err(Attempt::Walls(step.clone()));
        }
        if !self.ended {
            return Err(SandboxFault::LauncherGone.into());
        }
        let killed = self.status.is_none_or(killed);
        let asked_to_end = self.timed_out || self.status.is_none();
        if let Some(signal) = self.stopped.filter(|_| asked_to_end) {
            return Ok(Exit::Stopped(signal));
        }
        Ok(match self.status {
            _ if self.timed_out => Exit::Timeout,
            _ if self.over_disk => Exit::OutOfDisk,
            _ if self.over_memory || (self.oom && killed) => Exit::OutOfMemory,
            Some(status) if libc::WIFSIGNALED(status) => Exit::Signal(libc::WTERMSIG(status)),
            Some(status) => Exit::Code(libc::WEXITSTATUS(status)),
            // The cell itself was ended, by nobody of ours.
            None => Exit::Signal(libc::SIGKILL),
        })
    }
}

/// One of the two pipes.
pub(crate) struct Reading {
    handle: Option<OwnedFd>,
    stream: Stream,
    captured: Captured,
}

impl Reading {
    /// What was read, and the pipe if somebody may still have its other end.
    pub(crate) fn finish(self) -> (Captured, Option<OwnedFd>) {
        (self.captured, self.handle)
    }

    pub(crate) fn new(handle: OwnedFd, stream: Stream) -> Self {
        Self { handle: Some(handle), stream, captured: Captured::default() }
    }

    fn read(&mut self, most: usize, piece: &mut Vec<u8>, output: &mut Output<'_>) {
        let Some(handle) = &self.handle else { return };
        piece.clear();
        match rustix::io::read(handle, spare_capacity(piece)) {
            Ok(0) => self.handle = None,
            Ok(read) => {
                self.captured.total += read as u64;
                let room = most.saturating_sub(self.captured.bytes.len()).min(read);
                if let Some(kept) = piece.get(..room).filter(|kept| !kept.is_empty()) {
                    self.captured.bytes.extend_from_slice(kept);
                    if output(self.stream, kept).is_break() {
                        self.handle = None;
                    }
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.handle = None,
        }
    }
}

impl Reading {
    /// What is in the pipe, without waiting for more.
    fn read_rest(&mut self, most: usize, piece: &mut Vec<u8>, output: &mut Output<'_>) {
        for _ in 0..MOST_LEFT {
            let Some(handle) = &self.handle else { return };
            let mut list = [PollFd::new(handle, PollFlags::IN)];
            let waits = rustix::event::poll(&mut list, Some(&Timespec::default()));
            if !waits.is_ok_and(|ready| ready > 0) {
                return;
            }
            self.read(most, piece, output);
        }
    }
}

impl Talk<'_> {
    pub(crate) fn listen(&mut self, output: &mut Output<'_>) -> Result<(), SandboxFault> {
        let start = Instant::now();
        let mut report_open = true;
        let mut listener_open = true;
        // When it is to be said that nothing comes, if something came since that was last said. Whatever else happens
        // meanwhile, on the whole machine where its audit is heard, does not put it off.
        let mut quiet_at: Option<Instant> = None;
        let mut piece = Vec::with_capacity(PIECE);
        while report_open || self.streams.iter().any(|stream| stream.handle.is_some()) {
            if self.said.ended {
                // Nobody is left who writes. Others may still have the pipes open: they are not waited for.
                for stream in &mut self.streams {
                    stream.read_rest(self.most, &mut piece, output);
                }
                break;
            }
            if self.untold.is_some() && start.elapsed() >= UNTOLD {
                self.untold = None;
            }
            let now = quiet_at.map(|_| Instant::now());
            if report_open && quiet_at.is_some() && quiet_at <= now {
                quiet_at = None;
                for stream in &mut self.streams {
                    if output(stream.stream, &[]).is_break() {
                        stream.handle = None;
                    }
                }
            }
            let mut list = Vec::with_capacity(4);
            let mut what = Vec::with_capacity(4);
            if report_open {
                list.push(PollFd::new(&self.report, PollFlags::IN));
                what.push(Ready::Report);
            }
            for (at, stream) in self.streams.iter().enumerate() {
                // Whoever takes the output may take long: not before the launcher keeps the time.
                if let Some(handle) = stream.handle.as_ref().filter(|_| self.untold.is_none()) {
                    list.push(PollFd::new(handle, PollFlags::IN));
                    what.push(Ready::Stream(at));
                }
            }
            if let Some(observer) = self.observer.as_ref().filter(|_| listener_open) {
                list.push(PollFd::from_borrowed_fd(observer.listener(), PollFlags::IN));
                what.push(Ready::Listener);
            }
            if let Some(handle) = self.audit.as_ref().and_then(Audit::handle).filter(|_| report_open) {
                list.push(PollFd::new(handle, PollFlags::IN));
                what.push(Ready::Audit);
            }
            if let Some(stop) = self.stop.as_ref().filter(|_| report_open) {
                list.push(PollFd::new(stop, PollFlags::IN));
                what.push(Ready::Stop);
            }
            let limit = if !report_open {
                Some(DRAIN)
            } else if self.untold.is_some() {
                Some(UNTOLD)
            } else {
                quiet_at.zip(now).map(|(at, now)| at.saturating_duration_since(now))
            };
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            match rustix::event::poll(&mut list, limit.as_ref()) {
                Ok(0) if report_open => continue,
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(SandboxFault::System { what: "poll", source: errno.into() }),
            }
            let flags: Vec<PollFlags> = list.iter().map(PollFd::revents).collect();
            for (what, flags) in what.into_iter().zip(flags) {
                if flags.is_empty() {
                    continue;
                }
                match what {
                    Ready::Report => report_open = self.hear() && !self.said.ended,
                    Ready::Stream(at) => {
                        if let Some(stream) = self.streams.get_mut(at) {
                            stream.read(self.most, &mut piece, output);
                            quiet_at = Some(Instant::now() + IDLE);
                        }
                    }
                    Ready::Listener if flags.contains(PollFlags::IN) => {
                        if let Some(observer) = &mut self.observer {
                            observer.answer_next(self.order);
                        }
                        self.hand_over_when_busy();
                    }
                    // Nobody is left under the filter.
                    Ready::Listener => listener_open = false,
                    Ready::Stop => self.stop_it(),
                    Ready::Audit => {
                        if let Some(audit) = &mut self.audit {
                            audit.take();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The launcher sees that nothing more will be said to it, and ends the run in good order; we hear of that.
    fn stop_it(&mut self) {
        let Some(stop) = self.stop.take() else { return };
        let asked = rustix::net::shutdown(&self.report, Shutdown::Write);
        self.said.stopped = asked.is_ok().then(|| stop.signal());
    }

    /// A program that asks often, or for what may take long, is answered by a thread that does nothing else. It ends with
    /// whoever could ask; nobody waits for it.
    fn hand_over_when_busy(&mut self) {
        if !self.observer.as_ref().is_some_and(Observer::is_busy) {
            return;
        }
        // A thread that cannot be made takes what it was given along: what waits at the filter then would get no answer.
        let (give, take) = std::sync::mpsc::sync_channel::<Observer>(1);
        let thread = std::thread::Builder::new().name("observer".to_owned());
        let made = thread.spawn(move || take.recv().map(Observer::answer_all));
        if made.is_ok()
            && let Some(observer) = self.observer.take()
        {
            self.observer = give.send(observer).err().map(|refused| refused.0);
        }
        if let Some(observer) = &mut self.observer {
            observer.let_go();
        }
    }

    /// Takes one report; `false` when there will be no more.
    fn hear(&mut self) -> bool {
        let Ok(received) = message::receive(self.report.as_fd()) else { return false };
        if received.bytes.is_empty() {
            return false;
        }
        match wire::unpack::<Report>(&received.bytes) {
            Ok(Report::Layers) => self.layers = received.handles,
            Ok(Report::Network) => {
                let mut handles = received.handles.into_iter();
                if let (Some(door), Some(dns)) = (&self.door, handles.next()) {
                    let spare = handles.by_ref().take(PORTS).collect();
                    door.open(Sockets { dns, spare, unheard: handles.collect() });
                }
            }
            Ok(Report::Listener) => {
                let listener = received.handles.into_iter().next();
                self.observer =
                    listener.map(|listener| Observer::new(listener, self.order).at(self.door.clone()));
                self.told = self.observer.as_ref().map(Observer::told);
            }
            Ok(Report::Begins) => {
                if let (Some(audit), Some((pid, uid))) = (&mut self.audit, received.sender) {
                    audit.claim(pid, uid);
                }
            }
            Ok(Report::Failed { step, errno }) => {
                let why = Errno::from_raw_os_error(errno);
                self.said.failed.get_or_insert(format!("{step}: {why}"));
            }
            Ok(Report::Replaced) => self.said.replaced = true,
            Ok(Report::NotStarted { errno }) => self.said.not_started = Some(Errno::from_raw_os_error(errno)),
            Ok(Report::Exited { status, asked, peak_memory, memory_limited }) => {
                self.said.status = Some(status);
                self.said.timed_out = asked;
                self.said.peak_memory = Some(peak_memory);
                self.said.memory_limited = memory_limited;
                // The launcher only cleans up now. One that was killed may have been so for want of memory: it knows.
                self.said.ended = !killed(status);
            }
            Ok(Report::OverMemory) => self.said.over_memory = true,
            Ok(Report::OverDisk) => self.said.over_disk = true,
            Ok(Report::Ended { oom, timed_out, peak_memory, memory_limited }) => {
                self.said.oom = oom;
                self.said.timed_out |= timed_out;
                self.said.peak_memory = peak_memory.or(self.said.peak_memory);
                self.said.memory_limited = memory_limited;
                self.said.ended = true;
            }
            Ok(Report::Features(_)) | Err(_) => {}
        }
        true
    }
}

enum Ready {
    Report,
    Stream(usize),
    Listener,
    Audit,
    Stop,
}

/// Whether somebody ended it; a shell tells that of what it ran by a code past 128.
pub(crate) fn killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 128 + libc::SIGKILL
}
