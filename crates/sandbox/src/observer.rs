//! The observer reports denials. System calls that change something, and program starts, stop at the seccomp filter and
//! wait for its reply. What the sandbox would deny anyway is denied at once and reported; everything else continues and
//! is judged by the kernel. The observer grants nothing: a call that continues still meets every restriction.
//!
//! A path is read from the program's memory and looked up through the program's own root, so the report shows what the
//! kernel would have found a moment later. A program that changes the path in between only spoils its own report.
//!
//! The thread that serves the run never waits for a file system: a path that the kernel cannot answer from its caches
//! is inspected by a separate thread, which may hang forever.

mod path_lookup;
mod process_memory;
mod syscall;

use std::collections::HashSet;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;

use parking_lot::Mutex;

use crate::cell;
use crate::denial::{Certainty, DenialLog, DenialRule, DenialSource, DeniedOperation, SandboxDenial};
use crate::filter::{Confinement, is_always_denied, wants_set_id};
use crate::landlock_audit::{LandlockRight, RunDenials};
use crate::network::{NetworkGate, connect_hint};
use crate::spec::Observe;
use crate::sys::seccomp_notify::{self, NotifyRequest};
use crate::tier::Tier;
use crate::wire::{RunRequest, WorkspaceView};
use path_lookup::{
    base_of, follow_symlinks, interpreter, is_mounted, open_in, open_path, real_path, without_parents,
};
pub(crate) use process_memory::ProcessMemory;
use syscall::SyscallPaths;

/// After this many calls of one run, a thread of its own answers them.
const MAX_INLINE_CALLS: u32 = 32;
/// Maximum number of callers in the cache: programs write many files from few threads.
const MAX_CACHED_CALLERS: usize = 16;

