//! The log of network attempts: each DNS question and each connection, with verdict, rule, byte counts and duration. A
//! [`EgressAttempt`] writes its event when it is dropped, so every attempt is logged however it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::decide::NetworkReason;
use crate::fetch::Method;

/// Maximum number of allowed events, and separately of denied events, that a log keeps; further ones are only counted. The
/// limits are separate so that a flood of allowed connections cannot push denials out of the log.
const MAX_EVENTS: usize = 10_000;

/// One network attempt, or several equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressEvent {
    /// Start of the attempt, relative to the start of the log.
    pub at: Duration,
    /// What was attempted.
    pub action: EgressAction,
    /// The host: a name, or an address that the program gave as a number.
    pub host: String,
    /// The port; 0 for DNS.
    pub port: u16,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// The rule that allowed it.
    pub rule: Option<Arc<str>>,
    /// Why it was denied or failed; `None` on success.
    pub reason: Option<NetworkReason>,
    /// Bytes from the program.
    pub sent: u64,
    /// Bytes to the program.
    pub received: u64,
    /// From start to end.
    pub duration: Duration,
    /// How many equal attempts this event stands for.
    pub times: u64,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EgressAction {
    /// A DNS question.
    Dns,
    /// A direct TCP connection.
    Connect,
    /// A connection through the explicit HTTP proxy.
    HttpProxy,
    /// A connection through the explicit SOCKS proxy.
    Socks,
    /// A connection that stays inside the sandbox.
    Local,
    /// A UDP socket was connected to an address, or a datagram was sent.
    Datagram,
    /// The gate added a credential to a request; `rule` is the header's name.
    Credential,
    /// The program sent a placeholder to a host that it is not for; it was not replaced.
    Placeholder,
    /// A request that the broker sent for a tool.
    Fetch(Method),
}

impl EgressAction {
    /// The name in events and records.
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

impl EgressEvent {
    /// What was attempted and where: `connect example.com:443`, `GET example.com:443`, `dns example.com`.
    #[must_use]
    pub fn attempted(&self) -> String {
        let word = match self.action {
            EgressAction::Fetch(method) => method.as_str(),
            action => action.as_str(),
        };
        match self.action {
            EgressAction::Dns => format!("{word} {}", self.host),
            _ if self.host.contains(':') => format!("{word} [{}]:{}", self.host, self.port),
            _ => format!("{word} {}:{}", self.host, self.port),
        }
    }

    /// Whether policy denied it.
    #[must_use]
    pub fn denied(&self) -> bool {
        self.reason.as_ref().is_some_and(NetworkReason::is_denial)
    }

    /// `allowed`, `denied`, or `failed` when the network failed.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match &self.reason {
            None => "allowed",
            Some(reason) if reason.is_denial() => "denied",
            Some(_) => "failed",
        }
    }
}

/// The network attempts of one run.
#[derive(Debug)]
pub struct EgressLog {
    opened: Instant,
    entries: Mutex<LogEntries>,
}

#[derive(Debug, Default)]
struct LogEntries {
    events: Vec<EgressEvent>,
    /// Index of the event that counts equal attempts.
    equal: HashMap<EventKey, usize>,
    /// How many of the events are denials.
    denials: usize,
    omitted: u64,
}

/// What makes attempts equal.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EventKey {
    action: EgressAction,
    host: String,
    port: u16,
    reason: Option<NetworkReason>,
}

impl Default for EgressLog {
    fn default() -> Self {
        Self { opened: Instant::now(), entries: Mutex::default() }
    }
}

