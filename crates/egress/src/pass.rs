//! A connection that was allowed and dialled: both directions, with the names that the program says inside compared
//! before the first of its bytes goes out. What the server says goes to the program at once, so that protocols in
//! which the server speaks first work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use vambrace_core::network::Reach;

use crate::decide::{Destination, Reason};
use crate::event::Traffic;
use crate::http::{self, Body, Chunks, To};
use crate::names::HostName;
use crate::relay::{Broken, Meter, Way, reset};
use crate::sniff::{self, First};

/// From the first byte of a greeting or a head to its last.
const SLOWEST: Duration = Duration::from_secs(10);

/// A connection in both directions.
pub(crate) struct Pass<'a> {
    pub(crate) client: &'a TcpStream,
    pub(crate) server: &'a TcpStream,
    /// The host that the rules allowed.
    pub(crate) host: &'a Destination,
    pub(crate) port: u16,
    /// What an address was reached by; the names that it refuses are not said there.
    pub(crate) rules: &'a Reach,
    pub(crate) meter: &'a Meter,
    pub(crate) traffic: &'a Traffic,
    /// Looks at each head for what should not go to this host.
    pub(crate) strays: &'a (dyn Fn(&[u8]) + Send + Sync),
}

/// Why a connection ended before its time.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    /// The program speaks HTTP and waits for an answer.
    pub(crate) http: bool,
}

/// What was read already.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) from_client: Vec<u8>,
    pub(crate) from_server: Vec<u8>,
}

impl Pass<'_> {
    /// Both directions to their ends.
    pub(crate) async fn run(&self, held: Held, speaks: Speaks) -> Result<(), Refused> {
        let switch = Switch::default();
        let http = AtomicBool::new(false);
        let up = async {
            let _ended = speaks;
            unheard(self.up(held.from_client, &switch, &http).await)
        };
        let down = async {
            let way = self.down();
            way.release(&held.from_server).await?;
            let done = way.run(&mut |bytes| switch.see(bytes)).await;
            switch.over();
            unheard(done)
        };
        match tokio::try_join!(up, down) {
            Ok(_) | Err(Broken::Sink) => Ok(()),
            Err(Broken::Source) => {
                // Who is left sees that it was no ordinary end.
                reset(self.client);
                reset(self.server);
                Ok(())
            }
            Err(Broken::Reason(reason)) => {
                let waits = self.traffic.received.load(Ordering::Relaxed) == 0;
                Err(Refused { reason, http: http.load(Ordering::Relaxed) && waits })
            }
        }
    }

    fn way_up(&self) -> Way<'_> {
        Way { from: self.client, to: self.server, meter: self.meter, count: &self.traffic.sent }
    }

    fn down(&self) -> Way<'_> {
        Way { from: self.server, to: self.client, meter: self.meter, count: &self.traffic.received }
    }

    async fn up(&self, mut held: Vec<u8>, switch: &Switch, http: &AtomicBool) -> Result<(), Broken> {
        let way = self.way_up();
        if matches!(self.host, Destination::Address(_)) && !self.rules.has_refused_names(self.port) {
            // A network was allowed: whatever is said there.
            way.release(&held).await?;
            return way.run(&mut |_| {}).await;
        }
        let mut limit = None;
        loop {
            match sniff::first(&held) {
                First::More => {}
                First::Tls(Some(said)) => {
                    match (self.host, HostName::from_bytes(&said)) {
                        (Destination::Name(name), _) => compare(name, &said)?,
                        (_, Ok(said)) => self.rules.refuses_name(&said, self.port)?,
                        (_, Err(_)) => {}
                    }
                    break;
                }
                First::Tls(None) | First::Other => break,
                First::Before(length) => {
                    let rest = held.split_off(length.min(held.len()));
                    way.release(&held).await?;
                    (held, limit) = (rest, None);
                    continue;
                }
                First::Http => {
                    http.store(true, Ordering::Relaxed);
                    return self.requests(held, switch).await;
                }
                First::Bad(what) => return Err(Reason::NotUnderstood(what).into()),
            }
            if fill(self.client, &mut held, &mut limit).await? == 0 {
                break;
            }
        }
        way.release(&held).await?;
        drop(held);
        way.run(&mut |_| {}).await
    }

    /// One HTTP request after the other.
    async fn requests(&self, mut held: Vec<u8>, switch: &Switch) -> Result<(), Broken> {
        let way = self.way_up();
        let mut first = true;
        loop {
            let Some(head) = self.head(&mut held).await? else { return way.end() };
            if head.upgrade {
                if !first {
                    return Err(
                        Reason::NotUnderstood("a request for another protocol, not the first one").into()
                    );
                }
                switch.ask();
            }
            let rest = held.split_off(head.length.min(held.len()));
            (self.strays)(&held);
            way.release(&held).await?;
            held = self.body(head.body, rest).await?;
            if head.upgrade && switch.happened().await {
                way.release(&held).await?;
                return way.run(&mut |_| {}).await;
            }
            first = false;
        }
    }

    /// The next head; nothing at the end.
    async fn head(&self, held: &mut Vec<u8>) -> Result<Option<http::Head>, Broken> {
        let mut limit = None;
        let mut looked = 0;
        // Who is reached by an address may have any name but a refused one.
        let expected = Some(self.host).filter(|host| matches!(host, Destination::Name(_)));
        loop {
            // A head ends with a line: nothing new is learnt before one ends.
            let new = held.get(looked..).unwrap_or_default();
            if (new.contains(&b'\n') || held.len() >= http::MOST_HEAD)
                && let Some(head) = http::head(held, expected, To::Server)?
            {
                let said = [head.host.as_ref(), head.target.as_ref().map(|target| &target.host)];
                for said in said.into_iter().flatten() {
                    if let Destination::Name(said) = said {
                        self.rules.refuses_name(said, self.port)?;
                    }
                }
                return Ok(Some(head));
            }
            looked = held.len();
            if fill(self.client, held, &mut limit).await? == 0 {
                let nothing = held.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
                return if nothing { Ok(None) } else { Err(Broken::Source) };
            }
        }
    }

    /// Passes a body on; gives what was read behind it.
    async fn body(&self, body: Body, mut held: Vec<u8>) -> Result<Vec<u8>, Broken> {
        let way = self.way_up();
        match body {
            Body::Length(length) => {
                let here = usize::try_from(length).unwrap_or(usize::MAX).min(held.len());
                let rest = held.split_off(here);
                way.release(&held).await?;
                way.exactly(length - here as u64).await?;
                Ok(rest)
            }
            Body::Chunked => {
                let mut chunks = Chunks::default();
                loop {
                    let taken = chunks.take(&held)?;
                    let rest = held.split_off(taken);
                    way.release(&held).await?;
                    held = rest;
                    if chunks.done() {
                        return Ok(held);
                    }
                    if fill(self.client, &mut held, &mut None).await? == 0 {
                        return Err(Broken::Source);
                    }
                }
            }
        }
    }
}

