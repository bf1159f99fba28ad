//! The network namespace of a sandbox: every address in it leads to the loopback interface, and the sockets that
//! listen there belong to a [`NetworkGate`] outside.
//!
//! The interface to the gate has three points: `setup::set_up` creates routes and sockets in the cell, the sockets
//! are passed to [`NetworkGate::open`], and a program that is about to connect is announced to [`NetworkGate::hint`].
//! The hint is read from memory that the program can change; it opens listeners and explains denials, and is never
//! the boundary. The boundary is that no packet leaves the namespace, and that each connection is judged when it is
//! accepted.
//!
//! Deliberately absent: rules, names, DNS, dialling. They belong to the egress gate.

pub(crate) mod connect_hint;
mod icmp_errors;
mod route;
pub(crate) mod setup;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub use crate::sys::datagram::{Datagram, receive, reply};
pub use icmp_errors::unreachable_destination;
pub use route::{RouteKind, route_of};

/// Serves a sandbox's network from outside.
pub trait NetworkGate: fmt::Debug + Send + Sync {
    /// Receives the sockets that were created in the namespace. Called once, before the program starts.
    fn open(&self, sockets: Sockets);

    /// A program is about to connect, and waits. Called on a thread that serves the run: it must not block.
    fn hint(&self, to: SocketAddr, kind: SocketKind) -> ConnectHint;
}

/// Sockets of a sandbox's network namespace; all take IPv4 and IPv6.
#[derive(Debug)]
pub struct Sockets {
    /// Bound to UDP port 53 of every address; each datagram carries its destination address.
    pub dns: OwnedFd,
    /// Unbound TCP sockets; one for each port that is opened later.
    pub spare: Vec<OwnedFd>,
    /// Raw ICMP sockets that report undeliverable datagrams; empty where raw sockets are not permitted.
    pub icmp: Vec<OwnedFd>,
}

/// Kind of a connecting socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP, or unknown.
    Stream,
    /// UDP.
    Datagram,
}

/// What happens to a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectHint {
    /// It continues; the gate decides when it accepts.
    Continue,
    /// It fails at once with EACCES, as with a firewall.
    Deny,
}

/// Maximum number of ports for one run, including DNS over TCP.
pub(crate) const PORTS: usize = 32;
