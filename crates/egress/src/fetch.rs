//! Asking a server over HTTP from inside the broker: one request, and those that its redirects lead to. Each of them is
//! judged like a connection of a confined program, by the same rules, resolver and addresses, and each is an event.
//!
//! **Invariants.** The host that was judged is the host that is asked, and its address was judged before it is dialled.
//! A redirect never takes a body, or a header that was given for the first host, to another one. What comes back is
//! bounded in bytes, and all of it together in time.

mod exchange;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use url::Url;
use vambrace_core::fence::NameFence;
use vambrace_core::network::{Reach, Reason, Verdict};

use crate::connect::{self, Lookups, Resolve};
use crate::event::{Action, Log};
use crate::terminate::{self, Resolves, Terminated};
use crate::trust::Trust;
pub use target::{BadUrl, Target};

/// What is asked for.
#[derive(Clone)]
pub struct Ask {
    /// How.
    pub method: Method,
    /// Where.
    pub target: Target,
    /// Further headers, for the first host only; their values are not shown.
    pub headers: Vec<(&'static str, Vec<u8>)>,
    /// What is sent, and of which type.
    pub body: Option<(String, Vec<u8>)>,
}

/// The methods that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words of HTTP")]
pub enum Method {
    Get,
    Head,
    Post,
}

impl Method {
    /// The word of HTTP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// How much and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the answer's body; the rest is left.
    pub bytes: usize,
    /// For everything together.
    pub time: Duration,
    /// Redirects that are followed.
    pub redirects: usize,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Who answered, after redirects.
    pub url: Url,
    /// HTTP's code.
    pub status: u16,
    /// As the server says; text that cannot be read is left out.
    pub content_type: Option<String>,
    /// Where it points, when it is a redirect that was not followed.
    pub location: Option<String>,
    /// What came, cut at the bound.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// Where it was asked before, in order.
    pub passed: Vec<Url>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchFault {
    /// Policy says no.
    #[error("`{place}`: {reason}")]
    Refused {
        /// Host and port.
        place: String,
        /// Why.
        reason: Reason,
    },
    /// The server, or the way to it.
    #[error("`{place}`: {why}")]
    Failed {
        /// Host and port.
        place: String,
        /// Why.
        why: String,
    },
    /// Its time is over.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// Who asks, and under which rules.
#[derive(Clone)]
pub struct Fetcher {
    /// What may be reached.
    pub reach: Reach,
    /// And which names, where somebody else narrows them.
    pub hosts: NameFence,
    /// What may be asked of hosts, where not everything may.
    pub limits: Arc<[Terminated]>,
    /// Whom TLS believes.
    pub trust: Arc<Trust>,
    /// Who resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// Where attempts are entered.
    pub log: Arc<Log>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("method", &self.method)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Asks, follows, and brings the last answer back.
    pub async fn fetch(&self, ask: Ask, bounds: Bounds) -> Result<Reply, FetchFault> {
        let limit = Instant::now() + bounds.time;
        let lookups = Lookups::new(Arc::clone(&self.resolver));
        let mut passed = Vec::new();
        let mut ask = ask;
        loop {
            let mut reply = self.once(&ask, &lookups, &bounds, limit).await?;
            let Some(next) = next(&ask, &reply)? else {
                reply.passed = passed;
                return Ok(reply);
            };
            if passed.len() >= bounds.redirects {
                if bounds.redirects == 0 {
                    return Ok(reply);
                }
                let why = format!("more than {} redirects", bounds.redirects);
                return Err(FetchFault::Failed { place: ask.target.place(), why });
            }
            passed.push(reply.url);
            ask = next;
        }
    }

    /// One request to one host.
    async fn once(
        &self,
        ask: &Ask,
        lookups: &Lookups,
        bounds: &Bounds,
        limit: Instant,
    ) -> Result<Reply, FetchFault> {
        let target = &ask.target;
        let (host, port) = (target.host(), target.port());
        let mut ticket = self.log.begin(Action::Fetch(ask.method), host.to_string(), port);
        let judged = match self.reach.judge(host, port) {
            Verdict::Allow(_) if !self.hosts.admits(&host.to_string()) => Err(Reason::HostNotAllowed),
            Verdict::Allow(_) if terminate::is_way_around(&self.limits, &self.reach, host, port) => {
                Err(Reason::AddressNotAllowed)
            }
            Verdict::Allow(rule) => {
                let asked = (target.is_secure(), ask.method.as_str(), &*target.path());
                terminate::may_ask(&self.limits, host, port, asked).map(|()| rule)
            }
            Verdict::Deny(reason) => Err(reason),
        };
        let fault = |reason: Reason| match reason {
            reason if reason.is_refusal() => FetchFault::Refused { place: target.place(), reason },
            reason => FetchFault::Failed { place: target.place(), why: reason.to_string() },
        };
        match judged {
            Ok(rule) => ticket.allowed_by(rule),
            Err(reason) => {
                ticket.failed(reason.clone());
                return Err(fault(reason));
            }
        }
        let mut address = None;
        let traffic = Arc::clone(&ticket.traffic);
        let asked = timeout_at(limit, async {
            terminate::refuse_address_of_a_host(&self.limits, lookups, host, port, Resolves::Here).await?;
            let stream = connect::dial(&self.reach, lookups, host, port).await?;
            address = stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
            exchange::run(ask, stream, &self.trust, bounds.bytes, &traffic).await.map_err(Reason::Unreachable)
        })
        .await;
        ticket.dialled(address);
        let (reason, fault) = match asked {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(reason)) => (reason.clone(), fault(reason)),
            Err(_) => (Reason::Unreachable("no answer in time".to_owned()), FetchFault::Late(bounds.time)),
        };
        ticket.failed(reason);
        Err(fault)
    }
}

/// What a redirect asks for next; nothing when the answer is the last one.
fn next(ask: &Ask, reply: &Reply) -> Result<Option<Ask>, FetchFault> {
    let Some(location) = &reply.location else { return Ok(None) };
    let method = match (reply.status, ask.method) {
        (301..=303, Method::Post) => Method::Get,
        (301..=303 | 307 | 308, method @ (Method::Get | Method::Head)) => method,
        // A body goes where it was sent, and no further.
        _ => return Ok(None),
    };
    let failed = |why: String| FetchFault::Failed { place: ask.target.place(), why };
    let target = ask.target.join(location).map_err(|bad| failed(format!("its redirect: {bad}")))?;
    if ask.target.is_secure() && !target.is_secure() {
        return Err(failed("its redirect leads from https to http".to_owned()));
    }
    let headers = if target.same_origin(&ask.target) { ask.headers.clone() } else { Vec::new() };
    Ok(Some(Ask { method, target, headers, body: None }))
}

#[cfg(test)]
mod tests;
