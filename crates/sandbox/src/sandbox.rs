//! The broker's side: starting the launcher, asking for runs, reading what comes back.

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
use vambrace_core::block::BlockList;

use crate::aside::Aside;
use crate::cell;
use crate::fault::SandboxFault;
use crate::launcher;
use crate::offer::Offered;
use crate::order;
use crate::sys::message;
use crate::task::Task;
use crate::tier::{Features, Tier};
use crate::toolchain::Homes;
use crate::walk::Walk;
use crate::wire::{self, Bytes, Order, Report, Request, View};

/// Folders of the state that runs need; outside every workspace.
#[derive(Debug, Clone)]
pub struct Places {
    /// Ephemeral folders of runs without namespaces.
    pub tasks: PathBuf,
    /// Build folders that outlive a run.
    pub scratch: PathBuf,
    /// Notes of changes that are being taken over.
    pub promotions: PathBuf,
    /// Files that a run may be shown one by one; none of them is secret.
    pub lent: PathBuf,
    // INVARIANT: where the state folder really is, so that no other spelling leads past it.
    state: PathBuf,
}

impl Places {
    /// Below a state folder.
    #[must_use]
    pub fn below(state: &Path) -> Self {
        Self {
            tasks: state.join("tasks"),
            scratch: state.join("scratch"),
            promotions: state.join("promotions"),
            lent: state.join("certificates"),
            state: really(state),
        }
    }

    /// Where the folders of runs are made. Root's are where an unprivileged user can get to.
    pub(crate) fn of_tasks(&self) -> &Path {
        if rustix::process::geteuid().is_root() { Path::new("/tmp") } else { &self.tasks }
    }

    /// Whether whoever sees a path sees the state folder, or something in it. Its keys sign the ledger.
    #[must_use]
    pub fn are_seen_in(&self, path: &Path) -> bool {
        self.meet(&really(path))
    }

    fn meet(&self, real: &Path) -> bool {
        self.state.starts_with(real) || real.starts_with(&self.state)
    }

    /// Refuses an order that would show the state folder. The paths of an order are where they really are.
    pub(crate) fn refuse_shown(&self, order: &Order, task: Option<&Task>) -> Result<(), SandboxFault> {
        fn path(bytes: &Bytes) -> &Path {
            Path::new(OsStr::from_bytes(bytes))
        }
        let lent = |path: &Path| path.parent().is_some_and(|folder| folder == really(&self.lent));
        let own = |path: &Path| task.is_some_and(|task| path.starts_with(&task.folder));
        let read = order.read.iter().map(path).filter(|path| self.meet(path) && !lent(path));
        let write = order.write.iter().map(path).filter(|path| !own(path));
        let workspace = (order.view != View::Absent).then(|| path(&order.workspace));
        let mut shown = read.chain(write).chain(order.toolchains.iter().map(path)).chain(workspace);
        let found = shown.find(|path| self.meet(path)).map(Path::to_owned);
        match found.or_else(|| self.in_the_system()) {
            Some(path) => Err(SandboxFault::ShowsState { path, state: self.state.clone() }),
            None => Ok(()),
        }
    }

    /// The folder of the system that holds the state, where one does: every program sees it.
    fn in_the_system(&self) -> Option<PathBuf> {
        cell::SYSTEM
            .iter()
            .map(|name| Path::new("/").join(name))
            .find(|folder| self.state.starts_with(folder))
    }
}

/// Where a path leads, as far as it is there.
fn really(path: &Path) -> PathBuf {
    let found = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
    path.ancestors().find_map(found).unwrap_or_else(|| path.to_owned())
}

/// Processes are found, looked into and ended by what `/proc` says. One of another pid namespace speaks of others.
fn refuse_foreign_proc() -> Result<(), SandboxFault> {
    let said = rustix::fs::readlink("/proc/self", Vec::new()).ok();
    match said.is_some_and(|said| said.to_bytes() == std::process::id().to_string().as_bytes()) {
        true => Ok(()),
        false => Err(SandboxFault::Unavailable {
            wanted: Tier::NoUserns,
            reasons: vec![
                "/proc is missing, or of another pid namespace; mount one (`unshare` does with --mount-proc)"
                    .to_owned(),
            ],
        }),
    }
}

/// As many open files as this process may have, and the launcher with it. Descriptors that a program leaves on their way between
/// sockets count against all of its user's processes, each by its own limit: ours is to be larger than a program's.
fn more_descriptors() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now });
}

/// More lists than these are not remembered.
const MOST_LISTS: usize = 64;

/// A launcher and what is known about the kernel.
#[derive(Debug)]
pub struct Sandbox {
    control: Arc<OwnedFd>,
    launcher: Mutex<Child>,
    pub(crate) places: Places,
    features: OnceLock<Features>,
    pub(crate) landlock_abi: i32,
    pub(crate) footing: launcher::Footing,
    pub(crate) walks: Mutex<HashMap<(PathBuf, Vec<String>), Walk>>,
    pub(crate) homes: Mutex<Homes>,
    pub(crate) aside: Aside,
    pub(crate) swept: Once,
    /// Lists of names that were compiled.
    names: Mutex<HashMap<Vec<String>, Arc<BlockList>>>,
    pub(crate) offers: Mutex<Vec<Offered>>,
    /// Whether Landlock's records cannot be heard; known once that was tried.
    pub(crate) deaf: AtomicBool,
    /// How many runs are on.
    active: Arc<()>,
}

