//! [`Sandbox`], the broker's handle: starts the launcher, sends it requests, caches what is known between runs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Resource, Rlimit};
use vambrace_core::blocked_paths::BlockList;

use crate::cell;
use crate::error::SandboxError;
use crate::launcher;
use crate::mask_walk::MaskWalk;
use crate::prefetch::Prefetcher;
use crate::run_dirs::RunDirs;
use crate::run_request;
use crate::sys::message;
use crate::tier::{Features, Tier};
use crate::toolchain::ToolchainCaches;
use crate::warm_cells::WarmCell;
use crate::wire::{self, Bytes, LauncherRequest, RunReport, RunRequest, WorkspaceView};
use crate::workspace_fence::WorkspaceFence;

/// Directories below the state directory that runs need; outside every workspace.
#[derive(Debug, Clone)]
pub struct StateDirs {
    /// Temporary directories of runs without namespaces.
    pub run_dirs: PathBuf,
    /// Build directories that outlive a run.
    pub scratch: PathBuf,
    /// Journals of write-backs in progress.
    pub write_backs: PathBuf,
    /// CA certificates: files that a spec may make visible one by one; none of them is secret.
    pub certificates: PathBuf,
    // INVARIANT: the resolved path of the state directory, so that no other spelling of it bypasses the checks.
    state: PathBuf,
}

impl StateDirs {
    /// The directories below a state directory.
    #[must_use]
    pub fn below(state: &Path) -> Self {
        Self {
            run_dirs: state.join("runs"),
            scratch: state.join("scratch"),
            write_backs: state.join("promotions"),
            certificates: state.join("certificates"),
            state: resolve_existing(state),
        }
    }

    /// Where the temporary directories of runs are created. Root's are in `/tmp`, which an unprivileged user can reach.
    pub(crate) fn task_root(&self) -> &Path {
        if rustix::process::geteuid().is_root() { Path::new("/tmp") } else { &self.run_dirs }
    }

    /// Whether making a path visible would expose the state directory or a part of it. Its keys sign the ledger.
    #[must_use]
    pub(crate) fn overlaps_state(&self, path: &Path) -> bool {
        self.overlaps(&resolve_existing(path))
    }

    fn overlaps(&self, real: &Path) -> bool {
        self.state.starts_with(real) || real.starts_with(&self.state)
    }

    /// Denies a run request that would expose the state directory. Its paths are resolved already.
    pub(crate) fn deny_exposed_state(
        &self,
        request: &RunRequest,
        run_dirs: Option<&RunDirs>,
    ) -> Result<(), SandboxError> {
        fn path(bytes: &Bytes) -> &Path {
            Path::new(OsStr::from_bytes(bytes))
        }
        let is_certificate =
            |path: &Path| path.parent().is_some_and(|dir| dir == resolve_existing(&self.certificates));
        let own = |path: &Path| run_dirs.is_some_and(|run_dirs| path.starts_with(&run_dirs.dir));
        let read = request.read.iter().map(path).filter(|path| self.overlaps(path) && !is_certificate(path));
        let write = request.write.iter().map(path).filter(|path| !own(path));
        let workspace = (request.view != WorkspaceView::Absent).then(|| path(&request.workspace));
        let mut visible = read.chain(write).chain(request.toolchains.iter().map(path)).chain(workspace);
        let found = visible.find(|path| self.overlaps(path)).map(Path::to_owned);
        match found.or_else(|| self.system_dir_with_state()) {
            Some(path) => Err(SandboxError::ShowsState { path, state: self.state.clone() }),
            None => Ok(()),
        }
    }

    /// The system directory that contains the state directory, if one does: every program sees system directories.
    fn system_dir_with_state(&self) -> Option<PathBuf> {
        cell::SYSTEM_DIRS.iter().map(|name| Path::new("/").join(name)).find(|dir| self.state.starts_with(dir))
    }
}

/// Resolves symlinks in the part of a path that exists.
fn resolve_existing(path: &Path) -> PathBuf {
    let found = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
    path.ancestors().find_map(found).unwrap_or_else(|| path.to_owned())
}

