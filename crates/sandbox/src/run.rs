//! One run from the broker's side: order, pipes, reports, output, observer, changes. One thread, one loop.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use vambrace_core::block::BlockList;

use crate::changes::{self, Changes, Collect};
use crate::fault::SandboxFault;
use crate::network::{Door, Sockets};
use crate::observe::Observer;
use crate::order::{self, Task};
use crate::outcome::{Captured, Exit, MemoryBound, Outcome};
use crate::sandbox::Sandbox;
use crate::spec::{Filesystem, Network, Spec};
use crate::sys::message;
use crate::tier::Tier;
use crate::wire::{self, Header, Mask, Order, Report, Request, Scratch};

/// After the last process has ended nobody writes any more; this is for what nobody foresaw.
const DRAIN: Duration = Duration::from_millis(200);
const PIECE: usize = 64 << 10;
/// Build folders that hold what others need: shown where the project has them, instead of a volume.
const DEPENDENCIES: &[&str] = &["node_modules", ".venv", "venv", "vendor"];

/// Which stream a piece of output is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a program reads from.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Nothing.
    Nothing,
    /// An open file, pipe or terminal.
    From(BorrowedFd<'a>),
}

impl Sandbox {
    /// Runs a program and waits for its end. `output` sees every piece as it comes, up to the limit.
    ///
    /// A tier below the strongest is used only where the specification accepts it, and is named in the outcome.
    pub fn run(
        &self,
        spec: &Spec,
        input: Input<'_>,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Outcome, SandboxFault> {
        let first = self.tier(spec.only);
        self.refuse_below(spec, first)?;
        match self.attempt(spec, first, input, output) {
            // Nothing was started: another tier may do.
            Err(Attempt::Walls(step)) => {
                let features = self.features()?;
                let lower = features.tier().filter(|tier| *tier < first && spec.only.is_none());
                let Some(lower) = lower else {
                    let mut reasons = features.reasons();
                    reasons.push(step);
                    return Err(SandboxFault::Unavailable {
                        wanted: spec.only.unwrap_or(spec.least),
                        reasons,
                    });
                };
                self.refuse_below(spec, lower)?;
                self.attempt(spec, lower, input, output).map_err(|attempt| match attempt {
                    Attempt::Fault(fault) => fault,
                    Attempt::Walls(step) => SandboxFault::Unavailable { wanted: lower, reasons: vec![step] },
                })
            }
            Err(Attempt::Fault(fault)) => Err(fault),
            Ok(outcome) => Ok(outcome),
        }
    }

