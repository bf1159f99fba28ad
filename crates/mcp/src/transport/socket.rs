//! Standard input and output as Unix sockets, as Node creates them for child processes: asynchronous, without a helper thread.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::net::UnixStream;

/// Makes standard input and output blocking again on drop: other processes may share them.
pub(super) struct RestoreBlocking(());

impl Drop for RestoreBlocking {
    fn drop(&mut self) {
        let _ = ioctl_fionbio(io::stdin(), false);
        let _ = ioctl_fionbio(io::stdout(), false);
    }
}

/// Standard input and output as sockets; `None` if they are not sockets.
pub(super) fn standard() -> Option<(UnixStream, UnixStream, RestoreBlocking)> {
    let is_socket = |fd: &dyn AsFd| socket_domain(fd.as_fd()) == Ok(AddressFamily::UNIX);
    if !is_socket(&io::stdin()) || !is_socket(&io::stdout()) {
        return None;
    }
    let restore = RestoreBlocking(());
    Some((open(io::stdin())?, open(io::stdout())?, restore))
}

fn open(fd: impl AsFd) -> Option<UnixStream> {
    let own = std::os::unix::net::UnixStream::from(fcntl_dupfd_cloexec(fd, 3).ok()?);
    own.set_nonblocking(true).ok()?;
    UnixStream::from_std(own).ok()
}
