//! Processes: cloning into namespaces, forking, executing, waiting for signals.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::{check_result, last_errno};

/// Our process group; `None` where its leader is outside of our pid namespace, which `rustix` does not handle.
pub(crate) fn own_group() -> Option<u32> {
    // SAFETY: no memory is involved.
    let group = unsafe { libc::getpgrp() };
    u32::try_from(group).ok().filter(|group| *group != 0)
}

/// Which side of a fork we are on.
pub(crate) enum ForkSide {
    Parent(Child),
    Child,
}

/// A new child process.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) handle: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks into new namespaces; `flags` are `CLONE_NEW*`.
pub(crate) fn clone_into(flags: libc::c_int) -> Result<ForkSide, Errno> {
    clone(CloneArgs { flags: flags as u64, exit_signal: libc::SIGCHLD as u64, ..CloneArgs::default() })
}

/// The same, but the new process is a child of this one's parent and, if a v2 cgroup is given, is born into it:
/// moving it later would wait for every CPU of the machine.
pub(crate) fn clone_sibling(flags: libc::c_int, group: Option<BorrowedFd<'_>>) -> Result<ForkSide, Errno> {
    const INTO_GROUP: u64 = 0x2_0000_0000;
    let group = group.and_then(|group| u64::try_from(group.as_raw_fd()).ok());
    let flags = flags as u64 | libc::CLONE_PARENT as u64 | group.map_or(0, |_| INTO_GROUP);
    clone(CloneArgs { flags, cgroup: group.unwrap_or(0), ..CloneArgs::default() })
}

fn clone(args: CloneArgs) -> Result<ForkSide, Errno> {
    let mut handle: libc::c_int = -1;
    let flags = args.flags | libc::CLONE_PIDFD as u64;
    let args = CloneArgs { flags, pidfd: (&raw mut handle) as u64, ..args };
    // SAFETY: without CLONE_VM this is a fork; `args` and `handle` outlive the call, and the caller has one thread.
    let made =
        check_result(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) });
    let pid = match (made, libc::c_ulong::try_from(args.flags | args.exit_signal)) {
        // Container seccomp profiles return ENOSYS because they cannot inspect its arguments; the older call does
        // everything but the cgroup.
        (Err(Errno::NOSYS), Ok(flags)) if args.cgroup == 0 => {
            let (stack, child) = (0 as libc::c_ulong, 0 as libc::c_ulong);
            // SAFETY: as above; the handle is stored where the parent tid would be.
            check_result(unsafe {
                libc::syscall(libc::SYS_clone, flags, stack, &raw mut handle, child, child)
            })?
        }
        (made, _) => made?,
    };
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(ForkSide::Child);
    };
    // SAFETY: the kernel stored a fresh descriptor there because CLONE_PIDFD was requested and the call succeeded.
    let handle = unsafe { OwnedFd::from_raw_fd(handle) };
    Ok(ForkSide::Parent(Child { pid, handle }))
}

/// Forks a process that shares this one's memory and descriptors until it executes a program or exits; this process
/// is suspended meanwhile. Cheaper than a fork, which copies the page tables.
pub(crate) fn vfork_sharing(child: &mut dyn FnMut()) -> Result<Pid, Errno> {
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        let child = argument.cast::<&mut dyn FnMut()>();
        // SAFETY: the pointer is that of `child` below, whose owner waits until this process has left its memory.
        let child = unsafe { &mut *child };
        child();
        0
    }
    let mut child = child;
    // The stack grows down from its end; aligned for any value.
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: the stack and `child` outlive the new process's use of this memory, because CLONE_VFORK suspends this
    // process that long; the caller has one thread, so nothing else runs in this memory meanwhile.
    let pid = unsafe { libc::clone(enter, top.cast(), flags, (&raw mut child).cast()) };
    drop(stack);
    if pid < 0 { Err(last_errno()) } else { Pid::from_raw(pid).ok_or(Errno::SRCH) }
}

const STACK: usize = 512 << 10;

/// Passed as the directory handle, which an `execveat` with an absolute path ignores: marks the run's own start for
/// the filter, which then sends no notification.
pub(crate) const OWN_START: i32 = -0x0076_616d;

/// Changes to the program's working directory, marked the same way in a second argument, which `chdir` does not have.
pub(crate) fn go_to(dir: &CStr) -> Result<(), Errno> {
    // SAFETY: the path ends with a zero byte and outlives the call; the kernel ignores the second argument.
    check_result(unsafe { libc::syscall(libc::SYS_chdir, dir.as_ptr(), libc::c_long::from(OWN_START)) })
        .map(drop)
}

/// Executes a program by its absolute path; returns only on failure.
pub(crate) fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    execute_at(OWN_START, program, 0, arguments, environment)
}

/// Executes an open file. The handle is inherited, because an interpreter must be able to read a script.
pub(crate) fn execute_handle(
    program: BorrowedFd<'_>,
    arguments: &[CString],
    environment: &[CString],
) -> Errno {
    if let Err(errno) = rustix::io::fcntl_setfd(program, rustix::io::FdFlags::empty()) {
        return errno;
    }
    execute_at(program.as_raw_fd(), c"", libc::AT_EMPTY_PATH, arguments, environment)
}

