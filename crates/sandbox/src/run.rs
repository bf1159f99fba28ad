//! One run from the broker's side: choosing the tier, preparing the run request, starting it, collecting its changes.
//! Reading reports and output while it runs is in [`crate::run_loop`].

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use vambrace_core::blocked_paths::BlockList;

use crate::cell;
use crate::changes::{self, CollectInput, RunChanges};
use crate::error::SandboxError;
use crate::input::InputFeed;
use crate::landlock_audit::{self, AuditAccess, LandlockAudit};
use crate::launcher::LauncherIdentity;
use crate::mask_walk::MaskRules;
use crate::observer;
use crate::outcome::{MemoryEnforcement, RunOutcome};
use crate::prefetch::RunPipes;
use crate::run_dirs::{self, RunDirs};
use crate::run_loop::{OutputPipe, RunLoop, RunReports};
use crate::run_request;
use crate::sandbox::{MAX_CACHED_WALKS, MaskWalkKey, Sandbox};
use crate::spec::{Filesystem, NetworkMode, Observe, Spec};
use crate::sys::{capability, message, mount, process};
use crate::tier::Tier;
use crate::toolchain::Toolchains;
use crate::wire::{self, MaskedPath, RunHeader, RunRequest, ScratchDir};
use crate::workspace_fence::WorkspaceFence;

/// Build directories that hold installed dependencies: if the project has them, the program sees those instead of an empty
/// scratch directory.
const DEPENDENCIES: &[&str] = &["node_modules", ".venv", "venv", "vendor"];

/// Which of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Receives what a program prints; `Break` closes that stream.
pub(crate) type OutputCallback<'a> = dyn FnMut(OutputStream, &[u8]) -> ControlFlow<()> + 'a;

/// The standard input of a program.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Empty.
    Nothing,
    /// An open file, pipe, terminal or socket. The program never gets this descriptor: the broker forwards its content
    /// through a pipe.
    From(BorrowedFd<'a>),
}

impl Sandbox {
    /// Runs a program and waits for its end. `output` receives every piece as it arrives, up to the limit. An empty piece
    /// means that nothing arrived for a while, so a consumer that buffers can flush.
    ///
    /// A tier below the strongest is used only if the spec accepts it, and is named in the outcome.
    pub fn run(
        &self,
        spec: &Spec,
        input: Input<'_>,
        output: &mut dyn FnMut(OutputStream, &[u8]),
    ) -> Result<RunOutcome, SandboxError> {
        self.run_while(spec, input, &mut |stream, bytes| {
            output(stream, bytes);
            ControlFlow::Continue(())
        })
    }

    /// Like [`Self::run`], but `output` can close a stream: the program then gets SIGPIPE, as any program whose reader is
    /// gone.
    pub fn run_while(
        &self,
        spec: &Spec,
        input: Input<'_>,
        output: &mut OutputCallback<'_>,
    ) -> Result<RunOutcome, SandboxError> {
        let first = self.tier(spec.forced_tier);
        self.check_tier(spec, first)?;
        // One feed for all attempts: input that was already read waits in it for the attempt that succeeds.
        let feed = InputFeed::new(input)?;
        let input = feed.handle();
        match self.attempt(spec, first, input, output) {
            // Nothing was started: a lower tier may work.
            Err(AttemptError::SetupFailed(step)) => {
                let features = self.features()?;
                let lower = features.tier().filter(|tier| *tier < first && spec.forced_tier.is_none());
                let Some(lower) = lower else {
                    if let Some(place) = mount_in_the_way(spec, &step) {
                        return Err(SandboxError::Mounted(place));
                    }
                    let mut reasons = features.reasons();
                    reasons.push(step);
                    return Err(SandboxError::Unavailable {
                        wanted: spec.forced_tier.unwrap_or(spec.min_tier),
                        reasons,
                    });
                };
                self.check_tier(spec, lower)?;
                self.attempt(spec, lower, input, output).map_err(|attempt| match attempt {
                    AttemptError::Sandbox(error) => error,
                    AttemptError::SetupFailed(step) => {
                        SandboxError::Unavailable { wanted: lower, reasons: vec![step] }
                    }
                })
            }
            Err(AttemptError::Sandbox(error)) => Err(error),
            Ok(outcome) => Ok(outcome),
        }
    }

