//! What the web tools share: how they are set up, and how an answer or its absence is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::redacted::Redact;
use vambrace_egress::{
    Ask, BadUrl, Bounds, FetchFault, Fetcher, Log, Reply, Resolve, SystemResolver, Target, Terminated, Trust,
};
use vambrace_redact::Secret;

/// Reads a secret when it is needed; nothing where it is not set.
pub type SecretSource = Arc<dyn Fn() -> Option<Secret> + Send + Sync>;

/// How the web tools are set up.
#[derive(Clone)]
pub struct Web {
    /// What may be asked of hosts, where not everything may.
    pub limits: Arc<[Terminated]>,
    /// Whom TLS believes.
    pub trust: Arc<Trust>,
    /// Who resolves names.
    pub resolver: Arc<dyn Resolve>,
    /// Bytes of an answer.
    pub bytes: usize,
    /// For one call.
    pub time: Duration,
    /// Who searches.
    pub search: Option<SearchService>,
}

/// A search engine.
#[derive(Clone)]
pub struct SearchService {
    /// Which interface it has.
    pub engine: Engine,
    /// Where it listens.
    pub target: Target,
    /// Its key, of the secret scope `web_search`.
    pub key: Option<SecretSource>,
}

/// Interfaces of search engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names")]
pub enum Engine {
    Searxng,
    Brave,
}

impl Default for Web {
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

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("bytes", &self.bytes).field("time", &self.time).finish_non_exhaustive()
    }
}

impl fmt::Debug for SearchService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchService").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Web {
    /// Asks inside the fence. Runs on a thread that may wait.
    pub(crate) fn ask(
        &self,
        ask: Ask,
        redirects: usize,
        fence: &Fence,
        log: &Arc<Log>,
    ) -> Result<Reply, CallError> {
        let fetcher = Fetcher {
            reach: fence.reach.clone(),
            hosts: fence.hosts.clone(),
            limits: Arc::clone(&self.limits),
            trust: Arc::clone(&self.trust),
            resolver: Arc::clone(&self.resolver),
            log: Arc::clone(log),
        };
        let bounds = Bounds { bytes: self.bytes, time: self.time, redirects };
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            CallError::new(ErrorCode::Internal, format!("nobody serves the network: {error}"))
        })?;
        runtime.block_on(fetcher.fetch(ask, bounds)).map_err(told)
    }
}

fn told(fault: FetchFault) -> CallError {
    let code = match &fault {
        FetchFault::Refused { .. } => ErrorCode::NetworkDenied,
        FetchFault::Failed { .. } => ErrorCode::UpstreamError,
        FetchFault::Late(_) => ErrorCode::Timeout,
    };
    CallError::new(code, fault.to_string())
}

/// A URL of an agent.
pub(crate) fn target(url: &str) -> Result<Target, CallError> {
    Target::parse(url).map_err(|bad| {
        let error = CallError::new(ErrorCode::InvalidArguments, format!("`url`: {bad}"));
        match bad {
            BadUrl::Form(_) => error.suggest("a whole URL, for example `https://example.com/page`"),
            _ => error,
        }
    })
}

/// What goes out holds no secret that we know of.
pub(crate) fn no_secret(redactor: &dyn Redact, what: &str, text: &str) -> Result<(), CallError> {
    let masked =
        redactor.redact(text).map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))?;
    if masked.count == 0 {
        return Ok(());
    }
    let why = format!("`{what}` holds a secret, which would leave the machine");
    Err(CallError::new(ErrorCode::SecretInContent, why))
}

/// The beginning of a text, at most so many bytes, at a letter's border; and whether that was all.
pub(crate) fn cut(text: &str, most: usize) -> (&str, bool) {
    if text.len() <= most {
        return (text, true);
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    (text.get(..end).unwrap_or_default(), false)
}
