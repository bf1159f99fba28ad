//! Asks the kernel how it would route an address (rtnetlink(7), `RTM_GETROUTE`). Sends no packet.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Where packets to an address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// To this machine, or to several: an interface's address, a local route, broadcast, anycast, multicast.
    ThisMachine,
    /// To another machine.
    Elsewhere,
    /// Nowhere: there is no route.
    None,
}

/// The kernel's route to an address, in the network namespace of this process.
pub fn route_of(address: IpAddr) -> std::io::Result<RouteKind> {
    match ask(address.to_canonical()) {
        Ok(libc::RTN_UNICAST) => Ok(RouteKind::Elsewhere),
        Ok(_) => Ok(RouteKind::ThisMachine),
        Err(Errno::NETUNREACH | Errno::HOSTUNREACH) => Ok(RouteKind::None),
        Err(errno) => Err(errno.into()),
    }
}

/// The type of the route.
fn ask(address: IpAddr) -> Result<u8, Errno> {
    /// nlmsghdr: length, type, flags, sequence, port.
    const HEADER: usize = 16;
    /// Position of the type in rtmsg.
    const TYPE: usize = HEADER + 7;
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is NETLINK_ROUTE.
    let kernel = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let family = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    let mut message = Vec::with_capacity(64);
    let length = HEADER + 12 + 4 + bytes.len();
    message.extend_from_slice(&(length as u32).to_ne_bytes());
    message.extend_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // rtmsg: family, bits of the destination, then nothing.
    message.extend_from_slice(&[family, (bytes.len() * 8) as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(&(4 + bytes.len() as u16).to_ne_bytes());
    message.extend_from_slice(&libc::RTA_DST.to_ne_bytes());
    message.extend_from_slice(&bytes);
    rustix::net::send(&kernel, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (_, got) = rustix::net::recv(&kernel, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..got).ok_or(Errno::BADMSG)?;
    let word = |at: usize| answer.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    match word(4) {
        Some(libc::RTM_NEWROUTE) => answer.get(TYPE).copied().ok_or(Errno::BADMSG),
        Some(kind) if i32::from(kind) == libc::NLMSG_ERROR => {
            let error = answer.get(HEADER..HEADER + 4).and_then(|error| error.try_into().ok());
            Err(Errno::from_raw_os_error(-error.map_or(-libc::EBADMSG, i32::from_ne_bytes)))
        }
        _ => Err(Errno::BADMSG),
    }
}
