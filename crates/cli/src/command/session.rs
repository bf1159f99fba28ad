//! `vambrace session`: lists, resumes and ends sessions. Only a person can resume a session after an alert or suspension. The
//! change and its record are one durable batch.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::SessionChange;
use vambrace_store::{Batch, Entry, SessionRow, SessionState, StateChange, Store as _};

use crate::args::SessionCommand;
use crate::command::audit::{ledger, one_line, time};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::project_context::redact_text;
use crate::system::{self, SystemClock};

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
    let sessions = ledger()?.sessions(limit).await?;
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
    let store = ledger()?;
    let session = store.session(id).await?.ok_or_else(|| {
        Failure::usage(format!("there is no session `{id}`"), "`vambrace session list` lists the newest ones")
    })?;
    if session.state == SessionState::Ended && state == SessionState::Active {
        let hint = "use another session (`--session`)";
        return Err(Failure::usage(format!("session `{id}` has ended and cannot be resumed"), hint));
    }
    if session.state == state {
        out.message(format!("session `{id}` is already {}", state.as_str()));
    } else {
        let now = SystemClock.now();
        let kind = if state == SessionState::Ended { SessionChange::Ended } else { SessionChange::Resumed };
        let mut entry = Entry::session(kind, session.id.clone(), now);
        let words = format!("was {}; changed from the command line", session.state.as_str());
        entry.user = Some(redact_text(&system::user())?);
        entry.message = Some(redact_text(&words)?);
        let set = StateChange::SetSession { id: session.id.clone(), state, at: now };
        store.commit(Batch::durable(vec![entry], vec![set])).await?;
    }
    if out.is_json() {
        out.value(&json!({"id": id, "before": session.state.as_str(), "state": state.as_str()}));
    } else if session.state != state {
        out.line(format!(
            "session {id} is {} (it was {})",
            paint(tone(state), state.as_str()),
            session.state.as_str()
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
