//! `vambrace explain`: what every layer says about a call, without making it.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_broker::{Explained, RawCall};
use vambrace_core::error::ErrorCode;
use vambrace_core::verdict::Answer;

use crate::args::CallWords;
use crate::command::call::arguments;
use crate::desk::{self, Desk};
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

pub(crate) async fn run(words: CallWords, out: &Out) -> Result<ExitCode, Failure> {
    let args = arguments(&words.tool, &words.arguments, &*desk::catalogue()?)?;
    let desk = Desk::open(&words.seat, "command-line", "cli").await?;
    let raw = RawCall { tool: words.tool, args, tool_call_id: None, context_id: None };
    match desk.broker.explain(raw, &desk.peer).await {
        Explained::Judged { verdict, told } => {
            if out.is_json() {
                out.value(&told);
            } else {
                tell(&told, *out);
            }
            Ok(ExitCode::from(match verdict {
                Answer::Allow => 0,
                Answer::Ask => exit::ASK,
                Answer::Deny => exit::DENIED,
            }))
        }
        Explained::Faulty(error) => {
            let exit = match error.code {
                ErrorCode::UnknownTool | ErrorCode::InvalidArguments => exit::BAD_USAGE,
                ErrorCode::AuditUnavailable | ErrorCode::SessionSuspended | ErrorCode::RateLimited => {
                    exit::DENIED
                }
                _ => exit::FAILED,
            };
            Err(Failure { error, exit })
        }
    }
}

/// For people: the verdict first, then each layer on a line, its reasons below.
fn tell(told: &Value, out: Out) {
    let text = |value: &Value, key: &str| plain(value.get(key).and_then(Value::as_str).unwrap_or_default());
    let verdict = text(told, "verdict");
    out.line(format!("{}  {}", coloured(&verdict), paint(Tone::Strong, text(told, "tool"))));
    let effects: Vec<String> = list(told, "effects").filter_map(Value::as_str).map(plain).collect();
    if !effects.is_empty() {
        out.line(format!("  effects   {}", effects.join(", ")));
    }
    if let Some(risk) = told.get("risk") {
        out.line(format!("  risk      {}", text(risk, "level")));
    }
    for layer in list(told, "layers") {
        out.line(format!("  {:<14} {}", text(layer, "layer"), coloured(&text(layer, "verdict"))));
        for reason in list(layer, "reasons") {
            let place = paint(Tone::Faint, format!("[{}]", text(reason, "at")));
            out.line(format!("  {:<14}   {} {place}", "", text(reason, "why")));
        }
    }
    let discharged: Vec<String> = list(told, "discharged").filter_map(Value::as_str).map(plain).collect();
    if !discharged.is_empty() {
        out.line(format!("  granted by     {}", discharged.join(", ")));
    }
    let empty = json!({});
    let envelope = told.get("envelope").unwrap_or(&empty);
    for (what, key) in [("may read", "read"), ("may write", "write")] {
        let globs: Vec<String> = list(envelope, key).filter_map(Value::as_str).map(plain).collect();
        if !globs.is_empty() {
            let globs =
                globs.into_iter().map(|glob| if glob.is_empty() { "nothing".to_owned() } else { glob });
            out.line(format!("  {what:<14} {}", globs.collect::<Vec<_>>().join("; ")));
        }
    }
    out.line(paint(
        Tone::Faint,
        format!("  plan {}  policy {}", short(&text(told, "digest")), short(&text(told, "policy"))),
    ));
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn coloured(verdict: &str) -> String {
    let tone = match verdict {
        "allow" => Tone::Good,
        "ask" => Tone::Care,
        _ => Tone::Bad,
    };
    paint(tone, format!("{verdict:<5}"))
}

fn short(digest: &str) -> String {
    digest.chars().take(15).collect()
}
