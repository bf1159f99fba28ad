//! The gate of one run: the sockets of its network namespace, DNS on one of them, connections on the others, ports
//! opened when a program is about to use them, everything closed at the end.
//!
//! **Invariant.** The verdict that counts is the one at accept: the hint before it saves a program the wait and opens
//! the port, and may be wrong in either direction without harm.

mod door;
mod resolver;
mod unheard;

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
use vambrace_core::network::Reach;

use crate::connect::{self, Lookups, Resolve, SystemResolver};
use crate::decide::{Destination, Reason, Verdict};
use crate::event::{Action, Event, Log, Ticket};
use crate::pass::{Held, Pass, Speaks};
use crate::proxy::{self, Upstream};
use crate::relay::{Caps, Meter, reset};
use crate::synth::{Book, Meaning};
use crate::terminate::{self, Resolves, Session, Terminated, Termination};

/// How long a client of the proxy may take to say what it wants.
pub(crate) const GREETING: Duration = Duration::from_secs(10);
/// How long what a program sent before it ended may take to go out.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// So long after the end of a run its unused sockets are closed.
const LET_GO_FIRST: Duration = Duration::from_millis(2);
const BACKLOG: i32 = 4096;

/// What a gate is made of.
#[derive(Debug, Clone)]
pub struct Setting {
    /// What may be reached.
    pub rules: Reach,
    /// How much of it.
    pub caps: Caps,
    /// Who resolves names outside.
    pub resolver: Arc<dyn Resolve>,
    /// A proxy on the way out.
    pub upstream: Option<Upstream>,
    /// Hosts whose TLS ends here.
    pub termination: Option<Arc<Termination>>,
    /// Names and their synthetic addresses; shared by the runs of a session.
    pub book: Arc<Book>,
}

impl Setting {
    /// Rules, and what holds when nobody says otherwise.
    #[must_use]
    pub fn new(rules: impl Into<Reach>) -> Self {
        Self {
            rules: rules.into(),
            caps: Caps::default(),
            resolver: Arc::new(SystemResolver),
            upstream: None,
            termination: None,
            book: Arc::default(),
        }
    }
}

/// The gate of one run.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<Inner>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    ports: Mutex<Ports>,
}

/// What every connection needs.
#[derive(Debug)]
pub(crate) struct Inner {
    setting: Setting,
    lookups: Lookups,
    meter: Meter,
    pub(crate) log: Arc<Log>,
    open: AtomicUsize,
    /// Connections whose program may still have something to say.
    speaking: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Ports {
    spare: Vec<OwnedFd>,
    opened: HashSet<(Option<IpAddr>, u16)>,
    tasks: JoinSet<()>,
}

/// A connection to the server, and what it said already.
pub(crate) struct Dialled {
    stream: TcpStream,
    early: Vec<u8>,
    speaks: Speaks,
}

impl Gate {
    /// A gate whose work is done by this runtime.
    #[must_use]
    pub fn new(mut setting: Setting, runtime: Handle) -> Arc<Self> {
        setting.caps.connections = setting.caps.connections.min(most_connections(raise_open_files()));
        let inner = Inner {
            meter: Meter::new(setting.caps),
            lookups: Lookups::new(Arc::clone(&setting.resolver)),
            setting,
            log: Arc::new(Log::new()),
            open: AtomicUsize::new(0),
            speaking: Arc::default(),
        };
        let (stop, _) = watch::channel(false);
        Arc::new(Self { inner: Arc::new(inner), runtime, stop, ports: Mutex::default() })
    }

    /// Closes everything and tells what was attempted, and how many attempts more there were than are kept. Waits, so
    /// another thread than the caller's must be at work for the runtime.
    pub fn close(&self) -> (Vec<Event>, u64) {
        let Ports { mut tasks, spare, .. } = std::mem::take(&mut *self.ports.lock());
        let (done, closed) = std::sync::mpsc::channel::<()>();
        let _ = self.stop.send(true);
        self.runtime.spawn(async move {
            while tasks.join_next().await.is_some() {}
            drop(done);
            // Nobody waits for these any more; whoever waited is to go on first.
            tokio::time::sleep(LET_GO_FIRST).await;
            drop(spare);
        });
        // Nothing is ever sent: the end of the task is the message.
        let _ = closed.recv();
        self.inner.log.read()
    }

