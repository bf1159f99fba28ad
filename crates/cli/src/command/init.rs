//! `vambrace init`: a project gets its configuration, trusted because whoever runs this wrote it, and each client what
//! to paste. The clients' own files are looked at and never touched.

pub(crate) mod clients;
mod detect;
mod file;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_store::SqliteStore;

use self::clients::Client;
use self::detect::Detected;
use crate::approver;
use crate::command::trust;
use crate::desk::{self, Settings};
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};
use crate::places;
use crate::project::{CONFIG, OLDER_CONFIG};

pub(crate) async fn run(workspace: Option<&Path>, force: bool, out: &Out) -> Result<ExitCode, Failure> {
    let project = places::project(Some(workspace.unwrap_or(Path::new("."))))?;
    if !force {
        refuse_nesting(&project)?;
    }
    let store = desk::open_store()?;
    let detected = Detected::of(&project);
    let text = file::text(&detected);
    file::write(&project, &text, force)?;
    let approver = approver::ensure(&store, *out).await?;
    let digest = pin(&project, &text, &store, *out).await?;
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("the own program: {error}")))?;
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
        tell(&project, &detected, digest, &clients, *out);
        if !approver {
            out.say("there is no approver key yet: the first decision (`vambrace approvals approve ...`) makes it");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A project inside another one would hide the outer one's rules from whoever works in it.
fn refuse_nesting(project: &Path) -> Result<(), Failure> {
    match places::set_up_above(project) {
        Some(above) => {
            let why =
                format!("`{}` lies inside `{}`, which is set up already", project.display(), above.display());
            Err(Failure::usage(why, "work from there, or give --force to set up a project of its own"))
        }
        None => Ok(()),
    }
}

/// Pins what was written, if that is all there is: other files below `.vambrace` came from somebody else.
async fn pin(project: &Path, text: &str, store: &SqliteStore, out: Out) -> Result<Option<Digest>, Failure> {
    let settings = Settings::load(project, store).await?;
    let (Some(digest), Some((CONFIG, bytes))) = (settings.files.digest(), settings.files.configuration())
    else {
        return Err(Failure::failed(format!("`{CONFIG}` was written and is gone")));
    };
    if bytes != text.as_bytes() {
        return Err(Failure::failed(format!("`{CONFIG}` was changed by somebody else while it was written")));
    }
    if !file::is_alone(project) {
        return Ok(None);
    }
    // Whoever cannot decide sets up all the same; trusting is then left to whoever can.
    let signed = match approver::sign_trust(store, desk::project_key(project), digest, out).await {
        Err(failure) if failure.exit == exit::DENIED => return Ok(None),
        other => other?,
    };
    trust::pin(project, digest, "writes and trusts the configuration of a project", store, signed).await?;
    Ok(Some(digest))
}

fn as_json(client: &Client) -> Value {
    json!({
        "name": client.name, "file": client.file.display().to_string(), "exists": client.exists, "snippet": client.snippet,
    })
}

fn tell(project: &Path, detected: &Detected, digest: Option<Digest>, clients: &[Client], out: Out) {
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
            "{}  other files lie below `.vambrace`, or the approver key is locked: look, then run `vambrace trust`",
            paint(Tone::Care, "not trusted yet")
        )),
    }
    if project.join(OLDER_CONFIG).try_exists().unwrap_or(false) {
        out.line(format!(
            "{}  `{OLDER_CONFIG}` does not count beside it; to keep its settings:",
            paint(Tone::Care, "note   ")
        ));
        out.line(format!("         vambrace config migrate {OLDER_CONFIG} > {CONFIG} && vambrace trust"));
    }
    out.line("\nWhat to paste into your client (nothing of it was touched):");
    for client in clients {
        let mark =
            if client.exists { paint(Tone::Good, "found") } else { paint(Tone::Faint, "not found here") };
        let file = plain(&client.file.display().to_string());
        out.line(format!("\n{}  {file}  {mark}", paint(Tone::Strong, client.name)));
        if let Some(command) = &client.command {
            out.line(paint(Tone::Faint, format!("# or run: {}", plain(command))));
        }
        out.line(plain(&client.snippet));
    }
    out.line(format!(
        "\nNext: {} or {}",
        paint(Tone::Strong, "vambrace doctor"),
        paint(Tone::Strong, "vambrace tools")
    ));
}
