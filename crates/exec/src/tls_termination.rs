//! Hosts whose TLS the gate terminates: converts the configuration for the gate, sets the placeholders in the program's
//! environment, and writes the CA certificate file for the program.
#![expect(
    clippy::disallowed_methods,
    reason = "writes the certificate file of one run in the state directory"
)]

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::config::TerminateSettings;
use vambrace_core::error::ErrorCode;
use vambrace_core::fence::{Fence, NameFence};
use vambrace_core::path::ScopedPath;
use vambrace_egress::{BadTermination, Credential, TerminatedHosts, TlsTermination};
use vambrace_redact::{KnownValue, SecretBytes};
use vambrace_sandbox::{Filesystem, Spec, StateDirs};

use crate::error::ExecError;
use crate::settings::RunSettings;

/// The secrets of a configuration.
pub trait SecretSource: Send + Sync {
    /// The current value of a scope; `None` if it has none.
    fn value(&self, scope: &str) -> Option<SecretBytes>;
    /// The file of a scope, if its value is in a file.
    fn file(&self, scope: &str) -> Option<PathBuf>;
    /// The current values of all scopes.
    fn all(&self) -> Vec<KnownValue>;
}

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

/// The certificate file of one run; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct CertificateFile(PathBuf);

impl Drop for CertificateFile {
    fn drop(&mut self) {
        // It contains no secrets, so an error does not matter.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sets up the hosts of `network.terminate`; `None` if there are none.
pub(crate) fn set_up(
    settings: &RunSettings,
    fence: &Fence,
    secrets: &dyn SecretSource,
    places: &StateDirs,
    spec: &mut Spec,
) -> Result<Option<(Arc<TlsTermination>, CertificateFile)>, ExecError> {
    if settings.terminate.is_empty() {
        return Ok(None);
    }
    let mut placeholders: Vec<(String, String)> = Vec::new();
    let mut entries = Vec::new();
    for written in &settings.terminate {
        if let Some((scope, ..)) = &written.credential {
            deny_fenced_credential(scope, &fence.secrets)?;
            deny_readable_credential(scope, secrets, spec)?;
        }
        entries.push(entry(written, secrets, &mut placeholders)?);
    }
    let trust = Arc::clone(&settings.trusted_roots);
    let termination =
        TlsTermination::new(entries, trust, &secrets.all(), &random()?).map_err(|bad| invalid(&bad))?;
    let bundle = certificate_file(&termination.certificate_bundle(), &places.certificates)?;
    let mut set = |name: &str, value: OsString| {
        spec.environment.retain(|(known, _)| known != name);
        spec.environment.push((name.into(), value));
    };
    for name in VARIABLES {
        set(name, bundle.0.clone().into_os_string());
    }
    for (name, placeholder) in placeholders {
        set(&name, placeholder.into());
    }
    spec.read.push(bundle.0.clone());
    Ok(Some((Arc::new(termination), bundle)))
}

fn deny_fenced_credential(scope: &str, fence: &NameFence) -> Result<(), ExecError> {
    if fence.admits(scope) {
        return Ok(());
    }
    let message = format!("policy does not let this call use secret scope `{scope}`");
    Err(ExecError::denied(ErrorCode::SecretScopeDenied, message, "run it without `network.terminate`"))
}

/// Denies a credential whose file the program could read itself: its value must never enter the sandbox.
fn deny_readable_credential(scope: &str, secrets: &dyn SecretSource, spec: &Spec) -> Result<(), ExecError> {
    // A missing file is reported when the value is read.
    let Some(Ok(file)) = secrets.file(scope).map(|file| file.canonicalize()) else { return Ok(()) };
    let whole = |dir: &PathBuf| dir.canonicalize().unwrap_or_else(|_| dir.clone());
    let granted = spec.read.iter().chain(&spec.write).any(|dir| file.starts_with(whole(dir)));
    let shown = !matches!(spec.filesystem, Filesystem::Deny | Filesystem::Write);
    let masked = BlockList::new(&spec.masked)
        .map_err(|bad| ExecError::invalid(bad.to_string(), "fix `workspace.block`"))?;
    let hidden = |name: &Path| {
        name.to_str().is_some_and(|name| {
            let path = ScopedPath::in_project(name, &spec.fence.service_root);
            masked.blocks(name).is_some() || path.is_some_and(|path| !spec.fence.read.admits(&path))
        })
    };
    let below = file.strip_prefix(whole(&spec.workspace)).ok();
    if granted || below.is_some_and(|name| shown && !hidden(name)) {
        let message = format!("the program can read the file of secret scope `{scope}`");
        let hint =
            "move it outside the workspace and the paths of `--read` and `--write`, or into `secrets/`";
        return Err(ExecError::denied(ErrorCode::SecretScopeDenied, message, hint));
    }
    Ok(())
}

fn entry(
    written: &TerminateSettings,
    secrets: &dyn SecretSource,
    placeholders: &mut Vec<(String, String)>,
) -> Result<TerminatedHosts, ExecError> {
    let credential = match &written.credential {
        None => None,
        Some((scope, header, variable)) => {
            let value = secrets.value(scope).ok_or_else(|| {
                let message = format!("secret scope `{scope}` has no value");
                ExecError::denied(ErrorCode::SecretScopeDenied, message, "set it, or fix `network.terminate`")
            })?;
            let known = placeholders.iter().find(|(name, _)| name == variable);
            let placeholder = match known {
                Some((_, placeholder)) => placeholder.clone(),
                None => format!("vambrace-placeholder-{}", hex(&random::<12>()?)),
            };
            placeholders.push((variable.clone(), placeholder.clone()));
            Some(Credential::new(header, placeholder, &value).map_err(|bad| invalid(&bad))?)
        }
    };
    TerminatedHosts::new(&written.hosts, written.methods.clone(), written.paths.clone(), credential)
        .map_err(|bad| invalid(&bad))
}

fn invalid(bad: &BadTermination) -> ExecError {
    ExecError::denied(ErrorCode::PermissionDenied, bad.to_string(), "fix `network.terminate`")
}

fn certificate_file(text: &str, dir: &Path) -> Result<CertificateFile, ExecError> {
    let error = || ExecError::system("certificate file");
    std::fs::create_dir_all(dir).map_err(error())?;
    let path = dir.canonicalize().map_err(error())?.join(format!("{}.pem", hex(&random::<8>()?)));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
    let mut file = file.map_err(error())?;
    let bundle = CertificateFile(path);
    file.write_all(text.as_bytes()).map_err(error())?;
    Ok(bundle)
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], ExecError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)
        .map_err(|error| ExecError::system("random numbers")(io::Error::other(error)))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
