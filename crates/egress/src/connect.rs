//! Dials an allowed destination. The name is resolved once, every resulting address is checked, and one of the allowed
//! addresses is dialled numerically. There is no second lookup, so DNS rebinding cannot change the address in between.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use vambrace_core::network::NetworkFence;
use vambrace_sandbox::network::RouteKind;

use crate::decide::{Destination, NetworkReason};
use crate::host_name::HostName;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Lookup timeout where the upstream proxy resolves the name as well: a machine behind a proxy may have no working resolver.
const SHORT_RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of denied hosts whose addresses are looked up for one connection.
const MAX_DENIED_HOSTS: usize = 64;
/// The address that the name of a metadata service stands for.
const METADATA_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// Concurrent lookups.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before the next address is tried in parallel (RFC 8305).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses tried for one name.
const MAX_ADDRESSES: usize = 8;

/// A running lookup.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names outside the sandbox.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, preferred first.
    fn resolve(&self, name: &HostName) -> ResolveFuture;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &HostName) -> ResolveFuture {
        let name = name.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Lookups in flight. Concurrent connections for one name share one lookup, and the number of concurrent lookups is bounded,
/// so that a program cannot flood the machine's resolver.
#[derive(Debug)]
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolve>,
    running: Mutex<HashMap<HostName, Arc<OnceCell<LookupResult>>>>,
    slots: Semaphore,
}

/// The addresses of a name; `None` when it could not be resolved.
type LookupResult = Option<Arc<[IpAddr]>>;

impl Lookups {
    pub(crate) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, running: Mutex::default(), slots: Semaphore::new(MAX_CONCURRENT_LOOKUPS) }
    }

    /// All addresses of a name.
    pub(crate) async fn resolve(&self, name: &HostName) -> Result<Arc<[IpAddr]>, NetworkReason> {
        match timeout(RESOLVE_TIMEOUT, self.lookup(name)).await {
            Ok(Some(addresses)) => Ok(addresses),
            Ok(None) => Err(NetworkReason::NotFound),
            Err(_) => Err(NetworkReason::Unreachable("resolving the name timed out".to_owned())),
        }
    }

    /// The first of these names that resolves to one of these addresses. The lookups run concurrently; a name that does not resolve
    /// within the short timeout counts as having no address.
    async fn owner_of<'a>(
        &self,
        names: impl Iterator<Item = &'a HostName>,
        addresses: &[IpAddr],
    ) -> Option<&'a HostName> {
        let has_it = |name: &'a HostName| async move {
            let found = timeout(SHORT_RESOLVE_TIMEOUT, self.lookup(name)).await.ok().flatten()?;
            let is_asked =
                |one: &IpAddr| addresses.iter().any(|asked| asked.to_canonical() == one.to_canonical());
            found.iter().any(is_asked).then_some(name)
        };
        let mut asked: Vec<_> = names.map(|name| Box::pin(has_it(name))).collect();
        let mut owner = None;
        std::future::poll_fn(|context| {
            asked.retain_mut(|one| match one.as_mut().poll(context) {
                Poll::Ready(answer) => {
                    owner = owner.or(answer);
                    false
                }
                Poll::Pending => true,
            });
            if asked.is_empty() || owner.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        owner
    }

    async fn lookup(&self, name: &HostName) -> LookupResult {
        let running = Arc::clone(self.running.lock().entry(name.clone()).or_default());
        let ask = || async {
            let _turn = self.slots.acquire().await.ok()?;
            Some(self.resolver.resolve(name).await.ok()?.into())
        };
        let found = running.get_or_init(ask).await.clone();
        // Later callers start a new lookup.
        let mut all = self.running.lock();
        if all.get(name).is_some_and(|cell| Arc::ptr_eq(cell, &running)) {
            all.remove(name);
        }
        found
    }
}

