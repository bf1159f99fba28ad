//! What was attempted: each name asked for, each connection, with verdict, rule, bytes and duration. An attempt is
//! entered when it ends, however it ends: a [`Ticket`] writes it when it is dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::decide::Reason;
use crate::fetch::Method;

/// More than these tell nobody more; what comes after is counted. Refusals have as much room of their own: who is allowed a lot
/// cannot write so much of it that what was refused is not told.
const MOST: usize = 10_000;

/// One attempt, or several equal ones that were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it began, from the gate's opening on.
    pub at: Duration,
    /// What was attempted.
    pub action: Action,
    /// The host: a name, or an address that was written out.
    pub host: String,
    /// The port; 0 for DNS.
    pub port: u16,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// The rule that allowed it.
    pub rule: Option<Arc<str>>,
    /// Why it came to nothing; nothing when it went well.
    pub reason: Option<Reason>,
    /// Bytes from the program.
    pub sent: u64,
    /// Bytes to the program.
    pub received: u64,
    /// From beginning to end.
    pub duration: Duration,
    /// How often.
    pub times: u64,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A name was asked for.
    Dns,
    /// A connection, by a program that knows of no gate.
    Connect,
    /// A connection, by HTTP to the explicit proxy.
    HttpProxy,
    /// A connection, by SOCKS to the explicit proxy.
    Socks,
    /// A connection that stays inside the sandbox.
    Local,
    /// A socket for datagrams was pointed at an address.
    Datagram,
    /// A credential was put into a request; the rule is its header.
    Credential,
    /// A placeholder went to a host that it is not for, as the placeholder that it is.
    Placeholder,
    /// A request of the broker's own, for a tool.
    Fetch(Method),
}

impl Action {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::HttpProxy => "http_proxy",
            Self::Socks => "socks",
            Self::Local => "local",
            Self::Datagram => "udp",
            Self::Credential => "credential",
            Self::Placeholder => "placeholder",
            Self::Fetch(_) => "fetch",
        }
    }
}

impl Event {
    /// What was attempted and where: `connect example.com:443`, `GET example.com:443`, `dns example.com`.
    #[must_use]
    pub fn attempted(&self) -> String {
        let word = match self.action {
            Action::Fetch(method) => method.as_str(),
            action => action.as_str(),
        };
        match self.action {
            Action::Dns => format!("{word} {}", self.host),
            _ if self.host.contains(':') => format!("{word} [{}]:{}", self.host, self.port),
            _ => format!("{word} {}:{}", self.host, self.port),
        }
    }

    /// Whether policy refused it.
    #[must_use]
    pub fn denied(&self) -> bool {
        self.reason.as_ref().is_some_and(Reason::is_refusal)
    }

    /// `allowed`, `denied`, or `failed` when the network did not let it happen.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match &self.reason {
            None => "allowed",
            Some(reason) if reason.is_refusal() => "denied",
            Some(_) => "failed",
        }
    }
}

/// The attempts of one run.
#[derive(Debug)]
pub struct Log {
    opened: Instant,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    events: Vec<Event>,
    /// Where equal ones are.
    equal: HashMap<Key, usize>,
    /// How many of them are refusals.
    refused: usize,
    left_off: u64,
}

/// What makes attempts equal.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    action: Action,
    host: String,
    port: u16,
    reason: Option<Reason>,
}

impl Default for Log {
    fn default() -> Self {
        Self { opened: Instant::now(), pages: Mutex::default() }
    }
}

impl Log {
    /// With nothing in it; begins to count the time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins an attempt.
    pub(crate) fn begin(self: &Arc<Self>, action: Action, host: String, port: u16) -> Ticket {
        let event = Event {
            at: self.opened.elapsed(),
            action,
            host,
            port,
            address: None,
            rule: None,
            reason: None,
            sent: 0,
            received: 0,
            duration: Duration::ZERO,
            times: 1,
        };
        Ticket { log: Arc::clone(self), start: Instant::now(), traffic: Arc::default(), event }
    }

