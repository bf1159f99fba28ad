//! Relays an allowed connection in both directions. The names inside the program's bytes (SNI, Host) are compared with the
//! allowed host before the first of those bytes is forwarded. Bytes from the server are forwarded at once, so that
//! protocols in which the server sends first work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use vambrace_core::network::NetworkFence;

use crate::decide::{Destination, NetworkReason};
use crate::detect::{self, DetectedProtocol};
use crate::event::Traffic;
use crate::host_name::HostName;
use crate::http::{self, ChunkedDecoder, Recipient, RequestFraming};
use crate::relay::{Direction, RelayError, TrafficMeter, reset};

/// Time limit from the first byte of a ClientHello or a request head to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// An allowed connection: client, server, and what they are checked against.
pub(crate) struct RelayedConnection<'a> {
    pub(crate) client: &'a TcpStream,
    pub(crate) server: &'a TcpStream,
    /// The host that the rules allowed.
    pub(crate) host: &'a Destination,
    pub(crate) port: u16,
    /// The rules that allowed the connection; names that they deny must not appear inside it either.
    pub(crate) rules: &'a NetworkFence,
    pub(crate) meter: &'a TrafficMeter,
    pub(crate) traffic: &'a Traffic,
    /// Looks in each request head for placeholders that are not for this host.
    pub(crate) report_placeholders: &'a (dyn Fn(&[u8]) + Send + Sync),
}

/// Why the gate ended a connection.
#[derive(Debug)]
pub(crate) struct DeniedConnection {
    pub(crate) reason: NetworkReason,
    /// The program sent an HTTP request and waits for a response.
    pub(crate) http: bool,
}

/// Bytes that were read before the relay starts.
#[derive(Debug, Default)]
pub(crate) struct EarlyBytes {
    pub(crate) from_client: Vec<u8>,
    pub(crate) from_server: Vec<u8>,
}

impl RelayedConnection<'_> {
    /// Relays both directions to their ends.
    pub(crate) async fn run(&self, held: EarlyBytes, sending: SendingGuard) -> Result<(), DeniedConnection> {
        let upgrade = UpgradeWatch::default();
        let http = AtomicBool::new(false);
        let up = async {
            let _ended = sending;
            ignore_closed_sink(self.relay_to_server(held.from_client, &upgrade, &http).await)
        };
        let down = async {
            let relay = self.to_client();
            relay.write_counted(&held.from_server).await?;
            let done = relay.run(&mut |bytes| upgrade.inspect(bytes)).await;
            upgrade.closed();
            ignore_closed_sink(done)
        };
        match tokio::try_join!(up, down) {
            Ok(_) | Err(RelayError::SinkClosed) => Ok(()),
            Err(RelayError::SourceFailed) => {
                // Both peers see a reset instead of an orderly close.
                reset(self.client);
                reset(self.server);
                Ok(())
            }
            Err(RelayError::Reason(reason)) => {
                let waits = self.traffic.received.load(Ordering::Relaxed) == 0;
                Err(DeniedConnection { reason, http: http.load(Ordering::Relaxed) && waits })
            }
        }
    }

    fn to_server(&self) -> Direction<'_> {
        Direction { from: self.client, to: self.server, meter: self.meter, count: &self.traffic.sent }
    }

    fn to_client(&self) -> Direction<'_> {
        Direction { from: self.server, to: self.client, meter: self.meter, count: &self.traffic.received }
    }

    async fn relay_to_server(
        &self,
        mut held: Vec<u8>,
        upgrade: &UpgradeWatch,
        http: &AtomicBool,
    ) -> Result<(), RelayError> {
        let relay = self.to_server();
        if matches!(self.host, Destination::Address(_)) && !self.rules.denies_names(self.port) {
            // A network was allowed by address: the content is not checked.
            relay.write_counted(&held).await?;
            return relay.run(&mut |_| {}).await;
        }
        let mut limit = None;
        loop {
            match detect::detect(&held) {
                DetectedProtocol::Incomplete => {}
                DetectedProtocol::Tls(Some(said)) => {
                    match (self.host, HostName::from_bytes(&said)) {
                        (Destination::Name(name), _) => check_name(name, &said)?,
                        (_, Ok(said)) => self.rules.check_name(&said, self.port)?,
                        (_, Err(_)) => {}
                    }
                    break;
                }
                DetectedProtocol::Tls(None) | DetectedProtocol::Unknown => break,
                DetectedProtocol::Preamble(length) => {
                    let rest = held.split_off(length.min(held.len()));
                    relay.write_counted(&held).await?;
                    (held, limit) = (rest, None);
                    continue;
                }
                DetectedProtocol::Http => {
                    http.store(true, Ordering::Relaxed);
                    return self.relay_requests(held, upgrade).await;
                }
                DetectedProtocol::Malformed(what) => return Err(NetworkReason::NotUnderstood(what).into()),
            }
            if read_more(self.client, &mut held, &mut limit).await? == 0 {
                break;
            }
        }
        relay.write_counted(&held).await?;
        drop(held);
        relay.run(&mut |_| {}).await
    }

    /// Relays one HTTP request after the other.
    async fn relay_requests(&self, mut held: Vec<u8>, upgrade: &UpgradeWatch) -> Result<(), RelayError> {
        let relay = self.to_server();
        let mut first = true;
        loop {
            let Some(head) = self.next_head(&mut held).await? else { return relay.end() };
            if head.has_upgrade {
                if !first {
                    return Err(NetworkReason::NotUnderstood(
                        "an upgrade that is not the first request of its connection",
                    )
                    .into());
                }
                upgrade.request();
            }
            let rest = held.split_off(head.length.min(held.len()));
            (self.report_placeholders)(&held);
            relay.write_counted(&held).await?;
            held = self.relay_body(head.framing, rest).await?;
            if head.has_upgrade && upgrade.accepted().await {
                relay.write_counted(&held).await?;
                return relay.run(&mut |_| {}).await;
            }
            first = false;
        }
    }

    /// The next request head; `None` at the end.
    async fn next_head(&self, held: &mut Vec<u8>) -> Result<Option<http::RequestHead>, RelayError> {
        let mut limit = None;
        let mut looked = 0;
        // A host that was allowed by address can have any name except a denied one.
        let expected = Some(self.host).filter(|host| matches!(host, Destination::Name(_)));
        loop {
            // A head ends with a line end: parsing earlier would not help.
            let new = held.get(looked..).unwrap_or_default();
            if (new.contains(&b'\n') || held.len() >= http::MAX_HEAD_BYTES)
                && let Some(head) = http::parse_head(held, expected, Recipient::Server)?
            {
                let said = [head.host.as_ref(), head.target.as_ref().map(|target| &target.host)];
                for said in said.into_iter().flatten() {
                    if let Destination::Name(said) = said {
                        self.rules.check_name(said, self.port)?;
                    }
                }
                return Ok(Some(head));
            }
            looked = held.len();
            if read_more(self.client, held, &mut limit).await? == 0 {
                let nothing = held.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
                return if nothing { Ok(None) } else { Err(RelayError::SourceFailed) };
            }
        }
    }

    /// Relays a body; returns the bytes that were read behind it.
    async fn relay_body(&self, body: RequestFraming, mut held: Vec<u8>) -> Result<Vec<u8>, RelayError> {
        let relay = self.to_server();
        match body {
            RequestFraming::Length(length) => {
                let here = usize::try_from(length).unwrap_or(usize::MAX).min(held.len());
                let rest = held.split_off(here);
                relay.write_counted(&held).await?;
                relay.relay_exactly(length - here as u64).await?;
                Ok(rest)
            }
            RequestFraming::Chunked => {
                let mut chunks = ChunkedDecoder::default();
                loop {
                    let taken = chunks.take(&held)?;
                    let rest = held.split_off(taken);
                    relay.write_counted(&held).await?;
                    held = rest;
                    if chunks.done() {
                        return Ok(held);
                    }
                    if read_more(self.client, &mut held, &mut None).await? == 0 {
                        return Err(RelayError::SourceFailed);
                    }
                }
            }
        }
    }
}

