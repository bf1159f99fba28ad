//! Giving everything up: limits, identity, privileges, Landlock, the filter; then the program.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Access as Can, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{Gid, Uid};

use super::{Errand, Stock, rules, tell};
use crate::changes::digest as digest_of;
use crate::fault::{Named as _, Step};
use crate::filter::{Profile, Walls};
use crate::spec::{Limits, Network, Observe};
use crate::sys::seccomp::Instruction;
use crate::sys::{capability, process, seccomp};
use crate::tier::Tier;
use crate::wire::{Bytes, Expected, Identity, Order, Report, c_text};

/// The newest Landlock that the kernel has; 0 when there is none.
pub(crate) fn landlock_abi() -> i32 {
    // SAFETY: with this flag the kernel only tells its version; no memory is involved.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    i32::try_from(version).unwrap_or(0).max(0)
}

/// Landlock judges truncation from here on; without that a file that may only be read could be emptied.
const LEAST_LANDLOCK: i32 = 3;

/// Why no program is run with a Landlock of this version.
pub(crate) fn landlock_lacks(abi: i32) -> Option<String> {
    match abi {
        0 => Some("the kernel has none, or it is not switched on".to_owned()),
        old if old < LEAST_LANDLOCK => Some(format!("ABI {old}, which does not judge truncation")),
        _ => None,
    }
}

/// The first process gives up what it does not need any more. What a program could be given by a file is out of bounds
/// since the stage, or since the cell's user namespace began.
pub(super) fn give_up(identity: Identity) -> Result<(), Step> {
    take(identity).step("identity")?;
    capability::drop_all().step("capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    // Changing the identity untied us from the launcher.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")?;
    // The program may not look into this process, which has the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("dumpable")
}