/// Names that mean something else for every process.
const PER_PROCESS_PATHS: [&str; 6] =
    ["/proc/self", "/proc/thread-self", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// Every program here starts a new session and has no controlling terminal: opening this name fails with ENXIO, sandbox or
/// not.
const TERMINAL: &str = "/dev/tty";

/// The observer of one run.
pub(crate) struct Observer {
    listener: OwnedFd,
    tier: Tier,
    workspace: PathBuf,
    shows_workspace: bool,
    masked: HashSet<PathBuf>,
    writable: Vec<PathBuf>,
    /// What Landlock lets the program read, if more than that is visible.
    readable: Vec<PathBuf>,
    /// Whether reads are observed too.
    observes_reads: bool,
    /// Paths, and whether they are writable. A write lexically below a writable one, with no other path of this list in
    /// between, continues without inspection: the kernel judges it anyway.
    places: Vec<(Vec<u8>, bool)>,
    gate: Option<Arc<dyn NetworkGate>>,
    /// The last callers; cleared when a program is started.
    callers: Vec<CachedCaller>,
    /// The path of the current call.
    path_text: Vec<u8>,
    answered: u32,
    /// Whether this runs in its own thread, which may block.
    may_block: bool,
    /// A call that waits for that thread.
    deferred: Option<NotifyRequest>,
    denial_log: Arc<Mutex<DenialLog>>,
}

/// A thread of the program that made an observed call before.
struct CachedCaller {
    pid: u32,
    memory: ProcessMemory,
    /// Its working directory; forgotten when any caller changes its own, since threads share theirs. Only used to let a
    /// call continue: if it is out of date, the kernel still judges the call.
    cwd: Option<Vec<u8>>,
}

/// The observer's reply to a call.
enum ObserverReply {
    Continue,
    /// It continues; the kernel will deny it.
    Report(SandboxDenial),
    /// It is denied here.
    Deny(SandboxDenial),
    /// It fails here as it would without a sandbox.
    Fail(Errno),
    /// Inspecting it may block: left to the observer's own thread.
    Defer,
}

impl Observer {
    pub(crate) fn new(listener: OwnedFd, request: &RunRequest) -> Self {
        seccomp_notify::enable_sync_wakeup(listener.as_fd());
        let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
        let workspace = path(&request.workspace);
        let observes_reads = request.observe == Observe::All;
        let mut places: Vec<(Vec<u8>, bool)> =
            request.write.iter().map(|path| (path.clone(), true)).collect();
        places.push((b"/dev/null".to_vec(), true));
        if request.tier != Tier::NoUserns {
            // Not the home directory: what exists in the user's and not in this one is reported.
            places.extend([b"/tmp".to_vec(), b"/dev/shm".to_vec()].map(|path| (path, true)));
            places.push((request.home.clone(), false));
            places.push((
                request.workspace.clone(),
                matches!(request.view, WorkspaceView::Fresh | WorkspaceView::Layered),
            ));
            places.extend(request.read.iter().chain(&request.toolchains).map(|path| (path.clone(), false)));
        }
        let mut writable: Vec<PathBuf> = request.write.iter().map(|bytes| path(bytes)).collect();
        writable.extend(["/dev/null", "/dev/zero", "/dev/full"].map(PathBuf::from));
        Self {
            listener,
            tier: request.tier,
            masked: masked(request),
            workspace,
            shows_workspace: matches!(request.view, WorkspaceView::Read | WorkspaceView::Layered),
            writable,
            readable: Vec::new(),
            observes_reads,
            places,
            gate: None,
            callers: Vec::new(),
            path_text: Vec::new(),
            answered: 0,
            may_block: false,
            deferred: None,
            denial_log: Arc::default(),
        }
    }

    /// With an egress gate, which gets hints about connections.
    pub(crate) fn with_gate(mut self, gate: Option<Arc<dyn NetworkGate>>) -> Self {
        self.gate = gate;
        self
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The denial log, shared with the observer's own thread.
    pub(crate) fn denial_log(&self) -> Arc<Mutex<DenialLog>> {
        Arc::clone(&self.denial_log)
    }

    /// Whether the observer needs its own thread: many calls, or one whose inspection may block.
    pub(crate) fn is_busy(&self) -> bool {
        self.answered >= MAX_INLINE_CALLS || self.deferred.is_some()
    }

    /// Lets a deferred call continue uninspected, because the thread could not be spawned.
    pub(crate) fn release_deferred(&mut self) {
        if let Some(notice) = self.deferred.take() {
            self.denial_log.lock().mark_missing();
            let _ = seccomp_notify::go_on(self.listener.as_fd(), notice.id);
        }
    }

    /// Answers until the program has no process left. A call that finds this thread blocked in `receive` wakes it on the same
    /// CPU (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP), which halves the cost of an observed call.
    pub(crate) fn answer_all(mut self) {
        self.may_block = true;
        if let Some(notice) = self.deferred.take() {
            self.answer(&notice);
        }
        loop {
            match seccomp_notify::receive(self.listener.as_fd()) {
                Ok(notice) => self.answer(&notice),
                Err(Errno::INTR) => {}
                // The caller died meanwhile, or no process is left.
                Err(Errno::NOENT) if seccomp_notify::has_callers(self.listener.as_fd()) => {}
                Err(_) => return,
            }
        }
    }

    /// Answers one waiting call. Many programs make none, so what is only needed here is computed with the first.
    pub(crate) fn answer_next(&mut self, request: &RunRequest) {
        if self.readable.is_empty() && !self.executes_anything_visible() {
            self.readable = cell::readable(request);
        }
        if let Ok(notice) = seccomp_notify::receive(self.listener.as_fd()) {
            self.answered += 1;
            self.answer(&notice);
        }
    }

    fn answer(&mut self, notice: &NotifyRequest) {
        if let Some(gate) =
            self.gate.as_ref().filter(|_| libc::c_long::from(notice.number) == libc::SYS_connect)
        {
            return connect_hint::answer(self.listener.as_fd(), notice, gate.as_ref());
        }
        let said = self.judge(notice);
        if matches!(libc::c_long::from(notice.number), libc::SYS_execve | libc::SYS_execveat) {
            // A new program has new memory; the old memory may live on in processes that shared it.
            self.callers.clear();
        }
        if matches!(said, ObserverReply::Defer) {
            self.deferred = Some(*notice);
            return;
        }
        let listener = self.listener.as_fd();
        // Logged before the reply: the caller may exit at once, and the run with it. A caller that died needs no reply.
        let _ = match said {
            ObserverReply::Continue | ObserverReply::Defer => seccomp_notify::go_on(listener, notice.id),
            ObserverReply::Report(denial) => {
                if seccomp_notify::still_waits(listener, notice.id) {
                    self.denial_log.lock().add(denial);
                }
                seccomp_notify::go_on(listener, notice.id)
            }
            ObserverReply::Deny(denial) => {
                self.denial_log.lock().add(denial);
                seccomp_notify::refuse(listener, notice.id, Errno::PERM)
            }
            ObserverReply::Fail(errno) => seccomp_notify::refuse(listener, notice.id, errno),
        };
    }

    fn judge(&mut self, notice: &NotifyRequest) -> ObserverReply {
        let number = libc::c_long::from(notice.number);
        if matches!(number, libc::SYS_chdir | libc::SYS_fchdir) {
            self.callers.iter_mut().for_each(|caller| caller.cwd = None);
            if number == libc::SYS_fchdir || !self.observes_reads {
                return ObserverReply::Continue;
            }
        }
        let confinement =
            if self.tier == Tier::NoUserns { Confinement::LandlockOnly } else { Confinement::Namespaces };
        let set_id = wants_set_id(number, &notice.arguments);
        let call =
            SyscallPaths::of(number, notice).filter(|_| !is_always_denied(number, confinement) && !set_id);
        let Some(call) = call else {
            return ObserverReply::Deny(SandboxDenial {
                operation: DeniedOperation::Call,
                path: {
                    let bit = if set_id { " with a set-id bit" } else { "" };
                    PathBuf::from(syscall::name(number, &notice.arguments) + bit)
                },
                rule: DenialRule::Filter,
                right: None,
                source: DenialSource::Observer,
                certainty: Certainty::Denied,
            });
        };
        let mut verdict = ObserverReply::Continue;
        for (operation, dir, address) in call.paths.iter().flatten() {
            let said = self.judge_path(notice.pid, *dir, *address, *operation).unwrap_or_else(|errno| {
                // A caller that died is denied nothing, nor is one whose address holds no path.
                let blind = matches!(errno, Errno::ACCESS | Errno::PERM);
                if blind && seccomp_notify::still_waits(self.listener.as_fd(), notice.id) {
                    self.denial_log.lock().mark_missing();
                }
                ObserverReply::Continue
            });
            match (said, &verdict) {
                (ObserverReply::Continue, _) => {}
                (ObserverReply::Report(denial) | ObserverReply::Deny(denial), _)
                    if syscall::opens(number) && denial.path == Path::new(TERMINAL) =>
                {
                    return ObserverReply::Fail(Errno::NXIO);
                }
                (said @ (ObserverReply::Report(_) | ObserverReply::Deny(_)), ObserverReply::Continue) => {
                    verdict = said
                }
                // A rename is denied at both ends: both are reported.
                (ObserverReply::Report(denial) | ObserverReply::Deny(denial), _) => {
                    self.denial_log.lock().add(denial)
                }
                (other, _) => return other,
            }
        }
        verdict
    }

    /// An error if the path of the call cannot be read.
    fn judge_path(
        &mut self,
        pid: u32,
        dir: i32,
        address: u64,
        operation: DeniedOperation,
    ) -> Result<ObserverReply, Errno> {
        let at = self.read_path(pid, address)?;
        if self.path_text.is_empty() {
            // An empty path: an error from the kernel, or a descriptor that is already open.
            return Ok(ObserverReply::Continue);
        }
        let changes = operation.changes();
        // With `Observe::All` every path is inspected.
        let quick = changes && !self.observes_reads;
        let absolute = self.path_text.starts_with(b"/");
        if quick && absolute && self.is_plainly_writable(&self.path_text) {
            return Ok(ObserverReply::Continue);
        }
        let here = dir == libc::AT_FDCWD && !absolute;
        if quick
            && here
            && let Some(cwd) = self.callers.get(at).and_then(|caller| caller.cwd.as_deref())
            && self.is_plainly_writable(&[cwd, b"/".as_slice(), &self.path_text].concat())
        {
            return Ok(ObserverReply::Continue);
        }
        let base = base_of(pid, dir, absolute)?;
        let path = base.join(std::ffi::OsStr::from_bytes(&self.path_text));
        if here && let Some(caller) = self.callers.get_mut(at) {
            caller.cwd = Some(base.into_os_string().into_vec());
        }
        let is_plainly_writable = quick && self.is_plainly_writable(path.as_os_str().as_bytes());
        // These names mean something else for the observer than for the caller.
        if is_plainly_writable || PER_PROCESS_PATHS.iter().any(|own| path.starts_with(own)) {
            return Ok(ObserverReply::Continue);
        }
        let root = rustix::fs::open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if !self.may_block {
            let harmless = !changes && self.is_unremarkable(&root, &path);
            return Ok(if harmless { ObserverReply::Continue } else { ObserverReply::Defer });
        }
        self.denial_log.lock().inspecting(true);
        let said = match changes {
            true => self.judge_change(&root, path, operation),
            false => self.judge_look(&root, path, operation),
        };
        self.denial_log.lock().inspecting(false);
        Ok(said)
    }

    /// Whether a read has nothing to report, as far as the kernel knows from its caches, without any disk or network.
    fn is_unremarkable(&self, root: &OwnedFd, path: &Path) -> bool {
        // Crossing into a mount may ask a server about its root even if the name is cached.
        let near = ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        let known = if self.tier == Tier::NoUserns { near } else { ResolveFlags::CACHED };
        let nowhere = |found: Result<OwnedFd, Errno>| matches!(found, Err(Errno::NOENT));
        match open_in(root, path, OFlags::empty(), known) {
            Ok(found) => {
                let shown = real_path(&found).is_some_and(|real| !is_masked(&self.masked, &real));
                shown && (self.executes_anything_visible() || self.may_read(&found))
            }
            Err(Errno::NOENT) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let outside = || rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), near);
                nowhere(open_in(root, path, OFlags::NOFOLLOW, known)) && nowhere(outside())
            }
            Err(_) => false,
        }
    }

    /// Reads the path of a call into `path_text`; returns the caller's index in the cache.
    fn read_path(&mut self, pid: u32, address: u64) -> Result<usize, Errno> {
        let known = self.callers.iter().enumerate().find(|(_, caller)| caller.pid == pid);
        if let Some((at, caller)) = known {
            if caller.memory.read_text(address, &mut self.path_text).is_ok() {
                return Ok(at);
            }
            // That memory is gone, and the pid belongs to another process now.
            self.callers.swap_remove(at);
        }
        let memory = ProcessMemory::of(pid)?;
        memory.read_text(address, &mut self.path_text)?;
        if self.callers.len() >= MAX_CACHED_CALLERS {
            self.callers.clear();
        }
        self.callers.push(CachedCaller { pid, memory, cwd: None });
        Ok(self.callers.len() - 1)
    }

    fn is_plainly_writable(&self, path: &[u8]) -> bool {
        let below = |place: &[u8]| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let around = self.places.iter().filter(|(place, _)| below(place));
        !path.split(|byte| *byte == b'/').any(|part| part == b"..")
            && around.max_by_key(|(place, _)| place.len()).is_some_and(|(_, open)| *open)
    }

    fn judge_change(&self, root: &OwnedFd, path: PathBuf, operation: DeniedOperation) -> ObserverReply {
        let path = match operation {
            DeniedOperation::Write => follow_symlinks(root, path),
            // The symlink itself is deleted or renamed.
            _ => path,
        };
        // The entry itself, or the directory that it would be created in. What was granted by its own path cannot be moved,
        // and neither can mounts in a workspace, which no grant covers.
        let dir = path.parent().unwrap_or_else(|| Path::new("/"));
        let itself = !operation.changes_directory() || path.starts_with(&self.workspace);
        let follow = if operation.changes_directory() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let there = match itself {
            true => open_in(root, &path, follow, ResolveFlags::empty()),
            false => Err(Errno::NOENT),
        };
        let Ok(found) = there.or_else(|_| open_path(root, dir)) else {
            let there = self.is_hidden(&path) || self.is_hidden(dir);
            return if there {
                predicted(operation, path, DenialRule::NotShown)
            } else {
                ObserverReply::Continue
            };
        };
        let rule = if self.tier == Tier::NoUserns {
            let Some(real) = real_path(&found) else { return ObserverReply::Continue };
            if self.writable.iter().any(|granted| real.starts_with(granted)) {
                return ObserverReply::Continue;
            }
            DenialRule::NotGranted
        } else {
            match rustix::fs::fstatvfs(&found) {
                Ok(facts) if facts.f_flag.contains(StatVfsMountFlags::RDONLY) => DenialRule::ReadOnly,
                // A directory to move to that exists on the host only and is not visible.
                _ if path.as_os_str().as_bytes().ends_with(b"/")
                    && open_path(root, &path).is_err()
                    && self.is_hidden(&path) =>
                {
                    let moved = operation == DeniedOperation::MoveTo;
                    return if moved {
                        predicted(operation, path, DenialRule::NotShown)
                    } else {
                        ObserverReply::Continue
                    };
                }
                // What was granted by its own path cannot be moved.
                _ if !itself && is_mounted(root, &path) => {
                    return predicted(operation, path, DenialRule::NotGranted);
                }
                _ => {
                    // The program has created the directory meanwhile.
                    self.denial_log.lock().remove_predicted(&path, DenialRule::NotShown);
                    return ObserverReply::Continue;
                }
            }
        };
        let certainty = Certainty::Denied;
        ObserverReply::Deny(SandboxDenial {
            operation,
            path,
            rule,
            right: None,
            source: DenialSource::Observer,
            certainty,
        })
    }

    /// What exists on the host but not in the sandbox was not found because it is not visible. What exists in the sandbox may
    /// still be denied by Landlock.
    fn judge_look(&self, root: &OwnedFd, path: PathBuf, operation: DeniedOperation) -> ObserverReply {
        let path = without_parents(&follow_symlinks(root, path));
        let found = open_path(root, &path);
        if operation == DeniedOperation::Execute && self.observes_reads {
            self.judge_interpreter(root, &path, found.as_ref().ok());
        }
        let rule = if is_masked(&self.masked, &path) {
            DenialRule::Masked
        } else if let Ok(found) = &found {
            if operation == DeniedOperation::Look || self.executes_anything_visible() || self.may_read(found)
            {
                return ObserverReply::Continue;
            }
            DenialRule::NotGranted
        } else if self.is_hidden(&path) {
            DenialRule::NotShown
        } else {
            return ObserverReply::Continue;
        };
        predicted(operation, path, rule)
    }

    /// Reports the interpreter of a script: the kernel opens it without another system call.
    fn judge_interpreter(&self, root: &OwnedFd, script: &Path, found: Option<&OwnedFd>) {
        let script = match found {
            Some(found) => PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd())),
            None if self.is_hidden(script) => script.to_owned(),
            None => return,
        };
        let Some(interpreter) = interpreter(&script) else { return };
        // If the interpreter is a script itself, its own interpreter is not reported.
        let path = without_parents(&follow_symlinks(root, interpreter));
        let rule = match open_path(root, &path) {
            Ok(found) if !self.may_read(&found) => DenialRule::NotGranted,
            Err(_) if self.is_hidden(&path) => DenialRule::NotShown,
            _ => return,
        };
        if let ObserverReply::Report(denial) = predicted(DeniedOperation::Execute, path, rule) {
            self.denial_log.lock().add(denial);
        }
    }

    /// Whether a path that does not exist in the sandbox exists on the host.
    fn is_hidden(&self, path: &Path) -> bool {
        self.tier != Tier::NoUserns
            && !(self.shows_workspace && path.starts_with(&self.workspace))
            && path.symlink_metadata().is_ok()
    }

    /// Whether only program starts are observed and everything visible may be executed: the mounts show nothing else.
    fn executes_anything_visible(&self) -> bool {
        !self.observes_reads && self.tier != Tier::NoUserns
    }

    /// Whether Landlock lets the program read an open entry, by its real path. Entries of processes in `/proc` always count
    /// as readable: which process a number means changes.
    fn may_read(&self, found: &OwnedFd) -> bool {
        let Some(real) = real_path(found).filter(|real| real.is_absolute()) else { return true };
        let own = real
            .strip_prefix("/proc")
            .is_ok_and(|below| below.as_os_str().as_bytes().first().is_some_and(u8::is_ascii_digit));
        own || self.readable.iter().any(|granted| real.starts_with(granted))
    }
}

