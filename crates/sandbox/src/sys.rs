//! The kernel by number: what `rustix` has no safe word for. Each function is one system call or a few that belong
//! together; nothing here decides. All `unsafe` of the program is below this module.

pub(crate) mod beside;
pub(crate) mod capability;
pub(crate) mod datagram;
pub(crate) mod message;
pub(crate) mod mounting;
pub(crate) mod notify;
pub(crate) mod process;
pub(crate) mod seccomp;

use rustix::io::Errno;

/// The answer of a raw system call.
fn answer(returned: libc::c_long) -> Result<libc::c_long, Errno> {
    if returned >= 0 { Ok(returned) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
