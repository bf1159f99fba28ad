//! `vambrace session`: lists, resumes and ends sessions.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::terminal_escape::one_line;
use vambrace_host::change_session;
use vambrace_store::{SessionRow, SessionState};

use crate::args::SessionCommand;
use crate::command::audit::{ledger, time};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

type StoredSession = SessionRow<String>;

pub(crate) async fn run(what: SessionCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        SessionCommand::List { limit } => list(limit, *out).await?,
        SessionCommand::Resume { id } => change(&id, SessionState::Active, *out).await?,
        SessionCommand::End { id } => change(&id, SessionState::Ended, *out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(limit: usize, out: Out) -> Result<(), Failure> {
    let (host, reader) = ledger("session list").await?;
    let sessions = host.store().sessions(reader.owner(), limit).await?;
    if out.is_json() {
        out.value(&sessions.iter().map(row).collect::<Vec<_>>().into());
        return Ok(());
    }
    let width = sessions.iter().map(|session| session.id.as_str().len()).max().unwrap_or_default();
    for session in &sessions {
        let state = paint(tone(session.state), format!("{:<9}", session.state.as_str()));
        let project = paint(Tone::Faint, one_line(&session.project));
        out.line(format!(
            "{:<width$}  {state}  {}  {:<12} {:<8} {project}",
            session.id.as_str(),
            time(&session.opened.to_string()),
            one_line(&session.agent),
            one_line(&session.role),
        ));
    }
    if sessions.is_empty() {
        out.message("no sessions yet");
    }
    Ok(())
}

async fn change(id: &str, state: SessionState, out: Out) -> Result<(), Failure> {
    let (host, reader) = ledger("session change").await?;
    let before = change_session(&host, &reader, id, state).await?.state;
    if before == state {
        out.message(format!("session `{id}` is already {}", state.as_str()));
    }
    if out.is_json() {
        out.value(&json!({"id": id, "before": before.as_str(), "state": state.as_str()}));
    } else if before != state {
        out.line(format!(
            "session {id} is {} (it was {})",
            paint(tone(state), state.as_str()),
            before.as_str()
        ));
    }
    Ok(())
}

fn row(session: &StoredSession) -> Value {
    json!({
        "id": session.id.as_str(), "state": session.state.as_str(), "user": session.user, "agent": session.agent,
        "role": session.role, "project": session.project, "opened": session.opened.to_string(),
        "changed": session.changed.to_string(),
    })
}

fn tone(state: SessionState) -> Tone {
    match state {
        SessionState::Active => Tone::Good,
        SessionState::Alert | SessionState::Suspended => Tone::Bad,
        SessionState::Ended => Tone::Faint,
    }
}
