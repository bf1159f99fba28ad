//! The DNS server of a sandbox; every resolver address leads here. Names that a rule allows get synthetic addresses, all
//! others get NXDOMAIN and a denial event. No question is ever forwarded.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use vambrace_sandbox::network;

use super::{GateState, REQUEST_TIMEOUT, stopped};
use crate::connection::read_more;
use crate::decide::NetworkReason;
use crate::dns::{self, BadQuery, DnsAnswer, DnsQuestion};
use crate::event::EgressAction;
use crate::host_name::HostName;

pub(super) const PORT: u16 = 53;
/// Maximum number of questions over one TCP connection.
const MAX_QUESTIONS: usize = 1000;
const MALFORMED_QUERY: NetworkReason = NetworkReason::NotUnderstood("the DNS query cannot be parsed");

/// Answers UDP queries until the gate closes.
pub(super) async fn serve_udp(inner: &Arc<GateState>, socket: OwnedFd, mut stop: watch::Receiver<bool>) {
    let Ok(socket) = UdpSocket::from_std(socket.into()) else { return };
    loop {
        tokio::select! {
            ready = socket.readable() => if ready.is_err() { return },
            () = stopped(&mut stop) => return,
        }
        // A datagram that cannot be received is lost.
        let taken =
            socket.try_io(Interest::READABLE, || Ok(network::receive(&socket, dns::MAX_QUERY_BYTES)?));
        if let Ok(asked) = taken
            && let Some(answer) = inner.answer(&asked.bytes)
        {
            // A client that does not get the response retries.
            let _ = network::reply(&socket, &asked, &answer);
        }
    }
}

/// Answers queries over TCP: each message is preceded by its length.
pub(super) async fn serve_tcp(inner: &Arc<GateState>, client: TcpStream) {
    let mut held = Vec::new();
    for _ in 0..MAX_QUESTIONS {
        let limit = tokio::time::Instant::now() + REQUEST_TIMEOUT;
        let question = loop {
            if let [high, low, rest @ ..] = held.as_slice() {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length > dns::MAX_QUERY_BYTES {
                    return;
                }
                if let Some(question) = rest.get(..length) {
                    let question = question.to_vec();
                    held.drain(..length + 2);
                    break question;
                }
            }
            if !matches!(read_more(&client, &mut held, &mut Some(limit)).await, Ok(read) if read > 0) {
                return;
            }
        };
        let Some(answer) = inner.answer(&question) else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let answer = [&length.to_be_bytes()[..], &answer].concat();
        // A response is far smaller than the socket buffer; a client that does not read gets no further responses.
        if !matches!(client.try_write(&answer), Ok(written) if written == answer.len()) {
            return;
        }
    }
}

impl GateState {
    fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let question = match DnsQuestion::read(packet) {
            Ok(question) => question,
            Err(bad) => {
                self.log.begin(EgressAction::Dns, "?".to_owned(), 0).failed(MALFORMED_QUERY);
                return match bad {
                    BadQuery::Reply(reply) => Some(reply),
                    BadQuery::Silence => None,
                };
            }
        };
        let answer = match HostName::from_bytes(&question.name) {
            Ok(name) if name.is_localhost() => DnsAnswer::Addresses(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            Ok(name) => self.resolve_name(&name),
            Err(_) => {
                self.log
                    .begin(EgressAction::Dns, question.printable_name(), 0)
                    .failed(NetworkReason::BadName);
                DnsAnswer::NoSuchName
            }
        };
        Some(question.encode_response(answer))
    }

    fn resolve_name(&self, name: &HostName) -> DnsAnswer {
        let mut attempt = self.log.begin(EgressAction::Dns, name.as_str().to_owned(), 0);
        match self.config.rules.allows_lookup(name) {
            Ok(rule) => attempt.allowed_by(rule),
            Err(reason) => {
                attempt.failed(reason);
                return DnsAnswer::NoSuchName;
            }
        }
        match self.config.synthetic_addresses.assign(name) {
            Some((four, six)) => DnsAnswer::Addresses(four, six),
            None => {
                attempt.failed(NetworkReason::Cap("names"));
                DnsAnswer::Failure
            }
        }
    }
}
