//! From a destination that was allowed to a connection: the name is resolved once, every address that it leads to is
//! judged, and one of those that passed is dialled, as a number. There is no second look-up for anybody to answer
//! differently.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use vambrace_core::network::Reach;

use crate::decide::{Destination, Reason};
use crate::names::HostName;

const RESOLVING: Duration = Duration::from_secs(10);
/// The same where somebody else resolves the name as well: a machine behind a proxy may have no resolver that answers.
const GLANCE: Duration = Duration::from_secs(2);
/// Of so many refused hosts the addresses are found out; a long list is not asked for at each connection.
const MOST_REFUSED: usize = 64;
/// What a name of a metadata service stands for.
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
/// Names that are asked for at the same time.
const AT_ONCE: usize = 16;
const DIALLING: Duration = Duration::from_secs(10);
/// After so long the next address is tried beside the first (RFC 8305).
const PATIENCE: Duration = Duration::from_millis(250);
/// More addresses of one name are not tried.
const MOST: usize = 8;

/// An answer that is waited for.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Who knows the addresses of names, outside.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, the preferred first.
    fn resolve(&self, name: &HostName) -> Resolving;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &HostName) -> Resolving {
        let name = name.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Questions to the resolver that are under way: connections for one name at the same time share one, and a program
/// cannot make the machine ask more than a few at once.
#[derive(Debug)]
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolve>,
    running: Mutex<HashMap<HostName, Arc<OnceCell<Found>>>>,
    few: Semaphore,
}

/// The addresses of a name; none when it could not be resolved.
type Found = Option<Arc<[IpAddr]>>;

impl Lookups {
    pub(crate) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, running: Mutex::default(), few: Semaphore::new(AT_ONCE) }
    }

    /// The addresses of a name, all of them.
    pub(crate) async fn find_in_time(&self, name: &HostName) -> Result<Arc<[IpAddr]>, Reason> {
        match timeout(RESOLVING, self.find(name)).await {
            Ok(Some(addresses)) => Ok(addresses),
            Ok(None) => Err(Reason::NotFound),
            Err(_) => Err(Reason::Unreachable("the name was not resolved in time".to_owned())),
        }
    }

    /// Which of these names has this address; one that is not resolved soon has none. They are asked for together.
    async fn whose<'a>(
        &self,
        names: impl Iterator<Item = &'a HostName>,
        address: IpAddr,
    ) -> Option<&'a HostName> {
        let has_it = |name: &'a HostName| async move {
            let found = timeout(GLANCE, self.find(name)).await.ok().flatten()?;
            found.iter().any(|one| one.to_canonical() == address.to_canonical()).then_some(name)
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

    async fn find(&self, name: &HostName) -> Found {
        let running = Arc::clone(self.running.lock().entry(name.clone()).or_default());
        let ask = || async {
            let _turn = self.few.acquire().await.ok()?;
            Some(self.resolver.resolve(name).await.ok()?.into())
        };
        let found = running.get_or_init(ask).await.clone();
        // Whoever comes from now on asks again.
        let mut all = self.running.lock();
        if all.get(name).is_some_and(|cell| Arc::ptr_eq(cell, &running)) {
            all.remove(name);
        }
        found
    }
}

