//! Confines the program's process: resource limits, identity, capabilities, Landlock, seccomp filter; then the exec.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Access as Can, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};

use super::{CellRun, Prebuilt, landlock_rules, send_report};
use crate::changes::digest as digest_of;
use crate::error::{FailedStep, StepContext as _};
use crate::filter::{Confinement, Profile};
use crate::spec::{NetworkMode, Observe, RunLimits};
use crate::sys::seccomp::Instruction;
use crate::sys::{capability, process, seccomp};
use crate::tier::Tier;
use crate::wire::{Bytes, ExpectedFilter, RunIdentity, RunReport, RunRequest, c_text};

/// The Landlock ABI of the kernel; 0 when there is none.
pub(crate) fn landlock_abi() -> i32 {
    // SAFETY: with this flag the kernel only returns its version; no memory is involved.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// First Landlock ABI that handles truncation; without that a read-only file could be emptied.
const MIN_LANDLOCK_ABI: i32 = 3;

/// Why no program can run with this Landlock ABI.
pub(crate) fn landlock_problem(abi: i32) -> Option<String> {
    match abi {
        0 => Some("the kernel has none, or it is not enabled".to_owned()),
        old if old < MIN_LANDLOCK_ABI => Some(format!("ABI {old}, which does not handle truncation")),
        _ => None,
    }
}

/// Drops the privileges that the init of a cell no longer needs. File capabilities are out of bounds since the
/// zygote, or since the cell's user namespace was created.
pub(super) fn drop_privileges(identity: RunIdentity) -> Result<(), FailedStep> {
    take(identity).step("identity")?;
    capability::drop_all().step("capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    // Changing the identity cleared the parent death signal.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")?;
    // The program has the same user and must not be able to ptrace this process.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("dumpable")
}

/// Switches to another user, if the run has one.
pub(crate) fn take(identity: RunIdentity) -> Result<(), Errno> {
    if !identity.must_switch {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// A filter compiled for an expected run.
pub(super) struct PreparedFilter {
    profile: Profile,
    filter: Vec<Instruction>,
}

impl PreparedFilter {
    pub(super) fn new(confinement: Confinement, expected: ExpectedFilter, prebuilt: &Prebuilt) -> Self {
        let ExpectedFilter { network, observe } = expected;
        let profile = Profile { network, observe, confinement, guarded: Vec::new(), part: prebuilt.part };
        Self { filter: prebuilt.filter(&profile), profile }
    }
}

/// The part of the confinement that is done before the run request.
#[derive(Default)]
pub(super) struct EarlyConfinement {
    done: bool,
    /// The installed filter, and its listener unless that was sent already.
    filter: Option<(PreparedFilter, Option<OwnedFd>)>,
}

impl EarlyConfinement {
    pub(super) fn take_listener(&mut self) -> Option<OwnedFd> {
        self.filter.as_mut().and_then(|(_, listener)| listener.take())
    }
}

/// The part that needs no run request, in a process that waits for one; makes system calls only. Errors are ignored
/// here; the step is repeated, and reported, when the request has arrived.
pub(super) fn confine_early(identity: RunIdentity, planned: Option<PreparedFilter>) -> EarlyConfinement {
    if begin(identity).is_err() || rustix::thread::set_no_new_privs(true).is_err() {
        std::mem::forget(planned);
        return EarlyConfinement::default();
    }
    // Install a filter only if it is expected: it cannot be removed.
    let filter = planned.and_then(|planned| match install(&planned.profile, &planned.filter) {
        Ok(listener) => Some((planned, listener)),
        Err(_) => {
            std::mem::forget(planned);
            None
        }
    });
    EarlyConfinement { done: true, filter }
}

/// Installs a filter in the calling process; returns the listener if the filter notifies one.
fn install(profile: &Profile, filter: &[Instruction]) -> Result<Option<OwnedFd>, FailedStep> {
    if profile.observe == Observe::Off && profile.network != NetworkMode::Gated {
        return seccomp::install(filter).step("seccomp").map(|()| None);
    }
    seccomp::install_with_listener(filter).step("seccomp listener").map(Some)
}

/// New session, target identity, no privilege.
fn begin(identity: RunIdentity) -> Result<(), FailedStep> {
    process::unblock_signals();
    rustix::process::setsid().step("session")?;
    take(identity).step("identity")?;
    capability::drop_all().step("capabilities")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")
}

/// Confines the calling process and executes the program; returns the error of the last exec when that fails.
///
/// Until then memory is shared with the parent: what is per memory and not per process (dumpable) is not changed
/// here. The program gets its own memory, which it may inspect.
pub(super) fn confine(
    run: &CellRun,
    confinement: Confinement,
    identity: RunIdentity,
    ready: EarlyConfinement,
    prebuilt: &mut Prebuilt,
    last: &dyn Fn(),
) -> Result<StartFailure, FailedStep> {
    let request = &run.request;
    if !ready.done {
        begin(identity)?;
    }
    let [input, output, error] = &run.streams;
    rustix::stdio::dup2_stdin(input).step("standard input")?;
    rustix::stdio::dup2_stdout(output).step("standard output")?;
    rustix::stdio::dup2_stderr(error).step("standard error")?;
    limit(&request.limits, confinement, identity, run, prebuilt.bounds).step("limits")?;
    rustix::process::umask(Mode::from_raw_mode(request.umask & 0o777));
    // Chosen by the caller, so an error is not one of the confinement.
    if let Err(errno) = c_text(&request.cwd).and_then(|cwd| process::go_to(&cwd)) {
        return Ok(StartFailure::Refused(errno));
    }
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    landlock_rules::landlock(request, confinement, prebuilt.base.take())
        .map_err(|errno| FailedStep { name: "landlock", errno })?;
    let ExecStrings { arguments, environment, candidates } = exec_strings(request).step("program")?;
    process::close_on_exec_from(3).step("descriptors")?;
    let profile = Profile {
        network: request.network,
        observe: request.observe,
        confinement,
        guarded: if request.landlock_abi < 6 { request.guarded.clone() } else { Vec::new() },
        part: prebuilt.part,
    };
    let listener = match ready.filter {
        Some((installed, listener)) if installed.profile == profile => listener,
        // The installed filter would notify a listener that does not exist.
        Some(_) => return Err(FailedStep { name: "seccomp", errno: Errno::INVAL }),
        None => install(&profile, &prebuilt.filter(&profile))?,
    };
    if let Some(listener) = listener {
        send_report(run.report.as_fd(), &RunReport::Listener, &[listener.as_fd()])
            .step("seccomp listener")?;
    }
    if request.audited {
        send_report(run.report.as_fd(), &RunReport::Begins, &[]).step("report")?;
    }
    // Last: the kernel counts descriptors in flight of all runs of this user against this limit on every send.
    let [.., (resource, bound)] = prebuilt.bounds.0;
    set(resource, request.limits.open_files, bound).step("limits")?;
    last();
    if let (Some(digest), Some(candidate)) = (request.digest, candidates.first()) {
        return Ok(execute_pinned(candidate, digest, &arguments, &environment));
    }
    let mut refused = Errno::NOENT;
    for candidate in candidates {
        refused = process::execute(&candidate, &arguments, &environment);
    }
    Ok(StartFailure::Refused(refused))
}

/// Why the program did not start.
pub(super) enum StartFailure {
    /// The error of the kernel.
    Refused(Errno),
    /// The file does not have the expected digest.
    Replaced,
}

/// Executes exactly the file that was hashed, by its handle: a name that is replaced meanwhile has no effect. An
/// interpreter reads a script later, so a script is copied to a sealed memfd, and the copy is hashed and executed. A
/// binary can be modified in place, by a process with write access, between the hash and the exec.
fn execute_pinned(
    program: &std::ffi::CStr,
    digest: [u8; 32],
    arguments: &[std::ffi::CString],
    environment: &[std::ffi::CString],
) -> StartFailure {
    let opened = rustix::fs::open(program, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map(std::fs::File::from).and_then(|file| {
        // Check the execute permission of the original; the copy has its own.
        rustix::fs::access(program, Can::EXEC_OK)?;
        let file = if is_script(&file)? { sealed_copy(file)? } else { file };
        Ok((digest_of(&file)?, file))
    });
    match opened {
        Ok((found, _)) if found != digest => StartFailure::Replaced,
        Ok((_, file)) => StartFailure::Refused(process::execute_handle(file.as_fd(), arguments, environment)),
        Err(errno) => StartFailure::Refused(errno),
    }
}

fn is_script(file: &std::fs::File) -> Result<bool, Errno> {
    let mut first = [0; 2];
    Ok(rustix::io::pread(file, &mut first, 0)? == 2 && first == *b"#!")
}

/// Copies a file into a sealed memfd.
fn sealed_copy(mut file: std::fs::File) -> Result<std::fs::File, Errno> {
    use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
    let io = |error: std::io::Error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match rustix::fs::memfd_create(c"script", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 the flag does not exist and is not needed.
        Err(Errno::INVAL) => rustix::fs::memfd_create(c"script", flags),
        made => made,
    };
    let mut copy = std::fs::File::from(made?);
    std::io::copy(&mut file, &mut copy).map_err(io)?;
    rustix::fs::fcntl_add_seals(
        &copy,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    rustix::fs::seek(&copy, SeekFrom::Start(0))?;
    Ok(copy)
}

type CStrings = Vec<std::ffi::CString>;

/// The C strings for exec.
pub(super) struct ExecStrings {
    arguments: CStrings,
    environment: CStrings,
    /// Paths to try.
    candidates: CStrings,
}

pub(super) fn exec_strings(request: &RunRequest) -> Result<ExecStrings, Errno> {
    let all = |list: &[Bytes]| list.iter().map(|text| c_text(text)).collect::<Result<CStrings, Errno>>();
    let (arguments, environment) = (all(&request.arguments)?, all(&request.environment)?);
    Ok(ExecStrings { arguments, environment, candidates: candidates(request)? })
}

/// Paths to try: as named, or the first match in `PATH`.
fn candidates(request: &RunRequest) -> Result<CStrings, Errno> {
    if request.program.starts_with(b"/") {
        return Ok(vec![c_text(&request.program)?]);
    }
    if request.program.contains(&b'/') {
        return Ok(vec![c_text(&[request.cwd.as_slice(), b"/", &request.program].concat())?]);
    }
    for dir in &request.path {
        let path = c_text(&[dir.as_slice(), b"/", &request.program].concat())?;
        if rustix::fs::access(&path, Can::EXEC_OK).is_ok() {
            return Ok(vec![path]);
        }
    }
    Ok(Vec::new())
}

/// Limited resources, in the order of [`limit`]'s values; the last is set separately.
const RESOURCES: [Resource; 9] = [
    Resource::Core,
    Resource::Fsize,
    Resource::Cpu,
    Resource::Data,
    Resource::Nproc,
    Resource::Memlock,
    Resource::Msgqueue,
    Resource::Sigpending,
    Resource::Nofile,
];

/// Memory limit of a single process as a multiple of the tree's limit, where the tree is only polled.
const POLLED_MEMORY_FACTOR: u64 = 8;

/// Limits that are inherited: none is raised.
#[derive(Debug, Clone, Copy)]
pub(super) struct InheritedLimits([(Resource, Option<u64>); RESOURCES.len()]);

impl InheritedLimits {
    pub(super) fn now() -> Self {
        Self(RESOURCES.map(|resource| (resource, rustix::process::getrlimit(resource).maximum)))
    }
}

fn limit(
    limits: &RunLimits,
    confinement: Confinement,
    identity: RunIdentity,
    run: &CellRun,
    bounds: InheritedLimits,
) -> Result<(), Errno> {
    let processes = match confinement {
        // Counted per sandbox: it has its own user namespace, or its own user id.
        Confinement::Namespaces => limits.processes,
        // Counted with all other processes of the user; but a separate user id has no others.
        Confinement::LandlockOnly if identity.must_switch => limits.processes,
        Confinement::LandlockOnly => {
            let others = run.go.others.unwrap_or_else(super::count_user_processes);
            limits.processes.saturating_add(others)
        }
    };
    // Without a private file system, disk usage is only polled.
    let file = match confinement {
        Confinement::Namespaces => limits.file_size,
        Confinement::LandlockOnly => limits.file_size.min(limits.disk),
    };
    // Memory is limited for the tree: a process that needs too much is to be killed, and that reported, rather than
    // get an allocation error and exit with a code of its own. Where the tree is polled, this limit keeps a single
    // process from allocating everything at once.
    let data = match run.request.tier {
        _ if run.go.memory_limited => u64::MAX,
        // Usage cannot be polled without /proc.
        Tier::FullNoProc => limits.memory,
        _ => limits.memory.saturating_mul(POLLED_MEMORY_FACTOR),
    };
    let wanted = [
        // One byte, not zero: with a pipe handler in core_pattern only the value 1 suppresses the dump (core(5)).
        1,
        file,
        limits.cpu_seconds,
        data,
        processes,
        64 << 10,
        800 << 10,
        1024,
    ];
    bounds.0.into_iter().zip(wanted).try_for_each(|((resource, bound), most)| set(resource, most, bound))
}

fn set(resource: Resource, most: u64, bound: Option<u64>) -> Result<(), Errno> {
    let most = bound.map_or(most, |bound| bound.min(most));
    rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}
