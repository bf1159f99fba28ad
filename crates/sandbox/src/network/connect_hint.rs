//! Reads a `connect` that waits at the seccomp filter: destination and kind of socket. One that cannot be read
//! continues.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use super::{ConnectHint, NetworkGate, SocketKind};
use crate::observer::ProcessMemory;
use crate::sys::process;
use crate::sys::seccomp_notify::{self, NotifyRequest};

/// Replies to a `connect`.
pub(crate) fn answer(listener: BorrowedFd<'_>, notice: &NotifyRequest, gate: &dyn NetworkGate) {
    let hint = destination(notice).map_or(ConnectHint::Continue, |to| {
        // The memory that was read is the caller's only if it still waits.
        if seccomp_notify::still_waits(listener, notice.id) {
            gate.hint(to, kind(notice))
        } else {
            ConnectHint::Continue
        }
    });
    // A caller that died meanwhile needs no reply.
    let _ = match hint {
        ConnectHint::Continue => seccomp_notify::go_on(listener, notice.id),
        ConnectHint::Deny => seccomp_notify::refuse(listener, notice.id, Errno::ACCESS),
    };
}

/// The internet address, or `None`.
fn destination(notice: &NotifyRequest) -> Option<SocketAddr> {
    const LONGEST: usize = 28;
    let [_, address, length, ..] = notice.arguments;
    let length = usize::try_from(length & 0xffff_ffff).ok()?.min(LONGEST);
    let bytes = ProcessMemory::of(notice.pid).and_then(|memory| memory.read_bytes(address, length)).ok()?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let array = |at: usize| -> Option<[u8; 2]> { bytes.get(at..at + 2)?.try_into().ok() };
    let family = libc::c_int::from(u16::from_ne_bytes(array(0)?));
    let port = u16::from_be_bytes(array(2)?);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(address).into(), port))
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port))
        }
        _ => None,
    }
}

fn kind(notice: &NotifyRequest) -> SocketKind {
    let [number, ..] = notice.arguments;
    let socket = process::borrow_handle(notice.pid, number as u32 as i32);
    match socket.and_then(sockopt::socket_type) {
        Ok(SocketType::DGRAM) => SocketKind::Datagram,
        _ => SocketKind::Stream,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_ipv4_and_ipv6_addresses_are_parsed() {
        let four = [2, 0, 0x01, 0xbb, 93, 184, 216, 34, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse(&four), Some("93.184.216.34:443".parse().unwrap()));
        let mut six = [0_u8; 28];
        six[0] = 10;
        six[3] = 80;
        six[8..12].copy_from_slice(&[0x26, 6, 0x47, 0]);
        assert_eq!(parse(&six), Some("[2606:4700::]:80".parse().unwrap()));
        // IPv4-mapped IPv6.
        six[8..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(parse(&six), Some("127.0.0.1:80".parse().unwrap()));
        for other in [&four[..7], &six[..23], &[1, 0, b'/', b'x'], &[0, 0], &[]] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
