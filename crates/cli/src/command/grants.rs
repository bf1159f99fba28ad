//! `vambrace grants`: lists and revokes standing approvals.

use std::process::ExitCode;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::terminal_escape::{one_line, sanitize};
use vambrace_host::system::SystemClock;
use vambrace_host::{approver, revoke_grant};
use vambrace_store::GrantRow;

use crate::args::GrantsCommand;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

pub(crate) async fn run(what: Option<GrantsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(GrantsCommand::List { all: false }) {
        GrantsCommand::List { all } => list(all, *out).await,
        GrantsCommand::Revoke { id } => revoke(&id, *out).await,
    }
}

async fn list(all: bool, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("grants list").await?;
    let now = SystemClock.now();
    let rows: Vec<GrantRow<String>> = host
        .store()
        .approval_queries()
        .grants(None, reader.owner())
        .await?
        .into_iter()
        .filter(|row| all || row.counts(now))
        .collect();
    if out.is_json() {
        let rows = rows.iter().map(|row| {
            json!({"id": row.id.as_str(), "session": row.session.as_str(), "user": row.user, "agent": row.agent,
                   "scope": row.reach.as_str(), "shape": row.shape, "by": row.by, "approval": row.approval.as_str(),
                   "created": row.created.to_string(), "expires": row.expires.to_string(),
                   "revoked": row.revoked.map(|at| at.to_string()), "uses": row.uses, "counts": row.counts(now)})
        });
        out.value(&rows.collect::<Vec<_>>().into());
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        let state =
            if row.counts(now) { paint(Tone::Good, "active  ") } else { paint(Tone::Faint, "inactive") };
        out.line(format!(
            "{}  {state}  {:<8} {}  {} in {}, {} uses, until {}",
            row.id,
            row.reach.as_str(),
            one_line(&row.shape),
            one_line(&row.agent),
            row.session,
            row.uses,
            row.expires
        ));
    }
    if rows.is_empty() {
        out.message("no grants");
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(word: &str, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("grants revoke").await?;
    let rows = host.store().approval_queries().grants(None, reader.owner()).await?;
    let mut meant = rows
        .iter()
        .filter(|row| row.id.as_str() == word || (word.len() >= 4 && row.id.as_str().ends_with(word)));
    let (Some(grant), None) = (meant.next(), meant.next()) else {
        let why = format!("no grant, or more than one, matches `{}`", sanitize(word));
        return Err(Failure::usage(why, "`vambrace grants list` lists them"));
    };
    revoke_grant(&host, grant, &approver(&host, &TerminalPassphrase(out)).await?).await?;
    if out.is_json() {
        out.value(&json!({"id": grant.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("revoked {}", grant.id));
    }
    Ok(ExitCode::SUCCESS)
}
