//! `vambrace explain`: shows the verdict of every policy layer about a call, without running it.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_broker::{Explanation, RawCall};
use vambrace_core::error::ErrorCode;
use vambrace_core::terminal_escape::sanitize;
use vambrace_core::verdict::VerdictKind;
use vambrace_host::built_in_catalogue;

use crate::args::CallArgs;
use crate::command::call::arguments;
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(call: CallArgs, out: &Out) -> Result<ExitCode, Failure> {
    let args = arguments(&call.tool, &call.arguments, &*built_in_catalogue()?)?;
    let (context, caller) = super::open_project(&call.caller).await?;
    let raw = RawCall { tool: call.tool, args, tool_call_id: None, context_id: None };
    match context.broker().explain(raw, &caller.peer).await {
        Explanation::Judged { verdict, explanation } => {
            if out.is_json() {
                out.value(&explanation);
            } else {
                print(&explanation, *out);
            }
            Ok(ExitCode::from(match verdict {
                VerdictKind::Allow => 0,
                VerdictKind::Ask => exit::ASK,
                VerdictKind::Deny => exit::DENIED,
            }))
        }
        Explanation::NotPlanned(error) => {
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

/// The verdict first, then one line per layer with its reasons below.
fn print(explanation: &Value, out: Out) {
    let text =
        |value: &Value, key: &str| sanitize(value.get(key).and_then(Value::as_str).unwrap_or_default());
    let verdict = text(explanation, "verdict");
    out.line(format!("{}  {}", coloured(&verdict), paint(Tone::Strong, text(explanation, "tool"))));
    let effects: Vec<String> = list(explanation, "effects").filter_map(Value::as_str).map(sanitize).collect();
    if !effects.is_empty() {
        out.line(format!("  effects   {}", effects.join(", ")));
    }
    if let Some(risk) = explanation.get("risk") {
        out.line(format!("  risk      {}", text(risk, "level")));
    }
    for layer in list(explanation, "layers") {
        out.line(format!("  {:<14} {}", text(layer, "layer"), coloured(&text(layer, "verdict"))));
        for reason in list(layer, "reasons") {
            let place = paint(Tone::Faint, format!("[{}]", text(reason, "at")));
            out.line(format!("  {:<14}   {} {place}", "", text(reason, "why")));
        }
    }
    let discharged: Vec<String> =
        list(explanation, "discharged").filter_map(Value::as_str).map(sanitize).collect();
    if !discharged.is_empty() {
        out.line(format!("  granted by     {}", discharged.join(", ")));
    }
    let empty = json!({});
    let envelope = explanation.get("envelope").unwrap_or(&empty);
    for (what, key) in [("may read", "read"), ("may write", "write")] {
        let globs: Vec<String> = list(envelope, key).filter_map(Value::as_str).map(sanitize).collect();
        if !globs.is_empty() {
            let globs =
                globs.into_iter().map(|glob| if glob.is_empty() { "nothing".to_owned() } else { glob });
            out.line(format!("  {what:<14} {}", globs.collect::<Vec<_>>().join("; ")));
        }
    }
    out.line(paint(
        Tone::Faint,
        format!(
            "  plan {}  policy {}",
            short(&text(explanation, "digest")),
            short(&text(explanation, "policy"))
        ),
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
