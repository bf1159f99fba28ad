//! What a sandbox asks of its gate: to take the sockets of its network, and what becomes of a connection that a program is
//! about to make. The port is opened here; the verdict that counts is the one at accept.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use vambrace_sandbox::network::{Door, Hint, Kind, Sockets};

use super::{Gate, resolver, unheard};
use crate::decide::{Destination, Reason, Verdict};
use crate::event::Action;
use crate::proxy;

const NO_PORT: Reason = Reason::Cap("ports");

impl Gate {
    fn refuse(&self, host: String, port: u16, reason: Reason) -> Hint {
        self.inner.log.begin(Action::Connect, host, port).failed(reason);
        Hint::Refuse
    }
}

impl Door for Gate {
    fn open(&self, sockets: Sockets) {
        let mut ports = self.ports.lock();
        ports.spare = sockets.spare;
        let (inner, stop) = (Arc::clone(&self.inner), self.stop.subscribe());
        let mut unheard = sockets.unheard.into_iter();
        let (one, other) = (unheard.next(), unheard.next());
        // One task: most programs need none of them, and wait for its end.
        let datagrams = async move {
            tokio::join!(
                resolver::datagrams(&inner, sockets.dns, stop.clone()),
                unheard::listen(&inner, one, stop.clone()),
                unheard::listen(&inner, other, stop),
            );
        };
        ports.tasks.spawn_on(datagrams, &self.runtime);
    }

    fn hint(&self, to: SocketAddr, kind: Kind) -> Hint {
        let (address, port) = (to.ip().to_canonical(), to.port());
        // Programs ask the kernel for a route by connecting datagrams that they never send. What is sent finds nobody.
        let near = address.is_loopback() || address.is_unspecified();
        if kind == Kind::Stream && port == resolver::PORT {
            // Without it a program falls back to datagrams, which are there.
            let _ = self.listen(None, resolver::PORT);
        }
        if kind == Kind::Datagram || port == 0 || port == resolver::PORT {
            // A name may be pointed at without anything being sent (resolver libraries do); who writes an address out
            // means it. What is sent is told in any case (`unheard`).
            let straight = matches!(self.inner.meaning(address), Ok(Destination::Address(_)));
            if kind == Kind::Datagram && straight && !near && port != 0 && port != resolver::PORT {
                self.inner.log.begin(Action::Datagram, address.to_string(), port).failed(Reason::Datagram);
            }
            return Hint::GoOn;
        }
        if near {
            let is_ours = self.inner.setting.rules.lists_address(address, port) || port == proxy::PORT;
            match is_ours.then(|| self.listen(Some(address), port)) {
                Some(Ok(())) => {}
                Some(Err(Errno::MFILE)) => return self.refuse(address.to_string(), port, NO_PORT),
                // Where the program itself listens, it talks to itself.
                None | Some(Err(_)) => {
                    let mut ticket = self.inner.log.begin(Action::Local, address.to_string(), port);
                    ticket.allowed_by("loopback".into());
                }
            }
            return Hint::GoOn;
        }
        let destination = match self.inner.meaning(address) {
            Ok(destination) => destination,
            Err(reason) => return self.refuse(address.to_string(), port, reason),
        };
        if let Verdict::Deny(reason) = self.inner.judge(&destination, port) {
            return self.refuse(destination.to_string(), port, reason);
        }
        // Where somebody has the port at another address, this address is free all the same.
        match self.listen(None, port).or_else(|errno| match errno {
            Errno::ADDRINUSE => self.listen(Some(address), port),
            other => Err(other),
        }) {
            Ok(()) => Hint::GoOn,
            Err(Errno::MFILE) => self.refuse(destination.to_string(), port, NO_PORT),
            Err(_) => {
                let why = "the program itself listens on this port".to_owned();
                self.refuse(destination.to_string(), port, Reason::Unreachable(why))
            }
        }
    }
}
