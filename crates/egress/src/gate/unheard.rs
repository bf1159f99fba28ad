//! Datagrams that found nobody, told by the kernel of the sandbox's network: each is an event, whether its socket was
//! pointed at an address before or not. The program hears at once that nobody is there, and falls back.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use vambrace_sandbox::network;

use super::{Inner, stopped};
use crate::decide::Reason;
use crate::event::Action;

/// Taken together; then others have their turn. A flood is cut short by the kernel's own queue.
const TOGETHER: usize = 64;
const TURN: Duration = Duration::from_millis(1);
/// Of what waits at the end no more is read than this.
const LAST: usize = 4096;
/// Longer than the heads that are looked at.
const MOST: usize = 256;

/// Listens until the gate closes, then takes what is there.
pub(super) async fn listen(inner: &Arc<Inner>, socket: Option<OwnedFd>, mut stop: watch::Receiver<bool>) {
    let Some(Ok(socket)) = socket.map(|socket| UdpSocket::from_std(socket.into())) else { return };
    let read = |message: &mut [u8]| Ok(rustix::net::recv(&socket, message, RecvFlags::DONTWAIT)?.0);
    loop {
        tokio::select! {
            ready = socket.readable() => if ready.is_err() { return },
            () = stopped(&mut stop) => break,
        }
        inner.take(TOGETHER, |message| socket.try_io(Interest::READABLE, || read(message)));
        tokio::time::sleep(TURN).await;
    }
    // The kernel is asked, not the runtime, which may not have heard of it.
    inner.take(LAST, read);
}

impl Inner {
    /// Tells what is there, up to so many.
    fn take(self: &Arc<Self>, most: usize, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) {
        let mut message = [0; MOST];
        for _ in 0..most {
            let Ok(got) = read(&mut message) else { return };
            if let Some(to) = message.get(..got).and_then(network::unheard) {
                self.tell_unheard(to);
            }
        }
    }

    /// Datagrams to the program's own addresses are its own business.
    fn tell_unheard(self: &Arc<Self>, to: SocketAddr) {
        let address = to.ip().to_canonical();
        if !address.is_loopback() && !address.is_unspecified() {
            let host = self.meaning(address).map_or_else(|_| address.to_string(), |host| host.to_string());
            self.log.begin(Action::Datagram, host, to.port()).failed(Reason::Datagram);
        }
    }
}
