//! The egress gate of one run: owns the sockets of its network namespace, serves DNS on one of them and TCP on the others,
//! opens a listener when a program is about to use a port, and closes everything at the end.
//!
//! **Invariant.** Only the check at accept is binding. The hint before `connect` opens the port and lets a denied program
//! fail at once; it can be wrong in either direction without harm.

mod dns_server;
mod icmp_errors;
mod listeners;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use vambrace_core::network::NetworkFence;

use crate::connect::{self, Lookups, Resolve, SystemResolver};
use crate::connection::{EarlyBytes, RelayedConnection, SendingGuard};
use crate::decide::{Destination, NetworkDecision, NetworkReason};
use crate::event::{EgressAction, EgressAttempt, EgressEvent, EgressLog};
use crate::proxy::{self, UpstreamProxy};
use crate::relay::{TrafficCaps, TrafficMeter, reset};
use crate::synthetic_dns::{AddressMeaning, SyntheticAddresses};
use crate::tls_termination::{self, NameResolution, TerminatedHosts, TerminatedSession, TlsTermination};

/// Time limit for a proxy client's request, and for one DNS question over TCP.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for delivering bytes that a program sent before it exited.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay after the end of a run before its unused sockets are closed.
const SOCKET_CLOSE_DELAY: Duration = Duration::from_millis(2);
const LISTEN_BACKLOG: i32 = 4096;

/// Configuration of a gate.
#[derive(Debug, Clone)]
pub struct GateConfig {
    /// What may be reached.
    pub rules: NetworkFence,
    /// Connection, byte and rate limits.
    pub caps: TrafficCaps,
    /// Resolves names outside the sandbox.
    pub resolver: Arc<dyn Resolve>,
    /// The proxy that outgoing connections go through.
    pub upstream: Option<UpstreamProxy>,
    /// Hosts whose TLS the gate terminates.
    pub termination: Option<Arc<TlsTermination>>,
    /// Names and their synthetic addresses; shared by the runs of a session.
    pub synthetic_addresses: Arc<SyntheticAddresses>,
}

impl GateConfig {
    /// These rules, and defaults for everything else.
    #[must_use]
    pub fn new(rules: impl Into<NetworkFence>) -> Self {
        Self {
            rules: rules.into(),
            caps: TrafficCaps::default(),
            resolver: Arc::new(SystemResolver),
            upstream: None,
            termination: None,
            synthetic_addresses: Arc::default(),
        }
    }
}

/// The gate of one run.
#[derive(Debug)]
pub struct EgressGate {
    inner: Arc<GateState>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    ports: Mutex<OpenPorts>,
}

/// State that all connections of a gate share.
#[derive(Debug)]
pub(crate) struct GateState {
    config: GateConfig,
    lookups: Lookups,
    meter: TrafficMeter,
    pub(crate) log: Arc<EgressLog>,
    open: AtomicUsize,
    /// Number of connections whose program may still send.
    sending: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct OpenPorts {
    spare: Vec<OwnedFd>,
    opened: HashSet<(Option<IpAddr>, u16)>,
    tasks: JoinSet<()>,
}

/// A connection to the server, and the bytes that were read from it already.
pub(crate) struct DialledServer {
    stream: TcpStream,
    early: Vec<u8>,
    sending: SendingGuard,
}

impl EgressGate {
    /// A gate whose tasks run on this runtime.
    #[must_use]
    pub fn new(mut config: GateConfig, runtime: Handle) -> Arc<Self> {
        config.caps.connections = config.caps.connections.min(max_connections(raise_open_files()));
        let inner = GateState {
            meter: TrafficMeter::new(config.caps),
            lookups: Lookups::new(Arc::clone(&config.resolver)),
            config,
            log: Arc::new(EgressLog::new()),
            open: AtomicUsize::new(0),
            sending: Arc::default(),
        };
        let (stop, _) = watch::channel(false);
        Arc::new(Self { inner: Arc::new(inner), runtime, stop, ports: Mutex::default() })
    }

    /// Closes everything; returns the events and how many further ones were not kept. Blocks, so the runtime needs another
    /// thread than the caller's.
    pub fn close(&self) -> (Vec<EgressEvent>, u64) {
        let OpenPorts { mut tasks, spare, .. } = std::mem::take(&mut *self.ports.lock());
        let (done, closed) = std::sync::mpsc::channel::<()>();
        let _ = self.stop.send(true);
        self.runtime.spawn(async move {
            while tasks.join_next().await.is_some() {}
            drop(done);
            // The caller does not wait for these; it resumes first.
            tokio::time::sleep(SOCKET_CLOSE_DELAY).await;
            drop(spare);
        });
        // Nothing is ever sent: the dropped sender is the signal.
        let _ = closed.recv();
        self.inner.log.read()
    }

