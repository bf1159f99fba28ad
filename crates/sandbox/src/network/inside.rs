//! The cell's part: the loopback interface, routes that make every address local, and sockets for the door. Runs while
//! the cell still has its powers over its own network namespace; what it makes is handed over before they go.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use super::PORTS;
use crate::sys::{datagram, process};

/// Makes the network; gives the socket for DNS, the spare ones, and those on which the kernel tells of datagrams that
/// found nobody, in this order (see [`super::Sockets`]).
pub(crate) fn set_up() -> Result<Vec<OwnedFd>, Errno> {
    process::loopback_up()?;
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // The first of its protocols is that of routes.
        None,
    )?;
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        everything_is_local(&kernel, family)?;
    }
    drop(kernel);
    let mut sockets = Vec::with_capacity(PORTS + 3);
    sockets.push(dns()?);
    for _ in 0..PORTS {
        sockets.push(both(SocketType::STREAM)?);
    }
    for (family, protocol) in [(AddressFamily::INET, ipproto::ICMP), (AddressFamily::INET6, ipproto::ICMPV6)]
    {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Where it is forbidden, datagrams still find nobody; it is only not told.
        sockets.extend(rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).ok());
    }
    Ok(sockets)
}

fn dns() -> Result<OwnedFd, Errno> {
    let socket = both(SocketType::DGRAM)?;
    datagram::tell_destinations(&socket)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 53, 0, 0))?;
    Ok(socket)
}

/// A socket for IPv4 and IPv6.
fn both(kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET6, kind, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    if kind == SocketType::STREAM {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    Ok(socket)
}

/// `ip route add local default dev lo`, in the kernel's own words (rtnetlink(7)): whatever the address, this machine
/// has it.
fn everything_is_local(kernel: &OwnedFd, family: AddressFamily) -> Result<(), Errno> {
    const LENGTH: u32 = 16 + 12 + 8;
    const FLAGS: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_ACK) as u16;
    const LOOPBACK: u32 = 1;
    const TABLE_LOCAL: u8 = libc::RT_TABLE_LOCAL;
    let scope = if family == AddressFamily::INET { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_UNIVERSE };
    let family = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    let mut message = Vec::with_capacity(LENGTH as usize);
    // nlmsghdr: length, type, flags, sequence, port.
    message.extend_from_slice(&LENGTH.to_ne_bytes());
    message.extend_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend_from_slice(&FLAGS.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // rtmsg: family, both lengths, service, table, protocol, scope, type, flags.
    message.extend_from_slice(&[family, 0, 0, 0, TABLE_LOCAL, libc::RTPROT_STATIC, scope, libc::RTN_LOCAL]);
    message.extend_from_slice(&[0; 4]);
    // The interface.
    message.extend_from_slice(&8_u16.to_ne_bytes());
    message.extend_from_slice(&libc::RTA_OIF.to_ne_bytes());
    message.extend_from_slice(&LOOPBACK.to_ne_bytes());
    rustix::net::send(kernel, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (_, got) = rustix::net::recv(kernel, &mut answer, RecvFlags::empty())?;
    // nlmsgerr: the error follows the header; zero is the acknowledgement.
    let error =
        answer.get(..got).and_then(|answer| answer.get(16..20)).and_then(|error| error.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::BADMSG),
    }
}
