//! Hosts whose TLS ends at the gate: from the configuration to the gate's own words, the placeholders in the program's
//! environment, and the file of certificates that it is shown.
#![expect(
    clippy::disallowed_methods,
    reason = "the file of certificates is made beside the state, for one run"
)]

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::block::BlockList;
use vambrace_core::config::{Effective, Terminated as Written};
use vambrace_core::error::ErrorCode;
use vambrace_egress::{BadTermination, Credential, Terminated, Termination};
use vambrace_sandbox::{Filesystem, Places, Spec};

use crate::desk::trust;
use crate::failure::Failure;
use crate::vault::Vault;
use crate::{machine, places};

/// The variables by which programs are told whom to believe: OpenSSL and what rests on it, curl, Node, Python's
/// requests and pip, git, cargo, the AWS tools, Deno.
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

/// What a run needs while it lasts; the file of certificates goes with it.
pub(super) struct Inside {
    pub(super) termination: Arc<Termination>,
    bundle: PathBuf,
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It holds nothing secret.
        let _ = std::fs::remove_file(&self.bundle);
    }
}

/// Sets up what the configuration names; nothing where it names nothing.
pub(super) fn inside(
    settings: &Effective,
    vault: &Vault,
    spec: &mut Spec,
) -> Result<Option<Inside>, Failure> {
    if settings.network.terminate.is_empty() {
        return Ok(None);
    }
    let mut placeholders: Vec<(String, String)> = Vec::new();
    let mut entries = Vec::new();
    for written in &settings.network.terminate {
        if let Some((scope, ..)) = &written.credential {
            out_of_sight(scope, vault, spec)?;
        }
        entries.push(entry(written, vault, &mut placeholders)?);
    }
    let key = machine::random_key().map_err(|error| Failure::failed(error.to_string()))?;
    let termination = Termination::new(entries, trust(settings)?, &vault.all_scopes(), &key)
        .map_err(|bad| refused(&bad))?;
    let bundle = file(&termination.bundle())?;
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
    Ok(Some(Inside { termination: Arc::new(termination), bundle }))
}

/// A value that the program could read for itself is none that never enters the sandbox.
fn out_of_sight(scope: &str, vault: &Vault, spec: &Spec) -> Result<(), Failure> {
    // What cannot be found has no value, which is told where it is read.
    let Some(Ok(file)) = vault.file(scope).map(Path::canonicalize) else { return Ok(()) };
    let whole = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
    let granted = spec.read.iter().chain(&spec.write).any(|folder| file.starts_with(whole(folder)));
    let shown = !matches!(spec.filesystem, Filesystem::Deny | Filesystem::Write);
    let hidden = BlockList::new(&spec.masked)
        .map_err(|bad| Failure::failed(bad.to_string()))
        .map(|masked| move |name: &Path| name.to_str().is_some_and(|name| masked.blocks(name).is_some()))?;
    let below = file.strip_prefix(whole(&spec.workspace)).ok();
    if granted || below.is_some_and(|name| shown && !hidden(name)) {
        let why = format!("the program could read the file of secret scope `{scope}`");
        let hint =
            "keep it outside of the workspace and of what `--read` and `--write` name, or in `secrets/`";
        return Err(Failure::denied(ErrorCode::SecretScopeDenied, why, hint));
    }
    Ok(())
}

fn entry(
    written: &Written,
    vault: &Vault,
    placeholders: &mut Vec<(String, String)>,
) -> Result<Terminated, Failure> {
    let credential = match &written.credential {
        None => None,
        Some((scope, header, variable)) => {
            let value = vault.scope(scope).ok_or_else(|| {
                let why = format!("secret scope `{scope}` has no value");
                Failure::denied(ErrorCode::SecretScopeDenied, why, "set it, or correct `network.terminate`")
            })?;
            let key = machine::random_key().map_err(|error| Failure::failed(error.to_string()))?;
            let known = placeholders.iter().find(|(name, _)| name == variable);
            let placeholder = match known {
                Some((_, placeholder)) => placeholder.clone(),
                None => {
                    let random: String = key.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
                    format!("vambrace-placeholder-{random}")
                }
            };
            placeholders.push((variable.clone(), placeholder.clone()));
            Some(Credential::new(header, placeholder, &value).map_err(|bad| refused(&bad))?)
        }
    };
    Terminated::new(&written.hosts, written.methods.clone(), written.paths.clone(), credential)
        .map_err(|bad| refused(&bad))
}

fn refused(bad: &BadTermination) -> Failure {
    Failure::denied(ErrorCode::PermissionDenied, bad.to_string(), "correct `network.terminate`")
}

fn file(text: &str) -> Result<PathBuf, Failure> {
    let fault = |error: std::io::Error| Failure::failed(format!("the file of certificates: {error}"));
    let key = machine::random_key().map_err(|error| Failure::failed(error.to_string()))?;
    let name: String = key.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = Places::below(&places::state()?).lent;
    std::fs::create_dir_all(&folder).map_err(fault)?;
    let path = folder.canonicalize().map_err(fault)?.join(format!("{name}.pem"));
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).map_err(fault)?;
    file.write_all(text.as_bytes()).map_err(fault)?;
    Ok(path)
}