impl EgressLog {
    /// An empty log; event times count from now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts an attempt.
    pub(crate) fn begin(self: &Arc<Self>, action: EgressAction, host: String, port: u16) -> EgressAttempt {
        let event = EgressEvent {
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
        EgressAttempt { log: Arc::clone(self), start: Instant::now(), traffic: Arc::default(), event }
    }

    fn add(&self, event: EgressEvent) {
        let mut entries = self.entries.lock();
        let of_its_kind =
            if event.denied() { entries.denials } else { entries.events.len() - entries.denials };
        let has_room = of_its_kind < MAX_EVENTS;
        // Equal denials are merged into one event with a count; so are repeated DNS questions and local connections.
        if event.denied()
            || matches!(
                event.action,
                EgressAction::Dns
                    | EgressAction::Local
                    | EgressAction::Credential
                    | EgressAction::Placeholder
            )
        {
            let key = EventKey {
                action: event.action,
                host: event.host.clone(),
                port: event.port,
                reason: event.reason.clone(),
            };
            let at = entries.equal.get(&key).copied();
            if let Some(equal) = at.and_then(|at| entries.events.get_mut(at)) {
                equal.times += 1;
                equal.sent = equal.sent.saturating_add(event.sent);
                equal.received = equal.received.saturating_add(event.received);
                return;
            }
            if has_room {
                let at = entries.events.len();
                entries.equal.insert(key, at);
            }
        }
        if has_room {
            entries.denials += usize::from(event.denied());
            entries.events.push(event);
        } else {
            entries.omitted += 1;
        }
    }

    /// The events so far, and how many further ones were not kept.
    #[must_use]
    pub fn read(&self) -> (Vec<EgressEvent>, u64) {
        let entries = self.entries.lock();
        (entries.events.clone(), entries.omitted)
    }
}

/// Byte counters of one connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// A running attempt; writes its event when dropped.
#[derive(Debug)]
pub(crate) struct EgressAttempt {
    log: Arc<EgressLog>,
    start: Instant,
    pub(crate) traffic: Arc<Traffic>,
    event: EgressEvent,
}

impl EgressAttempt {
    pub(crate) fn allowed_by(&mut self, rule: Arc<str>) {
        self.event.rule = Some(rule);
    }

    pub(crate) fn port(&self) -> u16 {
        self.event.port
    }

    pub(crate) fn dialled(&mut self, address: Option<IpAddr>) {
        self.event.address = address;
    }

    /// Sets why the attempt was denied or failed; the first reason is kept.
    pub(crate) fn failed(&mut self, reason: NetworkReason) {
        self.event.reason.get_or_insert(reason);
    }
}

impl Drop for EgressAttempt {
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
    fn attempt_is_logged_when_it_is_dropped() {
        let log = Arc::new(EgressLog::new());
        let mut attempt = log.begin(EgressAction::Connect, "a.com".to_owned(), 443);
        attempt.allowed_by("a.com".into());
        attempt.traffic.sent.store(7, Ordering::Relaxed);
        assert!(log.read().0.is_empty());
        drop(attempt);
        let (events, _) = log.read();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!((event.verdict(), event.sent, event.rule.as_deref()), ("allowed", 7, Some("a.com")));
    }

    #[test]
    fn equal_denials_are_merged_and_other_events_are_bounded() {
        let log = Arc::new(EgressLog::new());
        for _ in 0..50_000 {
            log.begin(EgressAction::Connect, "evil.com".to_owned(), 443)
                .failed(NetworkReason::HostNotAllowed);
        }
        let (events, omitted) = log.read();
        assert_eq!((events.len(), events[0].times, omitted), (1, 50_000, 0));
        for number in 0..MAX_EVENTS {
            log.begin(EgressAction::Dns, format!("{number}.evil.com"), 0)
                .failed(NetworkReason::HostNotAllowed);
        }
        assert_eq!((log.read().0.len(), log.read().1), (MAX_EVENTS, 1));
        // Allowed events have a limit of their own and do not displace denials.
        for number in 0..=MAX_EVENTS {
            log.begin(EgressAction::Connect, format!("{number}.good.com"), 443);
        }
        assert_eq!((log.read().0.len(), log.read().1), (2 * MAX_EVENTS, 2));
        let log = Arc::new(EgressLog::new());
        for number in 0..=MAX_EVENTS {
            log.begin(EgressAction::Connect, format!("{number}.good.com"), 443);
        }
        log.begin(EgressAction::Connect, "evil.com".to_owned(), 443).failed(NetworkReason::HostNotAllowed);
        assert!(log.read().0.last().unwrap().denied());
    }
}