    /// Makes sure that a listener is open on a port of every address, or of one address.
    fn listen(&self, only: Option<IpAddr>, port: u16) -> Result<(), Errno> {
        let mut ports = self.ports.lock();
        if ports.opened.contains(&(None, port)) || ports.opened.contains(&(only, port)) {
            return Ok(());
        }
        // One socket is reserved for DNS over TCP, which is opened on demand like the others.
        let kept = usize::from(port != dns_server::PORT && !ports.opened.contains(&(None, dns_server::PORT)));
        if ports.spare.len() <= kept {
            return Err(Errno::MFILE);
        }
        let socket = ports.spare.pop().ok_or(Errno::MFILE)?;
        let address = match only {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Some(IpAddr::V6(address)) => address,
        };
        if matches!(only, Some(IpAddr::V6(_))) {
            // The namespace only has a route for this IPv6 address; binding to it needs IPV6_FREEBIND.
            sockopt::set_ipv6_freebind(&socket, true)?;
        }
        if let Err(errno) = rustix::net::bind(&socket, &SocketAddrV6::new(address, port, 0, 0)) {
            // The program itself listens there; the socket can be reused.
            ports.spare.push(socket);
            return Err(errno);
        }
        rustix::net::listen(&socket, LISTEN_BACKLOG)?;
        let _inside = self.runtime.enter();
        let listener = TcpListener::from_std(socket.into()).map_err(|_| Errno::IO)?;
        let (inner, stop) = (Arc::clone(&self.inner), self.stop.subscribe());
        ports.tasks.spawn_on(accept(inner, listener, stop), &self.runtime);
        ports.opened.insert((only, port));
        Ok(())
    }
}

/// Accepts connections of one listener until the gate closes.
async fn accept(inner: Arc<GateState>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => inner.spawn_connection(client, &mut connections),
                // Out of file descriptors: retry later, open connections go on.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    inner.accept_backlog(listener, &mut connections);
    inner.flush_pending().await;
    connections.shutdown().await;
}

/// Waits until the gate closes.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the gate was dropped, which also stops the tasks.
    let _ = stop.wait_for(|stop| *stop).await;
}