/// Dials an allowed destination.
pub(crate) async fn dial(
    rules: &Reach,
    lookups: &Lookups,
    destination: &Destination,
    port: u16,
) -> Result<TcpStream, Reason> {
    let addresses = match destination {
        Destination::Address(address) => {
            refuse_address_of_a_refused_host(rules, lookups, *address, port).await?;
            Arc::from([*address])
        }
        Destination::Name(name) => lookups.find_in_time(name).await?,
    };
    let mut refused = None;
    let mut passed: Vec<SocketAddr> = Vec::new();
    for address in addresses.iter() {
        let address = address.to_canonical();
        match judge(rules, destination, address, port) {
            Ok(()) if passed.len() < MOST => passed.push(SocketAddr::new(address, port)),
            Ok(()) => {}
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    if passed.is_empty() {
        return Err(refused.unwrap_or(Reason::NotFound));
    }
    let dialled = timeout(DIALLING, first_to_answer(passed)).await;
    let stream = dialled
        .map_err(|_| Reason::Unreachable("nobody answered in time".to_owned()))?
        .map_err(|error| Reason::Unreachable(plain(&error)))?;
    // Small messages are the program's own choice.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Judges a destination that somebody else will dial: an address by itself, a name by every address that it has here,
/// because which one is taken is not ours to say. What has none here is left to whoever resolves it.
pub(crate) async fn judge_for_another(
    rules: &Reach,
    lookups: &Lookups,
    destination: &Destination,
    port: u16,
) -> Result<(), Reason> {
    let addresses = match destination {
        Destination::Address(address) => {
            refuse_address_of_a_refused_host(rules, lookups, *address, port).await?;
            Arc::from([*address])
        }
        // Whatever anybody's resolver says (RFC 6761), also the one beyond.
        Destination::Name(name) if name.is_localhost() => {
            Arc::from([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        Destination::Name(name) if name.is_metadata() => Arc::from([METADATA]),
        Destination::Name(name) => match timeout(GLANCE, lookups.find(name)).await {
            Ok(Some(addresses)) => addresses,
            Ok(None) | Err(_) => return Ok(()),
        },
    };
    addresses.iter().try_for_each(|address| judge(rules, destination, address.to_canonical(), port))
}

/// Who is refused by name is not reached by its address either, as far as it can be found out.
async fn refuse_address_of_a_refused_host(
    rules: &Reach,
    lookups: &Lookups,
    address: IpAddr,
    port: u16,
) -> Result<(), Reason> {
    match lookups.whose(rules.refused_hosts(port).take(MOST_REFUSED), address).await {
        Some(name) => rules.refuses_name(name, port),
        None => Ok(()),
    }
}

fn judge(rules: &Reach, destination: &Destination, address: IpAddr, port: u16) -> Result<(), Reason> {
    if matches!(destination, Destination::Name(_)) {
        rules.judge_found(address, port)?;
    }
    if !rules.lists_address(address, port) && is_this_machine(address) {
        return Err(Reason::ThisMachine);
    }
    Ok(())
}

/// Whether the kernel would answer itself: then it would also send from that address. Nothing is sent for this.
fn is_this_machine(address: IpAddr) -> bool {
    let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        // Any port will do.
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    asked.is_ok_and(|local| local.ip().to_canonical() == address)
}

/// The addresses in turn, each next one beside the former ones when they take long or fail.
async fn first_to_answer(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
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
                timeout(PATIENCE, running.join_next()).await.ok().flatten()
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

/// The kernel's words without numbers.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "host unreachable".to_owned(),
        io::ErrorKind::TimedOut => "nobody answered in time".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use tokio::net::TcpListener;

    /// Answers differently each time.
    #[derive(Debug)]
    struct Changing(Mutex<VecDeque<Vec<IpAddr>>>, Mutex<usize>);

    impl Resolve for Changing {
        fn resolve(&self, _: &HostName) -> Resolving {
            *self.1.lock() += 1;
            let answer = self.0.lock().pop_front().unwrap_or_default();
            Box::pin(async move { Ok(answer) })
        }
    }

    /// Answers when it is told to, and counts.
    #[derive(Debug, Default)]
    struct Waiting(Arc<tokio::sync::Notify>, Arc<Mutex<usize>>);

    impl Resolve for Waiting {
        fn resolve(&self, _: &HostName) -> Resolving {
            *self.1.lock() += 1;
            let told = Arc::clone(&self.0);
            Box::pin(async move {
                told.notified().await;
                Ok(vec!["127.0.0.1".parse().unwrap()])
            })
        }
    }

    #[tokio::test]
    async fn connections_for_one_name_at_the_same_time_ask_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = Arc::new(rules(&[&format!("near.example:{port}"), "127.0.0.1"]));
        let (told, count) = (Arc::<tokio::sync::Notify>::default(), Arc::<Mutex<usize>>::default());
        let lookups = Arc::new(Lookups::new(Arc::new(Waiting(Arc::clone(&told), Arc::clone(&count)))));
        let mut all = JoinSet::new();
        for _ in 0..50 {
            let (list, lookups) = (Arc::clone(&list), Arc::clone(&lookups));
            all.spawn(async move { dial(&list, &lookups, &name("near.example"), port).await.is_ok() });
        }
        // One thread: when this goes on, every one of them waits.
        tokio::task::yield_now().await;
        told.notify_one();
        while let Some(done) = all.join_next().await {
            assert!(done.unwrap());
        }
        assert_eq!(*count.lock(), 1);
        // The next one asks again.
        told.notify_one();
        assert!(dial(&list, &lookups, &name("near.example"), port).await.is_ok());
        assert_eq!(*count.lock(), 2);
    }

    fn asked(resolver: &Arc<Changing>) -> Lookups {
        Lookups::new(Arc::clone(resolver) as _)
    }

    fn changing(answers: &[&[&str]]) -> Arc<Changing> {
        let answers =
            answers.iter().map(|list| list.iter().map(|text| text.parse().unwrap()).collect()).collect();
        Arc::new(Changing(Mutex::new(answers), Mutex::new(0)))
    }

    fn rules(texts: &[&str]) -> Reach {
        vambrace_core::network::Rules::parse(texts.iter().copied()).unwrap().into()
    }

    fn name(text: &str) -> Destination {
        Destination::Name(HostName::parse(text).unwrap())
    }

    // P3: rebinding
    #[tokio::test]
    async fn a_name_that_leads_inside_is_refused_and_asked_for_once() {
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
            Reason::NotFound
        );
    }

    #[tokio::test]
    async fn an_address_that_is_listed_is_dialled_and_the_others_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = rules(&[&format!("near.example:{port}"), &format!("127.0.0.1:{port}")]);
        // The second is refused, the third has nobody listening.
        let resolver = changing(&[&["127.0.0.2", "127.0.0.1"]]);
        let stream = dial(&list, &asked(&resolver), &name("near.example"), port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().to_string(), format!("127.0.0.1:{port}"));
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let list = rules(&[&format!("near.example:{port}"), "127.0.0.0/8"]);
        let resolver = changing(&[&["127.0.0.9", "127.0.0.8", "127.0.0.1"]]);
        let stream = dial(&list, &asked(&resolver), &name("near.example"), port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.0.0.1");
    }

    // P2: the broker itself
    #[test]
    fn this_machine_is_known() {
        assert!(is_this_machine("127.0.0.1".parse().unwrap()));
        assert!(is_this_machine("::1".parse().unwrap()));
    }
}
