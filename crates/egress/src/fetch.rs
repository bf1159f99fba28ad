//! The broker's own HTTP client for the web tools: one request and the redirects that it leads to. Each request is checked
//! like a connection of a sandboxed program, by the same rules, resolver and address checks, and each is an event.
//!
//! **Invariants.** The request goes to the host that was checked, and the address is checked before it is dialled. A redirect
//! never carries a body, or a header that was given for the first host, to another host. The response is bounded in bytes,
//! and the whole fetch in time.

mod fetch_url;
mod http_exchange;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use url::Url;
use vambrace_core::fence::NameFence;
use vambrace_core::network::{NetworkDecision, NetworkFence, NetworkReason};

use crate::connect::{self, Lookups, Resolve};
use crate::event::{EgressAction, EgressLog};
use crate::tls_termination::{self, NameResolution, TerminatedHosts};
use crate::trusted_roots::TrustedRoots;
pub use fetch_url::{BadUrl, FetchUrl};

/// A request to fetch.
#[derive(Clone)]
pub struct FetchRequest {
    /// The HTTP method.
    pub method: Method,
    /// The URL.
    pub target: FetchUrl,
    /// Further headers, for the first host only; marked as sensitive.
    pub headers: Vec<(&'static str, Vec<u8>)>,
    /// Content type and content.
    pub body: Option<(String, Vec<u8>)>,
}

/// The supported methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the methods of HTTP")]
pub enum Method {
    Get,
    Head,
    Post,
}

impl Method {
    /// The name in HTTP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// Limits of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Maximum bytes of the response body; the rest is cut off.
    pub bytes: usize,
    /// Timeout for all requests together.
    pub time: Duration,
    /// Maximum number of redirects.
    pub redirects: usize,
}

/// The response to a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// The URL that answered, after redirects.
    pub url: Url,
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type` header, if it is valid text.
    pub content_type: Option<String>,
    /// The `Location` header of a redirect that was not followed.
    pub location: Option<String>,
    /// The body, cut at the deadline.
    pub body: Vec<u8>,
    /// Whether the body was cut.
    pub truncated: bool,
    /// The URLs that redirected, in order.
    pub redirected_from: Vec<Url>,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Policy denied it.
    #[error("`{destination}`: {reason}")]
    Denied {
        /// Host and port.
        destination: String,
        /// Why.
        reason: NetworkReason,
    },
    /// The server or the network failed.
    #[error("`{destination}`: {why}")]
    Failed {
        /// Host and port.
        destination: String,
        /// Why.
        why: String,
    },
    /// The timeout of the fetch passed.
    #[error("no response within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// An HTTP client and the rules it works under.
#[derive(Clone)]
pub struct Fetcher {
    /// What may be reached.
    pub reach: NetworkFence,
    /// The names that the fence of the call allows.
    pub hosts: NameFence,
    /// Hosts with restricted methods and paths.
    pub limits: Arc<[TerminatedHosts]>,
    /// Root certificates for TLS.
    pub trust: Arc<TrustedRoots>,
    /// Resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// Where attempts are logged.
    pub log: Arc<EgressLog>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest")
            .field("method", &self.method)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Sends the request, follows redirects, and returns the last response.
    pub async fn fetch(
        &self,
        request: FetchRequest,
        limits: FetchLimits,
    ) -> Result<FetchResponse, FetchError> {
        let deadline = Instant::now() + limits.time;
        let lookups = Lookups::new(Arc::clone(&self.resolver));
        let mut redirected_from = Vec::new();
        let mut request = request;
        loop {
            let mut response = self.fetch_once(&request, &lookups, &limits, deadline).await?;
            let Some(next) = next_request(&request, &response)? else {
                response.redirected_from = redirected_from;
                return Ok(response);
            };
            if redirected_from.len() >= limits.redirects {
                if limits.redirects == 0 {
                    return Ok(response);
                }
                let why = format!("more than {} redirects", limits.redirects);
                return Err(FetchError::Failed { destination: request.target.host_and_port(), why });
            }
            redirected_from.push(response.url);
            request = next;
        }
    }

    /// One request to one host.
    async fn fetch_once(
        &self,
        request: &FetchRequest,
        lookups: &Lookups,
        limits: &FetchLimits,
        deadline: Instant,
    ) -> Result<FetchResponse, FetchError> {
        let target = &request.target;
        let (host, port) = (target.host(), target.port());
        let mut attempt = self.log.begin(EgressAction::Fetch(request.method), host.to_string(), port);
        let checked = match self.reach.judge(host, port) {
            NetworkDecision::Allow(_) if !self.hosts.admits(&host.to_string()) => {
                Err(NetworkReason::HostNotAllowed)
            }
            NetworkDecision::Allow(_)
                if tls_termination::bypasses_termination(&self.limits, &self.reach, host, port) =>
            {
                Err(NetworkReason::AddressNotAllowed)
            }
            NetworkDecision::Allow(rule) => {
                let fetch = (target.is_secure(), request.method.as_str(), &*target.path());
                tls_termination::check_fetch(&self.limits, host, port, fetch).map(|()| rule)
            }
            NetworkDecision::Deny(reason) => Err(reason),
        };
        let error = |reason: NetworkReason| match reason {
            reason if reason.is_denial() => {
                FetchError::Denied { destination: target.host_and_port(), reason }
            }
            reason => FetchError::Failed { destination: target.host_and_port(), why: reason.to_string() },
        };
        match checked {
            Ok(rule) => attempt.allowed_by(rule),
            Err(reason) => {
                attempt.failed(reason.clone());
                return Err(error(reason));
            }
        }
        let mut address = None;
        let traffic = Arc::clone(&attempt.traffic);
        let result = timeout_at(deadline, async {
            tls_termination::deny_address_of_terminated_host(
                &self.limits,
                lookups,
                host,
                port,
                NameResolution::Local,
            )
            .await?;
            let stream = connect::dial(&self.reach, lookups, host, port).await?;
            address = stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
            http_exchange::run(request, stream, &self.trust, limits.bytes, &traffic)
                .await
                .map_err(NetworkReason::Unreachable)
        })
        .await;
        attempt.dialled(address);
        let (reason, error) = match result {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(reason)) => (reason.clone(), error(reason)),
            Err(_) => (
                NetworkReason::Unreachable("no response in time".to_owned()),
                FetchError::TimedOut(limits.time),
            ),
        };
        attempt.failed(reason);
        Err(error)
    }
}

/// The request that a redirect leads to; `None` when the response is the last one.
fn next_request(
    request: &FetchRequest,
    response: &FetchResponse,
) -> Result<Option<FetchRequest>, FetchError> {
    let Some(location) = &response.location else { return Ok(None) };
    let method = match (response.status, request.method) {
        (301..=303, Method::Post) => Method::Get,
        (301..=303 | 307 | 308, method @ (Method::Get | Method::Head)) => method,
        // A body is never sent to another URL.
        _ => return Ok(None),
    };
    let failed = |why: String| FetchError::Failed { destination: request.target.host_and_port(), why };
    let target = request.target.join(location).map_err(|bad| failed(format!("invalid redirect: {bad}")))?;
    if request.target.is_secure() && !target.is_secure() {
        return Err(failed("it redirects from https to http".to_owned()));
    }
    let headers = if target.same_origin(&request.target) { request.headers.clone() } else { Vec::new() };
    Ok(Some(FetchRequest { method, target, headers, body: None }))
}

#[cfg(test)]
mod tests;
