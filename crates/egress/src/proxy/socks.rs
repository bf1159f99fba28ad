//! SOCKS5 (RFC 1928): no authentication, CONNECT only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connection::{SendingGuard, read_more};
use crate::decide::{Destination, NetworkReason};
use crate::event::EgressAction;
use crate::gate::GateState;
use crate::http::parse_host;
use crate::relay::RelayError;

use super::{log_denied, printable};

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
enum SocksRequest {
    Connect { host: Result<Destination, Vec<u8>>, port: u16, length: usize },
    Rejected(u8, &'static str),
}

pub(super) async fn serve(
    gate: &Arc<GateState>,
    client: TcpStream,
    mut held: Vec<u8>,
    limit: Instant,
    sending: SendingGuard,
) {
    let (host, port) = match read_request(&client, &mut held, limit).await {
        Ok(Some(asked)) => asked,
        Err(RelayError::Reason(reason)) => {
            let wanted = match held.as_slice() {
                [5, _, 0, kind, rest @ ..] => parse_address(*kind, rest),
                _ => None,
            };
            let wanted = wanted.and_then(|(host, port, _)| Some((host.ok()?, port)));
            return log_denied(gate, EgressAction::Socks, wanted, &held, reason);
        }
        Ok(None) | Err(_) => return,
    };
    let asked = match &host {
        Ok(host) => host.to_string(),
        Err(bytes) => printable(bytes),
    };
    let host = host.map_err(|_| NetworkReason::BadName).and_then(|host| gate.resolve_synthetic(host));
    let place = host.as_ref().map_or(asked, ToString::to_string);
    let mut attempt = gate.log.begin(EgressAction::Socks, place, port);
    let dialled = match host {
        Ok(host) => {
            gate.check_and_dial(&host, port, &mut attempt, sending).await.map(|dialled| (host, dialled))
        }
        Err(reason) => Err(reason),
    };
    match dialled {
        Ok((host, dialled)) => {
            if write_all(&client, &encode_reply(0)).await.is_ok() {
                gate.relay(&client, dialled, &host, held, &mut attempt).await;
            }
        }
        Err(reason) => {
            let code = if reason.is_denial() { NOT_ALLOWED } else { HOST_UNREACHABLE };
            attempt.failed(reason);
            let _ = write_all(&client, &encode_reply(code)).await;
        }
    }
}

/// Reads greeting and request; later bytes stay in `held`.
async fn read_request(
    client: &TcpStream,
    held: &mut Vec<u8>,
    limit: Instant,
) -> Result<Option<(Result<Destination, Vec<u8>>, u16)>, RelayError> {
    let mut limit = Some(limit);
    let end = loop {
        match held.as_slice() {
            [5, count, rest @ ..] if rest.len() >= usize::from(*count) => break 2 + usize::from(*count),
            _ => {}
        }
        if read_more(client, held, &mut limit).await? == 0 {
            return Ok(None);
        }
    };
    if !held.get(2..end).is_some_and(|methods| methods.contains(&NO_AUTHENTICATION)) {
        write_all(client, &[5, NO_ACCEPTABLE_METHOD]).await?;
        return Err(NetworkReason::NotUnderstood(
            "the SOCKS client does not offer access without authentication",
        )
        .into());
    }
    held.drain(..end);
    write_all(client, &[5, NO_AUTHENTICATION]).await?;
    loop {
        match parse_request(held) {
            Some(SocksRequest::Connect { host, port, length }) => {
                held.drain(..length.min(held.len()));
                return Ok(Some((host, port)));
            }
            Some(SocksRequest::Rejected(code, why)) => {
                write_all(client, &encode_reply(code)).await?;
                return Err(NetworkReason::NotUnderstood(why).into());
            }
            None => {}
        }
        if read_more(client, held, &mut limit).await? == 0 {
            return Ok(None);
        }
    }
}

/// Parses a request; `None` while it is incomplete.
fn parse_request(bytes: &[u8]) -> Option<SocksRequest> {
    let (version, command, kind, rest) = match bytes {
        [version, command, _, kind, rest @ ..] => (*version, *command, *kind, rest),
        _ => return None,
    };
    if version != 5 {
        return Some(SocksRequest::Rejected(GENERAL_FAILURE, "the SOCKS request is not of version 5"));
    }
    if command != 1 {
        return Some(SocksRequest::Rejected(
            COMMAND_NOT_SUPPORTED,
            "only the SOCKS command CONNECT is supported",
        ));
    }
    if !matches!(kind, 1 | 3 | 4) {
        let why = "the SOCKS request has an unknown address type";
        return Some(SocksRequest::Rejected(ADDRESS_TYPE_NOT_SUPPORTED, why));
    }
    let (host, port, length) = parse_address(kind, rest)?;
    Some(SocksRequest::Connect { host, port, length: 4 + length })
}

/// Host, port and encoded length of the address behind the address type; `None` while it is incomplete, or for an unknown
/// type.
fn parse_address(kind: u8, rest: &[u8]) -> Option<(Result<Destination, Vec<u8>>, u16, usize)> {
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
            let host = text.and_then(|text| parse_host(text).ok()).ok_or_else(|| name.to_vec());
            (host, length + 1)
        }
        _ => return None,
    };
    let port: [u8; 2] = rest.get(length..length + 2)?.try_into().ok()?;
    Some((host, u16::from_be_bytes(port), length + 2))
}

fn encode_reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

pub(super) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> Result<(), RelayError> {
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
    fn complete_requests_are_parsed() {
        let bytes = named(b"example.com");
        for end in 0..bytes.len() {
            assert_eq!(parse_request(&bytes[..end]), None);
        }
        let host = parse_host("example.com").unwrap();
        assert_eq!(
            parse_request(&bytes),
            Some(SocksRequest::Connect { host: Ok(host), port: 443, length: bytes.len() })
        );
        let refused = |bytes: &[u8]| match parse_request(bytes) {
            Some(SocksRequest::Rejected(code, _)) => Some(code),
            _ => None,
        };
        assert_eq!(refused(&[5, 2, 0, 1]), Some(COMMAND_NOT_SUPPORTED));
        assert_eq!(refused(&[5, 3, 0, 1]), Some(COMMAND_NOT_SUPPORTED));
        assert_eq!(refused(&[4, 1, 0, 1]), Some(GENERAL_FAILURE));
        assert_eq!(refused(&[5, 1, 0, 9]), Some(ADDRESS_TYPE_NOT_SUPPORTED));
    }

    // P3: the NUL byte that fooled a suffix check
    #[test]
    fn invalid_host_names_are_rejected() {
        for name in [
            &b"evil.com\0.google.com"[..],
            b"evil.com%00.google.com",
            b"a b",
            b"\xff\xfe",
            b"",
            b"127.1",
            b"0x7f000001",
        ] {
            match parse_request(&named(name)) {
                Some(SocksRequest::Connect { host: Err(kept), .. }) => assert_eq!(kept, name),
                other => panic!("{other:?}"),
            }
        }
        // An address written as text is that address.
        let Some(SocksRequest::Connect { host, .. }) = parse_request(&named(b"127.0.0.1")) else { panic!() };
        assert_eq!(host, Ok(Destination::Address("127.0.0.1".parse().unwrap())));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(SocksRequest::Connect { length, .. }) = parse_request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
