//! `vambrace proposals`: lists, shows, applies, rejects and rolls back file changes. Applying a proposal approves it.

use std::process::ExitCode;

use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::terminal_escape::one_line;
use vambrace_host::system::SystemClock;
use vambrace_host::{approval_requests, approver, read_request, request_context};
use vambrace_store::ApprovalFilter;

use crate::args::ProposalsCommand;
use crate::command::approvals::{self, render};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

pub(crate) async fn run(what: Option<ProposalsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(ProposalsCommand::List { limit: 50 }) {
        ProposalsCommand::List { limit } => list(limit, *out).await,
        ProposalsCommand::Show { id } => show(&id, *out).await,
        ProposalsCommand::Apply(words) => approvals::approve(words, *out).await,
        ProposalsCommand::Reject { id, reason } => approvals::reject(&id, reason.as_deref(), *out).await,
        ProposalsCommand::Rollback { id, yes } => rollback(&id, yes, *out).await,
    }
}

async fn list(limit: usize, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("proposals list").await?;
    approval_requests(&host, ApprovalFilter { open: true, limit: 1, ..ApprovalFilter::default() }).await?;
    let store = host.store();
    let rows = store.approval_queries().proposals(reader.owner(), limit).await?;
    let mut listed = Vec::new();
    for row in &rows {
        let question = store.approval_queries().approval(row.id.as_str()).await?;
        let state = match (row.state, &question) {
            (vambrace_store::ProposalState::Proposed, Some(question)) => question.state.as_str(),
            (state, _) => state.as_str(),
        };
        let as_proposed = render::as_proposed(question.as_ref());
        if out.is_json() {
            let mut value = render::change(row);
            if let Some(fields) = value.as_object_mut() {
                fields.insert("state".to_owned(), state.into());
                fields.insert("as_proposed".to_owned(), as_proposed.into());
            }
            listed.push(value);
        } else {
            let tone = if state == "applied" { Tone::Good } else { Tone::Faint };
            let words = paint(tone, format!("{state:<11}"));
            let other = if as_proposed == Some(false) { "  (not as proposed)" } else { "" };
            out.line(format!(
                "{}  {words}  {}{}  {}",
                row.id,
                one_line(&row.summary),
                paint(Tone::Care, other),
                paint(Tone::Faint, row.changed)
            ));
        }
    }
    if out.is_json() {
        out.value(&listed.into());
    } else if rows.is_empty() {
        out.message("no changes yet");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("proposals show").await?;
    let (_, looked) = read_request(&host, &reader, id).await?;
    render::show(&looked, SystemClock.now(), out);
    Ok(ExitCode::SUCCESS)
}

async fn rollback(id: &str, yes: bool, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("proposals rollback").await?;
    let (id, looked) = read_request(&host, &reader, id).await?;
    if looked.change.is_none() {
        let why = format!("`{id}` is not a file change");
        return Err(Failure::of(CallError::new(ErrorCode::ProposalNotFound, why)));
    }
    let decider = approver(&host, &TerminalPassphrase(out)).await?;
    if !yes && approvals::is_interactive(out) {
        render::show(&looked, SystemClock.now(), out);
        approvals::confirm("Roll this change back?", out)?;
    }
    let context = request_context(&host, &looked).await?;
    let answer = context.broker().rollback(&id, &decider).await.map_err(Failure::of)?;
    Ok(approvals::print_answer(&id, Some(&answer), out))
}
