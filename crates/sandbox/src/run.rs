//! One run from the broker's side: what it needs, order, pipes, changes. The conversation itself is `talk`.

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::block::BlockList;

use crate::aside::Fittings;
use crate::audit::{self, Audit, Standing};
use crate::cell;
use crate::changes::{self, Changes, Collect};
use crate::fault::SandboxFault;
use crate::input::Feed;
use crate::launcher::Footing;
use crate::observe;
use crate::order;
use crate::outcome::{MemoryBound, Outcome};
use crate::sandbox::Sandbox;
use crate::spec::{Filesystem, Network, Observe, Spec};
use crate::sys::{capability, message, mounting, process};
use crate::talk::{Reading, Said, Talk};
use crate::task::{self, Task};
use crate::tier::Tier;
use crate::toolchain::Toolchains;
use crate::wire::{self, Header, Mask, Order, Scratch};

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

/// Who sees what a program prints, and whether it wants more of that stream.
pub type Output<'a> = dyn FnMut(Stream, &[u8]) -> ControlFlow<()> + 'a;

/// What a program reads from.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Nothing.
    Nothing,
    /// An open file, pipe, terminal or socket. The program gets none of them but the reading end of a pipe: what it reads is
    /// handed on.
    From(BorrowedFd<'a>),
}

impl Sandbox {
    /// Runs a program and waits for its end. `output` sees every piece as it comes, up to the limit; an empty piece says
    /// that nothing came for a while, so whoever holds something back to see more may let it go.
    ///
    /// A tier below the strongest is used only where the specification accepts it, and is named in the outcome.
    pub fn run(
        &self,
        spec: &Spec,
        input: Input<'_>,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Outcome, SandboxFault> {
        self.run_while(spec, input, &mut |stream, bytes| {
            output(stream, bytes);
            ControlFlow::Continue(())
        })
    }

