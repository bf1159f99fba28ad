//! Messages with descriptors over a Unix socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Maximum bytes of one message; larger data goes through a pipe.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8192;
/// Maximum descriptors of one message.
pub(crate) const MAX_MESSAGE_HANDLES: usize = 40;

/// A connected pair of sockets that preserve message boundaries.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_HANDLES))];
    let mut extra = SendAncillaryBuffer::new(&mut space);
    if !handles.is_empty() && !extra.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(Errno::TOOBIG);
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut extra, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Enables sender credentials on received messages.
pub(crate) fn enable_sender_credentials(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_passcred(socket, true)
}

/// A received message; empty bytes mean that the other end is closed.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) handles: Vec<OwnedFd>,
    /// Pid and uid of the sender, if enabled.
    pub(crate) sender: Option<(u32, u32)>,
}

/// Receives one message.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC)
}

/// Receives one message without blocking; `AGAIN` when there is none.
pub(crate) fn receive_now(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Received, Errno> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_HANDLES), ScmCredentials(1))];
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let mut extra = RecvAncillaryBuffer::new(&mut space);
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut extra, flags) {
            Ok(got) => {
                let (mut handles, mut sender) = (Vec::new(), None);
                for message in extra.drain() {
                    match message {
                        RecvAncillaryMessage::ScmRights(rights) => handles.extend(rights),
                        RecvAncillaryMessage::ScmCredentials(who) => {
                            sender = Some((who.pid.as_raw_nonzero().get().unsigned_abs(), who.uid.as_raw()));
                        }
                        _ => {}
                    }
                }
                bytes.truncate(got.bytes);
                return Ok(Received { bytes, handles, sender });
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