/// The call continues, and its denial is predicted.
fn predicted(operation: DeniedOperation, path: PathBuf, rule: DenialRule) -> ObserverReply {
    let certainty = Certainty::Predicted;
    ObserverReply::Report(SandboxDenial {
        operation,
        path,
        rule,
        right: None,
        source: DenialSource::Observer,
        certainty,
    })
}

fn masked(request: &RunRequest) -> HashSet<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let workspace = path(&request.workspace);
    let masks = request.masks.iter().map(|mask| workspace.join(path(&mask.path)));
    masks.chain(request.blank.iter().map(|bytes| path(bytes))).collect()
}

fn is_masked(masked: &HashSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|above| masked.contains(above))
}

/// Converts the kernel's records of Landlock denials, with the rule that explains each.
pub(crate) fn landlock_denials(denials: RunDenials, request: &RunRequest) -> Vec<SandboxDenial> {
    let masked = if denials.found.is_empty() { HashSet::new() } else { masked(request) };
    let denial = |(right, path): (&'static LandlockRight, PathBuf)| SandboxDenial {
        operation: right.operation,
        rule: if is_masked(&masked, &path) { DenialRule::Masked } else { DenialRule::NotGranted },
        path,
        right: Some(right.name),
        source: DenialSource::Landlock,
        certainty: Certainty::Denied,
    };
    denials.found.into_iter().filter(|(_, path)| path != Path::new(TERMINAL)).map(denial).collect()
}
