//! `vambrace call`: runs one call through the pipeline.

use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use vambrace_broker::{
    ApprovalChoice, CallContext, CallResult, CallStatus, DecisionWait, RawCall, WaitProgress,
};
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::{approver, built_in_catalogue};
use vambrace_tools::Catalogue;

use crate::args::CallArgs;
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::prompt::TerminalPassphrase;

/// What to do if the call requires approval.
pub(crate) struct ApprovalWait {
    /// Seconds to wait for a decision.
    pub(crate) wait: Option<u64>,
    /// Approve it here.
    pub(crate) yes: bool,
}

pub(crate) async fn run(
    call: CallArgs,
    tool_call_id: Option<String>,
    context_id: Option<String>,
    approval: ApprovalWait,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let args = arguments(&call.tool, &call.arguments, &*built_in_catalogue()?)?;
    let (context, caller) = match super::open_project(&call.caller).await {
        Ok(opened) => opened,
        Err(failure) if out.is_json() && failure.exit != exit::BAD_USAGE => {
            out.value(&CallResult::unopened(&call.tool, tool_call_id, failure.error).envelope());
            return Ok(ExitCode::from(failure.exit));
        }
        Err(failure) => return Err(failure),
    };
    let raw = RawCall { tool: call.tool, args, tool_call_id, context_id };
    let again = raw.clone();
    let (broker, out) = (context.broker(), *out);
    let once = AtomicBool::new(false);
    let reported = move |waiting: &WaitProgress| {
        if !once.swap(true, Ordering::Relaxed) {
            out.message(format!(
                "waiting for approval: {} ({}, {} s left)",
                sanitize(&waiting.summary),
                waiting.id,
                waiting.seconds
            ));
        }
    };
    let wait = DecisionWait {
        max_wait: approval.wait.map(Duration::from_secs),
        on_waiting: if out.is_json() { None } else { Some(Arc::new(reported)) },
    };
    let mut answer = broker.call_and_wait(raw, &caller.peer, wait, CallContext::default()).await;
    if let (true, Some((id, ..))) = (approval.yes, answer.pending_request()) {
        let id = id.to_string();
        let approver = approver(context.host(), &TerminalPassphrase(out)).await?;
        let applied =
            broker.approve(&id, ApprovalChoice::once_for_own_call(), &approver).await.map_err(Failure::of)?;
        answer = match applied {
            Some(applied) => applied,
            // Approved, and not a file change: the repeated call uses the approval.
            None => broker.call(again, &caller.peer).await,
        };
    }
    if out.is_json() {
        out.value(&answer.envelope());
    } else {
        if let Some((id, summary, seconds)) = answer.pending_request() {
            out.message(format!(
                "{} {} ({seconds} s left)",
                paint(Tone::Care, "approval required:"),
                sanitize(summary)
            ));
            out.message(format!(
                "hint: `vambrace approvals show {id}`, then `vambrace approvals approve {id}` or `reject`"
            ));
        }
        if let Some(text) = answer.plain_text() {
            out.untrusted(text);
        }
        if let Some(note) = answer.note() {
            out.message(note);
        }
        if let Some(error) = answer.error() {
            out.error(error.code.as_str(), &sanitize(&error.message), &sanitize(&error.suggestion));
        }
    }
    Ok(ExitCode::from(match answer.status() {
        CallStatus::Success => 0,
        CallStatus::BadUsage => exit::BAD_USAGE,
        CallStatus::Waiting => exit::ASK,
        CallStatus::Denied => exit::DENIED,
        CallStatus::Failed => exit::FAILED,
    }))
}

/// Maximum size of arguments on standard input: more than the broker accepts.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Parses one JSON object, from standard input if it is written as `-`, or `key=value` pairs with the types of the tool's
/// schema.
pub(crate) fn arguments(tool: &str, words: &[String], catalogue: &Catalogue) -> Result<Value, Failure> {
    let invalid = |error: serde_json::Error| {
        Failure::usage(
            format!("the arguments are not valid JSON: {error}"),
            "quote the whole object, or use key=value pairs",
        )
    };
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return serde_json::from_str(only).map_err(invalid);
    }
    if let [only] = words
        && only == "-"
    {
        let mut text = String::new();
        std::io::stdin()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| Failure::usage(format!("standard input: {error}"), "send one JSON object"))?;
        return serde_json::from_str(&text).map_err(invalid);
    }
    let properties =
        catalogue.find(tool).and_then(|tool| tool.description().input.get("properties").cloned());
    let mut args = Map::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            let hint = "write arguments as key=value, or all of them as one JSON object";
            return Err(Failure::usage(format!("`{word}` is not an argument"), hint));
        };
        let kind = properties.as_ref().and_then(|known| known.get(key)).and_then(|known| known.get("type"));
        let typed = match kind.and_then(Value::as_str) {
            Some("string") => Value::from(value),
            // Invalid JSON stays a string: schema validation reports it.
            _ => serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)),
        };
        if args.insert(key.to_owned(), typed).is_some() {
            return Err(Failure::usage(format!("`{key}` is given twice"), "give each argument once"));
        }
    }
    Ok(args.into())
}
