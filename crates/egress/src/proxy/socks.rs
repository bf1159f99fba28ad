//! SOCKS5 (RFC 1928): no authentication, CONNECT only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::decide::{Destination, Reason};
use crate::event::Action;
use crate::gate::Inner;
use crate::http::host_of;
use crate::pass::{Speaks, fill};
use crate::relay::Broken;

use super::{refused, shown};

const NO_AUTHENTICATION: u8 = 0;
const NOTHING_ACCEPTED: u8 = 0xff;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const TYPE_NOT_SUPPORTED: u8 = 8;

/// What a request says.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Connect { host: Result<Destination, Vec<u8>>, port: u16, length: usize },
    Refused(u8, &'static str),
}

pub(super) async fn serve(
    gate: &Arc<Inner>,
    client: TcpStream,
    mut held: Vec<u8>,
    limit: Instant,
    speaks: Speaks,
) {
    let (host, port) = match greet(&client, &mut held, limit).await {
        Ok(Some(asked)) => asked,
        Err(Broken::Reason(reason)) => {
            let wanted = match held.as_slice() {
                [5, _, 0, kind, rest @ ..] => target(*kind, rest),
                _ => None,
            };
            let wanted = wanted.and_then(|(host, port, _)| Some((host.ok()?, port)));
            return refused(gate, Action::Socks, wanted, &held, reason);
        }
        Ok(None) | Err(_) => return,
    };
    let asked = match &host {
        Ok(host) => host.to_string(),
        Err(bytes) => shown(bytes),
    };
    let host = host.map_err(|_| Reason::BadName).and_then(|host| gate.meant(host));
    let place = host.as_ref().map_or(asked, ToString::to_string);
    let mut ticket = gate.log.begin(Action::Socks, place, port);
    let dialled = match host {
        Ok(host) => gate.reach(&host, port, &mut ticket, speaks).await.map(|dialled| (host, dialled)),
        Err(reason) => Err(reason),
    };
    match dialled {
        Ok((host, dialled)) => {
            if say(&client, &answer(0)).await.is_ok() {
                gate.pass(&client, dialled, &host, held, &mut ticket).await;
            }
        }
        Err(reason) => {
            let code = if reason.is_refusal() { NOT_ALLOWED } else { HOST_UNREACHABLE };
            ticket.failed(reason);
            let _ = say(&client, &answer(code)).await;
        }
    }
}

/// Greeting and request; what follows them stays held.
async fn greet(
    client: &TcpStream,
    held: &mut Vec<u8>,
    limit: Instant,
) -> Result<Option<(Result<Destination, Vec<u8>>, u16)>, Broken> {
    let mut limit = Some(limit);
    let end = loop {
        match held.as_slice() {
            [5, count, rest @ ..] if rest.len() >= usize::from(*count) => break 2 + usize::from(*count),
            _ => {}
        }
        if fill(client, held, &mut limit).await? == 0 {
            return Ok(None);
        }
    };
    if !held.get(2..end).is_some_and(|methods| methods.contains(&NO_AUTHENTICATION)) {
        say(client, &[5, NOTHING_ACCEPTED]).await?;
        return Err(
            Reason::NotUnderstood("SOCKS with authentication only, which nobody here asks for").into()
        );
    }
    held.drain(..end);
    say(client, &[5, NO_AUTHENTICATION]).await?;
    loop {
        match request(held) {
            Some(Request::Connect { host, port, length }) => {
                held.drain(..length.min(held.len()));
                return Ok(Some((host, port)));
            }
            Some(Request::Refused(code, why)) => {
                say(client, &answer(code)).await?;
                return Err(Reason::NotUnderstood(why).into());
            }
            None => {}
        }
        if fill(client, held, &mut limit).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads a request; nothing while it is not all there.
fn request(bytes: &[u8]) -> Option<Request> {
    let (version, command, kind, rest) = match bytes {
        [version, command, _, kind, rest @ ..] => (*version, *command, *kind, rest),
        _ => return None,
    };
    if version != 5 {
        return Some(Request::Refused(GENERAL_FAILURE, "a SOCKS request of another version"));
    }
    if command != 1 {
        return Some(Request::Refused(COMMAND_NOT_SUPPORTED, "a SOCKS request that is no CONNECT"));
    }
    if !matches!(kind, 1 | 3 | 4) {
        let why = "a SOCKS request for an unknown kind of address";
        return Some(Request::Refused(TYPE_NOT_SUPPORTED, why));
    }
    let (host, port, length) = target(kind, rest)?;
    Some(Request::Connect { host, port, length: 4 + length })
}

/// Host, port and length of what follows the kind of an address; nothing while it is not all there, or of another kind.
fn target(kind: u8, rest: &[u8]) -> Option<(Result<Destination, Vec<u8>>, u16, usize)> {
    let (host, length) = match kind {
        1 => {
            let four: [u8; 4] = rest.get(..4)?.try_into().ok()?;
            (Ok(Destination::Address(Ipv4Addr::from(four).into())), 4)
        }
        4 => {
            let six: [u8; 16] = rest.get(..16)?.try_into().ok()?;
            (Ok(Destination::Address(IpAddr::from(Ipv6Addr::from(six)).to_canonical())), 16)
        }
        3 => {
            let length = usize::from(*rest.first()?);
            let name = rest.get(1..=length)?;
            let text = std::str::from_utf8(name).ok();
            let host = text.and_then(|text| host_of(text).ok()).ok_or_else(|| name.to_vec());
            (host, length + 1)
        }
        _ => return None,
    };
    let port: [u8; 2] = rest.get(length..length + 2)?.try_into().ok()?;
    Some((host, u16::from_be_bytes(port), length + 2))
}

fn answer(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

pub(super) async fn say(stream: &TcpStream, mut bytes: &[u8]) -> Result<(), Broken> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(name: &[u8]) -> Vec<u8> {
        [&[5, 1, 0, 3, name.len() as u8][..], name, &[1, 0xbb]].concat()
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        let bytes = named(b"example.com");
        for end in 0..bytes.len() {
            assert_eq!(request(&bytes[..end]), None);
        }
        let host = host_of("example.com").unwrap();
        assert_eq!(
            request(&bytes),
            Some(Request::Connect { host: Ok(host), port: 443, length: bytes.len() })
        );
        let refused = |bytes: &[u8]| match request(bytes) {
            Some(Request::Refused(code, _)) => Some(code),
            _ => None,
        };
        assert_eq!(refused(&[5, 2, 0, 1]), Some(COMMAND_NOT_SUPPORTED));
        assert_eq!(refused(&[5, 3, 0, 1]), Some(COMMAND_NOT_SUPPORTED));
        assert_eq!(refused(&[4, 1, 0, 1]), Some(GENERAL_FAILURE));
        assert_eq!(refused(&[5, 1, 0, 9]), Some(TYPE_NOT_SUPPORTED));
    }

    // P3: the NUL byte that fooled a suffix check
    #[test]
    fn names_that_are_none_are_no_hosts() {
        for name in [
            &b"evil.com\0.google.com"[..],
            b"evil.com%00.google.com",
            b"a b",
            b"\xff\xfe",
            b"",
            b"127.1",
            b"0x7f000001",
        ] {
            match request(&named(name)) {
                Some(Request::Connect { host: Err(kept), .. }) => assert_eq!(kept, name),
                other => panic!("{other:?}"),
            }
        }
        // An address as text is that address.
        let Some(Request::Connect { host, .. }) = request(&named(b"127.0.0.1")) else { panic!() };
        assert_eq!(host, Ok(Destination::Address("127.0.0.1".parse().unwrap())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(Request::Connect { length, .. }) = request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
