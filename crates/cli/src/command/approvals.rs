//! `vambrace approvals`: lists, shows and decides approval requests. A decision needs the approver key or an approver token;
//! listing and showing need neither. `render.rs` prints requests.
#![expect(clippy::disallowed_methods, reason = "reads edited content from a file named by the user")]

pub(crate) mod details;
mod diff;
pub(crate) mod render;
mod watch;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use vambrace_broker::{
    Amendment, ApprovalChoice, ApprovalView, Approver, CallResult, CallStatus, CallerPresence, DecisionReach,
};
use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::system::SystemClock;
use vambrace_host::{Host, approval_requests, approver, change_passphrase, read_request, request_context};
use vambrace_store::{ApprovalFilter, ApprovalRow};

use crate::args::{ApprovalsCommand, ApproveArgs};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

/// A stored approval request.
pub(crate) type RequestRow = ApprovalRow<String>;

pub(crate) async fn run(what: Option<ApprovalsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(ApprovalsCommand::List { all: false, limit: 50 }) {
        ApprovalsCommand::List { all, limit } => list(all, limit, *out).await,
        ApprovalsCommand::Show { id } => show(&id, *out).await,
        ApprovalsCommand::Approve(words) => approve(words, *out).await,
        ApprovalsCommand::Reject { id, reason } => reject(&id, reason.as_deref(), *out).await,
        ApprovalsCommand::Watch => watch::run(*out).await,
        ApprovalsCommand::Passphrase => {
            change_passphrase(&*super::open_host()?, &TerminalPassphrase(*out)).await?;
            if out.is_json() {
                out.value(&json!({"changed": true}));
            } else {
                out.line("changed the passphrase of the approver key");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(all: bool, limit: usize, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("approvals list").await?;
    let filter = ApprovalFilter { open: !all, owner: reader.owner().clone(), limit };
    let rows = approval_requests(&host, filter).await?;
    if out.is_json() {
        let now = SystemClock.now();
        out.value(&rows.iter().map(|row| render::question(row, now)).collect::<Vec<_>>().into());
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        out.line(render::line(row, SystemClock.now()));
    }
    if rows.is_empty() {
        out.message("no pending approval requests");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("approvals show").await?;
    let (_, looked) = read_request(&host, &reader, id).await?;
    render::show(&looked, SystemClock.now(), out);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn approve(words: ApproveArgs, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("approvals approve").await?;
    let (id, looked) = read_request(&host, &reader, &words.id).await?;
    let mut choice = ApprovalChoice {
        part: part(&words)?,
        reach: reach(&words.scope),
        path: words.path.clone(),
        shown: None,
        caller: CallerPresence::Elsewhere,
    };
    let decider = approver(&host, &TerminalPassphrase(out)).await?;
    if !words.yes && is_interactive(out) {
        render::show(&looked, SystemClock.now(), out);
        if choice.part != Amendment::Whole {
            // The approval is bound to the digest of what is shown here.
            let context = request_context(&host, &looked).await?;
            let preview =
                context.broker().preview(&id, choice.part.clone(), &decider).await.map_err(Failure::of)?;
            render::preview(&preview, out);
            choice.shown = Some(preview.digest);
        }
        if choice.reach == DecisionReach::Session {
            out.message(paint(
                Tone::Bad,
                "All further MEDIUM calls of this agent in this session will run without approval.",
            ));
        }
        confirm("Approve?", out)?;
    }
    let answer = decide(&looked, choice, &decider, &host).await?;
    Ok(print_answer(&id, answer.as_ref(), out))
}

async fn decide(
    looked: &ApprovalView,
    choice: ApprovalChoice,
    decider: &Approver,
    host: &Arc<Host>,
) -> Result<Option<CallResult>, Failure> {
    let row = looked.request.as_ref().ok_or_else(|| {
        let why = "it needed no decision: a rule or a grant allowed it";
        Failure::of(CallError::new(ErrorCode::ProposalUsed, why))
    })?;
    let context = request_context(host, looked).await?;
    context.broker().approve(row.id.as_str(), choice, decider).await.map_err(Failure::of)
}

/// Prints the result of an approval.
pub(crate) fn print_answer(id: &str, answer: Option<&CallResult>, out: Out) -> ExitCode {
    let Some(answer) = answer else {
        if out.is_json() {
            out.value(&json!({"id": id, "state": "approved"}));
        } else {
            out.line(format!("{}: the caller runs the call", paint(Tone::Good, "approved")));
        }
        return ExitCode::SUCCESS;
    };
    if out.is_json() {
        out.value(&answer.envelope());
    } else if let Some(error) = answer.error() {
        out.error(error.code.as_str(), &sanitize(&error.message), &sanitize(&error.suggestion));
    } else {
        out.line(paint(Tone::Good, render::applied(answer)));
    }
    match answer.status() {
        CallStatus::Success => ExitCode::SUCCESS,
        CallStatus::Denied => ExitCode::from(exit::DENIED),
        _ => ExitCode::from(exit::FAILED),
    }
}

pub(crate) async fn reject(id: &str, reason: Option<&str>, out: Out) -> Result<ExitCode, Failure> {
    let (host, reader) = super::open_reader("approvals reject").await?;
    let (id, looked) = read_request(&host, &reader, id).await?;
    let decider = approver(&host, &TerminalPassphrase(out)).await?;
    let context = request_context(&host, &looked).await?;
    context.broker().reject(&id, reason, &decider).await.map_err(Failure::of)?;
    if out.is_json() {
        out.value(&json!({"id": id, "state": "rejected", "reason": reason}));
    } else {
        out.line("rejected; the agent is notified");
    }
    Ok(ExitCode::SUCCESS)
}

fn reach(scope: &str) -> DecisionReach {
    DecisionReach::parse(scope).unwrap_or(DecisionReach::Once)
}

fn part(words: &ApproveArgs) -> Result<Amendment, Failure> {
    if !words.files.is_empty() {
        return Ok(Amendment::Files(words.files.clone()));
    }
    if !words.hunks.is_empty() {
        let read = |word: &String| {
            let (path, numbers) = word.rsplit_once(':')?;
            let numbers: Option<Vec<usize>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
            Some((path.to_owned(), numbers?))
        };
        let hunks: Option<Vec<_>> = words.hunks.iter().map(read).collect();
        return hunks.map(Amendment::Hunks).ok_or_else(|| {
            Failure::usage(
                "`--hunks` takes PATH:N,N",
                "for example `--hunks src/a.rs:1,3`; `approvals show` numbers them",
            )
        });
    }
    if !words.edited.is_empty() {
        let mut edits = Vec::new();
        for word in &words.edited {
            let (path, file) = word.split_once('=').ok_or_else(|| {
                Failure::usage("`--edited` takes PATH=FILE", "for example `--edited src/a.rs=/tmp/mine.rs`")
            })?;
            let content = std::fs::read(file).map_err(|error| {
                Failure::usage(format!("`{file}`: {error}"), "name a file that can be read")
            })?;
            edits.push((path.to_owned(), content));
        }
        return Ok(Amendment::Edited(edits));
    }
    Ok(Amendment::Whole)
}

/// Whether the user can be asked for confirmation.
pub(crate) fn is_interactive(out: Out) -> bool {
    !out.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for confirmation; anything but yes is an error.
pub(crate) fn confirm(question: &str, out: Out) -> Result<(), Failure> {
    if out.confirm(question)? {
        return Ok(());
    }
    let hint = "the request stays pending; `vambrace approvals reject` rejects it";
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not confirmed: nothing changed", hint))
}
