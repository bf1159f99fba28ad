//! The broker's event loop of one run: reports of launcher and cell, output, system calls that wait for the observer.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::Shutdown;

use parking_lot::Mutex;

use crate::denial::DenialLog;
use crate::error::SandboxError;
use crate::landlock_audit::LandlockAudit;
use crate::network::{NetworkGate, PORTS, Sockets};
use crate::observer::Observer;
use crate::outcome::{Captured, Exit};
use crate::run::{AttemptError, OutputCallback, OutputStream};
use crate::spec::Spec;
use crate::stop::StopHandle;
use crate::sys::message;
use crate::warm_cells::LauncherNotice;
use crate::wire::{self, RunReport, RunRequest};

/// How long output is read after the launcher is gone, when no report says that the last process has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of chunks left in a pipe.
const MAX_REMAINING_CHUNKS: usize = 64;
/// After this long without output, the output callback is called with an empty chunk.
const IDLE_OUTPUT: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum delay before the launcher is notified about a run.
const MAX_ANNOUNCE_DELAY: Duration = Duration::from_millis(1);

/// Event loop of one run.
pub(crate) struct RunLoop<'a> {
    pub(crate) request: &'a RunRequest,
    pub(crate) gate: Option<Arc<dyn NetworkGate>>,
    pub(crate) report: OwnedFd,
    pub(crate) streams: [OutputPipe; 2],
    pub(crate) max_captured: usize,
    pub(crate) observer: Option<Observer>,
    pub(crate) denial_log: Option<Arc<Mutex<DenialLog>>>,
    pub(crate) audit: Option<LandlockAudit>,
    pub(crate) layers: Vec<OwnedFd>,
    pub(crate) reports: RunReports,
    pub(crate) unannounced: Option<LauncherNotice>,
    /// `None` once the stop was requested.
    pub(crate) stop: Option<StopHandle>,
}

/// Reports received so far.
#[derive(Default)]
pub(crate) struct RunReports {
    failed: Option<String>,
    replaced: bool,
    not_started: Option<Errno>,
    status: Option<i32>,
    over_memory: bool,
    over_disk: bool,
    oom: bool,
    /// Asked to end: by its deadline, unless it was stopped.
    timed_out: bool,
    stopped: Option<i32>,
    pub(crate) peak_memory: Option<u64>,
    pub(crate) memory_limited: bool,
    ended: bool,
}

impl RunReports {
    pub(crate) fn exit(&self, spec: &Spec) -> Result<Exit, AttemptError> {
        if let Some(errno) = self.not_started {
            let program = spec.program.display().to_string();
            return Err(SandboxError::CouldNotStart { program, why: errno.to_string() }.into());
        }
        if self.replaced {
            let program = spec.program.display().to_string();
            return Err(SandboxError::Replaced { program }.into());
        }
        if let Some(step) = &self.failed {
            return Err(AttemptError::SetupFailed(step.clone()));
        }
        if !self.ended {
            return Err(SandboxError::LauncherGone.into());
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
            // The cell itself was killed by another process.
            None => Exit::Signal(libc::SIGKILL),
        })
    }
}

/// One of the two output pipes.
pub(crate) struct OutputPipe {
    handle: Option<OwnedFd>,
    stream: OutputStream,
    captured: Captured,
}

impl OutputPipe {
    /// The captured output, and the pipe if its other end may still be open.
    pub(crate) fn finish(self) -> (Captured, Option<OwnedFd>) {
        (self.captured, self.handle)
    }

    pub(crate) fn new(handle: OwnedFd, stream: OutputStream) -> Self {
        Self { handle: Some(handle), stream, captured: Captured::default() }
    }

