//! The settings of the web tools, from the configuration.
#![expect(clippy::disallowed_methods, reason = "reads the certificate file named by `network.roots`")]

use std::sync::Arc;
use std::time::Duration;

use vambrace_core::config::{EffectiveConfig, SearchEngine as ConfiguredEngine};
use vambrace_core::error::ErrorCode;
use vambrace_egress::{Destination, FetchUrl, SystemResolver, TerminatedHosts, TrustedRoots};
use vambrace_tools::{SEARCH_SCOPE, SearchEngine, SearchService, SecretSource, WebConfig};

use crate::error::HostError;
use crate::secret_store::SecretStore;

const BRAVE: &str = "https://api.search.brave.com/res/v1/web/search";

/// The context of the web tools.
pub(super) fn web(
    settings: &EffectiveConfig,
    secrets: &Arc<SecretStore>,
    trust: Arc<TrustedRoots>,
) -> Result<WebConfig, HostError> {
    Ok(WebConfig {
        limits: limits(settings)?,
        trust,
        resolver: Arc::new(SystemResolver),
        bytes: usize::try_from(settings.limits.fetch_bytes).unwrap_or(usize::MAX),
        time: Duration::from_secs(settings.limits.fetch_sec),
        search: search(settings, secrets)?,
    })
}

/// Allowed methods and paths of the hosts in `network.terminate`; their credentials are only for programs.
fn limits(settings: &EffectiveConfig) -> Result<Arc<[TerminatedHosts]>, HostError> {
    let written = settings.network.terminate.iter();
    written
        .map(|entry| TerminatedHosts::new(&entry.hosts, entry.methods.clone(), entry.paths.clone(), None))
        .collect::<Result<_, _>>()
        .map_err(|bad| {
            HostError::denied(ErrorCode::PermissionDenied, bad.to_string(), "fix `network.terminate`")
        })
}

/// The trusted TLS root certificates.
pub(super) fn tls_trust(settings: &EffectiveConfig) -> Result<Arc<TrustedRoots>, HostError> {
    let Some(file) = &settings.network.roots else { return Ok(Arc::default()) };
    let fault = |why: String| {
        let why = format!("`network.roots`: `{file}`: {why}");
        HostError::denied(ErrorCode::PermissionDenied, why, "it must be a PEM file with certificates")
    };
    let pem = std::fs::read(file).map_err(|error| fault(error.to_string()))?;
    TrustedRoots::with_pem(&pem).map(Arc::new).map_err(|bad| fault(bad.to_string()))
}

fn search(
    settings: &EffectiveConfig,
    secrets: &Arc<SecretStore>,
) -> Result<Option<SearchService>, HostError> {
    let Some((engine, url)) = &settings.tools.web_search else { return Ok(None) };
    let fault = |why: String| {
        let hint = "fix `tools.web_search`";
        HostError::denied(ErrorCode::PermissionDenied, format!("`tools.web_search.url`: {why}"), hint)
    };
    let engine = match engine {
        ConfiguredEngine::Searxng => SearchEngine::Searxng,
        ConfiguredEngine::Brave => SearchEngine::Brave,
    };
    let url = match (engine, url.as_deref()) {
        (_, Some(url)) => url,
        (SearchEngine::Brave, None) => BRAVE,
        (SearchEngine::Searxng, None) => {
            return Err(fault("SearXNG needs the address of an instance".to_owned()));
        }
    };
    let target = FetchUrl::parse(url).map_err(|bad| fault(bad.to_string()))?;
    let configured = settings.secrets.scopes.get(SEARCH_SCOPE).is_some();
    let near = matches!(target.host(), Destination::Address(address) if address.is_loopback());
    if configured && !target.is_secure() && !near {
        return Err(fault("the key is not sent over unencrypted http".to_owned()));
    }
    if engine == SearchEngine::Brave && !configured {
        return Err(fault(format!("Brave needs a key: set the scope `{SEARCH_SCOPE}` in `secrets.scopes`")));
    }
    let secrets = Arc::clone(secrets);
    let key: SecretSource = Arc::new(move || secrets.scope(SEARCH_SCOPE));
    Ok(Some(SearchService { engine, target, key: configured.then_some(key) }))
}
