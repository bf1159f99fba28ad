//! Messages with descriptors over a local socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The most bytes of one message; whatever may be larger travels in a memory file.
pub(crate) const MOST_BYTES: usize = 8192;
/// The most descriptors of one message.
pub(crate) const MOST_HANDLES: usize = 40;

/// Two connected ends that keep messages whole.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], handles: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
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

/// Asks the kernel to tell who sends what arrives here.
pub(crate) fn tell_senders(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_passcred(socket, true)
}

/// One message that was received; empty bytes mean that the other end is closed.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) handles: Vec<OwnedFd>,
    /// Process and user of whoever sent it, where that was asked for.
    pub(crate) sender: Option<(u32, u32)>,
}

/// Receives one message.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC)
}

/// Receives one message that is there already; `AGAIN` when none is.
pub(crate) fn receive_now(socket: BorrowedFd<'_>) -> Result<Received, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES), ScmCredentials(1))];
    let mut bytes = vec![0; MOST_BYTES];
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
