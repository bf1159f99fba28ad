//! Standard input and output that are sockets, as clients under Node make them: read and written without a thread in
//! between.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::net::UnixStream;

/// Lets standard input and output wait again when it goes, for whoever else has them.
pub(super) struct Back(());

impl Drop for Back {
    fn drop(&mut self) {
        let _ = ioctl_fionbio(io::stdin(), false);
        let _ = ioctl_fionbio(io::stdout(), false);
    }
}

/// Both as sockets; none where they are not.
pub(super) fn standard() -> Option<(UnixStream, UnixStream, Back)> {
    let is_socket = |fd: &dyn AsFd| socket_domain(fd.as_fd()) == Ok(AddressFamily::UNIX);
    if !is_socket(&io::stdin()) || !is_socket(&io::stdout()) {
        return None;
    }
    let back = Back(());
    Some((open(io::stdin())?, open(io::stdout())?, back))
}

fn open(fd: impl AsFd) -> Option<UnixStream> {
    let own = std::os::unix::net::UnixStream::from(fcntl_dupfd_cloexec(fd, 3).ok()?);
    own.set_nonblocking(true).ok()?;
    UnixStream::from_std(own).ok()
}
