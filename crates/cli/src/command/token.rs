//! `vambrace token`: creates, lists and revokes tokens. A token is shown once; only its hash is stored. Creating and revoking
//! are signed decisions.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Op, RecordLevel, RecordStatus};
use vambrace_store::{AccessToken, ApprovalChange, Batch, Entry, Store as _, TokenKind, TokenRow};

use crate::approver;
use crate::args::TokenCommand;
use crate::command::audit::one_line;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::project_context::{self, redact_text};
use crate::system::{self, SystemClock};
use crate::terminal_escape::sanitize;

const DAY_MS: i64 = 86_400_000;

pub(crate) async fn run(what: TokenCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        TokenCommand::Create { kind, name, user, days } => {
            let kind = TokenKind::parse(&kind).ok_or_else(|| {
                Failure::usage(
                    format!("there is no token kind `{kind}`"),
                    "use agent, approver, runner or admin",
                )
            })?;
            create(kind, &name, user, days, *out).await
        }
        TokenCommand::List => list(*out).await,
        TokenCommand::Revoke { id } => revoke(&id, *out).await,
    }
}

async fn create(
    kind: TokenKind,
    name: &str,
    user: Option<String>,
    days: Option<u32>,
    out: Out,
) -> Result<ExitCode, Failure> {
    let store = project_context::open_store()?;
    let decider = approver::administrator(&store, out).await?;
    let now = SystemClock.now();
    let token = AccessToken::make()?;
    let key = if kind.decides() { Some(token.key()?.verify_key()) } else { None };
    let decision = Decision {
        about: token.id.clone(),
        plan: token.hash(),
        verb: DecisionVerb::Token,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::PolicyChange, now);
    entry.event_type = Some("token.created");
    entry.level = RecordLevel::Warn;
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(redact_text(decider.user())?);
    entry.hitl_id = Some(token.id.clone());
    entry.plan_digest = Some(token.hash());
    entry.message = Some(redact_text(&format!("a token of kind {kind}, by {}", decider.by()))?);
    entry.key = key.clone();
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let row = TokenRow {
        id: token.id.clone(),
        kind,
        name: redact_text(name)?,
        user: redact_text(&user.unwrap_or_else(system::user))?,
        hash: token.hash(),
        key,
        created: now,
        expires: days.map(|days| now.later(i64::from(days) * DAY_MS)),
        revoked: None,
    };
    store.commit(Batch::durable(vec![entry], vec![ApprovalChange::Token(row).into()])).await?;
    let text = token.text(kind);
    if out.is_json() {
        out.value(&json!({"id": token.id.as_str(), "kind": kind.as_str(), "token": text.as_str()}));
    } else {
        out.line(text.as_str());
        out.message("this token is shown only once; only its hash is stored");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(out: Out) -> Result<ExitCode, Failure> {
    let rows = project_context::open_store()?.approval_queries().tokens().await?;
    let now = SystemClock.now();
    if out.is_json() {
        out.value(&rows.iter().map(|row| as_json(row, now)).collect::<Vec<_>>().into());
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        let word = state(row, now);
        let tone = if word == "counts" { Tone::Good } else { Tone::Faint };
        let state = paint(tone, format!("{word:<7}"));
        let name = one_line(&row.name);
        out.line(format!(
            "{}  {state}  {:<8}  {} {name}  {}",
            row.id,
            row.kind.as_str(),
            one_line(&row.user),
            row.created
        ));
    }
    if rows.is_empty() {
        out.message("no tokens");
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of a token; `counts` is an active one.
fn state(row: &TokenRow<String>, now: Timestamp) -> &'static str {
    match (row.revoked, row.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if now >= expires => "expired",
        _ => "counts",
    }
}

fn as_json(row: &TokenRow<String>, now: Timestamp) -> Value {
    json!({
        "id": row.id.as_str(), "kind": row.kind.as_str(), "state": state(row, now), "name": row.name, "user": row.user,
        "created": row.created.to_string(), "expires": row.expires.map(|at| at.to_string()),
        "revoked": row.revoked.map(|at| at.to_string()), "key": row.key.as_ref().map(ToString::to_string),
    })
}

async fn revoke(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let store = project_context::open_store()?;
    let Some(row) = store.approval_queries().token(id).await? else {
        let why = format!("there is no token `{}`", sanitize(id));
        return Err(Failure::usage(why, "`vambrace token list` lists them"));
    };
    let decider = approver::administrator(&store, out).await?;
    let now = SystemClock.now();
    let decision = Decision {
        about: row.id.clone(),
        plan: row.hash,
        verb: DecisionVerb::Revoke,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::PolicyChange, now);
    entry.event_type = Some("token.revoked");
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(redact_text(decider.user())?);
    entry.hitl_id = Some(row.id.clone());
    entry.plan_digest = Some(row.hash);
    entry.message = Some(redact_text(&format!("by {}", decider.by()))?);
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let change = ApprovalChange::RevokeToken { id: row.id.clone(), at: now };
    store.commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    if out.is_json() {
        out.value(&json!({"id": row.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("revoked {}", row.id));
    }
    Ok(ExitCode::SUCCESS)
}
