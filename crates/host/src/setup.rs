//! Sets a project up: writes and trusts its configuration (the user who asks for it is its author), and knows what to paste
//! into each MCP client. The clients' own files are read, never changed.

mod clients;
mod config_file;
mod detect;

pub use clients::{McpClient, mcp_clients, shell_quoted};

use std::path::Path;

use vambrace_core::digest::Digest;

use self::detect::DetectedProject;
use crate::approver::{PassphraseSource, ensure_approver_key, sign_trust};
use crate::error::{HostError, HostErrorKind};
use crate::host::Host;
use crate::paths::set_up_above;
use crate::project_files::CONFIG;
use crate::settings::Settings;
use crate::trust::{trust_key, trust_project};

/// A project that was set up.
#[derive(Debug)]
pub struct ProjectSetup {
    /// Languages, each with the file that shows it.
    pub detected: Vec<String>,
    /// The trusted digest; `None` if the project is not trusted yet.
    pub digest: Option<Digest>,
    /// Whether the approver key exists.
    pub approver_key: bool,
}

/// Whether an existing configuration is overwritten and a project inside another one is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupMode {
    /// An existing configuration is kept, and a nested project denied.
    New,
    /// Overwrites.
    Force,
}

/// Writes a project's configuration and trusts it.
pub async fn set_up_project(
    host: &Host,
    project: &Path,
    mode: SetupMode,
    ask: &dyn PassphraseSource,
) -> Result<ProjectSetup, HostError> {
    if mode == SetupMode::New {
        deny_nesting(project)?;
    }
    let detected = DetectedProject::of(project);
    let text = config_file::text(&detected);
    config_file::write(project, &text, mode == SetupMode::Force)?;
    let approver_key = ensure_approver_key(host, ask).await?;
    let digest = trust_written(host, project, &text, ask).await?;
    Ok(ProjectSetup { detected: detected.kinds(), digest, approver_key })
}

/// Denies a project inside another one: the outer project's rules would not apply in it.
fn deny_nesting(project: &Path) -> Result<(), HostError> {
    match set_up_above(project) {
        Some(above) => {
            let why =
                format!("`{}` is inside `{}`, which is already set up", project.display(), above.display());
            Err(HostError::usage(why, "work from there, or use `--force` to set up a separate project"))
        }
        None => Ok(()),
    }
}

/// Trusts the written file, unless there are other files in `.vambrace`: those have another author.
async fn trust_written(
    host: &Host,
    project: &Path,
    text: &str,
    ask: &dyn PassphraseSource,
) -> Result<Option<Digest>, HostError> {
    let settings = Settings::load(host, project).await?;
    let (Some(digest), Some((CONFIG, bytes))) = (settings.files.digest(), settings.files.configuration())
    else {
        return Err(HostError::failed(format!("`{CONFIG}` was removed by another process")));
    };
    if bytes != text.as_bytes() {
        return Err(HostError::failed(format!("`{CONFIG}` was changed by another process")));
    }
    if !config_file::is_alone(project) {
        return Ok(None);
    }
    // Without the approver key the project is set up but not trusted; an approver can trust it later.
    let signed = match sign_trust(host, trust_key(project), digest, ask).await {
        Err(error) if error.kind == HostErrorKind::Denied => return Ok(None),
        other => other?,
    };
    let words = "wrote and trusted the configuration of a project";
    trust_project(host, project, digest, words, signed).await?;
    Ok(Some(digest))
}