    fn refuse_below(&self, spec: &Spec, tier: Tier) -> Result<(), SandboxFault> {
        let reasons = || self.features().map(crate::tier::Features::reasons).unwrap_or_default();
        if tier < spec.least {
            return Err(SandboxFault::Unavailable { wanted: spec.least, reasons: reasons() });
        }
        if spec.network == Network::Gated && spec.door.is_none() {
            return Err(SandboxFault::Refused("a gated network needs somebody at the gate".to_owned()));
        }
        if tier == Tier::NoUserns && spec.network == Network::Gated {
            let mut reasons = reasons();
            reasons.push("tier no-userns has no network of its own, so none can be gated".to_owned());
            return Err(SandboxFault::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if tier == Tier::NoUserns && layered {
            let mut reasons = reasons();
            let mode = spec.filesystem.as_str();
            reasons
                .push(format!("tier no-userns cannot run with filesystem `{mode}`, which needs an overlay"));
            return Err(SandboxFault::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        Ok(())
    }

    fn attempt(
        &self,
        spec: &Spec,
        tier: Tier,
        input: Input<'_>,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Outcome, Attempt> {
        let start = Instant::now();
        let since = now();
        let prepared = self.prepare(spec, tier)?;
        let order = wire::pack_file(&prepared.order).map_err(SandboxFault::system("the order"))?;
        let (report, theirs) = message::pair().map_err(SandboxFault::system("the run's socket"))?;
        let (out_read, out_write) = pipe()?;
        let (err_read, err_write) = pipe()?;
        let nothing;
        let input = match input {
            Input::From(handle) => handle,
            Input::Nothing => {
                nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(SandboxFault::system("/dev/null"))?;
                nothing.as_fd()
            }
        };
        let header = Header {
            tier,
            limits: spec.limits,
            owner: prepared.owner,
            task: prepared.task.as_ref().map(|task| order::bytes(&task.folder)),
        };
        let handles = [order.as_fd(), theirs.as_fd(), input, out_write.as_fd(), err_write.as_fd()];
        self.send(&Request::Run(header), &handles)?;
        drop((theirs, out_write, err_write));
        let mut talk = Talk {
            order: &prepared.order,
            door: spec.door.clone().filter(|_| spec.network == Network::Gated),
            report,
            streams: [Reading::new(out_read, Stream::Out), Reading::new(err_read, Stream::Err)],
            most: spec.limits.output,
            observer: None,
            layers: Vec::new(),
            said: Said::default(),
        };
        talk.listen(output)?;
        let Talk { said, streams: [out, err], observer, layers, .. } = talk;
        let exit = said.exit(spec)?;
        let changes = self.changes(spec, &prepared, layers, since)?;
        Ok(Outcome {
            tier,
            exit,
            stdout: out.captured,
            stderr: err.captured,
            denials: observer.map(Observer::into_denials).unwrap_or_default(),
            changes,
            duration: start.elapsed(),
            peak_memory: said.peak_memory,
            memory_bound: if said.memory_limited { MemoryBound::Kernel } else { MemoryBound::Watched },
        })
    }

    fn prepare(&self, spec: &Spec, tier: Tier) -> Result<Prepared, Attempt> {
        let workspace = order::workspace(spec)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(&workspace, flags, Mode::empty())
            .map_err(SandboxFault::system("cannot open the workspace"))?;
        let facts = rustix::fs::fstat(&base).map_err(SandboxFault::system("cannot look at the workspace"))?;
        let names =
            |list: &[String]| BlockList::new(list).map_err(|bad| SandboxFault::Refused(bad.to_string()));
        let (masked, protected) = (names(&spec.masked)?, names(&spec.protected)?);
        let masks = match spec.filesystem {
            Filesystem::Deny | Filesystem::Write => Vec::new(),
            _ => self.masks(&workspace, base.as_fd(), spec, &masked)?,
        };
        let scratch = match spec.filesystem {
            Filesystem::Read | Filesystem::ReadWrite | Filesystem::Speculative if tier != Tier::NoUserns => {
                self.scratch(spec, &workspace)?
            }
            _ => Vec::new(),
        };
        let task = if tier == Tier::NoUserns { Some(Arc::new(self.task()?)) } else { None };
        let work = match &task {
            Some(task) if spec.filesystem == Filesystem::Write => Some(
                rustix::fs::open(task.folder.join("work"), flags, Mode::empty())
                    .map_err(SandboxFault::system("the task's folder"))?,
            ),
            _ => None,
        };
        let mut order =
            order::build(spec, &workspace, tier, task.as_deref(), masks, scratch, self.landlock_abi)?;
        order.guarded = vec![std::process::id(), self.launcher_id()];
        Ok(Prepared {
            order,
            base: Arc::new(base),
            owner: (facts.st_uid, facts.st_gid),
            masked,
            protected,
            work,
            task,
        })
    }

    fn masks(
        &self,
        workspace: &Path,
        base: BorrowedFd<'_>,
        spec: &Spec,
        masked: &BlockList,
    ) -> Result<Vec<Mask>, SandboxFault> {
        let key = (workspace.to_owned(), spec.masked.clone());
        // Taken out while it works: another run of the same workspace walks for itself.
        let mut walk = self.walks.lock().remove(&key).unwrap_or_default();
        let masks = walk.masks(base, masked).map_err(SandboxFault::system("cannot walk the workspace"))?;
        self.walks.lock().insert(key, walk);
        Ok(masks)
    }

    #[expect(clippy::disallowed_methods, reason = "folders of the state, which no program sees")]
    fn scratch(&self, spec: &Spec, workspace: &Path) -> Result<Vec<Scratch>, SandboxFault> {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(order::bytes(workspace));
        let key: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let mut list = Vec::new();
        for name in &spec.scratch {
            let plain = !name.is_empty() && !name.split('/').any(|part| matches!(part, "" | "." | ".."));
            if !plain {
                return Err(SandboxFault::Refused(format!("`{name}` is no name of a build folder")));
            }
            // Dependencies that are installed are to be found; what is added to them is not taken over.
            if DEPENDENCIES.contains(&name.as_str()) && workspace.join(name).is_dir() {
                continue;
            }
            let folder = self.places.scratch.join(&key).join(name.replace('/', "%"));
            std::fs::create_dir_all(&folder)
                .map_err(|source| SandboxFault::System { what: "cannot make a build folder", source })?;
            let folder = folder
                .canonicalize()
                .map_err(|source| SandboxFault::System { what: "cannot find a build folder", source })?;
            list.push(Scratch { name: name.as_bytes().to_vec(), folder: order::bytes(&folder) });
        }
        Ok(list)
    }

    /// Folders of this run alone. Root's are where an unprivileged user can get to.
    #[expect(clippy::disallowed_methods, reason = "folders of the state, which only this run's program sees")]
    fn task(&self) -> Result<Task, SandboxFault> {
        let base = if rustix::process::geteuid().is_root() {
            PathBuf::from("/tmp")
        } else {
            std::fs::create_dir_all(&self.places.tasks)
                .map_err(|source| SandboxFault::System { what: "cannot make the tasks' folder", source })?;
            self.places.tasks.clone()
        };
        let made = (|| {
            let folder = base.canonicalize()?.join(format!("vambrace-task-{}", self.next_name()));
            let mut maker = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(&mut maker, 0o700);
            maker.create(&folder)?;
            for part in Task::PARTS {
                maker.create(folder.join(part))?;
            }
            Ok(Task { folder })
        })();
        made.map_err(|source: std::io::Error| SandboxFault::System {
            what: "cannot make a task's folder",
            source,
        })
    }

    fn changes(
        &self,
        spec: &Spec,
        prepared: &Prepared,
        mut layers: Vec<OwnedFd>,
        since: i128,
    ) -> Result<Option<Changes>, SandboxFault> {
        let upper = match &prepared.work {
            Some(work) => {
                rustix::io::fcntl_dupfd_cloexec(work, 0).map_err(SandboxFault::system("a handle"))?
            }
            None if layers.is_empty() => return Ok(None),
            None => layers.remove(0),
        };
        let changes = changes::collect(Collect {
            base: Arc::clone(&prepared.base),
            upper,
            view: layers.pop(),
            masked: &prepared.masked,
            protected: &prepared.protected,
            scratch: &spec.scratch,
            since,
            folder: prepared.task.clone(),
        });
        changes.map(Some).map_err(SandboxFault::system("cannot compare what the program changed"))
    }
}

/// Why an attempt came to nothing.
enum Attempt {
    Fault(SandboxFault),
    /// The walls could not be built, at this step.
    Walls(String),
}

impl From<SandboxFault> for Attempt {
    fn from(fault: SandboxFault) -> Self {
        Self::Fault(fault)
    }
}

struct Prepared {
    order: Order,
    base: Arc<OwnedFd>,
    owner: (u32, u32),
    masked: BlockList,
    protected: BlockList,
    task: Option<Arc<Task>>,
    /// The folder that the program takes for the workspace, without namespaces.
    work: Option<OwnedFd>,
}

/// The conversation of one run.
struct Talk<'a> {
    order: &'a Order,
    door: Option<Arc<dyn Door>>,
    report: OwnedFd,
    streams: [Reading; 2],
    most: usize,
    observer: Option<Observer>,
    layers: Vec<OwnedFd>,
    said: Said,
}

/// What was reported so far.
#[derive(Default)]
struct Said {
    failed: Option<String>,
    not_started: Option<Errno>,
    status: Option<i32>,
    over_memory: bool,
    oom: bool,
    timed_out: bool,
    peak_memory: Option<u64>,
    memory_limited: bool,
    ended: bool,
}

impl Said {
    fn exit(&self, spec: &Spec) -> Result<Exit, Attempt> {
        if let Some(errno) = self.not_started {
            let program = spec.program.display().to_string();
            return Err(SandboxFault::CouldNotStart { program, why: errno.to_string() }.into());
        }
        if let Some(step) = &self.failed {
            return Err(Attempt::Walls(step.clone()));
        }
        if !self.ended {
            return Err(SandboxFault::LauncherGone.into());
        }
        let killed = self.status.is_none_or(killed);
        Ok(match self.status {
            _ if self.timed_out => Exit::Timeout,
            _ if self.over_memory || (self.oom && killed) => Exit::OutOfMemory,
            Some(status) if libc::WIFSIGNALED(status) => Exit::Signal(libc::WTERMSIG(status)),
            Some(status) => Exit::Code(libc::WEXITSTATUS(status)),
            // The cell itself was ended, by nobody of ours.
            None => Exit::Signal(libc::SIGKILL),
        })
    }
}

/// One of the two pipes.
struct Reading {
    handle: Option<OwnedFd>,
    stream: Stream,
    captured: Captured,
}

impl Reading {
    fn new(handle: OwnedFd, stream: Stream) -> Self {
        Self { handle: Some(handle), stream, captured: Captured::default() }
    }

    fn read(&mut self, most: usize, output: &mut dyn FnMut(Stream, &[u8])) {
        let Some(handle) = &self.handle else { return };
        let mut piece = vec![0; PIECE];
        match rustix::io::read(handle, &mut piece) {
            Ok(0) => self.handle = None,
            Ok(read) => {
                self.captured.total += read as u64;
                let room = most.saturating_sub(self.captured.bytes.len()).min(read);
                if let Some(kept) = piece.get(..room).filter(|kept| !kept.is_empty()) {
                    self.captured.bytes.extend_from_slice(kept);
                    output(self.stream, kept);
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.handle = None,
        }
    }
}

impl Talk<'_> {
    fn listen(&mut self, output: &mut dyn FnMut(Stream, &[u8])) -> Result<(), SandboxFault> {
        let mut report_open = true;
        let mut listener_open = true;
        while report_open || self.streams.iter().any(|stream| stream.handle.is_some()) {
            let mut list = Vec::with_capacity(4);
            let mut what = Vec::with_capacity(4);
            if report_open {
                list.push(PollFd::new(&self.report, PollFlags::IN));
                what.push(Ready::Report);
            }
            for (at, stream) in self.streams.iter().enumerate() {
                if let Some(handle) = &stream.handle {
                    list.push(PollFd::new(handle, PollFlags::IN));
                    what.push(Ready::Stream(at));
                }
            }
            if let Some(observer) = self.observer.as_ref().filter(|_| listener_open) {
                list.push(PollFd::from_borrowed_fd(observer.listener(), PollFlags::IN));
                what.push(Ready::Listener);
            }
            let limit = (!report_open).then(|| Timespec::try_from(DRAIN).ok()).flatten();
            match rustix::event::poll(&mut list, limit.as_ref()) {
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
                            stream.read(self.most, output);
                        }
                    }
                    Ready::Listener if flags.contains(PollFlags::IN) => {
                        if let Some(observer) = &mut self.observer {
                            observer.answer();
                        }
                    }
                    // Nobody is left under the filter.
                    Ready::Listener => listener_open = false,
                }
            }
        }
        Ok(())
    }

    /// Takes one report; `false` when there will be no more.
    fn hear(&mut self) -> bool {
        let Ok(received) = message::receive(self.report.as_fd()) else { return false };
        if received.bytes.is_empty() {
            return false;
        }
        match wire::unpack::<Report>(&received.bytes) {
            Ok(Report::Ready) => self.layers = received.handles,
            Ok(Report::Network) => {
                let mut handles = received.handles.into_iter();
                if let (Some(door), Some(dns)) = (&self.door, handles.next()) {
                    door.open(Sockets { dns, spare: handles.collect() });
                }
            }
            Ok(Report::Listener) => {
                let listener = received.handles.into_iter().next();
                self.observer =
                    listener.map(|listener| Observer::new(listener, self.order).at(self.door.clone()));
            }
            Ok(Report::Failed { step, errno }) => {
                let why = Errno::from_raw_os_error(errno);
                self.said.failed.get_or_insert(format!("{step}: {why}"));
            }
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
}

/// Whether somebody ended it; a shell tells that of what it ran by a code past 128.
fn killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 128 + libc::SIGKILL
}

fn pipe() -> Result<(OwnedFd, OwnedFd), SandboxFault> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SandboxFault::system("a pipe"))
}

/// The time that stamps of files are compared with. A stamp may lag behind the clock by a tick, unless somebody looked
/// at the file since its last change (Linux 6.13); the overlay looks at every file before it copies it.
fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}