    /// Makes sure that somebody listens on a port: of every address, or of one.
    fn listen(&self, only: Option<IpAddr>, port: u16) -> Result<(), Errno> {
        let mut ports = self.ports.lock();
        if ports.opened.contains(&(None, port)) || ports.opened.contains(&(only, port)) {
            return Ok(());
        }
        // One is kept for DNS, which is opened like the others when it is asked over TCP.
        let kept = usize::from(port != resolver::PORT && !ports.opened.contains(&(None, resolver::PORT)));
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
            // An IPv6 address that the kernel only has a route for is nobody's to bind to, unless one insists.
            sockopt::set_ipv6_freebind(&socket, true)?;
        }
        if let Err(errno) = rustix::net::bind(&socket, &SocketAddrV6::new(address, port, 0, 0)) {
            // Somebody else listens there; the socket is as good as new.
            ports.spare.push(socket);
            return Err(errno);
        }
        rustix::net::listen(&socket, BACKLOG)?;
        let _inside = self.runtime.enter();
        let listener = TcpListener::from_std(socket.into()).map_err(|_| Errno::IO)?;
        let (inner, stop) = (Arc::clone(&self.inner), self.stop.subscribe());
        ports.tasks.spawn_on(accept(inner, listener, stop), &self.runtime);
        ports.opened.insert((only, port));
        Ok(())
    }
}

/// Takes connections of one port until the gate closes.
async fn accept(inner: Arc<Inner>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => inner.admit(client, &mut connections),
                // Out of descriptors: those that are open go on, the next is taken later.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    inner.take_the_rest(listener, &mut connections);
    inner.last_words().await;
    connections.shutdown().await;
}

/// Waits until the gate closes.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the gate is gone, which is the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

