//! `vambrace grants`: what was agreed to for a class of calls or for a session, and taking it back.

use std::process::ExitCode;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Decision, Op, Reach, Status, Verb};
use vambrace_store::{AskChange, Batch, Entry, GrantRow, Store as _};

use crate::approver;
use crate::args::GrantsCommand;
use crate::command::audit::one_line;
use crate::desk::{self, clean};
use crate::failure::Failure;
use crate::harmless::plain;
use crate::machine::SystemClock;
use crate::out::{Out, Tone, paint};

pub(crate) async fn run(what: Option<GrantsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(GrantsCommand::List { all: false }) {
        GrantsCommand::List { all } => list(all, *out).await,
        GrantsCommand::Revoke { id } => revoke(&id, *out).await,
    }
}

async fn list(all: bool, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let now = SystemClock.now();
    let rows: Vec<GrantRow<String>> =
        store.questions().grants(None).await?.into_iter().filter(|row| all || row.counts(now)).collect();
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
        let state = if row.counts(now) { paint(Tone::Good, "counts") } else { paint(Tone::Faint, "over  ") };
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
        out.say("there are no grants");
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(word: &str, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let rows = store.questions().grants(None).await?;
    let mut meant = rows
        .iter()
        .filter(|row| row.id.as_str() == word || (word.len() >= 4 && row.id.as_str().ends_with(word)));
    let (Some(grant), None) = (meant.next(), meant.next()) else {
        let why = format!("there is no grant `{}`, or several end so", plain(word));
        return Err(Failure::usage(why, "`vambrace grants list` lists them"));
    };
    let decider = approver::decider(&store, out).await?;
    if !decider.decides_for(&grant.user) {
        let why = format!("grant `{}` is another user's", plain(word));
        return Err(Failure::denied(ErrorCode::PermissionDenied, why, "use a token of kind admin"));
    }
    let now = SystemClock.now();
    let plan = Digest::of(grant.id.as_str().as_bytes());
    let decision = Decision {
        about: grant.id.clone(),
        plan,
        verb: Verb::Revoke,
        reach: Reach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::Grant, now);
    entry.event_type = Some("grant.revoked");
    entry.status = Some(Status::Success);
    entry.user = Some(clean(decider.user())?);
    entry.session = Some(grant.session.clone());
    entry.hitl_id = Some(grant.id.clone());
    entry.plan_digest = Some(plan);
    entry.message = Some(clean(&format!("by {}", decider.by()))?);
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let change = AskChange::RevokeGrant { id: grant.id.clone(), at: now };
    store.commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    if out.is_json() {
        out.value(&json!({"id": grant.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("{} does not count any more", grant.id));
    }
    Ok(ExitCode::SUCCESS)
}
