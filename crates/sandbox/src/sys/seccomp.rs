//! Installs a seccomp filter, with or without a listener.

use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use super::check_result;

/// One BPF instruction (`sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) on_true: u8,
    pub(crate) on_false: u8,
    pub(crate) value: u32,
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const Instruction,
}

const SET_MODE_FILTER: libc::c_uint = 1;
const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// Only a fatal signal interrupts a call that waits for its reply (Linux 5.19): otherwise a program that gets many
/// signals would see its calls restarted.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Installs the filter in the calling process; `no_new_privs` must be set.
pub(crate) fn install(filter: &[Instruction]) -> Result<(), Errno> {
    install_with(filter, 0).map(drop)
}

/// The same, and returns the descriptor on which notified calls arrive.
pub(crate) fn install_with_listener(filter: &[Instruction]) -> Result<OwnedFd, Errno> {
    let raw = match install_with(filter, NEW_LISTENER | WAIT_KILLABLE) {
        Err(Errno::INVAL) => install_with(filter, NEW_LISTENER)?,
        done => done?,
    };
    let raw = i32::try_from(raw).map_err(|_| Errno::BADF)?;
    // SAFETY: with NEW_LISTENER a successful call returns a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn install_with(filter: &[Instruction], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let length = u16::try_from(filter.len()).map_err(|_| Errno::TOOBIG)?;
    let program = FilterProgram { length, instructions: filter.as_ptr() };
    // SAFETY: the program points at `length` instructions that outlive the call; the kernel checks and copies them.
    check_result(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program) })
}
