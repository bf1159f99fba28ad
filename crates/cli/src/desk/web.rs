//! The web tools as the configuration sets them up.
#![expect(clippy::disallowed_methods, reason = "the file of certificates is named by its path")]

use std::sync::Arc;
use std::time::Duration;

use vambrace_core::config::{Effective, SearchEngine};
use vambrace_core::error::ErrorCode;
use vambrace_egress::{Destination, SystemResolver, Target, Terminated, Trust};
use vambrace_tools::{Engine, SEARCH_SCOPE, SearchService, SecretSource, Web};

use crate::failure::Failure;
use crate::vault::Vault;

const BRAVE: &str = "https://api.search.brave.com/res/v1/web/search";

/// What the web tools need.
pub(crate) fn web(settings: &Effective, vault: &Arc<Vault>) -> Result<Web, Failure> {
    Ok(Web {
        limits: limits(settings)?,
        trust: trust(settings)?,
        resolver: Arc::new(SystemResolver),
        bytes: usize::try_from(settings.limits.fetch_bytes).unwrap_or(usize::MAX),
        time: Duration::from_secs(settings.limits.fetch_sec),
        search: search(settings, vault)?,
    })
}

/// What may be asked of the hosts of `network.terminate`; credentials are for programs.
fn limits(settings: &Effective) -> Result<Arc<[Terminated]>, Failure> {
    let written = settings.network.terminate.iter();
    written
        .map(|entry| Terminated::new(&entry.hosts, entry.methods.clone(), entry.paths.clone(), None))
        .collect::<Result<_, _>>()
        .map_err(|bad| {
            Failure::denied(ErrorCode::PermissionDenied, bad.to_string(), "correct `network.terminate`")
        })
}

/// Whom TLS believes.
pub(crate) fn trust(settings: &Effective) -> Result<Arc<Trust>, Failure> {
    let Some(file) = &settings.network.roots else { return Ok(Arc::default()) };
    let fault = |why: String| {
        let why = format!("`network.roots`: `{file}`: {why}");
        Failure::denied(ErrorCode::PermissionDenied, why, "a file of certificates in PEM")
    };
    let pem = std::fs::read(file).map_err(|error| fault(error.to_string()))?;
    Trust::with(&pem).map(Arc::new).map_err(|bad| fault(bad.to_string()))
}

fn search(settings: &Effective, vault: &Arc<Vault>) -> Result<Option<SearchService>, Failure> {
    let Some((engine, url)) = &settings.tools.web_search else { return Ok(None) };
    let fault = |why: String| {
        let hint = "correct `tools.web_search`";
        Failure::denied(ErrorCode::PermissionDenied, format!("`tools.web_search.url`: {why}"), hint)
    };
    let engine = match engine {
        SearchEngine::Searxng => Engine::Searxng,
        SearchEngine::Brave => Engine::Brave,
    };
    let url = match (engine, url.as_deref()) {
        (_, Some(url)) => url,
        (Engine::Brave, None) => BRAVE,
        (Engine::Searxng, None) => return Err(fault("an instance of SearXNG has an address".to_owned())),
    };
    let target = Target::parse(url).map_err(|bad| fault(bad.to_string()))?;
    let configured = settings.secrets.scopes.get(SEARCH_SCOPE).is_some();
    let near = matches!(target.host(), Destination::Address(address) if address.is_loopback());
    if configured && !target.is_secure() && !near {
        return Err(fault("a key is not sent over http".to_owned()));
    }
    if engine == Engine::Brave && !configured {
        return Err(fault(format!("its key is the scope `{SEARCH_SCOPE}` of `secrets.scopes`")));
    }
    let vault = Arc::clone(vault);
    let key: SecretSource = Arc::new(move || vault.scope(SEARCH_SCOPE));
    Ok(Some(SearchService { engine, target, key: configured.then_some(key) }))
}
