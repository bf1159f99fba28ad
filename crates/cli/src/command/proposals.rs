//! `vambrace proposals`: changes of files, from the proposal to the rollback. Applying a proposal is agreeing to it.

use std::process::ExitCode;
use std::sync::Arc;

use vambrace_broker::look;
use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_store::{Asked, Store as _};

use crate::approver;
use crate::args::{ProposalsCommand, Seat};
use crate::command::approvals::{self, told};
use crate::command::audit::one_line;
use crate::desk::{self, Desk};
use crate::failure::Failure;
use crate::machine::SystemClock;
use crate::out::{Out, Tone, paint};

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
    let store = desk::open_store()?;
    approvals::questions(&store, Asked { open: true, user: None, limit: 1 }).await?;
    let rows = store.questions().proposals(limit).await?;
    let mut listed = Vec::new();
    for row in &rows {
        let question = store.questions().approval(row.id.as_str()).await?;
        let state = match (row.state, &question) {
            (vambrace_store::ProposalState::Proposed, Some(question)) => question.state.as_str(),
            (state, _) => state.as_str(),
        };
        let as_proposed = told::as_proposed(question.as_ref());
        if out.is_json() {
            let mut told = told::change(row);
            if let Some(fields) = told.as_object_mut() {
                fields.insert("state".to_owned(), state.into());
                fields.insert("as_proposed".to_owned(), as_proposed.into());
            }
            listed.push(told);
        } else {
            let tone = if state == "applied" { Tone::Good } else { Tone::Faint };
            let words = paint(tone, format!("{state:<11}"));
            let other = if as_proposed == Some(false) { "  (a part of it, or otherwise)" } else { "" };
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
        out.say("there are no changes yet");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let id = approvals::found(&store, id).await?;
    let looked = look(store.questions(), &id).await.map_err(Failure::of)?;
    told::show(&looked, SystemClock.now(), out);
    Ok(ExitCode::SUCCESS)
}

async fn rollback(id: &str, yes: bool, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let id = approvals::found(&store, id).await?;
    let looked = look(store.questions(), &id).await.map_err(Failure::of)?;
    let Some(change) = &looked.change else {
        let why = format!("`{id}` is not a change of files");
        return Err(Failure::of(CallError::new(ErrorCode::ProposalNotFound, why)));
    };
    let decider = approver::decider(&store, out).await?;
    if !yes && approvals::asks(out) {
        told::show(&looked, SystemClock.now(), out);
        approvals::agree("Undo this change?", out)?;
    }
    let desk = match &looked.question {
        Some(_) => approvals::desk_of(&looked, &store).await?,
        None => {
            let seat = Seat {
                workspace: Some(change.project.clone().into()),
                role: None,
                skill: None,
                session: Some(change.session.to_string()),
            };
            Desk::at(&seat, Arc::clone(&store)).await?
        }
    };
    let answer = desk.broker.rollback(&id, &decider).await.map_err(Failure::of)?;
    Ok(approvals::tell(&id, Some(&answer), out))
}
