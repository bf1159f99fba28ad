//! The listener of a seccomp filter: system calls that wait for a reply (seccomp_unotify(2)).

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::check_result;

/// A system call that waits for a reply.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NotifyRequest {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    flags: u32,
    pub(crate) number: i32,
    architecture: u32,
    instruction_pointer: u64,
    pub(crate) arguments: [u64; 6],
}

#[repr(C)]
struct NotifyReply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const CONTINUE: u32 = 1;
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;

/// Enables synchronous wake-up: caller and listener switch without waking another CPU (Linux 6.6); older kernels
/// return an error, which only costs time.
pub(crate) fn enable_sync_wakeup(listener: BorrowedFd<'_>) {
    const SET_FLAGS: libc::c_ulong = 0x4008_2104;
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the flags are passed by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Receives the next call; `NOENT` when the caller died meanwhile.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> Result<NotifyRequest, Errno> {
    let mut notice = NotifyRequest::default();
    // SAFETY: the kernel fills a structure of exactly this size, which must be zeroed before.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notice) };
    check_result(done.into())?;
    Ok(notice)
}

/// Lets the call continue: the kernel's own checks still apply.
pub(crate) fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    reply(listener, &NotifyReply { id, value: 0, error: 0, flags: CONTINUE })
}

/// Fails the call with an error.
pub(crate) fn refuse(listener: BorrowedFd<'_>, id: u64, error: Errno) -> Result<(), Errno> {
    reply(listener, &NotifyReply { id, value: 0, error: -error.raw_os_error(), flags: 0 })
}

/// Whether the caller still waits: only then was the memory read before really the caller's.
pub(crate) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID, &raw const id) == 0 }
}

/// Whether any process under the filter is left.
pub(crate) fn has_callers(listener: BorrowedFd<'_>) -> bool {
    let mut list = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    let asked = rustix::event::poll(&mut list, Some(&Timespec::default()));
    asked.is_ok() && !list.iter().any(|one| one.revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

fn reply(listener: BorrowedFd<'_>, reply: &NotifyReply) -> Result<(), Errno> {
    // SAFETY: the kernel reads a structure of exactly this size.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, std::ptr::from_ref(reply)) };
    check_result(done.into()).map(drop)
}