    fn read(&mut self, max_captured: usize, chunk: &mut Vec<u8>, output: &mut OutputCallback<'_>) {
        let Some(handle) = &self.handle else { return };
        chunk.clear();
        match rustix::io::read(handle, spare_capacity(chunk)) {
            Ok(0) => self.handle = None,
            Ok(read) => {
                self.captured.total += read as u64;
                let room = max_captured.saturating_sub(self.captured.bytes.len()).min(read);
                if let Some(kept) = chunk.get(..room).filter(|kept| !kept.is_empty()) {
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

impl OutputPipe {
    /// Reads what is in the pipe, without waiting for more.
    fn read_rest(&mut self, max_captured: usize, chunk: &mut Vec<u8>, output: &mut OutputCallback<'_>) {
        for _ in 0..MAX_REMAINING_CHUNKS {
            let Some(handle) = &self.handle else { return };
            let mut list = [PollFd::new(handle, PollFlags::IN)];
            let waits = rustix::event::poll(&mut list, Some(&Timespec::default()));
            if !waits.is_ok_and(|ready| ready > 0) {
                return;
            }
            self.read(max_captured, chunk, output);
        }
    }
}

impl RunLoop<'_> {
    pub(crate) fn run_to_end(&mut self, output: &mut OutputCallback<'_>) -> Result<(), SandboxError> {
        let start = Instant::now();
        let mut report_open = true;
        let mut listener_open = true;
        // When to report idle output, if there was output since the last report. Other events, of the whole machine
        // where audit is read, do not postpone it.
        let mut quiet_at: Option<Instant> = None;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        while report_open || self.streams.iter().any(|stream| stream.handle.is_some()) {
            if self.reports.ended {
                // No process of the run is left. Other processes may have the pipes open: do not wait for them.
                for stream in &mut self.streams {
                    stream.read_rest(self.max_captured, &mut chunk, output);
                }
                break;
            }
            if self.unannounced.is_some() && start.elapsed() >= MAX_ANNOUNCE_DELAY {
                self.unannounced = None;
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
                what.push(PollSource::Report);
            }
            for (at, stream) in self.streams.iter().enumerate() {
                // The output callback may block: do not call it before the launcher enforces the deadline.
                if let Some(handle) = stream.handle.as_ref().filter(|_| self.unannounced.is_none()) {
                    list.push(PollFd::new(handle, PollFlags::IN));
                    what.push(PollSource::Stream(at));
                }
            }
            if let Some(observer) = self.observer.as_ref().filter(|_| listener_open) {
                list.push(PollFd::from_borrowed_fd(observer.listener(), PollFlags::IN));
                what.push(PollSource::Listener);
            }
            if let Some(handle) = self.audit.as_ref().and_then(LandlockAudit::handle).filter(|_| report_open)
            {
                list.push(PollFd::new(handle, PollFlags::IN));
                what.push(PollSource::Audit);
            }
            if let Some(stop) = self.stop.as_ref().filter(|_| report_open) {
                list.push(PollFd::new(stop, PollFlags::IN));
                what.push(PollSource::Stop);
            }
            let limit = if !report_open {
                Some(DRAIN_TIMEOUT)
            } else if self.unannounced.is_some() {
                Some(MAX_ANNOUNCE_DELAY)
            } else {
                quiet_at.zip(now).map(|(at, now)| at.saturating_duration_since(now))
            };
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            match rustix::event::poll(&mut list, limit.as_ref()) {
                Ok(0) if report_open => continue,
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(SandboxError::System { what: "poll", source: errno.into() }),
            }
            let flags: Vec<PollFlags> = list.iter().map(PollFd::revents).collect();
            for (what, flags) in what.into_iter().zip(flags) {
                if flags.is_empty() {
                    continue;
                }
                match what {
                    PollSource::Report => report_open = self.read_report() && !self.reports.ended,
                    PollSource::Stream(at) => {
                        if let Some(stream) = self.streams.get_mut(at) {
                            stream.read(self.max_captured, &mut chunk, output);
                            quiet_at = Some(Instant::now() + IDLE_OUTPUT);
                        }
                    }
                    PollSource::Listener if flags.contains(PollFlags::IN) => {
                        if let Some(observer) = &mut self.observer {
                            observer.answer_next(self.request);
                        }
                        self.move_busy_observer();
                    }
                    // No process is left under the filter.
                    PollSource::Listener => listener_open = false,
                    PollSource::Stop => self.request_stop(),
                    PollSource::Audit => {
                        if let Some(audit) = &mut self.audit {
                            audit.read_available();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Shuts down our side of the report socket: the launcher notices, and stops the run gracefully.
    fn request_stop(&mut self) {
        let Some(stop) = self.stop.take() else { return };
        let asked = rustix::net::shutdown(&self.report, Shutdown::Write);
        self.reports.stopped = asked.is_ok().then(|| stop.signal());
    }

    /// Moves the observer to its own thread if the program makes many calls, or calls that may take long. The thread
    /// ends with the last process under the filter, and is not joined.
    fn move_busy_observer(&mut self) {
        if !self.observer.as_ref().is_some_and(Observer::is_busy) {
            return;
        }
        // A failed spawn drops its closure: an observer inside it would leave waiting calls without a reply.
        let (give, take) = std::sync::mpsc::sync_channel::<Observer>(1);
        let thread = std::thread::Builder::new().name("observer".to_owned());
        let made = thread.spawn(move || take.recv().map(Observer::answer_all));
        if made.is_ok()
            && let Some(observer) = self.observer.take()
        {
            self.observer = give.send(observer).err().map(|refused| refused.0);
        }
        if let Some(observer) = &mut self.observer {
            observer.release_deferred();
        }
    }

    /// Reads one report; `false` when there will be no more.
    fn read_report(&mut self) -> bool {
        let Ok(received) = message::receive(self.report.as_fd()) else { return false };
        if received.bytes.is_empty() {
            return false;
        }
        match wire::unpack::<RunReport>(&received.bytes) {
            Ok(RunReport::Layers) => self.layers = received.handles,
            Ok(RunReport::Network) => {
                let mut handles = received.handles.into_iter();
                if let (Some(gate), Some(dns)) = (&self.gate, handles.next()) {
                    let spare = handles.by_ref().take(PORTS).collect();
                    gate.open(Sockets { dns, spare, icmp: handles.collect() });
                }
            }
            Ok(RunReport::Listener) => {
                let listener = received.handles.into_iter().next();
                self.observer = listener
                    .map(|listener| Observer::new(listener, self.request).with_gate(self.gate.clone()));
                self.denial_log = self.observer.as_ref().map(Observer::denial_log);
            }
            Ok(RunReport::Begins) => {
                if let (Some(audit), Some((pid, uid))) = (&mut self.audit, received.sender) {
                    audit.set_program(pid, uid);
                }
            }
            Ok(RunReport::Failed { step, errno }) => {
                let why = Errno::from_raw_os_error(errno);
                self.reports.failed.get_or_insert(format!("{step}: {why}"));
            }
            Ok(RunReport::Replaced) => self.reports.replaced = true,
            Ok(RunReport::NotStarted { errno }) => {
                self.reports.not_started = Some(Errno::from_raw_os_error(errno))
            }
            Ok(RunReport::Exited { status, asked, peak_memory, memory_limited }) => {
                self.reports.status = Some(status);
                self.reports.timed_out = asked;
                self.reports.peak_memory = Some(peak_memory);
                self.reports.memory_limited = memory_limited;
                // The launcher only cleans up now. A process that was killed may have been OOM-killed: only the
                // launcher knows.
                self.reports.ended = !killed(status);
            }
            Ok(RunReport::OverMemory) => self.reports.over_memory = true,
            Ok(RunReport::OverDisk) => self.reports.over_disk = true,
            Ok(RunReport::Ended { oom, timed_out, peak_memory, memory_limited }) => {
                self.reports.oom = oom;
                self.reports.timed_out |= timed_out;
                self.reports.peak_memory = peak_memory.or(self.reports.peak_memory);
                self.reports.memory_limited = memory_limited;
                self.reports.ended = true;
            }
            Ok(RunReport::Features(_)) | Err(_) => {}
        }
        true
    }
}

enum PollSource {
    Report,
    Stream(usize),
    Listener,
    Audit,
    Stop,
}

/// Whether it was killed; a shell reports that of its child with a code above 128.
pub(crate) fn killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 128 + libc::SIGKILL
}