    fn check_tier(&self, spec: &Spec, tier: Tier) -> Result<(), SandboxError> {
        let reasons = || self.features().map(crate::tier::Features::reasons).unwrap_or_default();
        // In the other tiers, read-only mounts protect the files.
        if tier == Tier::NoUserns
            && let Some(why) = cell::landlock_problem(self.landlock_abi)
        {
            return Err(SandboxError::Unavailable {
                wanted: tier,
                reasons: vec![format!("landlock: {why}")],
            });
        }
        if tier < spec.min_tier {
            return Err(SandboxError::Unavailable { wanted: spec.min_tier, reasons: reasons() });
        }
        if spec.network == NetworkMode::Gated && spec.gate.is_none() {
            return Err(SandboxError::Refused("a gated network needs an egress gate".to_owned()));
        }
        if tier == Tier::NoUserns && spec.network == NetworkMode::Gated {
            let mut reasons = reasons();
            reasons
                .push("tier no-userns has no network namespace, so its network cannot be gated".to_owned());
            return Err(SandboxError::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        if tier == Tier::NoUserns && spec.drops_writes && !spec.write.is_empty() {
            let mut reasons = reasons();
            reasons.push("tier no-userns cannot discard what is written to further paths".to_owned());
            return Err(SandboxError::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        let layered = matches!(spec.filesystem, Filesystem::ReadWrite | Filesystem::Speculative);
        if self.launcher_identity == LauncherIdentity::RootWithSetuid && layered {
            let mode = spec.filesystem.as_str();
            return Err(SandboxError::Unavailable {
                wanted: tier,
                reasons: vec![format!(
                    "root without CAP_SYS_ADMIN cannot map its files to another user, which filesystem `{mode}` needs"
                )],
            });
        }
        if tier == Tier::NoUserns && layered {
            let mut reasons = reasons();
            let mode = spec.filesystem.as_str();
            reasons
                .push(format!("tier no-userns cannot run with filesystem `{mode}`, which needs an overlay"));
            return Err(SandboxError::Unavailable { wanted: Tier::FullNoProc, reasons });
        }
        Ok(())
    }

    fn attempt(
        &self,
        spec: &Spec,
        tier: Tier,
        input: BorrowedFd<'_>,
        output: &mut OutputCallback<'_>,
    ) -> Result<RunOutcome, AttemptError> {
        let start = Instant::now();
        let since = now();
        let run_base = self.open_base(spec, tier)?;
        // Walking a workspace for the first time may take longer than the program's time limit, so it happens before.
        let mut prepared =
            if self.is_cached(spec, &run_base) { None } else { Some(self.prepare(spec, tier, &run_base)?) };
        let RunPipes {
            request: (request_read, request_write),
            out: (out_read, out_write),
            err: (err_read, err_write),
            report: (report, theirs),
        } = self.prefetcher.run_pipes()?;
        let mut audit = self.open_audit(spec, report.as_fd());
        let header = RunHeader {
            tier,
            limits: spec.limits,
            network: spec.network,
            observe: spec.observe,
            owner: run_base.owner,
            home: if tier == Tier::NoUserns {
                Vec::new()
            } else {
                run_request::bytes(&run_request::home(spec, None))
            },
            run_dirs: run_base.run_dirs.as_ref().map(|run_dirs| run_request::bytes(&run_dirs.dir)),
        };
        let handles = [request_read.as_fd(), theirs.as_fd(), input, out_write.as_fd(), err_write.as_fd()];
        let _running = self.count_run();
        let notice = self.start_run(header, run_base.run_dirs.as_deref(), handles)?;
        drop((request_read, out_write, err_write));
        // The run request is prepared while the launcher creates the cell. If that fails, the cell gets none and exits.
        let mut prepared = match prepared.take() {
            Some(prepared) => Ok(prepared),
            None => self.prepare(spec, tier, &run_base),
        };
        if let Some(access) = audit.as_mut().map(LandlockAudit::access)
            && access != AuditAccess::On
        {
            // A kernel that did not answer in time may answer in the next run.
            self.audit_unavailable.fetch_or(access != AuditAccess::NoAnswer, Ordering::Relaxed);
            audit = None;
        }
        if let Ok(prepared) = &mut prepared {
            prepared.request.audited = audit.is_some();
            // If nothing reads the pipe, the cell or the launcher reports why, below.
            let _ = wire::pack_into(&prepared.request, request_write);
        } else {
            drop(request_write);
        }
        let notice = notice.map(|request| self.notify_later(request, theirs));
        let prepared = prepared?;
        let mut run_loop = RunLoop {
            request: &prepared.request,
            gate: spec.gate.clone().filter(|_| spec.network == NetworkMode::Gated),
            report,
            streams: [
                OutputPipe::new(out_read, OutputStream::Out),
                OutputPipe::new(err_read, OutputStream::Err),
            ],
            max_captured: spec.limits.output,
            observer: None,
            denial_log: None,
            audit,
            layers: Vec::new(),
            reports: RunReports::default(),
            unannounced: notice,
            stop: spec.stop.clone(),
        };
        run_loop.run_to_end(output)?;
        let RunLoop {
            report,
            observer,
            unannounced,
            reports,
            streams: [out, err],
            denial_log,
            audit,
            layers,
            ..
        } = run_loop;
        let exit = reports.exit(spec)?;
        let landlock = audit.map(LandlockAudit::finish).unwrap_or_default();
        let lost = landlock.missing;
        let logged = denial_log.map(|log| {
            let mut log = log.lock();
            log.confirm(observer::landlock_denials(landlock, &prepared.request));
            log.take()
        });
        let (out, out_read) = out.finish();
        let (err, err_read) = err.finish();
        self.prefetcher.drop_later((unannounced, report, observer, out_read, err_read));
        let (denials, more) = logged.unwrap_or_default();
        let changes = self.changes(spec, &prepared, layers, since)?;
        Ok(RunOutcome {
            tier,
            exit,
            stdout: out,
            stderr: err,
            denials,
            denials_missing: lost || more || self.cannot_observe(spec, tier),
            changes,
            duration: start.elapsed(),
            peak_memory: reports.peak_memory,
            memory_bound: match tier {
                _ if reports.memory_limited => MemoryEnforcement::Kernel,
                Tier::FullNoProc => MemoryEnforcement::EachProcess,
                _ => MemoryEnforcement::Watched,
            },
        })
    }

    /// Whether the observer cannot read the paths of a program's system calls: the program runs as another user, outside
    /// any user namespace of ours.
    fn cannot_observe(&self, spec: &Spec, tier: Tier) -> bool {
        let another = tier == Tier::NoUserns && self.launcher_identity == LauncherIdentity::RootWithSetuid;
        another && spec.observe != Observe::Off && !capability::may_look_into_others()
    }

    /// Opens the reader of Landlock's audit records, if denials are to be reported and the kernel lets us read them. The
    /// pid of the process that reports to us says which records belong to this run.
    fn open_audit(&self, spec: &Spec, report: BorrowedFd<'_>) -> Option<LandlockAudit> {
        let asked = spec.observe != Observe::Off && self.landlock_abi >= landlock_audit::MIN_ABI;
        if !asked || self.audit_unavailable.load(Ordering::Relaxed) {
            return None;
        }
        let opened = LandlockAudit::open()
            .and_then(|audit| message::enable_sender_credentials(report).map(|()| audit));
        self.audit_unavailable.fetch_or(opened.is_err(), Ordering::Relaxed);
        opened.ok()
    }

    /// What the launcher needs before the run request is ready.
    fn open_base(&self, spec: &Spec, tier: Tier) -> Result<RunBase, AttemptError> {
        let workspace = run_request::workspace(spec)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::open(&workspace, flags, Mode::empty())
            .map_err(|errno| cannot_read(&workspace, errno))?;
        let facts = rustix::fs::fstat(&base).map_err(SandboxError::system("cannot stat the workspace"))?;
        let run_dirs =
            if tier == Tier::NoUserns { Some(Arc::new(self.take_run_dirs(spec.filesystem)?)) } else { None };
        Ok(RunBase { workspace, base: Arc::new(base), owner: (facts.st_uid, facts.st_gid), run_dirs })
    }

    /// Whether the workspace and the toolchains were walked before, or need no walk.
    fn is_cached(&self, spec: &Spec, run_base: &RunBase) -> bool {
        let key = mask_walk_key(&run_base.workspace, spec);
        let workspace = matches!(spec.filesystem, Filesystem::Deny | Filesystem::Write)
            || self.mask_walks.lock().iter().any(|(known, _)| *known == key);
        let home =
            |home: &PathBuf| self.toolchain_caches.lock().contains_key(&(home.clone(), spec.path.clone()));
        workspace && spec.home.as_ref().is_none_or(home)
    }

    fn prepare(&self, spec: &Spec, tier: Tier, run_base: &RunBase) -> Result<PreparedRun, AttemptError> {
        let RunBase { workspace, base, run_dirs, .. } = run_base;
        let (base, run_dirs) = (Arc::clone(base), run_dirs.clone());
        // The program runs as another user and files of root cannot be mapped to it.
        let is_other_user = self.launcher_identity == LauncherIdentity::RootWithSetuid;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        run_request::deny_deep_scratch(&spec.scratch)?;
        let (masked, protected) = (self.names(&spec.masked)?, self.names(&spec.protected)?);
        let masks = match spec.filesystem {
            Filesystem::Deny | Filesystem::Write if !run_request::overlaps_workspace(workspace, spec) => {
                Vec::new()
            }
            _ => self.masks(workspace, base.as_fd(), spec, &masked)?,
        };
        let scratch = match spec.filesystem {
            Filesystem::Read | Filesystem::ReadWrite | Filesystem::Speculative
                if tier != Tier::NoUserns && !is_other_user =>
            {
                self.scratch(spec, workspace)?
            }
            _ => Vec::new(),
        };
        let work = match &run_dirs {
            Some(run_dirs) if spec.filesystem == Filesystem::Write => Some(
                rustix::fs::open(run_dirs.dir.join("work"), flags, Mode::empty())
                    .map_err(SandboxError::system("the run's directory"))?,
            ),
            _ => None,
        };
        let toolchains = if is_other_user { Default::default() } else { self.toolchains(spec, workspace)? };
        let found = run_request::ResolvedPaths { toolchains, masks, scratch };
        let mut request =
            run_request::build(spec, workspace, tier, run_dirs.as_deref(), found, self.landlock_abi)?;
        self.places.deny_exposed_state(&request, run_dirs.as_deref())?;
        request.guarded = vec![std::process::id(), self.launcher_id()];
        request.guarded.extend(process::own_group());
        Ok(PreparedRun { request, base, masked, protected, work, run_dirs })
    }

    fn masks(
        &self,
        workspace: &Path,
        base: BorrowedFd<'_>,
        spec: &Spec,
        masked: &BlockList,
    ) -> Result<Vec<MaskedPath>, SandboxError> {
        let key = mask_walk_key(workspace, spec);
        // Taken out of the cache while it works: a concurrent run of the same workspace makes its own walk.
        let mut walk = {
            let mut known = self.mask_walks.lock();
            let at = known.iter().position(|(known, _)| *known == key);
            at.map(|at| known.remove(at).1).unwrap_or_default()
        };
        let fence = (!spec.fence.shows_everything()).then_some(&spec.fence);
        let masks = walk
            .masks(base, MaskRules { names: masked, fence })
            .map_err(|errno| cannot_read(workspace, errno))?;
        let mut known = self.mask_walks.lock();
        if known.len() >= MAX_CACHED_WALKS {
            known.remove(0);
        }
        known.push((key, walk));
        Ok(masks)
    }

    /// What the program sees of the home directory.
    fn toolchains(&self, spec: &Spec, workspace: &Path) -> Result<Toolchains, SandboxError> {
        let Some(home) = &spec.home else { return Ok(Toolchains::default()) };
        let key = (home.clone(), spec.path.clone());
        let known = self.toolchain_caches.lock().remove(&key).flatten();
        let (toolchains, kept) = Toolchains::of(home, &spec.path, workspace, known)?;
        self.toolchain_caches.lock().insert(key, kept);
        Ok(toolchains)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "directories below the state directory, which no program sees"
    )]
    fn scratch(&self, spec: &Spec, workspace: &Path) -> Result<Vec<ScratchDir>, SandboxError> {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(run_request::bytes(workspace));
        let key: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let mut list = Vec::new();
        for name in &spec.scratch {
            // Installed dependencies stay visible; what the program adds to them is not written back.
            if DEPENDENCIES.contains(&name.as_str()) && workspace.join(name).is_dir() {
                continue;
            }
            let dir = self.places.scratch.join(&key).join(name);
            std::fs::create_dir_all(&dir)
                .map_err(|source| SandboxError::System { what: "cannot create a build directory", source })?;
            let dir = dir.canonicalize().map_err(|source| SandboxError::System {
                what: "cannot resolve a build directory",
                source,
            })?;
            list.push(ScratchDir { name: name.as_bytes().to_vec(), dir: run_request::bytes(&dir) });
        }
        Ok(list)
    }

    /// The temporary directories of this run.
    #[expect(
        clippy::disallowed_methods,
        reason = "directories below the state directory, which only this run's program sees"
    )]
    fn take_run_dirs(&self, filesystem: Filesystem) -> Result<RunDirs, SandboxError> {
        let base = self.places.task_root();
        if base == self.places.run_dirs {
            std::fs::create_dir_all(base).map_err(|source| SandboxError::System {
                what: "cannot create the directory of run directories",
                source,
            })?;
        }
        // Removes what a crash of both launcher and broker left behind.
        self.run_dirs_swept.call_once(|| run_dirs::sweep(base));
        let name = || format!("{}{}", run_dirs::PREFIX, Self::next_name());
        let made = self.prefetcher.run_dirs().take(base, filesystem, name);
        made.map_err(|source| SandboxError::System { what: "cannot create a run's directory", source })
    }

    fn changes(
        &self,
        spec: &Spec,
        prepared: &PreparedRun,
        mut layers: Vec<OwnedFd>,
        since: i128,
    ) -> Result<Option<RunChanges>, SandboxError> {
        let upper = match &prepared.work {
            Some(work) => {
                rustix::io::fcntl_dupfd_cloexec(work, 0).map_err(SandboxError::system("a handle"))?
            }
            None if layers.is_empty() => return Ok(None),
            None => layers.remove(0),
        };
        let changes = changes::collect(CollectInput {
            base: Arc::clone(&prepared.base),
            upper,
            view: layers.pop(),
            masked: &prepared.masked,
            masked_paths: run_request::masked_by_other_rules(&prepared.request, &prepared.masked),
            protected: &prepared.protected,
            fence: &spec.fence,
            scratch: &spec.scratch,
            own_scratch: &prepared.request.scratch,
            since,
            run_dirs: prepared.run_dirs.clone(),
        });
        changes.map(Some).map_err(SandboxError::system("cannot collect what the program changed"))
    }
}

/// Why an attempt to run in one tier failed.
pub(crate) enum AttemptError {
    Sandbox(SandboxError),
    /// The confinement could not be set up, at this step; the program was not started.
    SetupFailed(String),
}

impl From<SandboxError> for AttemptError {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error)
    }
}

