//! Raw system calls that `rustix` has no safe wrapper for. Each function is one system call or a few that belong
//! together; no policy here. Apart from one call in `cell/confine.rs`, all `unsafe` code of the program is in or below this module.

pub(crate) mod capability;
pub(crate) mod datagram;
pub(crate) mod message;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod seccomp;
pub(crate) mod seccomp_notify;
pub(crate) mod shared_process;

use rustix::io::Errno;

/// Converts the return value of a raw system call.
fn check_result(returned: libc::c_long) -> Result<libc::c_long, Errno> {
    if returned >= 0 { Ok(returned) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
