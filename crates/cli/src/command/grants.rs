//! `vambrace grants`: lists and revokes standing approvals.

use std::process::ExitCode;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Op, RecordStatus};
use vambrace_store::{ApprovalChange, Batch, Entry, GrantRow, Store as _};

use crate::approver;
use crate::args::GrantsCommand;
use crate::command::audit::one_line;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::project_context::{self, redact_text};
use crate::system::SystemClock;
use crate::terminal_escape::sanitize;

pub(crate) async fn run(what: Option<GrantsCommand>, out: &Out) -> Result<ExitCode, Failure> {
    match what.unwrap_or(GrantsCommand::List { all: false }) {
        GrantsCommand::List { all } => list(all, *out).await,
        GrantsCommand::Revoke { id } => revoke(&id, *out).await,
    }
}

async fn list(all: bool, out: Out) -> Result<ExitCode, Failure> {
    let store = project_context::open_store()?;
    let now = SystemClock.now();
    let rows: Vec<GrantRow<String>> = store
        .approval_queries()
        .grants(None)
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
    let store = project_context::open_store()?;
    let rows = store.approval_queries().grants(None).await?;
    let mut meant = rows
        .iter()
        .filter(|row| row.id.as_str() == word || (word.len() >= 4 && row.id.as_str().ends_with(word)));
    let (Some(grant), None) = (meant.next(), meant.next()) else {
        let why = format!("no grant, or more than one, matches `{}`", sanitize(word));
        return Err(Failure::usage(why, "`vambrace grants list` lists them"));
    };
    let decider = approver::decider(&store, out).await?;
    if !decider.decides_for(&grant.user) {
        let why = format!("grant `{}` belongs to another user", sanitize(word));
        return Err(Failure::denied(ErrorCode::PermissionDenied, why, "use a token of kind admin"));
    }
    let now = SystemClock.now();
    let plan = Digest::of(grant.id.as_str().as_bytes());
    let decision = Decision {
        about: grant.id.clone(),
        plan,
        verb: DecisionVerb::Revoke,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::Grant, now);
    entry.event_type = Some("grant.revoked");
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(redact_text(decider.user())?);
    entry.session = Some(grant.session.clone());
    entry.hitl_id = Some(grant.id.clone());
    entry.plan_digest = Some(plan);
    entry.message = Some(redact_text(&format!("by {}", decider.by()))?);
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let change = ApprovalChange::RevokeGrant { id: grant.id.clone(), at: now };
    store.commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    if out.is_json() {
        out.value(&json!({"id": grant.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("revoked {}", grant.id));
    }
    Ok(ExitCode::SUCCESS)
}