/// Processes are found, inspected and killed through `/proc`. A `/proc` of another pid namespace lists other processes.
fn check_proc() -> Result<(), SandboxError> {
    let link = rustix::fs::readlink("/proc/self", Vec::new()).ok();
    match link.is_some_and(|link| link.to_bytes() == std::process::id().to_string().as_bytes()) {
        true => Ok(()),
        false => Err(SandboxError::Unavailable {
            wanted: Tier::NoUserns,
            reasons: vec![
                "/proc is missing or belongs to another pid namespace; mount one (`unshare --mount-proc` does)"
                    .to_owned(),
            ],
        }),
    }
}

/// Raises the limit of open files of this process, and so of the launcher, to the maximum. Descriptors in flight between
/// sockets count per user, and the kernel compares that count with the limit of each process: ours must be larger than
/// a program's, or a program could block us with descriptors that it never receives.
fn raise_open_file_limit() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now });
}

/// Maximum number of compiled name lists in the cache.
const MAX_CACHED_LISTS: usize = 64;
/// Maximum number of workspace walks in the cache; each may watch its directories.
pub(crate) const MAX_CACHED_WALKS: usize = 64;

/// What the masks of a workspace depend on.
#[derive(Debug, PartialEq)]
pub(crate) struct MaskWalkKey {
    pub(crate) workspace: PathBuf,
    pub(crate) masked: Vec<String>,
    pub(crate) fence: WorkspaceFence,
}

/// A running launcher, and what is known about the kernel.
#[derive(Debug)]
pub struct Sandbox {
    control: Arc<OwnedFd>,
    launcher: Mutex<Child>,
    pub(crate) places: StateDirs,
    features: OnceLock<Features>,
    pub(crate) landlock_abi: i32,
    pub(crate) launcher_identity: launcher::LauncherIdentity,
    /// Walks of workspaces, the last used one last.
    pub(crate) mask_walks: Mutex<Vec<(MaskWalkKey, MaskWalk)>>,
    pub(crate) toolchain_caches: Mutex<ToolchainCaches>,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) run_dirs_swept: Once,
    /// Compiled lists of names.
    names: Mutex<HashMap<Vec<String>, Arc<BlockList>>>,
    pub(crate) warm_cells: Mutex<Vec<WarmCell>>,
    /// Whether Landlock's audit records cannot be read; known after the first attempt.
    pub(crate) audit_unavailable: AtomicBool,
    /// Its reference count is the number of active runs plus one.
    active: Arc<()>,
}