/// A closed receiver in one direction does not end the other direction.
fn ignore_closed_sink(done: Result<(), RelayError>) -> Result<(), RelayError> {
    match done {
        Err(RelayError::SinkClosed) => Ok(()),
        done => done,
    }
}

pub(crate) fn check_name(name: &HostName, said: &[u8]) -> Result<(), NetworkReason> {
    match HostName::from_bytes(said) {
        Ok(said) if said == *name => Ok(()),
        Ok(said) => Err(NetworkReason::NameMismatch(said.as_str().to_owned())),
        Err(_) => Err(NetworkReason::BadName),
    }
}

/// Reads more bytes into `held`; 0 at the end. The time limit starts with the first byte.
pub(crate) async fn read_more(
    stream: &TcpStream,
    held: &mut Vec<u8>,
    limit: &mut Option<Instant>,
) -> Result<usize, RelayError> {
    const LATE: NetworkReason =
        NetworkReason::NotUnderstood("the first bytes of the connection arrived too slowly");
    if !held.is_empty() && limit.is_none() {
        *limit = Some(Instant::now() + HEAD_TIMEOUT);
    }
    loop {
        match limit {
            Some(limit) => timeout_at(*limit, stream.readable()).await.map_err(|_| LATE)??,
            None => stream.readable().await?,
        }
        let mut buffer = [0_u8; 4096];
        match stream.try_read(&mut buffer) {
            Ok(read) => {
                held.extend_from_slice(buffer.get(..read).unwrap_or_default());
                return Ok(read);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Counts a connection whose program may still send; released when dropped.
#[derive(Debug)]
pub(crate) struct SendingGuard(Arc<AtomicUsize>);

impl SendingGuard {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Watches whether the server accepts a protocol upgrade (status 101).
#[derive(Debug, Default)]
struct UpgradeWatch {
    state: Mutex<UpgradeState>,
    decided: Notify,
}

#[derive(Debug, Default)]
struct UpgradeState {
    requested: bool,
    begin: Vec<u8>,
    accepted: Option<bool>,
}

impl UpgradeWatch {
    fn request(&self) {
        self.state.lock().requested = true;
    }

    /// Looks at the response bytes as they are relayed.
    fn inspect(&self, bytes: &[u8]) {
        const LINE: &[u8] = b"HTTP/1.1 101";
        let mut state = self.state.lock();
        if !state.requested || state.accepted.is_some() {
            return;
        }
        let wanted = LINE.len().saturating_sub(state.begin.len());
        state.begin.extend(bytes.iter().take(wanted));
        if state.begin.len() == LINE.len() {
            state.accepted = Some(state.begin == LINE);
            self.decided.notify_one();
        }
    }

    /// The server's direction ended: no response will come.
    fn closed(&self) {
        self.state.lock().accepted.get_or_insert(false);
        self.decided.notify_one();
    }

    async fn accepted(&self) -> bool {
        loop {
            if let Some(accepted) = self.state.lock().accepted {
                return accepted;
            }
            self.decided.notified().await;
        }
    }
}