    /// The same for somebody who may want no more of a stream: it is closed then, so the program learns what every program
    /// does whose reader is gone.
    pub fn run_while(
        &self,
        spec: &Spec,
        input: Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<Outcome, SandboxFault> {
        let first = self.tier(spec.only);
        self.refuse_below(spec, first)?;
        // One for every attempt: what was taken from the input waits in it for whichever program begins.
        let feed = Feed::new(input)?;
        let input = feed.handle();
        match self.attempt(spec, first, input, output) {
            // Nothing was started: another tier may do.
            Err(Attempt::Walls(step)) => {
                let features = self.features()?;
                let lower = features.tier().filter(|tier| *tier < first && spec.only.is_none());
                let Some(lower) = lower else {
                    if let Some(place) = in_the_way(spec, &step) {
                        return Err(SandboxFault::Mounted(place));
                    }
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
        // Elsewhere the mounts are read-only.
        if tier == Tier::NoUserns
            && let Some(why) = cell::landlock_lacks(self.landlock_abi)
        {
            return Err(SandboxFault::Unavailable {
                wanted: tier,
                reasons: vec![format!("landlock: {why}")],
            });
        }
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
        if tier == Tier::NoUserns && spec.drops_writes && !spec.write.is_empty() {
            let mut reasons = reasons();
            reasons.push("tier no-userns cannot drop what is written to further paths".to_owned());
            return Err(SandboxFault::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if self.footing == Footing::Nobody && layered {
            let mode = spec.filesystem.as_str();
            return Err(SandboxFault::Unavailable {
                wanted: tier,
                reasons: vec![format!(
                    "root without CAP_SYS_ADMIN cannot show its files as another user's, which filesystem `{mode}` needs"
                )],
            });
        }
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
        input: BorrowedFd<'_>,
        output: &mut Output<'_>,
    ) -> Result<Outcome, Attempt> {
        let start = Instant::now();
        let since = now();
        let ground = self.ground(spec, tier)?;
        // A workspace that was never walked may take longer than the program is given.
        let mut prepared =
            if self.knows(spec, &ground) { None } else { Some(self.prepare(spec, tier, &ground)?) };
        let Fittings {
            order: (order_read, order_write),
            out: (out_read, out_write),
            err: (err_read, err_write),
            report: (report, theirs),
        } = self.aside.fittings()?;
        let mut audit = self.audit(spec, report.as_fd());
        let header = Header {
            tier,
            limits: spec.limits,
            network: spec.network,
            observe: spec.observe,
            owner: ground.owner,
            home: if tier == Tier::NoUserns { Vec::new() } else { order::bytes(&order::home(spec, None)) },
            task: ground.task.as_ref().map(|task| order::bytes(&task.folder)),
        };
        let handles = [order_read.as_fd(), theirs.as_fd(), input, out_write.as_fd(), err_write.as_fd()];
        let _running = self.one_more();
        let untold = self.begin(header, ground.task.as_deref(), handles)?;
        drop((order_read, out_write, err_write));
        // While the cell is made, we look what is to be in it. Where that fails, the cell finds no order and goes.
        let mut prepared = match prepared.take() {
            Some(prepared) => Ok(prepared),
            None => self.prepare(spec, tier, &ground),
        };
        if let Some(standing) = audit.as_mut().map(Audit::standing)
            && standing != Standing::On
        {
            // A kernel that does not answer in time may do so in the next run.
            self.deaf.fetch_or(standing != Standing::Unsaid, Ordering::Relaxed);
            audit = None;
        }
        if let Ok(prepared) = &mut prepared {
            prepared.order.audited = audit.is_some();
            // Where nobody reads it, the cell or the launcher says why, below.
            let _ = wire::pack_into(&prepared.order, order_write);
        } else {
            drop(order_write);
        }
        let untold = untold.map(|request| self.tell_later(request, theirs));
        let prepared = prepared?;
        let mut talk = Talk {
            order: &prepared.order,
            door: spec.door.clone().filter(|_| spec.network == Network::Gated),
            report,
            streams: [Reading::new(out_read, Stream::Out), Reading::new(err_read, Stream::Err)],
            most: spec.limits.output,
            observer: None,
            told: None,
            audit,
            layers: Vec::new(),
            said: Said::default(),
            untold,
            stop: spec.stop.clone(),
        };
        talk.listen(output)?;
        let Talk { report, observer, untold, said, streams: [out, err], told, audit, layers, .. } = talk;
        let exit = said.exit(spec)?;
        let heard = audit.map(Audit::finish).unwrap_or_default();
        let lost = heard.missing;
        let told = told.map(|told| {
            let mut told = told.lock();
            told.confirm(observe::refused_by_landlock(heard, &prepared.order));
            told.take()
        });
        let (out, out_read) = out.finish();
        let (err, err_read) = err.finish();
        self.aside.leave((untold, report, observer, out_read, err_read));
        let (denials, more) = told.unwrap_or_default();
        let changes = self.changes(spec, &prepared, layers, since)?;
        Ok(Outcome {
            tier,
            exit,
            stdout: out,
            stderr: err,
            denials,
            denials_missing: lost || more || self.is_blind(spec, tier),
            changes,
            duration: start.elapsed(),
            peak_memory: said.peak_memory,
            memory_bound: match tier {
                _ if said.memory_limited => MemoryBound::Kernel,
                Tier::FullNoProc => MemoryBound::EachProcess,
                _ => MemoryBound::Watched,
            },
        })
    }

    /// Whether nobody sees what a program names in its calls: it is another user's, with no namespace of ours around it.
    fn is_blind(&self, spec: &Spec, tier: Tier) -> bool {
        let another = tier == Tier::NoUserns && self.footing == Footing::Nobody;
        another && spec.observe != Observe::Off && !capability::may_look_into_others()
    }

    /// Somebody who hears what Landlock says of its refusals, where refusals are to be told and it can be heard. Whose they
    /// are follows from who reports.
    fn audit(&self, spec: &Spec, report: BorrowedFd<'_>) -> Option<Audit> {
        let asked = spec.observe != Observe::Off && self.landlock_abi >= audit::LEAST_ABI;
        if !asked || self.deaf.load(Ordering::Relaxed) {
            return None;
        }
        let opened = Audit::open().and_then(|audit| message::tell_senders(report).map(|()| audit));
        self.deaf.fetch_or(opened.is_err(), Ordering::Relaxed);
        opened.ok()
    }

    /// What the launcher needs to know before there is an order.
    fn ground(&self, spec: &Spec, tier: Tier) -> Result<Ground, Attempt> {
        let workspace = order::workspace(spec)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(&workspace, flags, Mode::empty())
            .map_err(|errno| cannot_read(&workspace, errno))?;
        let facts = rustix::fs::fstat(&base).map_err(SandboxFault::system("cannot look at the workspace"))?;
        let task = if tier == Tier::NoUserns { Some(Arc::new(self.task(spec.filesystem)?)) } else { None };
        Ok(Ground { workspace, base: Arc::new(base), owner: (facts.st_uid, facts.st_gid), task })
    }

    /// Whether the names of the workspace and of the toolchains were walked before, or need not be.
    fn knows(&self, spec: &Spec, ground: &Ground) -> bool {
        let key = (ground.workspace.clone(), spec.masked.clone());
        let workspace = matches!(spec.filesystem, Filesystem::Deny | Filesystem::Write)
            || self.walks.lock().contains_key(&key);
        let home = |home: &PathBuf| self.homes.lock().contains_key(&(home.clone(), spec.path.clone()));
        workspace && spec.home.as_ref().is_none_or(home)
    }

    fn prepare(&self, spec: &Spec, tier: Tier, ground: &Ground) -> Result<Prepared, Attempt> {
        let Ground { workspace, base, task, .. } = ground;
        let (base, task) = (Arc::clone(base), task.clone());
        // Whom nothing of root's can be lent to.
        let stranger = self.footing == Footing::Nobody;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        order::refuse_deep_scratch(&spec.scratch)?;
        let (masked, protected) = (self.names(&spec.masked)?, self.names(&spec.protected)?);
        let masks = match spec.filesystem {
            Filesystem::Deny | Filesystem::Write if !order::asks_about(workspace, spec) => Vec::new(),
            _ => self.masks(workspace, base.as_fd(), spec, &masked)?,
        };
        let scratch = match spec.filesystem {
            Filesystem::Read | Filesystem::ReadWrite | Filesystem::Speculative
                if tier != Tier::NoUserns && !stranger =>
            {
                self.scratch(spec, workspace)?
            }
            _ => Vec::new(),
        };
        let work = match &task {
            Some(task) if spec.filesystem == Filesystem::Write => Some(
                rustix::fs::open(task.folder.join("work"), flags, Mode::empty())
                    .map_err(SandboxFault::system("the task's folder"))?,
            ),
            _ => None,
        };
        let toolchains = if stranger { Default::default() } else { self.toolchains(spec, workspace)? };
        let found = order::Found { toolchains, masks, scratch };
        let mut order = order::build(spec, workspace, tier, task.as_deref(), found, self.landlock_abi)?;
        self.places.refuse_shown(&order, task.as_deref())?;
        order.guarded = vec![std::process::id(), self.launcher_id()];
        order.guarded.extend(process::own_group());
        Ok(Prepared { order, base, masked, protected, work, task })
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
        let masks = walk.masks(base, masked).map_err(|errno| cannot_read(workspace, errno))?;
        self.walks.lock().insert(key, walk);
        Ok(masks)
    }

    /// What is shown of the home folder.
    fn toolchains(&self, spec: &Spec, workspace: &Path) -> Result<Toolchains, SandboxFault> {
        let Some(home) = &spec.home else { return Ok(Toolchains::default()) };
        let key = (home.clone(), spec.path.clone());
        let known = self.homes.lock().remove(&key).flatten();
        let (toolchains, kept) = Toolchains::of(home, &spec.path, workspace, known)?;
        self.homes.lock().insert(key, kept);
        Ok(toolchains)
    }

    #[expect(clippy::disallowed_methods, reason = "folders of the state, which no program sees")]
    fn scratch(&self, spec: &Spec, workspace: &Path) -> Result<Vec<Scratch>, SandboxFault> {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(order::bytes(workspace));
        let key: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let mut list = Vec::new();
        for name in &spec.scratch {
            // Dependencies that are installed are to be found; what is added to them is not taken over.
            if DEPENDENCIES.contains(&name.as_str()) && workspace.join(name).is_dir() {
                continue;
            }
            let folder = self.places.scratch.join(&key).join(name);
            std::fs::create_dir_all(&folder)
                .map_err(|source| SandboxFault::System { what: "cannot make a build folder", source })?;
            let folder = folder
                .canonicalize()
                .map_err(|source| SandboxFault::System { what: "cannot find a build folder", source })?;
            list.push(Scratch { name: name.as_bytes().to_vec(), folder: order::bytes(&folder) });
        }
        Ok(list)
    }

    /// Folders of this run alone.
    #[expect(clippy::disallowed_methods, reason = "folders of the state, which only this run's program sees")]
    fn task(&self, filesystem: Filesystem) -> Result<Task, SandboxFault> {
        let base = self.places.of_tasks();
        if base == self.places.tasks {
            std::fs::create_dir_all(base)
                .map_err(|source| SandboxFault::System { what: "cannot make the tasks' folder", source })?;
        }
        // What a crash left, of launcher and broker both.
        self.swept.call_once(|| task::sweep(base));
        let name = || format!("{}{}", task::PREFIX, Self::next_name());
        let made = self.aside.tasks().give(base, filesystem, name);
        made.map_err(|source| SandboxFault::System { what: "cannot make a task's folder", source })
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
            barred: order::barred(&prepared.order, &prepared.masked),
            protected: &prepared.protected,
            scratch: &spec.scratch,
            own_scratch: &prepared.order.scratch,
            since,
            folder: prepared.task.clone(),
        });
        changes.map(Some).map_err(SandboxFault::system("cannot compare what the program changed"))
    }
}

/// Why an attempt came to nothing.
pub(crate) enum Attempt {
    Fault(SandboxFault),
    /// The walls could not be built, at this step.
    Walls(String),
}

impl From<SandboxFault> for Attempt {
    fn from(fault: SandboxFault) -> Self {
        Self::Fault(fault)
    }
}

struct Ground {
    workspace: PathBuf,
    base: Arc<OwnedFd>,
    owner: (u32, u32),
    task: Option<Arc<Task>>,
}

struct Prepared {
    order: Order,
    base: Arc<OwnedFd>,
    masked: Arc<BlockList>,
    protected: Arc<BlockList>,
    task: Option<Arc<Task>>,
    /// The folder that the program takes for the workspace, without namespaces.
    work: Option<OwnedFd>,
}

fn cannot_read(workspace: &Path, errno: Errno) -> SandboxFault {
    SandboxFault::Refused(format!("cannot read the workspace `{}`: {errno}", workspace.display()))
}

/// What is mounted in a folder that a layer was to be laid over, where the kernel would not do that: copies of mounts that
/// are another user namespace's cannot be had one without the other, and an overlay sees the one only.
fn in_the_way(spec: &Spec, step: &str) -> Option<PathBuf> {
    let refused = step.ends_with(&Errno::INVAL.to_string());
    let written = spec.write.iter().filter(|_| spec.drops_writes);
    let layered = std::iter::once(&spec.workspace).chain(written).filter(|_| refused);
    layered.filter_map(|folder| folder.canonicalize().ok()).find_map(|folder| mounting::mounted_in(&folder))
}

/// The time that stamps of files are compared with. A stamp may lag behind the clock by a tick, unless somebody looked
/// at the file since its last change (Linux 6.13); the overlay looks at every file before it copies it.
pub(crate) fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4: there is no other wall around files that may only be read
    #[test]
    fn without_namespaces_nothing_runs_where_landlock_does_not_judge_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let places = crate::sandbox::Places::below(&folder.path().join("state"));
        // Nobody is asked to start anything, so it may be any program.
        let mut sandbox = Sandbox::start(Path::new("/bin/true"), places).unwrap();
        let mut spec = Spec::new("true", folder.path());
        spec.only = Some(Tier::NoUserns);
        for abi in 0..3 {
            sandbox.landlock_abi = abi;
            let refused = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
            let Err(SandboxFault::Unavailable { reasons, .. }) = &refused else { panic!("{refused:?}") };
            assert!(reasons.iter().any(|reason| reason.starts_with("landlock: ")), "{reasons:?}");
        }
    }
}