impl Sandbox {
    /// Starts the launcher. `program` is this program, or another one that calls [`launcher::main`] when its first
    /// argument is [`launcher::ARGUMENT`].
    #[expect(clippy::disallowed_methods, reason = "the launcher itself, with an empty environment")]
    pub fn start(program: &Path, places: StateDirs) -> Result<Self, SandboxError> {
        check_proc()?;
        raise_open_file_limit();
        let (ours, theirs) = message::pair().map_err(SandboxError::system("the launcher's socket"))?;
        let launcher = Command::new(program)
            .arg(launcher::ARGUMENT)
            .arg(std::path::absolute(places.task_root()).unwrap_or_default())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| SandboxError::System { what: "cannot start the launcher", source })?;
        Ok(Self {
            control: Arc::new(ours),
            launcher: Mutex::new(launcher),
            places,
            features: OnceLock::new(),
            landlock_abi: cell::landlock_abi(),
            launcher_identity: launcher::LauncherIdentity::now(),
            mask_walks: Mutex::default(),
            toolchain_caches: Mutex::new(HashMap::new()),
            prefetcher: Prefetcher::default(),
            run_dirs_swept: Once::new(),
            names: Mutex::new(HashMap::new()),
            warm_cells: Mutex::default(),
            audit_unavailable: AtomicBool::new(false),
            active: Arc::default(),
        })
    }

    /// What the kernel really supports; probed once.
    pub fn features(&self) -> Result<&Features, SandboxError> {
        if let Some(features) = self.features.get() {
            return Ok(features);
        }
        let (ours, theirs) = message::pair().map_err(SandboxError::system("the launcher's socket"))?;
        self.send(&LauncherRequest::Probe, &[theirs.as_fd()])?;
        drop(theirs);
        let received = message::receive(ours.as_fd()).map_err(|_| SandboxError::LauncherGone)?;
        match wire::unpack::<RunReport>(&received.bytes) {
            Ok(RunReport::Features(features)) => Ok(self.features.get_or_init(|| features)),
            _ => Err(SandboxError::LauncherGone),
        }
    }

    /// Keeps this many cells in the warm pool for runs of tier full; each cell is used once.
    pub fn keep_warm(&self, cells: usize) -> Result<(), SandboxError> {
        self.send(&LauncherRequest::Warm(cells), &[])
    }

    /// The state directories that it was started with.
    #[must_use]
    pub fn places(&self) -> &StateDirs {
        &self.places
    }

    /// Whether a path can be granted to a program at all: not a system path, not the state directory.
    #[must_use]
    pub fn may_show(&self, path: &Path) -> bool {
        run_request::outside_system(path).is_ok_and(|path| !self.places.overlaps_state(&path))
    }

    /// Whether the launcher runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.launcher.lock().try_wait(), Ok(None))
    }

    /// The launcher's process id.
    #[must_use]
    pub fn launcher_id(&self) -> u32 {
        self.launcher.lock().id()
    }

    pub(crate) fn control(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.control)
    }

    /// Counts one active run until the returned value is dropped.
    pub(crate) fn count_run(&self) -> Arc<()> {
        Arc::clone(&self.active)
    }

    /// Whether at most one run is active.
    pub(crate) fn is_only_run(&self) -> bool {
        Arc::strong_count(&self.active) <= 2
    }

    pub(crate) fn send(
        &self,
        request: &LauncherRequest,
        handles: &[BorrowedFd<'_>],
    ) -> Result<(), SandboxError> {
        let packed = wire::pack(request).map_err(SandboxError::system("the launcher's socket"))?;
        message::send(self.control.as_fd(), &packed, handles).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET => SandboxError::LauncherGone,
            errno => SandboxError::System { what: "the launcher's socket", source: errno.into() },
        })
    }

    /// The tier of the next run: the one that the spec forces, or the strongest that is known to work.
    pub(crate) fn tier(&self, only: Option<Tier>) -> Tier {
        only.or_else(|| self.features.get().and_then(Features::tier)).unwrap_or(Tier::Full)
    }

    /// A compiled list of names; cached, since most runs use the same lists.
    pub(crate) fn names(&self, list: &[String]) -> Result<Arc<BlockList>, SandboxError> {
        if let Some(known) = self.names.lock().get(list) {
            return Ok(Arc::clone(known));
        }
        let made = BlockList::new(list).map_err(|bad| SandboxError::Refused(bad.to_string()))?;
        let made = Arc::new(made);
        let mut known = self.names.lock();
        if known.len() >= MAX_CACHED_LISTS {
            known.clear();
        }
        known.insert(list.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    /// A name for the temporary directory of one run. Root's are in `/tmp`, where every user can create names, so the
    /// name is random: another user cannot create it first.
    pub(crate) fn next_name() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let drawn = RandomState::new().build_hasher().finish();
        format!("{}-{}-{drawn:016x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // A launcher that is gone needs no message.
        let _ = self.send(&LauncherRequest::Leave, &[]);
        // The launcher reads the end of the stream, kills what still runs, cleans up and exits. The socket is closed only
        // after that: closing it with unread data would discard the last message.
        let _ = rustix::net::shutdown(&self.control, Shutdown::Write);
        // Closes the channels of warm cells, which then stop waiting for a run request.
        self.warm_cells.get_mut().clear();
        let _ = self.launcher.lock().wait();
    }
}