struct RunBase {
    workspace: PathBuf,
    base: Arc<OwnedFd>,
    owner: (u32, u32),
    run_dirs: Option<Arc<RunDirs>>,
}

struct PreparedRun {
    request: RunRequest,
    base: Arc<OwnedFd>,
    masked: Arc<BlockList>,
    protected: Arc<BlockList>,
    run_dirs: Option<Arc<RunDirs>>,
    /// The directory that the program sees as the workspace, in tier no-userns.
    work: Option<OwnedFd>,
}

fn mask_walk_key(workspace: &Path, spec: &Spec) -> MaskWalkKey {
    let fence = WorkspaceFence {
        read: spec.fence.read.clone(),
        service_root: spec.fence.service_root.clone(),
        ..WorkspaceFence::default()
    };
    MaskWalkKey { workspace: workspace.to_owned(), masked: spec.masked.clone(), fence }
}

fn cannot_read(workspace: &Path, errno: Errno) -> SandboxError {
    SandboxError::Refused(format!("cannot read the workspace `{}`: {errno}", workspace.display()))
}

/// A mount below a directory that should get an overlay, if that is why the kernel denied the overlay (EINVAL). Mounts
/// that come from another user namespace are locked together and can only be cloned together, and an overlay uses one
/// mount only.
fn mount_in_the_way(spec: &Spec, step: &str) -> Option<PathBuf> {
    let denied = step.ends_with(&Errno::INVAL.to_string());
    let written = spec.write.iter().filter(|_| spec.drops_writes);
    let layered = std::iter::once(&spec.workspace).chain(written).filter(|_| denied);
    layered.filter_map(|dir| dir.canonicalize().ok()).find_map(|dir| mount::mounted_in(&dir))
}

/// The current time, to compare file timestamps with, in ns. A timestamp may lag behind the clock by a tick, unless the
/// file was queried since its last change (multigrain timestamps, Linux 6.13); the overlay queries every file before it
/// copies it.
pub(crate) fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4: in this tier nothing else protects read-only files
    #[test]
    fn without_namespaces_a_landlock_that_does_not_control_truncation_denies_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let places = crate::sandbox::StateDirs::below(&dir.path().join("state"));
        // No run gets as far as the launcher, so it may be any program.
        let mut sandbox = Sandbox::start(Path::new("/bin/true"), places).unwrap();
        let mut spec = Spec::new("true", dir.path());
        spec.forced_tier = Some(Tier::NoUserns);
        for abi in 0..3 {
            sandbox.landlock_abi = abi;
            let denied = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
            let Err(SandboxError::Unavailable { reasons, .. }) = &denied else { panic!("{denied:?}") };
            assert!(reasons.iter().any(|reason| reason.starts_with("landlock: ")), "{reasons:?}");
        }
    }
}
