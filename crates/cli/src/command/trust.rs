//! `vambrace trust`: shows what a project's files would change, asks for confirmation, and stores their digest. The digest is of
//! the files as they were shown: a file that changes in the meantime is not trusted.

mod preview;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Id, Op, RecordStatus, SignedNote};
use vambrace_store::{Batch, Entry, SqliteStore, StateChange, Store as _, TrustRow};

use self::preview::TrustPreview;
use crate::approver;
use crate::config_files::trust_state;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::paths;
use crate::project_context::{self, ProjectTrust, Settings, project_key, redact_text};
use crate::project_files::ProjectFiles;
use crate::system::{self, SystemClock};
use crate::terminal_escape::sanitize;

pub(crate) async fn run(
    workspace: Option<&Path>,
    revoke: bool,
    yes: bool,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let project = paths::project(workspace)?;
    let store = project_context::open_store()?;
    if revoke {
        revoke_trust(&project, &store, *out).await
    } else {
        grant_trust(&project, &store, yes, *out).await
    }
}

async fn grant_trust(project: &Path, store: &SqliteStore, yes: bool, out: Out) -> Result<ExitCode, Failure> {
    // Errors in any file end the command here.
    let settings = Settings::load(project, store).await?;
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
    let preview = TrustPreview::of(&settings.files)?;
    if !out.is_json() {
        preview.print(project, digest, settings.trust, out);
    }
    let already = settings.trust == ProjectTrust::Trusted;
    if !already {
        confirm(yes, out)?;
        let signed = approver::sign_trust(store, project_key(project), digest, out).await?;
        pin(project, digest, "trusted the project's configuration", store, signed).await?;
    }
    if out.is_json() {
        out.value(&preview.as_json(project, digest, already));
    } else if already {
        out.line(paint(Tone::Good, "already trusted and unchanged"));
    } else {
        out.line(format!("{} until a file in `.vambrace` changes", paint(Tone::Good, "trusted")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke_trust(project: &Path, store: &SqliteStore, out: Out) -> Result<ExitCode, Failure> {
    let (_, pinned) = trust_state(project, &ProjectFiles::open(project)?, store).await?;
    let name = sanitize(&project.display().to_string());
    if let Some(pinned) = &pinned {
        let mut entry = record("policy.untrust", &format!("revoked the trust in `{}`", project.display()))?;
        entry.before_hash = Some(pinned.digest);
        let change = StateChange::Untrust { project: project_key(project) };
        store.commit(Batch::durable(vec![entry], vec![change])).await?;
    }
    if out.is_json() {
        out.value(
            &json!({"project": project.display().to_string(), "trusted": false, "revoked": pinned.is_some()}),
        );
    } else if pinned.is_some() {
        out.line(format!("`{name}` is no longer trusted: its configuration can only narrow"));
    } else {
        out.line(format!("nothing to revoke: `{name}` was not trusted"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Stores the trusted digest of a project's files: the row and its record in one durable batch.
pub(crate) async fn pin(
    project: &Path,
    digest: Digest,
    words: &str,
    store: &SqliteStore,
    signed: Option<(Id, SignedNote)>,
) -> Result<(), Failure> {
    let before = store.trust(project_key(project)).await?;
    let mut entry = record("policy.trust", &format!("{words}: `{}`", project.display()))?;
    entry.before_hash = before.map(|row| row.digest);
    entry.after_hash = Some(digest);
    if let Some((about, note)) = signed {
        entry.hitl_id = Some(about);
        entry.plan_digest = Some(digest);
        entry.note = Some(note);
    }
    let row = TrustRow {
        project: project_key(project),
        path: redact_text(&project.display().to_string())?,
        digest,
        by: redact_text(&system::user())?,
        at: entry.ts,
    };
    store.commit(Batch::durable(vec![entry], vec![StateChange::Trust(row)])).await?;
    Ok(())
}

fn record(event_type: &'static str, words: &str) -> Result<Entry, Failure> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event_type);
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(redact_text(&system::user())?);
    entry.message = Some(redact_text(words)?);
    Ok(entry)
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