    fn add(&self, event: Event) {
        let mut pages = self.pages.lock();
        let of_its_kind = if event.denied() { pages.refused } else { pages.events.len() - pages.refused };
        let has_room = of_its_kind < MOST;
        // A flood of refusals is one event with a count; so are repeated questions for a name, and talk inside.
        if event.denied()
            || matches!(event.action, Action::Dns | Action::Local | Action::Credential | Action::Placeholder)
        {
            let key = Key {
                action: event.action,
                host: event.host.clone(),
                port: event.port,
                reason: event.reason.clone(),
            };
            let at = pages.equal.get(&key).copied();
            if let Some(equal) = at.and_then(|at| pages.events.get_mut(at)) {
                equal.times += 1;
                equal.sent = equal.sent.saturating_add(event.sent);
                equal.received = equal.received.saturating_add(event.received);
                return;
            }
            if has_room {
                let at = pages.events.len();
                pages.equal.insert(key, at);
            }
        }
        if has_room {
            pages.refused += usize::from(event.denied());
            pages.events.push(event);
        } else {
            pages.left_off += 1;
        }
    }

    /// What was entered so far, and how many more there were.
    #[must_use]
    pub fn read(&self) -> (Vec<Event>, u64) {
        let pages = self.pages.lock();
        (pages.events.clone(), pages.left_off)
    }
}

/// Bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// An attempt that is not over.
#[derive(Debug)]
pub(crate) struct Ticket {
    log: Arc<Log>,
    start: Instant,
    pub(crate) traffic: Arc<Traffic>,
    event: Event,
}

impl Ticket {
    pub(crate) fn allowed_by(&mut self, rule: Arc<str>) {
        self.event.rule = Some(rule);
    }

    pub(crate) fn port(&self) -> u16 {
        self.event.port
    }

    pub(crate) fn dialled(&mut self, address: Option<IpAddr>) {
        self.event.address = address;
    }

    /// It came to nothing, for this reason; the first one counts.
    pub(crate) fn failed(&mut self, reason: Reason) {
        self.event.reason.get_or_insert(reason);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut event = self.event.clone();
        event.duration = self.start.elapsed();
        event.sent = self.traffic.sent.load(Ordering::Relaxed);
        event.received = self.traffic.received.load(Ordering::Relaxed);
        self.log.add(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P9
    #[test]
    fn an_attempt_is_entered_however_it_ends() {
        let log = Arc::new(Log::new());
        let mut ticket = log.begin(Action::Connect, "a.com".to_owned(), 443);
        ticket.allowed_by("a.com".into());
        ticket.traffic.sent.store(7, Ordering::Relaxed);
        assert!(log.read().0.is_empty());
        drop(ticket);
        let (events, _) = log.read();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!((event.verdict(), event.sent, event.rule.as_deref()), ("allowed", 7, Some("a.com")));
    }

    #[test]
    fn a_flood_of_refusals_is_one_event_and_a_flood_of_others_is_bounded() {
        let log = Arc::new(Log::new());
        for _ in 0..50_000 {
            log.begin(Action::Connect, "evil.com".to_owned(), 443).failed(Reason::HostNotAllowed);
        }
        let (events, left_off) = log.read();
        assert_eq!((events.len(), events[0].times, left_off), (1, 50_000, 0));
        for number in 0..MOST {
            log.begin(Action::Dns, format!("{number}.evil.com"), 0).failed(Reason::HostNotAllowed);
        }
        assert_eq!((log.read().0.len(), log.read().1), (MOST, 1));
        // What is allowed has room of its own, and takes none of it away.
        for number in 0..=MOST {
            log.begin(Action::Connect, format!("{number}.good.com"), 443);
        }
        assert_eq!((log.read().0.len(), log.read().1), (2 * MOST, 2));
        let log = Arc::new(Log::new());
        for number in 0..=MOST {
            log.begin(Action::Connect, format!("{number}.good.com"), 443);
        }
        log.begin(Action::Connect, "evil.com".to_owned(), 443).failed(Reason::HostNotAllowed);
        assert!(log.read().0.last().unwrap().denied());
    }
}
