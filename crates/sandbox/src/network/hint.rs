//! Reading a `connect` that waits at the filter: where to, with what kind of socket. What cannot be read goes on.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use super::{Door, Hint, Kind};
use crate::observe::Memory;
use crate::sys::notify::{self, Notice};
use crate::sys::process;

/// Answers a `connect`.
pub(crate) fn answer(listener: BorrowedFd<'_>, notice: &Notice, door: &dyn Door) {
    let hint = destination(notice).map_or(Hint::GoOn, |to| {
        // The memory that was read is the caller's own only if it still waits.
        if notify::still_waits(listener, notice.id) { door.hint(to, kind(notice)) } else { Hint::GoOn }
    });
    // A caller that died meanwhile needs no answer.
    let _ = match hint {
        Hint::GoOn => notify::go_on(listener, notice.id),
        Hint::Refuse => notify::refuse(listener, notice.id, Errno::ACCESS),
    };
}

/// An internet address, or nothing.
fn destination(notice: &Notice) -> Option<SocketAddr> {
    const LONGEST: usize = 28;
    let [_, address, length, ..] = notice.arguments;
    let length = usize::try_from(length & 0xffff_ffff).ok()?.min(LONGEST);
    let bytes = Memory::of(notice.pid).and_then(|memory| memory.read_bytes(address, length)).ok()?;
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

fn kind(notice: &Notice) -> Kind {
    let [number, ..] = notice.arguments;
    let socket = process::borrow_handle(notice.pid, number as u32 as i32);
    match socket.and_then(sockopt::socket_type) {
        Ok(SocketType::DGRAM) => Kind::Datagram,
        _ => Kind::Stream,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn addresses_of_both_families_are_read_and_nothing_else() {
        let four = [2, 0, 0x01, 0xbb, 93, 184, 216, 34, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse(&four), Some("93.184.216.34:443".parse().unwrap()));
        let mut six = [0_u8; 28];
        six[0] = 10;
        six[3] = 80;
        six[8..12].copy_from_slice(&[0x26, 6, 0x47, 0]);
        assert_eq!(parse(&six), Some("[2606:4700::]:80".parse().unwrap()));
        // IPv4 in IPv6's clothes.
        six[8..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(parse(&six), Some("127.0.0.1:80".parse().unwrap()));
        for other in [&four[..7], &six[..23], &[1, 0, b'/', b'x'], &[0, 0], &[]] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
