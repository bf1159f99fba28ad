//! `vambrace call`: one call through the corridor.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};
use vambrace_broker::{Answer, Choice, Ending, Patience, RawCall, Waiting};
use vambrace_tools::Catalogue;

use crate::approver;
use crate::args::CallWords;
use crate::desk::{self, Desk};
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// What is done about a question.
pub(crate) struct Then {
    /// Wait so many seconds for somebody to decide.
    pub(crate) wait: Option<u64>,
    /// Decide it here.
    pub(crate) yes: bool,
}

pub(crate) async fn run(
    words: CallWords,
    tool_call_id: Option<String>,
    context_id: Option<String>,
    then: Then,
    out: &Out,
) -> Result<ExitCode, Failure> {
    let args = arguments(&words.tool, &words.arguments, &*desk::catalogue()?)?;
    let desk = match Desk::open(&words.seat, "command-line", "cli").await {
        Ok(desk) => desk,
        Err(failure) if out.is_json() && failure.exit != exit::BAD_USAGE => {
            out.value(&Answer::unopened(&words.tool, tool_call_id, failure.error).envelope());
            return Ok(ExitCode::from(failure.exit));
        }
        Err(failure) => return Err(failure),
    };
    let raw = RawCall { tool: words.tool, args, tool_call_id, context_id };
    let again = raw.clone();
    let told = |waiting: &Waiting| {
        out.say(format!(
            "waiting for a person: {} ({}, {} s left)",
            plain(&waiting.summary),
            waiting.id,
            waiting.seconds
        ));
    };
    let once = std::sync::atomic::AtomicBool::new(false);
    let told = |waiting: &Waiting| {
        if !once.swap(true, std::sync::atomic::Ordering::Relaxed) {
            told(waiting);
        }
    };
    let longest = then.wait.map(Duration::from_secs);
    let patience = Patience { longest, told: if out.is_json() { None } else { Some(&told) } };
    let mut answer = desk.broker.call_patiently(raw, &desk.peer, &patience).await;
    if let (true, Some((id, ..))) = (then.yes, answer.open_question()) {
        let id = id.to_string();
        let decider = approver::decider(desk.store(), *out).await?;
        let applied = desk.broker.approve(&id, Choice::once(), &decider).await.map_err(Failure::of)?;
        answer = match applied {
            Some(applied) => applied,
            // Agreed to, and not a change: the call is made again and uses the yes.
            None => desk.broker.call(again, &desk.peer).await,
        };
    }
    if out.is_json() {
        out.value(&answer.envelope());
    } else {
        if let Some((id, summary, seconds)) = answer.open_question() {
            out.say(format!(
                "{} {} ({seconds} s left)",
                paint(Tone::Care, "a person must agree:"),
                plain(summary)
            ));
            out.say(format!(
                "hint: `vambrace approvals show {id}`, then `vambrace approvals approve {id}` or `reject`"
            ));
        }
        if let Some(text) = answer.plain_text() {
            out.foreign(text);
        }
        if let Some(note) = answer.note() {
            out.say(note);
        }
        if let Some(error) = answer.error() {
            out.error(error.code.as_str(), &plain(&error.message), &plain(&error.suggestion));
        }
    }
    Ok(ExitCode::from(match answer.ending() {
        Ending::Success => 0,
        Ending::BadUsage => exit::BAD_USAGE,
        Ending::Waiting => exit::ASK,
        Ending::Denied => exit::DENIED,
        Ending::Failed => exit::FAILED,
    }))
}

/// One JSON object, or `key=value` pairs typed by the tool's schema.
pub(crate) fn arguments(tool: &str, words: &[String], catalogue: &Catalogue) -> Result<Value, Failure> {
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return serde_json::from_str(only).map_err(|error| {
            Failure::usage(
                format!("the arguments are not JSON: {error}"),
                "quote the whole object, or use key=value",
            )
        });
    }
    let properties = catalogue.find(tool).and_then(|tool| tool.about().input.get("properties").cloned());
    let mut args = Map::new();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            let hint = "write arguments as key=value, or all of them as one JSON object";
            return Err(Failure::usage(format!("`{word}` is not an argument"), hint));
        };
        let kind = properties.as_ref().and_then(|known| known.get(key)).and_then(|known| known.get("type"));
        let typed = match kind.and_then(Value::as_str) {
            Some("string") => Value::from(value),
            // What does not parse stays text: the schema then says what is wrong with it.
            _ => serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)),
        };
        if args.insert(key.to_owned(), typed).is_some() {
            return Err(Failure::usage(format!("`{key}` is given twice"), "give each argument once"));
        }
    }
    Ok(args.into())
}
