//! The interface that the sandbox calls: hands over the sockets of the network namespace, and announces each `connect` before
//! it happens, so that a listener for the port is open by then. Only the check at accept is binding.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use vambrace_sandbox::network::{ConnectHint, NetworkGate, SocketKind, Sockets};

use super::{EgressGate, dns_server, icmp_errors};
use crate::decide::{Destination, NetworkDecision, NetworkReason};
use crate::event::EgressAction;
use crate::proxy;

const PORT_CAP: NetworkReason = NetworkReason::Cap("ports");

impl EgressGate {
    fn deny(&self, host: String, port: u16, reason: NetworkReason) -> ConnectHint {
        self.inner.log.begin(EgressAction::Connect, host, port).failed(reason);
        ConnectHint::Deny
    }
}

impl NetworkGate for EgressGate {
    fn open(&self, sockets: Sockets) {
        let mut ports = self.ports.lock();
        ports.spare = sockets.spare;
        let (inner, stop) = (Arc::clone(&self.inner), self.stop.subscribe());
        let mut icmp = sockets.icmp.into_iter();
        let (one, other) = (icmp.next(), icmp.next());
        // One task for all three: most programs use none of them, and the end of a run waits for it.
        let datagrams = async move {
            tokio::join!(
                dns_server::serve_udp(&inner, sockets.dns, stop.clone()),
                icmp_errors::listen(&inner, one, stop.clone()),
                icmp_errors::listen(&inner, other, stop),
            );
        };
        ports.tasks.spawn_on(datagrams, &self.runtime);
    }

    fn hint(&self, to: SocketAddr, kind: SocketKind) -> ConnectHint {
        let (address, port) = (to.ip().to_canonical(), to.port());
        // Programs query routes by connecting UDP sockets that they never send on. A datagram that is sent reaches no listener.
        let is_local = address.is_loopback() || address.is_unspecified();
        if kind == SocketKind::Stream && port == dns_server::PORT {
            // Without this listener a program falls back to DNS over UDP, which works.
            let _ = self.listen(None, dns_server::PORT);
        }
        if kind == SocketKind::Datagram || port == 0 || port == dns_server::PORT {
            // Resolver libraries connect UDP sockets to the addresses of a name without sending, so only a literal address
            // is reported here. A datagram that is really sent is reported in any case (`icmp_errors`).
            let is_literal = matches!(self.inner.destination_of(address), Ok(Destination::Address(_)));
            if kind == SocketKind::Datagram
                && is_literal
                && !is_local
                && port != 0
                && port != dns_server::PORT
            {
                self.inner
                    .log
                    .begin(EgressAction::Datagram, address.to_string(), port)
                    .failed(NetworkReason::Datagram);
            }
            return ConnectHint::Continue;
        }
        if is_local {
            let is_gate_port = self.inner.config.rules.lists_address(address, port) || port == proxy::PORT;
            match is_gate_port.then(|| self.listen(Some(address), port)) {
                Some(Ok(())) => {}
                Some(Err(Errno::MFILE)) => return self.deny(address.to_string(), port, PORT_CAP),
                // The program itself listens there: the connection stays inside the sandbox.
                None | Some(Err(_)) => {
                    let mut attempt = self.inner.log.begin(EgressAction::Local, address.to_string(), port);
                    attempt.allowed_by("loopback".into());
                }
            }
            return ConnectHint::Continue;
        }
        let destination = match self.inner.destination_of(address) {
            Ok(destination) => destination,
            Err(reason) => return self.deny(address.to_string(), port, reason),
        };
        if let NetworkDecision::Deny(reason) = self.inner.check(&destination, port) {
            return self.deny(destination.to_string(), port, reason);
        }
        // Where the port is taken at another address, this address can still be bound.
        match self.listen(None, port).or_else(|errno| match errno {
            Errno::ADDRINUSE => self.listen(Some(address), port),
            other => Err(other),
        }) {
            Ok(()) => ConnectHint::Continue,
            Err(Errno::MFILE) => self.deny(destination.to_string(), port, PORT_CAP),
            Err(_) => {
                let why = "the sandboxed program itself listens on this port".to_owned();
                self.deny(destination.to_string(), port, NetworkReason::Unreachable(why))
            }
        }
    }
}
