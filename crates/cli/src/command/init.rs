//! `vambrace init`: writes and trusts a project's configuration (the user who runs it is its author), and prints what to paste
//! into each MCP client. The clients' own files are read, never changed.

pub(crate) mod clients;
mod config_file;
mod detect;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_store::SqliteStore;

use self::clients::McpClient;
use self::detect::DetectedProject;
use crate::approver;
use crate::command::trust;
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::paths;
use crate::project_context::{self, Settings};
use crate::project_files::{CONFIG, OLDER_CONFIG};
use crate::terminal_escape::sanitize;

pub(crate) async fn run(workspace: Option<&Path>, force: bool, out: &Out) -> Result<ExitCode, Failure> {
    let project = paths::project(Some(workspace.unwrap_or(Path::new("."))))?;
    if !force {
        deny_nesting(&project)?;
    }
    let store = project_context::open_store()?;
    let detected = DetectedProject::of(&project);
    let text = config_file::text(&detected);
    config_file::write(&project, &text, force)?;
    let approver = approver::ensure_key(&store, *out).await?;
    let digest = pin(&project, &text, &store, *out).await?;
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("path of this program: {error}")))?;
    let clients = clients::all(&project, &program);
    if out.is_json() {
        out.value(&json!({
            "config": project.join(CONFIG).display().to_string(),
            "trusted": digest.is_some(),
            "digest": digest.map(|digest| digest.to_string()),
            "approver_key": approver,
            "detected": detected.kinds(),
            "clients": clients.iter().map(as_json).collect::<Vec<_>>(),
        }));
    } else {
        print(&project, &detected, digest, &clients, *out);
        if !approver {
            out.message("there is no approver key yet: the first decision (`vambrace approvals approve ...`) creates it");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Denies a project inside another one: the outer project's rules would not apply in it.
fn deny_nesting(project: &Path) -> Result<(), Failure> {
    match paths::set_up_above(project) {
        Some(above) => {
            let why =
                format!("`{}` is inside `{}`, which is already set up", project.display(), above.display());
            Err(Failure::usage(why, "work from there, or use `--force` to set up a separate project"))
        }
        None => Ok(()),
    }
}

/// Trusts the written file, unless there are other files in `.vambrace`: those have another author.
async fn pin(project: &Path, text: &str, store: &SqliteStore, out: Out) -> Result<Option<Digest>, Failure> {
    let settings = Settings::load(project, store).await?;
    let (Some(digest), Some((CONFIG, bytes))) = (settings.files.digest(), settings.files.configuration())
    else {
        return Err(Failure::failed(format!("`{CONFIG}` was removed by another process")));
    };
    if bytes != text.as_bytes() {
        return Err(Failure::failed(format!("`{CONFIG}` was changed by another process")));
    }
    if !config_file::is_alone(project) {
        return Ok(None);
    }
    // Without the approver key the project is set up but not trusted; an approver can trust it later.
    let signed = match approver::sign_trust(store, project_context::project_key(project), digest, out).await {
        Err(failure) if failure.exit == exit::DENIED => return Ok(None),
        other => other?,
    };
    trust::pin(project, digest, "wrote and trusted the configuration of a project", store, signed).await?;
    Ok(Some(digest))
}

fn as_json(client: &McpClient) -> Value {
    json!({
        "name": client.name, "file": client.file.display().to_string(), "exists": client.exists, "snippet": client.snippet,
    })
}

fn print(
    project: &Path,
    detected: &DetectedProject,
    digest: Option<Digest>,
    clients: &[McpClient],
    out: Out,
) {
    let kinds = detected.kinds();
    let kinds = if kinds.is_empty() { "no known toolchain".to_owned() } else { kinds.join(", ") };
    out.line(format!(
        "{}  {} {}",
        paint(Tone::Good, "wrote  "),
        CONFIG,
        paint(Tone::Faint, format!("({kinds})"))
    ));
    match digest {
        Some(digest) => out.line(format!("{}  {digest}", paint(Tone::Good, "trusted"))),
        None => out.line(format!(
            "{}  there are other files in `.vambrace`, or the approver key is locked: review them, then run `vambrace trust`",
            paint(Tone::Care, "not trusted")
        )),
    }
    if project.join(OLDER_CONFIG).try_exists().unwrap_or(false) {
        out.line(format!(
            "{}  `{OLDER_CONFIG}` is ignored now; to keep its settings:",
            paint(Tone::Care, "note   ")
        ));
        out.line(format!("         vambrace config migrate {OLDER_CONFIG} > {CONFIG} && vambrace trust"));
    }
    out.line("\nPaste this into the configuration of your MCP client (its files were not changed):");
    for client in clients {
        let mark = if client.exists { paint(Tone::Good, "found") } else { paint(Tone::Faint, "not found") };
        let file = sanitize(&client.file.display().to_string());
        out.line(format!("\n{}  {file}  {mark}", paint(Tone::Strong, client.name)));
        if let Some(command) = &client.command {
            out.line(paint(Tone::Faint, format!("# or run: {}", sanitize(command))));
        }
        out.line(sanitize(&client.snippet));
    }
    out.line(format!(
        "\nNext: {} or {}",
        paint(Tone::Strong, "vambrace doctor"),
        paint(Tone::Strong, "vambrace tools")
    ));
}
