//! Reports datagrams that no socket received, from the ICMP errors of the sandbox's network namespace: each one is a denial
//! event, whether its socket was connected or not. The program gets the error at once and falls back (QUIC to TCP).

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

use super::{GateState, stopped};
use crate::decide::NetworkReason;
use crate::event::EgressAction;

/// Messages read before other tasks get a turn. The kernel's queue bounds a flood.
const BATCH_SIZE: usize = 64;
const BATCH_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of messages read when the gate closes.
const MAX_FINAL_MESSAGES: usize = 4096;
/// Read buffer in bytes; longer than the headers that are parsed.
const BUFFER_BYTES: usize = 256;

/// Reads ICMP errors until the gate closes, then those that are still queued.
pub(super) async fn listen(inner: &Arc<GateState>, socket: Option<OwnedFd>, mut stop: watch::Receiver<bool>) {
    let Some(Ok(socket)) = socket.map(|socket| UdpSocket::from_std(socket.into())) else { return };
    let read = |message: &mut [u8]| Ok(rustix::net::recv(&socket, message, RecvFlags::DONTWAIT)?.0);
    loop {
        tokio::select! {
            ready = socket.readable() => if ready.is_err() { return },
            () = stopped(&mut stop) => break,
        }
        inner.report_queued(BATCH_SIZE, |message| socket.try_io(Interest::READABLE, || read(message)));
        tokio::time::sleep(BATCH_PAUSE).await;
    }
    // Asks the kernel directly, because the runtime may not have seen the readiness event yet.
    inner.report_queued(MAX_FINAL_MESSAGES, read);
}

impl GateState {
    /// Reports queued messages, at most `max`.
    fn report_queued(self: &Arc<Self>, max: usize, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) {
        let mut message = [0; BUFFER_BYTES];
        for _ in 0..max {
            let Ok(got) = read(&mut message) else { return };
            if let Some(to) = message.get(..got).and_then(network::unreachable_destination) {
                self.report(to);
            }
        }
    }

    /// Logs a denial, except for datagrams to the sandbox's own loopback.
    fn report(self: &Arc<Self>, to: SocketAddr) {
        let address = to.ip().to_canonical();
        if !address.is_loopback() && !address.is_unspecified() {
            let host =
                self.destination_of(address).map_or_else(|_| address.to_string(), |host| host.to_string());
            self.log.begin(EgressAction::Datagram, host, to.port()).failed(NetworkReason::Datagram);
        }
    }
}
