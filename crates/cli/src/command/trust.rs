//! `vambrace trust`: shows what a project's files would change, asks for confirmation, and stores their digest. The digest is of
//! the files as they were shown: a file that changes in the meantime is not trusted.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::terminal_escape::{one_line, sanitize};
use vambrace_host::{
    Host, ProjectTrust, Settings, TrustGatedSetting, TrustPreview, revoke_trust, sign_trust, trust_key,
    trust_project,
};

use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

pub(crate) async fn run(
    workspace: Option<&Path>,
    revoke: bool,
    yes: bool,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let (host, project) = super::open_host_for(workspace)?;
    if revoke {
        let revoked = revoke_trust(&host, &project).await?;
        print_revoked(&project, revoked, *out);
        return Ok(ExitCode::SUCCESS);
    }
    grant_trust(&project, &host, yes, *out).await
}

async fn grant_trust(project: &Path, host: &Host, yes: bool, out: Out) -> Result<ExitCode, Failure> {
    // Errors in any file end the command here.
    let settings = Settings::load(host, project).await?;
    let Some(digest) = settings.files.digest() else {
        if out.is_json() {
            out.value(&json!({"project": project.display().to_string(), "trusted": false, "digest": null, "files": []}));
        } else {
            out.line(format!(
                "nothing to trust: `{}` has no `.vambrace`",
                sanitize(&project.display().to_string())
            ));
            out.message("hint: `vambrace init` writes a configuration and trusts it");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let preview = TrustPreview::of(host.paths(), &settings.files)?;
    if !out.is_json() {
        print(&preview, project, digest, settings.trust, out);
    }
    let already = settings.trust == ProjectTrust::Trusted;
    if !already {
        confirm(yes, out)?;
        let signed = sign_trust(host, trust_key(project), digest, &TerminalPassphrase(out)).await?;
        trust_project(host, project, digest, "trusted the project's configuration", signed).await?;
    }
    if out.is_json() {
        out.value(&as_json(&preview, project, digest, already));
    } else if already {
        out.line(paint(Tone::Good, "already trusted and unchanged"));
    } else {
        out.line(format!("{} until a file in `.vambrace` changes", paint(Tone::Good, "trusted")));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_revoked(project: &Path, revoked: bool, out: Out) {
    let name = sanitize(&project.display().to_string());
    if out.is_json() {
        out.value(&json!({"project": project.display().to_string(), "trusted": false, "revoked": revoked}));
    } else if revoked {
        out.line(format!("`{name}` is no longer trusted: its configuration can only narrow"));
    } else {
        out.line(format!("nothing to revoke: `{name}` was not trusted"));
    }
}

fn print(preview: &TrustPreview, project: &Path, digest: Digest, trust: ProjectTrust, out: Out) {
    out.line(format!("{}  {}", paint(Tone::Strong, sanitize(&project.display().to_string())), trust.label()));
    for (name, size) in &preview.files {
        out.line(format!("  {size:>8} bytes  {}", one_line(name)));
    }
    if preview.settings.is_empty() {
        out.line("no setting needs trust to take effect");
    } else {
        out.line("takes effect only when trusted:");
    }
    for setting in &preview.settings {
        let at = paint(Tone::Faint, format!("[{}]", sanitize(&setting.at)));
        let key = paint(Tone::Care, one_line(&setting.key));
        out.line(format!("  {key}  {} {at}", one_line(&setting.value)));
    }
    out.line(format!("digest  {digest}"));
}

fn as_json(preview: &TrustPreview, project: &Path, digest: Digest, already: bool) -> Value {
    let files: Vec<Value> =
        preview.files.iter().map(|(path, size)| json!({"path": path, "size": size})).collect();
    let setting = |one: &TrustGatedSetting| json!({"key": one.key, "at": one.at, "value": one.value});
    json!({
        "project": project.display().to_string(), "trusted": true, "already": already,
        "digest": digest.to_string(), "files": files,
        "takes_effect": preview.settings.iter().map(setting).collect::<Vec<_>>(),
    })
}

fn confirm(yes: bool, out: Out) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if out.is_json() || !std::io::stdin().is_terminal() {
        let hint = "run this at a terminal, or add `--yes` after you reviewed the files";
        return Err(Failure::usage("confirmation is required; nothing was trusted", hint));
    }
    if out.confirm("Trust this configuration?")? {
        return Ok(());
    }
    let hint = "an untrusted configuration can only narrow";
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not confirmed: nothing was trusted", hint))
}
