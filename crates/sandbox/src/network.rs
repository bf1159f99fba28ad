//! The network of a sandbox, as far as the walls go: in a network namespace of its own every address leads to the
//! loopback interface, and the sockets that listen there belong to somebody outside, the [`Door`].
//!
//! The seam to whoever decides has three points: `inside::set_up` makes routes and sockets in the cell, the sockets
//! arrive at [`Door::open`], and a program that is about to connect is announced to [`Door::hint`]. The hint is read
//! from memory that the program can change; it opens listeners and explains refusals, and is never the boundary. The
//! boundary is that no packet leaves the namespace, and that each connection is judged when it is accepted.
//!
//! Deliberately absent: rules, names, DNS, dialling. They are the egress gate's.

pub(crate) mod hint;
pub(crate) mod inside;
mod unheard;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub use crate::sys::datagram::{Datagram, receive, reply};
pub use unheard::unheard;

/// Who stands outside a sandbox's network.
pub trait Door: fmt::Debug + Send + Sync {
    /// The namespace is there; these sockets were made in it. Called once, before the program starts.
    fn open(&self, sockets: Sockets);

    /// A program is about to connect, and waits. Called on a thread that serves the run: it must not wait for anybody.
    fn hint(&self, to: SocketAddr, kind: Kind) -> Hint;
}

/// Sockets of a sandbox's network namespace; all take IPv4 and IPv6.
#[derive(Debug)]
pub struct Sockets {
    /// Bound to UDP port 53 of every address; each datagram tells which address it was sent to.
    pub dns: OwnedFd,
    /// TCP sockets that are bound to nothing yet; one for each port that is opened later.
    pub spare: Vec<OwnedFd>,
    /// On which the kernel tells that a datagram found nobody; none where it may not be asked.
    pub unheard: Vec<OwnedFd>,
}

/// What kind of socket wants to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP, or not known.
    Stream,
    /// UDP.
    Datagram,
}

/// What becomes of a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// It goes on; the namespace decides.
    GoOn,
    /// It fails at once, as if a firewall had refused it.
    Refuse,
}

/// How many ports can be opened for one run, DNS over TCP among them.
pub const PORTS: usize = 32;
