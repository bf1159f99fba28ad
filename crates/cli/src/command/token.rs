//! `vambrace token`: creates, lists and revokes tokens. A token is shown once; only its hash is stored. Creating and revoking
//! are signed decisions.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_core::terminal_escape::{one_line, sanitize};
use vambrace_core::timestamp::Timestamp;
use vambrace_host::system::SystemClock;
use vambrace_host::{NewToken, administrator, create_token, revoke_token};
use vambrace_store::{TokenKind, TokenRow};

use crate::args::TokenCommand;
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

pub(crate) async fn run(what: TokenCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        TokenCommand::Create { kind, name, user, days } => {
            let kind = TokenKind::parse(&kind).ok_or_else(|| {
                Failure::usage(
                    format!("there is no token kind `{kind}`"),
                    "use agent, approver, runner or admin",
                )
            })?;
            create(NewToken { kind, name, user, days }, *out).await
        }
        TokenCommand::List => list(*out).await,
        TokenCommand::Revoke { id } => revoke(&id, *out).await,
    }
}

async fn create(new: NewToken, out: Out) -> Result<ExitCode, Failure> {
    let (host, kind) = (super::open_host()?, new.kind);
    let administrator = administrator(&host, &TerminalPassphrase(out)).await?;
    let token = create_token(&host, new, &administrator).await?;
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
    let (host, reader) = super::open_reader("token list").await?;
    let rows = host.store().approval_queries().tokens(reader.owner()).await?;
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
    let host = super::open_host()?;
    let Some(row) = host.store().approval_queries().token(id).await? else {
        let why = format!("there is no token `{}`", sanitize(id));
        return Err(Failure::usage(why, "`vambrace token list` lists them"));
    };
    revoke_token(&host, &row, &administrator(&host, &TerminalPassphrase(out)).await?).await?;
    if out.is_json() {
        out.value(&json!({"id": row.id.as_str(), "revoked": true}));
    } else {
        out.line(format!("revoked {}", row.id));
    }
    Ok(ExitCode::SUCCESS)
}
