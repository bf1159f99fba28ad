//! The listener of a filter: calls that wait for an answer.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::answer;

/// A call that waits.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    flags: u32,
    pub(crate) number: i32,
    architecture: u32,
    instruction_pointer: u64,
    pub(crate) arguments: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const CONTINUE: u32 = 1;
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;

/// Asks the kernel to hand over between caller and listener without waking another processor (Linux 6.6); older
/// ones refuse, and nothing is lost but time.
pub(crate) fn hand_over_directly(listener: BorrowedFd<'_>) {
    const SET_FLAGS: libc::c_ulong = 0x4008_2104;
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the flags are passed by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// The next call; `NOENT` when its caller died meanwhile.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> Result<Notice, Errno> {
    let mut notice = Notice::default();
    // SAFETY: the kernel fills a structure of exactly this size, which must be zero before.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notice) };
    answer(done.into())?;
    Ok(notice)
}

/// Lets the kernel go on with the call: its own checks still apply.
pub(crate) fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    reply(listener, &Answer { id, value: 0, error: 0, flags: CONTINUE })
}

/// Answers the call with an error.
pub(crate) fn refuse(listener: BorrowedFd<'_>, id: u64, error: Errno) -> Result<(), Errno> {
    reply(listener, &Answer { id, value: 0, error: -error.raw_os_error(), flags: 0 })
}

/// Whether the caller still waits: what was read from its memory before is then its own.
pub(crate) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID, &raw const id) == 0 }
}

/// Whether somebody is left who could call.
pub(crate) fn has_callers(listener: BorrowedFd<'_>) -> bool {
    let mut list = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    let asked = rustix::event::poll(&mut list, Some(&Timespec::default()));
    asked.is_ok() && !list.iter().any(|one| one.revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

fn reply(listener: BorrowedFd<'_>, reply: &Answer) -> Result<(), Errno> {
    // SAFETY: the kernel reads a structure of exactly this size.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, std::ptr::from_ref(reply)) };
    answer(done.into()).map(drop)
}

/// Reads a C string out of another process; at most a path's length.
pub(crate) fn read_text(pid: u32, address: u64) -> Result<Vec<u8>, Errno> {
    const PAGE: u64 = 4096;
    const PIECE: usize = 256;
    let mut text = Vec::new();
    let mut from = address;
    while text.len() < 4096 {
        // To the end of the page: the next one may not be there. Most paths are short.
        let wanted = usize::try_from(PAGE - from % PAGE).unwrap_or(1).min(PIECE);
        let mut piece = vec![0_u8; wanted];
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: piece.len() };
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
        // SAFETY: `local` describes `piece`, which is writable and lives on; the remote address is only ever used
        // by the kernel in the other process.
        let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        let got = usize::try_from(answer(got as libc::c_long)?).unwrap_or(0);
        piece.truncate(got);
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            piece.truncate(end);
            text.extend_from_slice(&piece);
            return Ok(text);
        }
        if got == 0 {
            return Err(Errno::FAULT);
        }
        text.extend_from_slice(&piece);
        from += got as u64;
    }
    Err(Errno::NAMETOOLONG)
}

/// Reads so many bytes out of another process.
pub(crate) fn read_bytes(pid: u32, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; length];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    // SAFETY: `local` describes `bytes`, which is writable and lives on; the remote address is only ever used by the
    // kernel in the other process.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    bytes.truncate(usize::try_from(answer(got as libc::c_long)?).unwrap_or(0));
    Ok(bytes)
}