impl Sandbox {
    /// Starts the launcher: `program` is this program, or another one that begins with [`launcher::main`] when its
    /// first argument is [`launcher::ARGUMENT`].
    #[expect(clippy::disallowed_methods, reason = "the launcher itself, with an empty environment")]
    pub fn start(program: &Path, places: Places) -> Result<Self, SandboxFault> {
        refuse_foreign_proc()?;
        more_descriptors();
        let (ours, theirs) = message::pair().map_err(SandboxFault::system("the launcher's socket"))?;
        let launcher = Command::new(program)
            .arg(launcher::ARGUMENT)
            .arg(std::path::absolute(places.of_tasks()).unwrap_or_default())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| SandboxFault::System { what: "cannot start the launcher", source })?;
        Ok(Self {
            control: Arc::new(ours),
            launcher: Mutex::new(launcher),
            places,
            features: OnceLock::new(),
            landlock_abi: cell::landlock_abi(),
            footing: launcher::Footing::now(),
            walks: Mutex::new(HashMap::new()),
            homes: Mutex::new(HashMap::new()),
            aside: Aside::default(),
            swept: Once::new(),
            names: Mutex::new(HashMap::new()),
            offers: Mutex::default(),
            deaf: AtomicBool::new(false),
            active: Arc::default(),
        })
    }

    /// What the kernel really does, tried once.
    pub fn features(&self) -> Result<&Features, SandboxFault> {
        if let Some(features) = self.features.get() {
            return Ok(features);
        }
        let (ours, theirs) = message::pair().map_err(SandboxFault::system("the launcher's socket"))?;
        self.send(&Request::Probe, &[theirs.as_fd()])?;
        drop(theirs);
        let received = message::receive(ours.as_fd()).map_err(|_| SandboxFault::LauncherGone)?;
        match wire::unpack::<Report>(&received.bytes) {
            Ok(Report::Features(features)) => Ok(self.features.get_or_init(|| features)),
            _ => Err(SandboxFault::LauncherGone),
        }
    }

    /// Keeps so many cells ready for runs of tier full; each is used once.
    pub fn keep_warm(&self, cells: usize) -> Result<(), SandboxFault> {
        self.send(&Request::Warm(cells), &[])
    }

    /// The folders that it was started with.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Whether a path can be granted to a program at all.
    #[must_use]
    pub fn may_show(&self, path: &Path) -> bool {
        order::outside_system(path).is_ok_and(|path| !self.places.are_seen_in(&path))
    }

    /// The launcher's process id.
    #[must_use]
    pub fn launcher_id(&self) -> u32 {
        self.launcher.lock().id()
    }

    pub(crate) fn control(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.control)
    }

    /// Counts a run as long as it is kept.
    pub(crate) fn one_more(&self) -> Arc<()> {
        Arc::clone(&self.active)
    }

    /// Whether no more than one run is on.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.active) <= 2
    }

    pub(crate) fn send(&self, request: &Request, handles: &[BorrowedFd<'_>]) -> Result<(), SandboxFault> {
        let packed = wire::pack(request).map_err(SandboxFault::system("the launcher's socket"))?;
        message::send(self.control.as_fd(), &packed, handles).map_err(|errno| match errno {
            Errno::PIPE | Errno::CONNRESET => SandboxFault::LauncherGone,
            errno => SandboxFault::System { what: "the launcher's socket", source: errno.into() },
        })
    }

    /// The tier of the next run: what was asked for, or the strongest as far as is known.
    pub(crate) fn tier(&self, only: Option<Tier>) -> Tier {
        only.or_else(|| self.features.get().and_then(Features::tier)).unwrap_or(Tier::Full)
    }

    /// A list of names, compiled; most runs have the same ones.
    pub(crate) fn names(&self, list: &[String]) -> Result<Arc<BlockList>, SandboxFault> {
        if let Some(known) = self.names.lock().get(list) {
            return Ok(Arc::clone(known));
        }
        let made = BlockList::new(list).map_err(|bad| SandboxFault::Refused(bad.to_string()))?;
        let made = Arc::new(made);
        let mut known = self.names.lock();
        if known.len() >= MOST_LISTS {
            known.clear();
        }
        known.insert(list.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    /// A name for one run's folder. Root's lie where everybody can make folders: nobody can take it before.
    pub(crate) fn next_name() -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let drawn = RandomState::new().build_hasher().finish();
        format!("{}-{}-{drawn:016x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // One that is gone needs no word.
        let _ = self.send(&Request::Leave, &[]);
        // The launcher sees that nothing more comes, ends what it still runs, cleans up and goes. The socket is closed after
        // that: closed over something unread, it would take the last word with it.
        let _ = rustix::net::shutdown(&self.control, Shutdown::Write);
        // What waits for an order of ours waits no more.
        self.offers.get_mut().clear();
        let _ = self.launcher.lock().wait();
    }
}
