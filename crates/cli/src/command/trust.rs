//! `vambrace trust`: shows what a project's own files would change, asks, and pins their digest. What is pinned is
//! what was read before the question: a file that changes meanwhile is simply not the one that was trusted.

mod preview;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Id, Note, Op, Status};
use vambrace_store::{Batch, Change, Entry, SqliteStore, Store as _, TrustRow};

use self::preview::Preview;
use crate::approver;
use crate::desk::{self, Settings, Trust, clean, project_key};
use crate::failure::Failure;
use crate::found::standing;
use crate::harmless::plain;
use crate::machine::{self, SystemClock};
use crate::out::{Out, Tone, paint};
use crate::places;
use crate::project::ProjectFiles;

pub(crate) async fn run(
    workspace: Option<&Path>,
    revoke: bool,
    yes: bool,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let project = places::project(workspace)?;
    let store = desk::open_store()?;
    if revoke { take_back(&project, &store, *out).await } else { give(&project, &store, yes, *out).await }
}

async fn give(project: &Path, store: &SqliteStore, yes: bool, out: Out) -> Result<ExitCode, Failure> {
    // Faults of any file end it here.
    let settings = Settings::load(project, store).await?;
    let Some(digest) = settings.files.digest() else {
        if out.is_json() {
            out.value(&json!({"project": project.display().to_string(), "trusted": false, "digest": null, "files": []}));
        } else {
            out.line(format!(
                "there is nothing to trust: `{}` has no `.vambrace`",
                plain(&project.display().to_string())
            ));
            out.say("hint: `vambrace init` writes a configuration and trusts it");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let preview = Preview::of(&settings.files)?;
    if !out.is_json() {
        preview.tell(project, digest, settings.trust, out);
    }
    let already = settings.trust == Trust::Trusted;
    if !already {
        agree(yes, out)?;
        let signed = approver::sign_trust(store, project_key(project), digest, out).await?;
        pin(project, digest, "trusts the project's configuration as it is", store, signed).await?;
    }
    if out.is_json() {
        out.value(&preview.as_json(project, digest, already));
    } else if already {
        out.line(paint(Tone::Good, "trusted already, and not changed since"));
    } else {
        out.line(format!("{} until a file below `.vambrace` changes", paint(Tone::Good, "trusted")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn take_back(project: &Path, store: &SqliteStore, out: Out) -> Result<ExitCode, Failure> {
    let (_, pinned) = standing(project, &ProjectFiles::open(project)?, store).await?;
    let name = plain(&project.display().to_string());
    if let Some(pinned) = &pinned {
        let mut entry =
            record("policy.untrust", &format!("takes back the trust in `{}`", project.display()))?;
        entry.before_hash = Some(pinned.digest);
        let change = Change::Untrust { project: project_key(project) };
        store.commit(Batch::durable(vec![entry], vec![change])).await?;
    }
    if out.is_json() {
        out.value(
            &json!({"project": project.display().to_string(), "trusted": false, "revoked": pinned.is_some()}),
        );
    } else if pinned.is_some() {
        out.line(format!("`{name}` is not trusted any more: its configuration can only narrow"));
    } else {
        out.line(format!("there is nothing to take back: `{name}` was not trusted"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Pins a project's files: the row and its record in one durable batch.
pub(crate) async fn pin(
    project: &Path,
    digest: Digest,
    words: &str,
    store: &SqliteStore,
    signed: Option<(Id, Note)>,
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
        path: clean(&project.display().to_string())?,
        digest,
        by: clean(&machine::user())?,
        at: entry.ts,
    };
    store.commit(Batch::durable(vec![entry], vec![Change::Trust(row)])).await?;
    Ok(())
}

fn record(event_type: &'static str, words: &str) -> Result<Entry, Failure> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event_type);
    entry.status = Some(Status::Success);
    entry.user = Some(clean(&machine::user())?);
    entry.message = Some(clean(words)?);
    Ok(entry)
}

fn agree(yes: bool, out: Out) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if out.is_json() || !std::io::stdin().is_terminal() {
        let hint = "answer at a terminal, or say `--yes` after looking at the files";
        return Err(Failure::usage("nobody is there to answer, so nothing is trusted", hint));
    }
    if out.is_agreed_to("Trust this configuration?")? {
        return Ok(());
    }
    let hint = "until it is trusted the project's configuration can only narrow";
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not trusted: nothing was changed", hint))
}