/// Becomes another user, where it is to.
pub(crate) fn take(identity: Identity) -> Result<(), Errno> {
    if !identity.taken {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// A filter that is expected to be asked for.
pub(super) struct Planned {
    profile: Profile,
    filter: Vec<Instruction>,
}

impl Planned {
    pub(super) fn new(walls: Walls, expected: Expected, stock: &Stock) -> Self {
        let Expected { network, observe } = expected;
        let profile = Profile { network, observe, walls, guarded: Vec::new(), part: stock.part };
        Self { filter: stock.filter(&profile), profile }
    }
}

/// What of the confinement stands before there is an order.
#[derive(Default)]
pub(super) struct Ready {
    done: bool,
    /// The filter that is installed, and where its calls are answered unless that was told already.
    filter: Option<(Planned, Option<OwnedFd>)>,
}

impl Ready {
    pub(super) fn take_listener(&mut self) -> Option<OwnedFd> {
        self.filter.as_mut().and_then(|(_, listener)| listener.take())
    }
}

/// The part that needs no order, in a process that waits for one; system calls, and nothing else. What fails here is left,
/// and tried again and told when there is somebody to tell.
pub(super) fn get_ready(identity: Identity, planned: Option<Planned>) -> Ready {
    if begin(identity).is_err() || rustix::thread::set_no_new_privs(true).is_err() {
        std::mem::forget(planned);
        return Ready::default();
    }
    // A filter is installed only where it will be asked for: it cannot be taken away.
    let filter = planned.and_then(|planned| match install(&planned.profile, &planned.filter) {
        Ok(listener) => Some((planned, listener)),
        Err(_) => {
            std::mem::forget(planned);
            None
        }
    });
    Ready { done: true, filter }
}

/// Puts the calling process under a filter; gives where its calls are answered, where somebody is asked.
fn install(profile: &Profile, filter: &[Instruction]) -> Result<Option<OwnedFd>, Step> {
    if profile.observe == Observe::Off && profile.network != Network::Gated {
        return seccomp::install(filter).step("seccomp").map(|()| None);
    }
    seccomp::install_with_listener(filter).step("seccomp listener").map(Some)
}

/// A session of its own, as whom it shall be, without any privilege.
fn begin(identity: Identity) -> Result<(), Step> {
    process::unblock_signals();
    rustix::process::setsid().step("session")?;
    take(identity).step("identity")?;
    capability::drop_all().step("capabilities")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("death signal")
}

/// Confines the calling process and makes it the program; gives the last exec's error when that fails.
///
/// Until then the memory is shared with the process that made it: what is per memory and not per process (whether
/// it can be looked into) is not touched here. The program gets memory of its own, which it may look into.
pub(super) fn confine(
    errand: &Errand,
    walls: Walls,
    identity: Identity,
    ready: Ready,
    stock: &mut Stock,
    last: &dyn Fn(),
) -> Result<NotBegun, Step> {
    let order = &errand.order;
    if !ready.done {
        begin(identity)?;
    }
    let [input, output, error] = &errand.streams;
    rustix::stdio::dup2_stdin(input).step("standard input")?;
    rustix::stdio::dup2_stdout(output).step("standard output")?;
    rustix::stdio::dup2_stderr(error).step("standard error")?;
    limit(&order.limits, walls, identity, errand, stock.bounds).step("limits")?;
    rustix::process::umask(Mode::from_raw_mode(order.umask & 0o777));
    // Of the caller's choice, so no fault of the walls.
    if let Err(errno) = c_text(&order.cwd).and_then(|cwd| process::go_to(&cwd)) {
        return Ok(NotBegun::Refused(errno));
    }
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    rules::landlock(order, walls, stock.base.take()).map_err(|errno| Step { name: "landlock", errno })?;
    let Texts { arguments, environment, candidates } = texts(order).step("program")?;
    process::close_on_exec_from(3).step("descriptors")?;
    let profile = Profile {
        network: order.network,
        observe: order.observe,
        walls,
        guarded: if order.landlock_abi < 6 { order.guarded.clone() } else { Vec::new() },
        part: stock.part,
    };
    let listener = match ready.filter {
        Some((installed, listener)) if installed.profile == profile => listener,
        // It would ask somebody who is not there.
        Some(_) => return Err(Step { name: "seccomp", errno: Errno::INVAL }),
        None => install(&profile, &stock.filter(&profile))?,
    };
    if let Some(listener) = listener {
        tell(errand.report.as_fd(), &Report::Listener, &[listener.as_fd()]).step("seccomp listener")?;
    }
    if order.audited {
        tell(errand.report.as_fd(), &Report::Begins, &[]).step("report")?;
    }
    // Last: what other runs of this user have on its way between sockets counts against it whenever one is sent.
    let [.., (resource, bound)] = stock.bounds.0;
    set(resource, order.limits.open_files, bound).step("limits")?;
    last();
    if let (Some(digest), Some(candidate)) = (order.digest, candidates.first()) {
        return Ok(execute_pinned(candidate, digest, &arguments, &environment));
    }
    let mut refused = Errno::NOENT;
    for candidate in candidates {
        refused = process::execute(&candidate, &arguments, &environment);
    }
    Ok(NotBegun::Refused(refused))
}

/// Why the program did not begin.
pub(super) enum NotBegun {
    /// The kernel's word.
    Refused(Errno),
    /// The file is not the one that was meant.
    Replaced,
}

/// Executes the very file that was hashed, by its handle: a name that leads elsewhere meanwhile changes nothing. Whoever
/// runs a script reads it later, so it is a copy that is hashed and read, which nobody can change. Another program can be
/// written to in place, by who may, in the moment between the hash and its start.
fn execute_pinned(
    program: &std::ffi::CStr,
    digest: [u8; 32],
    arguments: &[std::ffi::CString],
    environment: &[std::ffi::CString],
) -> NotBegun {
    let opened = rustix::fs::open(program, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map(std::fs::File::from).and_then(|file| {
        // Its own right to be executed is not the copy's.
        rustix::fs::access(program, Can::EXEC_OK)?;
        let file = if is_script(&file)? { sealed_copy(file)? } else { file };
        Ok((digest_of(&file)?, file))
    });
    match opened {
        Ok((found, _)) if found != digest => NotBegun::Replaced,
        Ok((_, file)) => NotBegun::Refused(process::execute_handle(file.as_fd(), arguments, environment)),
        Err(errno) => NotBegun::Refused(errno),
    }
}

fn is_script(file: &std::fs::File) -> Result<bool, Errno> {
    let mut first = [0; 2];
    Ok(rustix::io::pread(file, &mut first, 0)? == 2 && first == *b"#!")
}

/// In memory, from the beginning.
fn sealed_copy(mut file: std::fs::File) -> Result<std::fs::File, Errno> {
    use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
    let io = |error: std::io::Error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match rustix::fs::memfd_create(c"script", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3 nobody had to say so.
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

type Words = Vec<std::ffi::CString>;

/// What the kernel is given to begin with.
pub(super) struct Texts {
    arguments: Words,
    environment: Words,
    /// Where the program may be.
    candidates: Words,
}

pub(super) fn texts(order: &Order) -> Result<Texts, Errno> {
    let all = |list: &[Bytes]| list.iter().map(|text| c_text(text)).collect::<Result<Words, Errno>>();
    let (arguments, environment) = (all(&order.arguments)?, all(&order.environment)?);
    Ok(Texts { arguments, environment, candidates: candidates(order)? })
}

/// Where the program may be: as named, or the first of that name in `PATH`.
fn candidates(order: &Order) -> Result<Words, Errno> {
    if order.program.starts_with(b"/") {
        return Ok(vec![c_text(&order.program)?]);
    }
    if order.program.contains(&b'/') {
        return Ok(vec![c_text(&[order.cwd.as_slice(), b"/", &order.program].concat())?]);
    }
    for folder in &order.path {
        let path = c_text(&[folder.as_slice(), b"/", &order.program].concat())?;
        if rustix::fs::access(&path, Can::EXEC_OK).is_ok() {
            return Ok(vec![path]);
        }
    }
    Ok(Vec::new())
}

/// What is limited, in the order of [`limit`]'s numbers; the last by itself.
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

/// So many times what the whole tree may hold is what one process may ask for where the tree is watched.
const WATCHED: u64 = 8;

/// Limits that hold already, and are inherited: none is widened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds([(Resource, Option<u64>); RESOURCES.len()]);

impl Bounds {
    pub(super) fn now() -> Self {
        Self(RESOURCES.map(|resource| (resource, rustix::process::getrlimit(resource).maximum)))
    }
}

fn limit(
    limits: &Limits,
    walls: Walls,
    identity: Identity,
    errand: &Errand,
    bounds: Bounds,
) -> Result<(), Errno> {
    let processes = match walls {
        // Counted per sandbox: in a user namespace of its own, or under a user id of its own.
        Walls::Namespaces => limits.processes,
        // Counted with everything else that the user runs, but a user id of its own runs nothing else.
        Walls::LandlockOnly if identity.taken => limits.processes,
        Walls::LandlockOnly => {
            let others = errand.go.others.unwrap_or_else(super::running);
            limits.processes.saturating_add(others)
        }
    };
    // Without a file system of the run's own, what lies on the disk is only looked at now and then.
    let file = match walls {
        Walls::Namespaces => limits.file_size,
        Walls::LandlockOnly => limits.file_size.min(limits.disk),
    };
    // Memory is bounded for the tree: a process that wants too much of it is to be ended, and that told, not to be refused
    // and to end with a code of its own. Where the tree is watched, a single process cannot take all at once.
    let data = match errand.order.tier {
        _ if errand.go.memory_limited => u64::MAX,
        // Nobody can look.
        Tier::FullNoProc => limits.memory,
        _ => limits.memory.saturating_mul(WATCHED),
    };
    let wanted = [
        // One byte, not none: a core that goes to a program is kept from it by this number only (core(5)).
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
