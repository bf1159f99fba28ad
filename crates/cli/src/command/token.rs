//! `vambrace token`: made once and shown once; what is kept is a hash. Making and revoking are decisions, signed like others.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, Level, Op, Reach, Status, Verb};
use vambrace_store::{AskChange, Batch, Entry, Store as _, Token, TokenKind, TokenRow};

use crate::approver;
use crate::args::TokenCommand;
use crate::command::audit::one_line;
use crate::desk::{self, clean};
use crate::failure::Failure;
use crate::harmless::plain;
use crate::machine::{self, SystemClock};
use crate::out::{Out, Tone, paint};

const DAY_MS: i64 = 86_400_000;

pub(crate) async fn run(what: TokenCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        TokenCommand::Create { kind, name, user, days } => {
            let kind = TokenKind::parse(&kind).ok_or_else(|| {
                Failure::usage(
                    format!("`{kind}` is no kind of token"),
                    "the kinds are agent, approver, runner, admin",
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
    let store = desk::open_store()?;
    let decider = approver::administrator(&store, out).await?;
    let now = SystemClock.now();
    let token = Token::make()?;
    let key = if kind.decides() { Some(token.key()?.verify_key()) } else { None };
    let decision = Decision {
        about: token.id.clone(),
        plan: token.hash(),
        verb: Verb::Token,
        reach: Reach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::PolicyChange, now);
    entry.event_type = Some("token.created");
    entry.level = Level::Warn;
    entry.status = Some(Status::Success);
    entry.user = Some(clean(decider.user())?);
    entry.hitl_id = Some(token.id.clone());
    entry.plan_digest = Some(token.hash());
    entry.message = Some(clean(&format!("a token of kind {kind}, by {}", decider.by()))?);
    entry.key = key.clone();
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let row = TokenRow {
        id: token.id.clone(),
        kind,
        name: clean(name)?,
        user: clean(&user.unwrap_or_else(machine::user))?,
        hash: token.hash(),
        key,
        created: now,
        expires: days.map(|days| now.later(i64::from(days) * DAY_MS)),
        revoked: None,
    };
    store.commit(Batch::durable(vec![entry], vec![AskChange::Token(row).into()])).await?;
    let text = token.text(kind);
    if out.is_json() {
        out.value(&json!({"id": token.id.as_str(), "kind": kind.as_str(), "token": text.as_str()}));
    } else {
        out.line(text.as_str());
        out.say("this is shown once; only its hash is kept");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(out: Out) -> Result<ExitCode, Failure> {
    let rows = desk::open_store()?.questions().tokens().await?;
    let now = SystemClock.now();
    if out.is_json() {
        out.value(&rows.iter().map(|row| told(row, now)).collect::<Vec<_>>().into());
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
        out.say("there are no tokens");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether it still counts.
fn state(row: &TokenRow<String>, now: Timestamp) -> &'static str {
    match (row.revoked, row.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if now >= expires => "expired",
        _ => "counts",
    }
}

fn told(row: &TokenRow<String>, now: Timestamp) -> Value {
    json!({
        "id": row.id.as_str(), "kind": row.kind.as_str(), "state": state(row, now), "name": row.name, "user": row.user,
        "created": row.created.to_string(), "expires": row.expires.map(|at| at.to_string()),
        "revoked": row.revoked.map(|at| at.to_string()), "key": row.key.as_ref().map(ToString::to_string),
    })
}

async fn revoke(id: &str, out: Out) -> Result<ExitCode, Failure> {
    let store = desk::open_store()?;
    let Some(row) = store.questions().token(id).await? else {
        let why = format!("there is no token `{}`", plain(id));
        return Err(Failure::usage(why, "`vambrace token list` lists them"));
    };
    let decider = approver::administrator(&store, out).await?;
    let now = SystemClock.now();
    let decision = Decision {
        about: row.id.clone(),
        plan: row.hash,
        verb: Verb::Revoke,
        reach: Reach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let mut entry = Entry::new(Op::PolicyChange, now);
    entry.event_type = Some("token.revoked");
    entry.status = Some(Status::Success);
    entry.user = Some(clean(decider.user())?);
    entry.hitl_id = Some(row.id.clone());
    entry.plan_digest = Some(row.hash);
    entry.message = Some(clean(&format!("by {}", decider.by()))?);
    entry.note = Some(decider.sign(&decision).map_err(Failure::of)?);
    let change = AskChange::RevokeToken { id: row.id.clone(), at: now };
    store.commit(Batch::durable(vec![entry], vec![change.into()])).await?;
    if out.is_json() {
        out.value(&json!({"id": row.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("{} does not count any more", row.id));
    }
    Ok(ExitCode::SUCCESS)
}
