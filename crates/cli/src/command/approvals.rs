//! `vambrace approvals`: the questions that wait for a person, and the answers. Deciding takes the approver key or a token
//! that decides; looking takes neither. What is told of a question is `told.rs`.
#![expect(clippy::disallowed_methods, reason = "edited content is read from the file that the person names")]

pub(crate) mod card;
mod diff;
pub(crate) mod told;
mod watch;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use vambrace_broker::{Answer, AskedCall, Choice, Decider, Ending, Look, Part, Reach, look};
use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_store::{ApprovalRow, Asked, SqliteStore, Store as _};

use crate::approver;
use crate::args::{ApprovalsCommand, ApproveWords};
use crate::desk::{self, Desk};
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::machine::SystemClock;
use crate::out::{Out, Tone, paint};

type Row = ApprovalRow<String>;

pub(crate) async fn run(what: Option<ApprovalsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(ApprovalsCommand::List { all: false, limit: 50 }) {
        ApprovalsCommand::List { all, limit } => list(all, limit, *out).await,
        ApprovalsCommand::Show { id } => show(&id, *out).await,
        ApprovalsCommand::Approve(words) => approve(words, *out).await,
        ApprovalsCommand::Reject { id, reason } => reject(&id, reason.as_deref(), *out).await,
        ApprovalsCommand::Watch => watch::run(*out).await,
        ApprovalsCommand::Passphrase => {
            let store = desk::open_store()?;
            approver::change_passphrase(&store, *out).await?;
            if out.is_json() {
                out.value(&json!({"changed": true}));
            } else {
                out.line("the approver key is sealed with the new passphrase");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The questions; those whose time is over end first, on record.
pub(crate) async fn questions(store: &SqliteStore, asked: Asked) -> Result<Vec<Row>, Failure> {
    let now = SystemClock.now();
    let open = Asked { open: true, ..Asked::default() };
    let pending = store.questions().approvals(open).await?;
    if pending.iter().any(|row| now >= row.expires) {
        let redactor = desk::redactor()?;
        for row in &pending {
            vambrace_broker::expire(store, &redactor, now, row).await.map_err(Failure::of)?;
        }
    }
    Ok(store.questions().approvals(asked).await?)
}

async fn list(all: bool, limit: usize, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let rows = questions(&store, Asked { open: !all, user: None, limit }).await?;
    if out.is_json() {
        let now = SystemClock.now();
        out.value(&rows.iter().map(|row| told::question(row, now)).collect::<Vec<_>>().into());
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        out.line(told::line(row, SystemClock.now()));
    }
    if rows.is_empty() {
        out.say("there are no open questions");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let id = found(&store, id).await?;
    let looked = look(store.questions(), &id).await.map_err(Failure::of)?;
    told::show(&looked, SystemClock.now(), out);
    Ok(ExitCode::SUCCESS)
}

/// The id that a word means: all of it, or its end where only one ends so.
pub(crate) async fn found(store: &SqliteStore, word: &str) -> Result<String, Failure> {
    let questions = store.questions();
    if questions.approval(word).await?.is_some() || questions.proposal(word).await?.is_some() {
        return Ok(word.to_owned());
    }
    let mut ids: Vec<String> = Vec::new();
    if word.len() >= 4 {
        let asked = questions.approvals(Asked { limit: 1000, ..Asked::default() }).await?;
        ids.extend(asked.into_iter().map(|row| row.id.to_string()));
        ids.extend(questions.proposals(1000).await?.into_iter().map(|row| row.id.to_string()));
        ids.retain(|id| id.ends_with(word));
        ids.sort();
        ids.dedup();
    }
    match ids.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::of(
            CallError::new(
                ErrorCode::ProposalNotFound,
                format!("there is no question or proposal `{}`", plain(word)),
            )
            .suggest(
                "`vambrace approvals list` lists the open questions, `vambrace proposals list` the changes",
            ),
        )),
        several => {
            let why = format!("`{}` is the end of {} ids", plain(word), several.len());
            Err(Failure::usage(why, "give more of it"))
        }
    }
}

/// The desk at which the question was asked.
pub(crate) async fn desk_of(looked: &Look, store: &Arc<SqliteStore>) -> Result<Desk, Failure> {
    let row = looked.question.as_ref().ok_or_else(|| Failure::failed("there is no question to decide"))?;
    let call = AskedCall::of(row, store.questions()).map_err(Failure::of)?;
    Desk::of_call(&call, Arc::clone(store)).await
}

pub(crate) async fn approve(words: ApproveWords, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let id = found(&store, &words.id).await?;
    let looked = look(store.questions(), &id).await.map_err(Failure::of)?;
    let mut choice =
        Choice { part: part(&words)?, reach: reach(&words.scope), path: words.path.clone(), shown: None };
    let decider = approver::decider(&store, out).await?;
    if !words.yes && asks(out) {
        told::show(&looked, SystemClock.now(), out);
        if choice.part != Part::Whole {
            // What is agreed to is what is seen here, or nothing.
            let desk = desk_of(&looked, &store).await?;
            let preview =
                desk.broker.preview(&id, choice.part.clone(), &decider).await.map_err(Failure::of)?;
            told::preview(&preview, out);
            choice.shown = Some(preview.digest);
        }
        if choice.reach == Reach::Session {
            out.say(paint(
                Tone::Bad,
                "This agent will not be asked again in this session for what is MEDIUM.",
            ));
        }
        agree("Agree?", out)?;
    }
    let answer = decide(&looked, choice, &decider, &store).await?;
    Ok(tell(&id, answer.as_ref(), out))
}

async fn decide(
    looked: &Look,
    choice: Choice,
    decider: &Decider,
    store: &Arc<SqliteStore>,
) -> Result<Option<Answer>, Failure> {
    let row = looked.question.as_ref().ok_or_else(|| {
        let why = "it needed no decision: a rule or a grant agreed to it";
        Failure::of(CallError::new(ErrorCode::ProposalUsed, why))
    })?;
    let desk = desk_of(looked, store).await?;
    desk.broker.approve(row.id.as_str(), choice, decider).await.map_err(Failure::of)
}

/// Tells what became of a yes.
pub(crate) fn tell(id: &str, answer: Option<&Answer>, out: Out) -> ExitCode {
    let Some(answer) = answer else {
        if out.is_json() {
            out.value(&json!({"id": id, "state": "approved"}));
        } else {
            out.line(format!("{}: its caller carries it out", paint(Tone::Good, "agreed")));
        }
        return ExitCode::SUCCESS;
    };
    if out.is_json() {
        out.value(&answer.envelope());
    } else if let Some(error) = answer.error() {
        out.error(error.code.as_str(), &plain(&error.message), &plain(&error.suggestion));
    } else {
        out.line(paint(Tone::Good, told::applied(answer)));
    }
    match answer.ending() {
        Ending::Success => ExitCode::SUCCESS,
        Ending::Denied => ExitCode::from(exit::DENIED),
        _ => ExitCode::from(exit::FAILED),
    }
}

pub(crate) async fn reject(id: &str, reason: Option<&str>, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let id = found(&store, id).await?;
    let looked = look(store.questions(), &id).await.map_err(Failure::of)?;
    let decider = approver::decider(&store, out).await?;
    let desk = desk_of(&looked, &store).await?;
    desk.broker.reject(&id, reason, &decider).await.map_err(Failure::of)?;
    if out.is_json() {
        out.value(&json!({"id": id, "state": "rejected", "reason": reason}));
    } else {
        out.line("rejected; the agent hears it");
    }
    Ok(ExitCode::SUCCESS)
}

fn reach(scope: &str) -> Reach {
    Reach::parse(scope).unwrap_or(Reach::Once)
}

fn part(words: &ApproveWords) -> Result<Part, Failure> {
    if !words.files.is_empty() {
        return Ok(Part::Files(words.files.clone()));
    }
    if !words.hunks.is_empty() {
        let read = |word: &String| {
            let (path, numbers) = word.rsplit_once(':')?;
            let numbers: Option<Vec<usize>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
            Some((path.to_owned(), numbers?))
        };
        let hunks: Option<Vec<_>> = words.hunks.iter().map(read).collect();
        return hunks.map(Part::Hunks).ok_or_else(|| {
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
        return Ok(Part::Edited(edits));
    }
    Ok(Part::Whole)
}

/// Whether somebody is there to be asked.
pub(crate) fn asks(out: Out) -> bool {
    !out.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for a yes; anything else is none.
pub(crate) fn agree(question: &str, out: Out) -> Result<(), Failure> {
    if out.is_agreed_to(question)? {
        return Ok(());
    }
    let hint = "the question stays open; `vambrace approvals reject` says no";
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not agreed to: nothing was changed", hint))
}