impl GateState {
    fn spawn_connection(self: &Arc<Self>, client: TcpStream, connections: &mut JoinSet<()>) {
        let Ok(local) = client.local_addr() else { return };
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.config.caps.connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            let host = self
                .destination_of(local.ip())
                .map_or_else(|_| local.ip().to_string(), |host| host.to_string());
            self.log
                .begin(EgressAction::Connect, host, local.port())
                .failed(NetworkReason::Cap("connections"));
            reset(&client);
            return;
        }
        let (slot, sending) = (ConnectionSlot(Arc::clone(self)), SendingGuard::new(&self.sending));
        connections.spawn(async move {
            let _ = client.set_nodelay(true);
            slot.0.serve(client, local, sending).await;
        });
    }

    /// Accepts the connections that are still in the backlog: their programs may have sent data and exited. Asks the kernel
    /// directly, because the runtime may not have seen the readiness event yet.
    fn accept_backlog(self: &Arc<Self>, listener: TcpListener, connections: &mut JoinSet<()>) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((client, _)) = listener.accept() {
            if client.set_nonblocking(true).is_ok()
                && let Ok(client) = TcpStream::from_std(client)
            {
                self.spawn_connection(client, connections);
            }
        }
    }

    async fn serve(self: &Arc<Self>, client: TcpStream, local: SocketAddr, sending: SendingGuard) {
        let (address, port) = (local.ip().to_canonical(), local.port());
        if port == dns_server::PORT {
            return dns_server::serve_tcp(self, client).await;
        }
        if port == proxy::PORT && address.is_loopback() {
            return proxy::serve(self, client, sending).await;
        }
        let host = match self.destination_of(address) {
            Ok(host) => host,
            Err(reason) => {
                self.log.begin(EgressAction::Connect, address.to_string(), port).failed(reason);
                return reset(&client);
            }
        };
        let mut attempt = self.log.begin(EgressAction::Connect, host.to_string(), port);
        match self.check_and_dial(&host, port, &mut attempt, sending).await {
            Ok(dialled) => {
                self.relay(&client, dialled, &host, Vec::new(), &mut attempt).await;
            }
            Err(reason) => {
                attempt.failed(reason);
                reset(&client);
            }
        }
    }

    /// Maps a synthetic address to its name; other addresses stand for themselves.
    fn destination_of(&self, address: IpAddr) -> Result<Destination, NetworkReason> {
        match self.config.synthetic_addresses.lookup(address) {
            AddressMeaning::Name(name) => Ok(Destination::Name(name)),
            AddressMeaning::Real => Ok(Destination::Address(address.to_canonical())),
            AddressMeaning::Unassigned => Err(NetworkReason::UnknownAddress),
        }
    }

    /// The same for the destination of a proxy request: a program that resolves names itself passes the synthetic address.
    pub(crate) fn resolve_synthetic(&self, host: Destination) -> Result<Destination, NetworkReason> {
        match host {
            Destination::Address(address) => self.destination_of(address),
            name => Ok(name),
        }
    }

    fn check(&self, host: &Destination, port: u16) -> NetworkDecision {
        let rules = &self.config.rules;
        match rules.judge(host, port) {
            NetworkDecision::Allow(_)
                if tls_termination::bypasses_termination(self.terminated_hosts(), rules, host, port) =>
            {
                NetworkDecision::Deny(NetworkReason::AddressNotAllowed)
            }
            said => said,
        }
    }

    /// The hosts whose TLS the gate terminates.
    fn terminated_hosts(&self) -> &[TerminatedHosts] {
        self.config.termination.as_ref().map_or(&[], |termination| termination.entries())
    }

    /// Checks a destination and dials it.
    pub(crate) async fn check_and_dial(
        &self,
        host: &Destination,
        port: u16,
        attempt: &mut EgressAttempt,
        sending: SendingGuard,
    ) -> Result<DialledServer, NetworkReason> {
        let rules = &self.config.rules;
        match self.check(host, port) {
            NetworkDecision::Allow(rule) => attempt.allowed_by(rule),
            NetworkDecision::Deny(reason) => return Err(reason),
        }
        let resolves = if self.config.upstream.is_some() {
            NameResolution::UpstreamProxy
        } else {
            NameResolution::Local
        };
        tls_termination::deny_address_of_terminated_host(
            self.terminated_hosts(),
            &self.lookups,
            host,
            port,
            resolves,
        )
        .await?;
        if let Some(upstream) = &self.config.upstream {
            connect::check_for_proxy(rules, &self.lookups, host, port).await?;
            let (stream, early) = upstream.dial(host, port).await?;
            return Ok(DialledServer { stream, early, sending });
        }
        let stream = connect::dial(rules, &self.lookups, host, port).await?;
        attempt.dialled(stream.peer_addr().ok().map(|peer| peer.ip().to_canonical()));
        Ok(DialledServer { stream, early: Vec::new(), sending })
    }

    /// Relays a connection to its end.
    pub(crate) async fn relay(
        &self,
        client: &TcpStream,
        dialled: DialledServer,
        host: &Destination,
        from_client: Vec<u8>,
        attempt: &mut EgressAttempt,
    ) {
        let DialledServer { stream, early, sending } = dialled;
        let traffic = Arc::clone(&attempt.traffic);
        let port = attempt.port();
        if let (Some(termination), Destination::Name(name)) = (&self.config.termination, host)
            && let Some(entry) = termination.entry_for_host(name, port)
        {
            let session = TerminatedSession {
                termination,
                entry,
                client,
                server: &stream,
                host: name,
                port,
                meter: &self.meter,
                traffic: &traffic,
                log: &self.log,
            };
            // The client starts a TLS handshake; a server that sends first does not speak TLS.
            let done = match early.is_empty() {
                true => session.run(from_client).await,
                false => Err(NetworkReason::NotUnderstood("the server sent data before the TLS handshake")),
            };
            if let Err(reason) = done {
                attempt.failed(reason);
            }
            drop(sending);
            return;
        }
        let report_placeholders = |head: &[u8]| {
            if self
                .config
                .termination
                .as_ref()
                .is_some_and(|termination| termination.has_foreign_placeholder(head, None))
            {
                self.log.begin(EgressAction::Placeholder, host.to_string(), port);
            }
        };
        let connection = RelayedConnection {
            client,
            server: &stream,
            host,
            port,
            rules: &self.config.rules,
            meter: &self.meter,
            traffic: &traffic,
            report_placeholders: &report_placeholders,
        };
        let held = EarlyBytes { from_client, from_server: early };
        let Err(denied) = connection.run(held, sending).await else { return };
        reset(&stream);
        if denied.http {
            // Best effort: a program that does not read it sees the connection close.
            let _ = client.try_write(&denial_response(&denied.reason));
        } else {
            reset(client);
        }
        attempt.failed(denied.reason);
    }

    /// Waits until the bytes that exited programs sent are delivered.
    async fn flush_pending(&self) {
        let limit = tokio::time::Instant::now() + FLUSH_TIMEOUT;
        while self.sending.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Holds a place under the connection cap; released when dropped.
struct ConnectionSlot(Arc<GateState>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The HTTP response for a denial.
pub(crate) fn denial_response(reason: &NetworkReason) -> Vec<u8> {
    let words = format!("denied by the network policy: {reason}\n");
    format!(
        "HTTP/1.1 403 Forbidden\r\nX-Vambrace-Denied: {}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{words}",
        reason.code(),
        words.len(),
    )
    .into_bytes()
}

/// Raises this process's soft limit of open files to the hard limit, since 1,000 connections need 2,000 sockets and some pipes
/// (sandboxed programs have limits of their own). Returns the limit; `None` where there is none.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current < now.maximum || now.maximum.is_none() {
        // Where this fails, fewer connections are allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// Connections that a run may open so that the broker does not run out of file descriptors: a third of them is left for
/// pipes, and 256 for everything else.
fn max_connections(open_files: Option<u64>) -> usize {
    let share = open_files.map(|most| most.saturating_sub(256) / 3);
    share.and_then(|share| usize::try_from(share).ok()).map_or(usize::MAX, |share| share.max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_leaves_file_descriptors_for_the_broker() {
        assert_eq!(max_connections(None), usize::MAX);
        assert_eq!(max_connections(Some(1 << 20)), 349_440);
        assert_eq!(max_connections(Some(1024)), 256);
        assert_eq!(max_connections(Some(100)), 16);
    }
}