/// That nobody listens any more in one direction does not end the other one.
fn unheard(done: Result<(), Broken>) -> Result<(), Broken> {
    match done {
        Err(Broken::Sink) => Ok(()),
        done => done,
    }
}

pub(crate) fn compare(name: &HostName, said: &[u8]) -> Result<(), Reason> {
    match HostName::from_bytes(said) {
        Ok(said) if said == *name => Ok(()),
        Ok(said) => Err(Reason::NameMismatch(said.as_str().to_owned())),
        Err(_) => Err(Reason::BadName),
    }
}

/// Reads more, in time once something was read; 0 at the end.
pub(crate) async fn fill(
    stream: &TcpStream,
    held: &mut Vec<u8>,
    limit: &mut Option<Instant>,
) -> Result<usize, Broken> {
    const LATE: Reason = Reason::NotUnderstood("it says who it wants too slowly");
    if !held.is_empty() && limit.is_none() {
        *limit = Some(Instant::now() + SLOWEST);
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

/// As long as it is there, the program may have something to say.
#[derive(Debug)]
pub(crate) struct Speaks(Arc<AtomicUsize>);

impl Speaks {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Speaks {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the server agreed to speak another protocol.
#[derive(Debug, Default)]
struct Switch {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    begin: Vec<u8>,
    agreed: Option<bool>,
}

impl Switch {
    fn ask(&self) {
        self.state.lock().asked = true;
    }

    /// Sees the answer pass by.
    fn see(&self, bytes: &[u8]) {
        const LINE: &[u8] = b"HTTP/1.1 101";
        let mut state = self.state.lock();
        if !state.asked || state.agreed.is_some() {
            return;
        }
        let wanted = LINE.len().saturating_sub(state.begin.len());
        state.begin.extend(bytes.iter().take(wanted));
        if state.begin.len() == LINE.len() {
            state.agreed = Some(state.begin == LINE);
            self.told.notify_one();
        }
    }

    /// No answer will come any more.
    fn over(&self) {
        self.state.lock().agreed.get_or_insert(false);
        self.told.notify_one();
    }

    async fn happened(&self) -> bool {
        loop {
            if let Some(agreed) = self.state.lock().agreed {
                return agreed;
            }
            self.told.notified().await;
        }
    }
}