/// Dials an allowed destination.
pub(crate) async fn dial(
    rules: &NetworkFence,
    lookups: &Lookups,
    destination: &Destination,
    port: u16,
) -> Result<TcpStream, NetworkReason> {
    let addresses = match destination {
        Destination::Address(address) => Arc::from([*address]),
        Destination::Name(name) => lookups.resolve(name).await?,
    };
    deny_address_of_denied_host(rules, lookups, &addresses, port).await?;
    let mut refused = None;
    let mut passed: Vec<SocketAddr> = Vec::new();
    for address in addresses.iter() {
        let address = address.to_canonical();
        match check_address(rules, destination, address, port) {
            Ok(()) if passed.len() < MAX_ADDRESSES => passed.push(SocketAddr::new(address, port)),
            Ok(()) => {}
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    if passed.is_empty() {
        return Err(refused.unwrap_or(NetworkReason::NotFound));
    }
    let dialled = timeout(DIAL_TIMEOUT, connect_first(passed)).await;
    let stream = dialled
        .map_err(|_| NetworkReason::Unreachable("connection timed out".to_owned()))?
        .map_err(|error| NetworkReason::Unreachable(error_text(&error)))?;
    // The program decides how it batches its writes.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Checks a destination that the upstream proxy will dial: an address by itself, a name by every address that it resolves to
/// here, because the proxy chooses among them. A name that does not resolve here is left to the proxy.
pub(crate) async fn check_for_proxy(
    rules: &NetworkFence,
    lookups: &Lookups,
    destination: &Destination,
    port: u16,
) -> Result<(), NetworkReason> {
    let addresses = match destination {
        Destination::Address(address) => Arc::from([*address]),
        // `localhost` is loopback whatever a resolver says, including the proxy's (RFC 6761).
        Destination::Name(name) if name.is_localhost() => {
            Arc::from([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        Destination::Name(name) if name.is_metadata() => Arc::from([METADATA_ADDRESS]),
        Destination::Name(name) => match timeout(SHORT_RESOLVE_TIMEOUT, lookups.lookup(name)).await {
            Ok(Some(addresses)) => addresses,
            Ok(None) | Err(_) => return Ok(()),
        },
    };
    deny_address_of_denied_host(rules, lookups, &addresses, port).await?;
    addresses.iter().try_for_each(|address| check_address(rules, destination, address.to_canonical(), port))
}

/// Denies the addresses of a host that a rule denies by name, as far as resolving the denied names can tell: also for
/// another name of the same address.
async fn deny_address_of_denied_host(
    rules: &NetworkFence,
    lookups: &Lookups,
    addresses: &[IpAddr],
    port: u16,
) -> Result<(), NetworkReason> {
    match lookups.owner_of(rules.denied_hosts(port).take(MAX_DENIED_HOSTS), addresses).await {
        Some(name) => rules.check_name(name, port),
        None => Ok(()),
    }
}

fn check_address(
    rules: &NetworkFence,
    destination: &Destination,
    address: IpAddr,
    port: u16,
) -> Result<(), NetworkReason> {
    if matches!(destination, Destination::Name(_)) {
        rules.judge_resolved(address, port)?;
    }
    if !rules.lists_this_machine(address, port) && is_this_machine(address) {
        return Err(NetworkReason::ThisMachine);
    }
    Ok(())
}

/// Whether the address belongs to this machine, by an interface or a local route. If the kernel does not tell, it does.
fn is_this_machine(address: IpAddr) -> bool {
    !matches!(vambrace_sandbox::network::route_of(address), Ok(RouteKind::Elsewhere | RouteKind::None))
}

/// Dials the addresses in order; starts the next one in parallel when the earlier ones are slow or fail (RFC 8305).
async fn connect_first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    if let [only] = addresses.as_slice() {
        return TcpStream::connect(only).await;
    }
    let mut running = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut ahead = addresses.into_iter();
    loop {
        let next = ahead.next();
        let more = next.is_some();
        if let Some(address) = next {
            running.spawn(TcpStream::connect(address));
        }
        let wait = async {
            if more {
                timeout(NEXT_ADDRESS_DELAY, running.join_next()).await.ok().flatten()
            } else {
                running.join_next().await
            }
        };
        match wait.await {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => last = error,
            Some(Err(_)) => {}
            None if !more && running.is_empty() => return Err(last),
            None => {}
        }
    }
}

/// The kernel's message without the error number.
fn error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "host unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use tokio::net::TcpListener;

    /// Returns another answer each time, and counts the lookups.
    #[derive(Debug)]
    struct ChangingResolver(Mutex<VecDeque<Vec<IpAddr>>>, Mutex<usize>);

    impl Resolve for ChangingResolver {
        fn resolve(&self, _: &HostName) -> ResolveFuture {
            *self.1.lock() += 1;
            let answer = self.0.lock().pop_front().unwrap_or_default();
            Box::pin(async move { Ok(answer) })
        }
    }

    /// Answers when notified, and counts the lookups.
    #[derive(Debug, Default)]
    struct WaitingResolver(Arc<tokio::sync::Notify>, Arc<Mutex<usize>>);

    impl Resolve for WaitingResolver {
        fn resolve(&self, _: &HostName) -> ResolveFuture {
            *self.1.lock() += 1;
            let reported = Arc::clone(&self.0);
            Box::pin(async move {
                reported.notified().await;
                Ok(vec!["127.0.0.1".parse().unwrap()])
            })
        }
    }

    #[tokio::test]
    async fn concurrent_connections_for_one_name_share_one_lookup() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = Arc::new(rules(&[&format!("near.example:{port}"), "127.0.0.1"]));
        let (reported, count) = (Arc::<tokio::sync::Notify>::default(), Arc::<Mutex<usize>>::default());
        let lookups =
            Arc::new(Lookups::new(Arc::new(WaitingResolver(Arc::clone(&reported), Arc::clone(&count)))));
        let mut all = JoinSet::new();
        for _ in 0..50 {
            let (list, lookups) = (Arc::clone(&list), Arc::clone(&lookups));
            all.spawn(async move { dial(&list, &lookups, &name("near.example"), port).await.is_ok() });
        }
        // The runtime has one thread: after this yield every task waits for the lookup.
        tokio::task::yield_now().await;
        reported.notify_one();
        while let Some(done) = all.join_next().await {
            assert!(done.unwrap());
        }
        assert_eq!(*count.lock(), 1);
        // The next connection starts a new lookup.
        reported.notify_one();
        assert!(dial(&list, &lookups, &name("near.example"), port).await.is_ok());
        assert_eq!(*count.lock(), 2);
    }

    fn asked(resolver: &Arc<ChangingResolver>) -> Lookups {
        Lookups::new(Arc::clone(resolver) as _)
    }

    fn changing(answers: &[&[&str]]) -> Arc<ChangingResolver> {
        let answers =
            answers.iter().map(|list| list.iter().map(|text| text.parse().unwrap()).collect()).collect();
        Arc::new(ChangingResolver(Mutex::new(answers), Mutex::new(0)))
    }

    fn rules(texts: &[&str]) -> NetworkFence {
        vambrace_core::network::NetworkRules::parse(texts.iter().copied()).unwrap().into()
    }

    fn name(text: &str) -> Destination {
        Destination::Name(HostName::parse(text).unwrap())
    }

    // P3: rebinding
    #[tokio::test]
    async fn name_that_resolves_to_an_internal_address_is_denied_after_one_lookup() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = rules(&[&format!("rebind.example:{port}")]);
        for inside in ["127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254"] {
            let resolver = changing(&[&[inside], &["93.184.216.34"]]);
            let reason = dial(&list, &asked(&resolver), &name("rebind.example"), port).await.unwrap_err();
            assert_eq!(reason.code(), "special_address", "{inside}");
            assert_eq!(*resolver.1.lock(), 1);
        }
        assert_eq!(
            dial(&list, &asked(&changing(&[])), &name("rebind.example"), port).await.unwrap_err(),
            NetworkReason::NotFound
        );
    }

    #[tokio::test]
    async fn only_listed_addresses_are_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = rules(&[&format!("near.example:{port}"), &format!("127.0.0.1:{port}")]);
        // 127.0.0.2 is not listed and is denied.
        let resolver = changing(&[&["127.0.0.2", "127.0.0.1"]]);
        let stream = dial(&list, &asked(&resolver), &name("near.example"), port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().to_string(), format!("127.0.0.1:{port}"));
    }

    #[tokio::test]
    async fn next_address_is_tried_when_one_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = rules(&[&format!("near.example:{port}"), "127.0.0.0/8"]);
        let resolver = changing(&[&["127.0.0.9", "127.0.0.8", "127.0.0.1"]]);
        let stream = dial(&list, &asked(&resolver), &name("near.example"), port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.0.0.1");
    }

    // P2: the broker itself
    #[test]
    fn addresses_of_this_machine_are_recognized() {
        assert!(is_this_machine("127.0.0.1".parse().unwrap()));
        assert!(is_this_machine("::1".parse().unwrap()));
        // A local route, not an address of an interface: 127.0.0.0/8.
        assert!(is_this_machine("127.9.8.7".parse().unwrap()));
        // A documentation address, whether there is a route or not.
        assert!(!is_this_machine("192.0.2.1".parse().unwrap()));
    }

    // P3: another name of a denied host's address
    #[tokio::test]
    async fn denied_host_is_not_reached_by_another_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (alias, allowed) = (format!("alias.example:{port}"), format!("127.0.0.1:{port}"));
        let list = rules(&[&alias, &allowed, "!other.example"]);
        let both: &[&[&str]] = &[&["127.0.0.1"], &["127.0.0.1"]];
        let reason = dial(&list, &asked(&changing(both)), &name("alias.example"), port).await.unwrap_err();
        assert_eq!(reason, NetworkReason::DeniedByRule("!other.example".into()));
        let elsewhere: &[&[&str]] = &[&["127.0.0.1"], &["192.0.2.1"]];
        assert!(dial(&list, &asked(&changing(elsewhere)), &name("alias.example"), port).await.is_ok());
    }
}
