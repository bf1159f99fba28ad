//! UDP datagrams with their destination address: a resolver that answers for every address must reply from the
//! address that was queried, which neither the standard library nor `rustix` exposes (ipv6(7), `IPV6_PKTINFO`).

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use super::check_result;

/// Buffer for one `in6_pktinfo` with its header, aligned like one.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// One datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Source address.
    pub from: SocketAddrV6,
    /// Destination address; IPv4 as IPv4-mapped IPv6.
    pub to: Ipv6Addr,
}

/// Enables destination addresses on received datagrams, and replies from them: without FREEBIND an IPv6 address that
/// is local only by a route cannot be a source.
pub(crate) fn enable_destinations(socket: impl AsFd) -> Result<(), Errno> {
    switch_on(&socket, libc::IPV6_RECVPKTINFO)?;
    switch_on(&socket, libc::IPV6_FREEBIND)
}

fn switch_on(socket: impl AsFd, option: libc::c_int) -> Result<(), Errno> {
    let yes: libc::c_int = 1;
    // SAFETY: the kernel reads one integer of the given length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IPV6,
            option,
            (&raw const yes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    check_result(done.into()).map(drop)
}

/// Receives the next datagram, truncated to `most` bytes, without blocking.
pub fn receive(socket: impl AsFd, most: usize) -> Result<Datagram, Errno> {
    let mut bytes = vec![0_u8; most];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: all zeroes is a valid socket address.
    let mut from: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    // SAFETY: all zeroes is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer of the header points to memory above that outlives the call, with its true length.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let got = usize::try_from(check_result(got as libc::c_long)?).unwrap_or(0);
    bytes.truncate(got);
    if libc::c_int::from(from.sin6_family) != libc::AF_INET6 || message.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(Errno::BADMSG);
    }
    let to = destination(&message).ok_or(Errno::BADMSG)?;
    let address = Ipv6Addr::from(from.sin6_addr.s6_addr);
    let from =
        SocketAddrV6::new(address, u16::from_be(from.sin6_port), from.sin6_flowinfo, from.sin6_scope_id);
    Ok(Datagram { bytes, from, to })
}

fn destination(message: &libc::msghdr) -> Option<Ipv6Addr> {
    // SAFETY: the header was filled by the kernel; the macro stays within its control length.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the macro returns null or a header inside the control buffer, which is aligned for one.
    let header = unsafe { header.as_ref() }?;
    let is_it = header.cmsg_level == libc::IPPROTO_IPV6 && header.cmsg_type == libc::IPV6_PKTINFO;
    if !is_it || (header.cmsg_len as usize) < space() {
        return None;
    }
    // SAFETY: by its length, an `in6_pktinfo` follows this header.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: as above; read unaligned.
    let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
    Some(Ipv6Addr::from(info.ipi6_addr.s6_addr))
}

/// Length of a header and its content, without trailing padding.
fn space() -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_LEN(size_of::<libc::in6_pktinfo>() as libc::c_uint) as usize }
}

/// Replies to a datagram, from the address that it was sent to.
pub fn reply(socket: impl AsFd, asked: &Datagram, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: all zeroes is a valid socket address.
    let mut to: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
    to.sin6_port = asked.from.port().to_be();
    to.sin6_addr.s6_addr = asked.from.ip().octets();
    to.sin6_scope_id = asked.from.scope_id();
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: all zeroes is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut to).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as libc::c_uint) } as _;
    // SAFETY: the control buffer is longer than the length that was just set.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: inside the control buffer, aligned for a header, and not aliased.
    let Some(header) = (unsafe { header.as_mut() }) else { return Err(Errno::INVAL) };
    header.cmsg_level = libc::IPPROTO_IPV6;
    header.cmsg_type = libc::IPV6_PKTINFO;
    header.cmsg_len = space() as _;
    let info =
        libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: asked.to.octets() }, ipi6_ifindex: 0 };
    // SAFETY: exactly this much space follows the header.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: as above; written unaligned.
    unsafe { data.cast::<libc::in6_pktinfo>().write_unaligned(info) };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer of the header points to memory above that outlives the call; the kernel only reads it.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    check_result(sent as libc::c_long).map(drop)
}
