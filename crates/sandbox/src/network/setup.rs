//! Sets up the network inside the cell: the loopback interface, routes that make every address local, and sockets for
//! the gate. Runs while the cell still has its capabilities over its network namespace.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use super::PORTS;
use crate::sys::{datagram, process};

/// Sets up the network; returns the DNS socket, the spare ones, and the ICMP sockets, in this order (see
/// [`super::Sockets`]).
pub(crate) fn set_up() -> Result<Vec<OwnedFd>, Errno> {
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Protocol 0 is NETLINK_ROUTE.
        None,
    )?;
    // An older kernel lacks these attributes; only speed is lost.
    up_with_large_packets(&kernel).or_else(|_| process::loopback_up())?;
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        route_everything_to_loopback(&kernel, family)?;
    }
    drop(kernel);
    let mut sockets = Vec::with_capacity(PORTS + 3);
    sockets.push(dns()?);
    for _ in 0..PORTS {
        sockets.push(dual_stack_socket(SocketType::STREAM)?);
    }
    for (family, protocol) in [(AddressFamily::INET, ipproto::ICMP), (AddressFamily::INET6, ipproto::ICMPV6)]
    {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Where raw sockets are forbidden, undeliverable datagrams are only not reported.
        sockets.extend(rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).ok());
    }
    Ok(sockets)
}

fn dns() -> Result<OwnedFd, Errno> {
    let socket = dual_stack_socket(SocketType::DGRAM)?;
    datagram::enable_destinations(&socket)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 53, 0, 0))?;
    Ok(socket)
}

/// A socket for IPv4 and IPv6.
fn dual_stack_socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET6, kind, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    if kind == SocketType::STREAM {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    Ok(socket)
}

/// The loopback interface, first in every namespace.
const LOOPBACK: u32 = 1;

/// `ip route add local default dev lo`: every address is local.
fn route_everything_to_loopback(kernel: &OwnedFd, family: AddressFamily) -> Result<(), Errno> {
    const TABLE: u8 = libc::RT_TABLE_LOCAL;
    let scope = if family == AddressFamily::INET { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_UNIVERSE };
    let family = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    // rtmsg: family, both lengths, service, table, protocol, scope, type, flags.
    let head = [family, 0, 0, 0, TABLE, libc::RTPROT_STATIC, scope, libc::RTN_LOCAL, 0, 0, 0, 0];
    netlink_request(kernel, libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &head, &[(libc::RTA_OIF, LOOPBACK)])
}

/// `ip link set lo up gso_max_size ... gso_ipv4_max_size ...`: fewer, larger packets between the program and the
/// gate. In one request, since each waits for the kernel's global network lock.
fn up_with_large_packets(kernel: &OwnedFd) -> Result<(), Errno> {
    /// Twice the default, in bytes. The gate relays still larger ones more slowly.
    const LARGEST: u32 = 128 << 10;
    /// Missing in the libc crate.
    const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
    let up = libc::IFF_UP as u32;
    // ifinfomsg: family and type, index, flags, which of them change.
    let head: Vec<u8> = [0, LOOPBACK, up, up].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let sizes = [libc::IFLA_GSO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE].map(|kind| (kind, LARGEST));
    netlink_request(kernel, libc::RTM_NEWLINK, 0, &head, &sizes)
}

/// One rtnetlink(7) request and its reply.
fn netlink_request(
    kernel: &OwnedFd,
    kind: u16,
    flags: i32,
    head: &[u8],
    attributes: &[(u16, u32)],
) -> Result<(), Errno> {
    const HEADER: usize = 16;
    const ATTRIBUTE: usize = 8;
    let length = HEADER + head.len() + ATTRIBUTE * attributes.len();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags;
    let mut message = Vec::with_capacity(length);
    // nlmsghdr: length, type, flags, sequence, port.
    message.extend_from_slice(&(length as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(flags as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(head);
    for (kind, value) in attributes {
        message.extend_from_slice(&(ATTRIBUTE as u16).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&value.to_ne_bytes());
    }
    rustix::net::send(kernel, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (_, got) = rustix::net::recv(kernel, &mut answer, RecvFlags::empty())?;
    // nlmsgerr: the error follows the header; zero is the acknowledgement.
    let error = answer.get(..got).and_then(|answer| answer.get(HEADER..HEADER + 4));
    match error.and_then(|error| error.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::BADMSG),
    }
}