fn execute_at(
    dir: i32,
    program: &CStr,
    flags: libc::c_int,
    arguments: &[CString],
    environment: &[CString],
) -> Errno {
    let ended = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (ended(arguments), ended(environment));
    // SAFETY: all three are null-terminated and live until the call returns.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            dir,
            program.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            flags,
        )
    };
    last_errno()
}

/// Exits at once: runs no destructors, flushes no buffers inherited by the fork.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Blocks the signals that are waited for with [`wait_signal`].
pub(crate) fn block_signals(signals: &[Signal]) -> Result<(), Errno> {
    let set = signal_set(signals);
    // SAFETY: `set` is initialised and outlives the call.
    let done = unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    check_result(done.into()).map(drop)
}

/// Resets every signal mask and handler, as a program expects.
pub(crate) fn default_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: setting a disposition to its default is always allowed; errors (KILL, STOP) do not matter.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    unblock_signals();
}

/// Unblocks all signals.
pub(crate) fn unblock_signals() {
    let none = signal_set(&[]);
    // SAFETY: `none` is initialised and outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

/// Waits for one of the blocked signals, at most `millis` ms; `None` on timeout.
pub(crate) fn wait_signal(signals: &[Signal], millis: Option<u32>) -> Option<i32> {
    let set = signal_set(signals);
    let limit = libc::timespec {
        tv_sec: i64::from(millis.unwrap_or(0) / 1000),
        tv_nsec: i64::from(millis.unwrap_or(0) % 1000) * 1_000_000,
    };
    let limit = if millis.is_some() { &raw const limit } else { std::ptr::null() };
    // SAFETY: `set` and `limit` are initialised and outlive the call; no siginfo is requested.
    let got = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), limit) };
    (got > 0).then_some(got)
}

fn signal_set(signals: &[Signal]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: the set is initialised and the number is a signal's.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    set
}

/// Signals every process that this one may signal; in a pid namespace: all but its init.
pub(crate) fn signal_all(signal: Signal) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Peak memory of any reaped descendant, in bytes.
pub(crate) fn peak_memory_of_children() -> u64 {
    // SAFETY: all zeroes is a valid `rusage`.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills a structure of exactly this size.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used) };
    u64::try_from(used.ru_maxrss).unwrap_or(0).saturating_mul(1024)
}

/// Duplicates a descriptor of another process or thread.
pub(crate) fn borrow_handle(pid: u32, number: i32) -> Result<OwnedFd, Errno> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    // PIDFD_THREAD accepts a thread id since Linux 6.9; before that only the main thread works.
    let threads = PidfdFlags::from_bits_retain(libc::O_EXCL.unsigned_abs());
    let process = rustix::process::pidfd_open(pid, threads)
        .or_else(|_| rustix::process::pidfd_open(pid, PidfdFlags::empty()))?;
    rustix::process::pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
}

/// Reads the memory of another process, as much as is mapped.
pub(crate) fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    const PAGE: usize = 4096;
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // The kernel reads no part of an iovec that is partly unmapped: one per page.
    let first = into.len().min(PAGE - address % PAGE);
    let piece = |start: usize, length: usize| libc::iovec {
        iov_base: address.wrapping_add(start) as *mut libc::c_void,
        iov_len: length,
    };
    let theirs = [piece(0, first), piece(first, into.len() - first)];
    // SAFETY: only `into` is written, with its true length; the kernel validates the other process's addresses.
    let read = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, theirs.as_ptr(), 2, 0) };
    let read = check_result(read as libc::c_long)?;
    usize::try_from(read).map_err(|_| Errno::FAULT)
}

/// Sets close-on-exec on every descriptor from `first` on.
pub(crate) fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    // SAFETY: no memory is involved; descriptors stay open until the exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    check_result(done).map(drop)
}

/// Writes a value to a kernel file.
pub(crate) fn set(path: &str, text: &str) -> Result<(), Errno> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Moves into a new, empty network namespace.
pub(crate) fn unshare_network() -> Result<(), Errno> {
    // SAFETY: no memory is involved, and the caller has one thread.
    check_result(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into()).map(drop)
}

/// Brings `lo` up in the current network namespace.
pub(crate) fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request is initialised and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check_result(done.into()).map(drop)
}

/// Closes every descriptor but one, which becomes number 3; the standard streams become /dev/null.
pub(crate) fn keep_only(kept: OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::IntoRawFd as _;
    const PLACE: libc::c_int = 3;
    let nowhere = rustix::fs::open(c"/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    drop(nowhere);
    let kept = kept.into_raw_fd();
    if kept != PLACE {
        // SAFETY: nothing uses number 3 any more: this process was just forked, and what it inherited is closed here.
        check_result(unsafe { libc::dup3(kept, PLACE, libc::O_CLOEXEC) }.into())?;
    }
    // SAFETY: as above, for all higher numbers.
    check_result(unsafe { libc::syscall(libc::SYS_close_range, PLACE + 1, u32::MAX, 0) })?;
    // SAFETY: the descriptor is open, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(PLACE) })
}
