//! Hosts whose TLS the gate terminates: converts the configuration for the gate, sets the placeholders in the program's
//! environment, and writes the CA certificate file for the program.
#![expect(
    clippy::disallowed_methods,
    reason = "writes the certificate file of one run in the state directory"
)]

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::config::{EffectiveConfig, TerminateSettings as Written};
use vambrace_core::error::ErrorCode;
use vambrace_egress::{BadTermination, Credential, TerminatedHosts, TlsTermination};
use vambrace_sandbox::{Filesystem, Spec, StateDirs};

use crate::failure::Failure;
use crate::project_context::tls_trust;
use crate::secrets::SecretStore;
use crate::{paths, system};

/// Environment variables for the CA file: OpenSSL and its users, curl, Node, Python's requests and pip, git, cargo, the AWS
/// tools, Deno.
const VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];

/// The termination of one run; drop removes the certificate file.
pub(super) struct TerminationSetup {
    pub(super) termination: Arc<TlsTermination>,
    bundle: PathBuf,
}

impl Drop for TerminationSetup {
    fn drop(&mut self) {
        // It contains no secrets, so an error does not matter.
        let _ = std::fs::remove_file(&self.bundle);
    }
}

/// Sets up the hosts of `network.terminate`; `None` if there are none.
pub(super) fn set_up(
    settings: &EffectiveConfig,
    secrets: &SecretStore,
    spec: &mut Spec,
) -> Result<Option<TerminationSetup>, Failure> {
    if settings.network.terminate.is_empty() {
        return Ok(None);
    }
    let mut placeholders: Vec<(String, String)> = Vec::new();
    let mut entries = Vec::new();
    for written in &settings.network.terminate {
        if let Some((scope, ..)) = &written.credential {
            deny_readable_credential(scope, secrets, spec)?;
        }
        entries.push(entry(written, secrets, &mut placeholders)?);
    }
    let key = system::random_key().map_err(|error| Failure::failed(error.to_string()))?;
    let termination = TlsTermination::new(entries, tls_trust(settings)?, &secrets.all_scopes(), &key)
        .map_err(|bad| invalid(&bad))?;
    let bundle = file(&termination.certificate_bundle())?;
    let mut set = |name: &str, value: OsString| {
        spec.environment.retain(|(known, _)| known != name);
        spec.environment.push((name.into(), value));
    };
    for name in VARIABLES {
        set(name, bundle.clone().into_os_string());
    }
    for (name, placeholder) in placeholders {
        set(&name, placeholder.into());
    }
    spec.read.push(bundle.clone());
    Ok(Some(TerminationSetup { termination: Arc::new(termination), bundle }))
}

/// Denies a credential whose file the program could read itself: its value must never enter the sandbox.
fn deny_readable_credential(scope: &str, secrets: &SecretStore, spec: &Spec) -> Result<(), Failure> {
    // A missing file is reported when the value is read.
    let Some(Ok(file)) = secrets.file(scope).map(Path::canonicalize) else { return Ok(()) };
    let whole = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
    let granted = spec.read.iter().chain(&spec.write).any(|dir| file.starts_with(whole(dir)));
    let shown = !matches!(spec.filesystem, Filesystem::Deny | Filesystem::Write);
    let hidden = BlockList::new(&spec.masked)
        .map_err(|bad| Failure::failed(bad.to_string()))
        .map(|masked| move |name: &Path| name.to_str().is_some_and(|name| masked.blocks(name).is_some()))?;
    let below = file.strip_prefix(whole(&spec.workspace)).ok();
    if granted || below.is_some_and(|name| shown && !hidden(name)) {
        let why = format!("the program can read the file of secret scope `{scope}`");
        let hint =
            "move it outside the workspace and the paths of `--read` and `--write`, or into `secrets/`";
        return Err(Failure::denied(ErrorCode::SecretScopeDenied, why, hint));
    }
    Ok(())
}

fn entry(
    written: &Written,
    secrets: &SecretStore,
    placeholders: &mut Vec<(String, String)>,
) -> Result<TerminatedHosts, Failure> {
    let credential = match &written.credential {
        None => None,
        Some((scope, header, variable)) => {
            let value = secrets.scope(scope).ok_or_else(|| {
                let why = format!("secret scope `{scope}` has no value");
                Failure::denied(ErrorCode::SecretScopeDenied, why, "set it, or fix `network.terminate`")
            })?;
            let key = system::random_key().map_err(|error| Failure::failed(error.to_string()))?;
            let known = placeholders.iter().find(|(name, _)| name == variable);
            let placeholder = match known {
                Some((_, placeholder)) => placeholder.clone(),
                None => {
                    let random: String = key.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
                    format!("vambrace-placeholder-{random}")
                }
            };
            placeholders.push((variable.clone(), placeholder.clone()));
            Some(Credential::new(header, placeholder, &value).map_err(|bad| invalid(&bad))?)
        }
    };
    TerminatedHosts::new(&written.hosts, written.methods.clone(), written.paths.clone(), credential)
        .map_err(|bad| invalid(&bad))
}

fn invalid(bad: &BadTermination) -> Failure {
    Failure::denied(ErrorCode::PermissionDenied, bad.to_string(), "fix `network.terminate`")
}

fn file(text: &str) -> Result<PathBuf, Failure> {
    let fault = |error: std::io::Error| Failure::failed(format!("certificate file: {error}"));
    let key = system::random_key().map_err(|error| Failure::failed(error.to_string()))?;
    let name: String = key.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let dir = StateDirs::below(&paths::state()?).certificates;
    std::fs::create_dir_all(&dir).map_err(fault)?;
    let path = dir.canonicalize().map_err(fault)?.join(format!("{name}.pem"));
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).map_err(fault)?;
    file.write_all(text.as_bytes()).map_err(fault)?;
    Ok(path)
}