impl Inner {
    fn admit(self: &Arc<Self>, client: TcpStream, connections: &mut JoinSet<()>) {
        let Ok(local) = client.local_addr() else { return };
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.setting.caps.connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            let host =
                self.meaning(local.ip()).map_or_else(|_| local.ip().to_string(), |host| host.to_string());
            self.log.begin(Action::Connect, host, local.port()).failed(Reason::Cap("connections"));
            reset(&client);
            return;
        }
        let (seat, speaks) = (Seat(Arc::clone(self)), Speaks::new(&self.speaking));
        connections.spawn(async move {
            let _ = client.set_nodelay(true);
            seat.0.serve(client, local, speaks).await;
        });
    }

    /// Takes what is connected and was not accepted yet: its program may have spoken and gone. The kernel is asked, not
    /// the runtime, which may not have heard of it.
    fn take_the_rest(self: &Arc<Self>, listener: TcpListener, connections: &mut JoinSet<()>) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((client, _)) = listener.accept() {
            if client.set_nonblocking(true).is_ok()
                && let Ok(client) = TcpStream::from_std(client)
            {
                self.admit(client, connections);
            }
        }
    }

    async fn serve(self: &Arc<Self>, client: TcpStream, local: SocketAddr, speaks: Speaks) {
        let (address, port) = (local.ip().to_canonical(), local.port());
        if port == resolver::PORT {
            return resolver::stream(self, client).await;
        }
        if port == proxy::PORT && address.is_loopback() {
            return proxy::serve(self, client, speaks).await;
        }
        let host = match self.meaning(address) {
            Ok(host) => host,
            Err(reason) => {
                self.log.begin(Action::Connect, address.to_string(), port).failed(reason);
                return reset(&client);
            }
        };
        let mut ticket = self.log.begin(Action::Connect, host.to_string(), port);
        match self.reach(&host, port, &mut ticket, speaks).await {
            Ok(dialled) => {
                self.pass(&client, dialled, &host, Vec::new(), &mut ticket).await;
            }
            Err(reason) => {
                ticket.failed(reason);
                reset(&client);
            }
        }
    }

    /// What an address stands for.
    fn meaning(&self, address: IpAddr) -> Result<Destination, Reason> {
        match self.setting.book.meaning(address) {
            Meaning::Name(name) => Ok(Destination::Name(name)),
            Meaning::Itself => Ok(Destination::Address(address.to_canonical())),
            Meaning::Nothing => Err(Reason::UnknownAddress),
        }
    }

    /// The same of a destination that the explicit proxy was told: programs that resolve a name themselves say the address
    /// that they were given for it.
    pub(crate) fn meant(&self, host: Destination) -> Result<Destination, Reason> {
        match host {
            Destination::Address(address) => self.meaning(address),
            name => Ok(name),
        }
    }

    fn judge(&self, host: &Destination, port: u16) -> Verdict {
        let rules = &self.setting.rules;
        match rules.judge(host, port) {
            Verdict::Allow(_) if terminate::is_way_around(self.ended(), rules, host, port) => {
                Verdict::Deny(Reason::AddressNotAllowed)
            }
            said => said,
        }
    }

    /// The hosts whose TLS ends here.
    fn ended(&self) -> &[Terminated] {
        self.setting.termination.as_ref().map_or(&[], |ends| ends.entries())
    }

    /// Judges a destination and dials it.
    pub(crate) async fn reach(
        &self,
        host: &Destination,
        port: u16,
        ticket: &mut Ticket,
        speaks: Speaks,
    ) -> Result<Dialled, Reason> {
        let rules = &self.setting.rules;
        match self.judge(host, port) {
            Verdict::Allow(rule) => ticket.allowed_by(rule),
            Verdict::Deny(reason) => return Err(reason),
        }
        let resolves = if self.setting.upstream.is_some() { Resolves::Upstream } else { Resolves::Here };
        terminate::refuse_address_of_a_host(self.ended(), &self.lookups, host, port, resolves).await?;
        if let Some(upstream) = &self.setting.upstream {
            connect::judge_for_another(rules, &self.lookups, host, port).await?;
            let (stream, early) = upstream.dial(host, port).await?;
            return Ok(Dialled { stream, early, speaks });
        }
        let stream = connect::dial(rules, &self.lookups, host, port).await?;
        ticket.dialled(stream.peer_addr().ok().map(|peer| peer.ip().to_canonical()));
        Ok(Dialled { stream, early: Vec::new(), speaks })
    }

    /// Passes a connection on, to its end.
    pub(crate) async fn pass(
        &self,
        client: &TcpStream,
        dialled: Dialled,
        host: &Destination,
        from_client: Vec<u8>,
        ticket: &mut Ticket,
    ) {
        let Dialled { stream, early, speaks } = dialled;
        let traffic = Arc::clone(&ticket.traffic);
        let port = ticket.port();
        if let (Some(termination), Destination::Name(name)) = (&self.setting.termination, host)
            && let Some(entry) = termination.of(name, port)
        {
            let session = Session {
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
            // TLS is begun by the client: whoever speaks first is somebody else.
            let done = match early.is_empty() {
                true => session.run(from_client).await,
                false => Err(Reason::NotUnderstood("a server that speaks before TLS begins")),
            };
            if let Err(reason) = done {
                ticket.failed(reason);
            }
            drop(speaks);
            return;
        }
        let strays = |head: &[u8]| {
            if self.setting.termination.as_ref().is_some_and(|ends| ends.strays(head, None)) {
                self.log.begin(Action::Placeholder, host.to_string(), port);
            }
        };
        let pass = Pass {
            client,
            server: &stream,
            host,
            port,
            rules: &self.setting.rules,
            meter: &self.meter,
            traffic: &traffic,
            strays: &strays,
        };
        let held = Held { from_client, from_server: early };
        let Err(refused) = pass.run(held, speaks).await else { return };
        reset(&stream);
        if refused.http {
            // Best effort: who does not read it sees the end.
            let _ = client.try_write(&denial(&refused.reason));
        } else {
            reset(client);
        }
        ticket.failed(refused.reason);
    }

    /// Waits until what ended programs have said is on its way.
    async fn last_words(&self) {
        let limit = tokio::time::Instant::now() + LAST_WORDS;
        while self.speaking.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The seat of one connection.
struct Seat(Arc<Inner>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A refusal in HTTP.
pub(crate) fn denial(reason: &Reason) -> Vec<u8> {
    let words = format!("denied by the network policy: {reason}\n");
    format!(
        "HTTP/1.1 403 Forbidden\r\nX-Vambrace-Denied: {}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{words}",
        reason.code(),
        words.len(),
    )
    .into_bytes()
}

/// A thousand connections are two thousand sockets and some pipes; what a program started by us may have is set for
/// it alone. How many files this process may have open now; nothing where there is no bound.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current < now.maximum || now.maximum.is_none() {
        // It may be forbidden: then there are fewer connections.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// So many that a run does not take all the files that the broker itself may open: a third is left for pipes, and some
/// for everything else.
fn most_connections(open_files: Option<u64>) -> usize {
    let share = open_files.map(|most| most.saturating_sub(256) / 3);
    share.and_then(|share| usize::try_from(share).ok()).map_or(usize::MAX, |share| share.max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_leaves_the_broker_files_to_open() {
        assert_eq!(most_connections(None), usize::MAX);
        assert_eq!(most_connections(Some(1 << 20)), 349_440);
        assert_eq!(most_connections(Some(1024)), 256);
        assert_eq!(most_connections(Some(100)), 16);
    }
}
