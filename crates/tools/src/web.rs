//! Common code of the web tools: their configuration, sending a request, and reporting its errors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::redacted::Redact;
use vambrace_egress::{
    BadUrl, EgressLog, FetchError, FetchLimits, FetchRequest, FetchResponse, FetchUrl, Fetcher, Resolve,
    SystemResolver, TerminatedHosts, TrustedRoots,
};
use vambrace_redact::SecretBytes;

/// Reads a secret on demand; `None` when it is not set.
pub type SecretSource = Arc<dyn Fn() -> Option<SecretBytes> + Send + Sync>;

/// Configuration of the web tools.
#[derive(Clone)]
pub struct WebConfig {
    /// Hosts with restricted methods and paths.
    pub limits: Arc<[TerminatedHosts]>,
    /// Trusted TLS roots.
    pub trust: Arc<TrustedRoots>,
    /// DNS resolver.
    pub resolver: Arc<dyn Resolve>,
    /// Maximum size of a response, in bytes.
    pub bytes: usize,
    /// Timeout of one call.
    pub time: Duration,
    /// The search engine, if one is configured.
    pub search: Option<SearchService>,
}

/// A configured search engine.
#[derive(Clone)]
pub struct SearchService {
    /// Its API.
    pub engine: SearchEngine,
    /// Its address.
    pub target: FetchUrl,
    /// Its API key, from the secret scope `web_search`.
    pub key: Option<SecretSource>,
}

/// Supported search engine APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names")]
pub enum SearchEngine {
    Searxng,
    Brave,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self {
            limits: Arc::default(),
            trust: Arc::default(),
            resolver: Arc::new(SystemResolver),
            bytes: 5 << 20,
            time: Duration::from_secs(30),
            search: None,
        }
    }
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebConfig")
            .field("bytes", &self.bytes)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SearchService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchService").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl WebConfig {
    /// Sends a request inside the fence. Must run on a thread that may block.
    pub(crate) fn fetch(
        &self,
        ask: FetchRequest,
        redirects: usize,
        fence: &Fence,
        log: &Arc<EgressLog>,
    ) -> Result<FetchResponse, CallError> {
        let fetcher = Fetcher {
            reach: fence.network.clone(),
            hosts: fence.hosts.clone(),
            limits: Arc::clone(&self.limits),
            trust: Arc::clone(&self.trust),
            resolver: Arc::clone(&self.resolver),
            log: Arc::clone(log),
        };
        let bounds = FetchLimits { bytes: self.bytes, time: self.time, redirects };
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| CallError::new(ErrorCode::Internal, format!("no async runtime: {error}")))?;
        runtime.block_on(fetcher.fetch(ask, bounds)).map_err(call_error)
    }
}

fn call_error(fault: FetchError) -> CallError {
    let code = match &fault {
        FetchError::Denied { .. } => ErrorCode::NetworkDenied,
        FetchError::Failed { .. } => ErrorCode::UpstreamError,
        FetchError::TimedOut(_) => ErrorCode::Timeout,
    };
    CallError::new(code, fault.to_string())
}

/// Parses a URL from an agent.
pub(crate) fn target(url: &str) -> Result<FetchUrl, CallError> {
    FetchUrl::parse(url).map_err(|bad| {
        let error = CallError::new(ErrorCode::InvalidArguments, format!("`url`: {bad}"));
        match bad {
            BadUrl::Form(_) => error.suggest("pass a complete URL, for example `https://example.com/page`"),
            _ => error,
        }
    })
}

/// Denies a request whose text contains a known secret.
pub(crate) fn deny_secret(redactor: &dyn Redact, what: &str, text: &str) -> Result<(), CallError> {
    let masked =
        redactor.redact(text).map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
    if masked.count == 0 {
        return Ok(());
    }
    let why = format!("`{what}` contains a secret, which would leave the machine");
    Err(CallError::new(ErrorCode::SecretInContent, why))
}

/// The first `most` bytes of a text, cut at a character boundary; and whether that was all.
pub(crate) fn cut(text: &str, most: usize) -> (&str, bool) {
    if text.len() <= most {
        return (text, true);
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    (text.get(..end).unwrap_or_default(), false)
}
