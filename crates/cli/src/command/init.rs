//! `vambrace init`: writes and trusts a project's configuration (the user who runs it is its author), and prints what to paste
//! into each MCP client. The clients' own files are read, never changed.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::{CONFIG, McpClient, OLDER_CONFIG, SetupMode, mcp_clients, set_up_project};

use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

pub(crate) async fn run(workspace: Option<&Path>, force: bool, out: &Out) -> Result<ExitCode, Failure> {
    let (host, project) = super::open_host_for(Some(workspace.unwrap_or(Path::new("."))))?;
    let mode = if force { SetupMode::Force } else { SetupMode::New };
    let done = set_up_project(&host, &project, mode, &TerminalPassphrase(*out)).await?;
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("path of this program: {error}")))?;
    let clients = mcp_clients(host.paths(), &project, &program);
    if out.is_json() {
        out.value(&json!({
            "config": project.join(CONFIG).display().to_string(),
            "trusted": done.digest.is_some(),
            "digest": done.digest.map(|digest| digest.to_string()),
            "approver_key": done.approver_key,
            "detected": done.detected,
            "clients": clients.iter().map(as_json).collect::<Vec<_>>(),
        }));
    } else {
        print(&project, &done.detected, done.digest, &clients, *out);
        if !done.approver_key {
            out.message("there is no approver key yet: the first decision (`vambrace approvals approve ...`) creates it");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(client: &McpClient) -> Value {
    json!({
        "name": client.name, "file": client.file.display().to_string(), "exists": client.exists, "snippet": client.snippet,
    })
}

fn print(project: &Path, detected: &[String], digest: Option<Digest>, clients: &[McpClient], out: Out) {
    let kinds = if detected.is_empty() { "no known toolchain".to_owned() } else { detected.join(", ") };
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
