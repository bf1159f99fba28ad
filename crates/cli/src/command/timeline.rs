//! `vambrace timeline`: lists the newest calls, or shows the steps of one. Field names: docs/contract.md, Timeline event.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use vambrace_core::terminal_escape::one_line;
use vambrace_host::Reader;
use vambrace_store::{
    CallRow, CallState, EventPhase, EventStatus, RecordId, RecordOrder, RecordQuery, Store, TimelineEvent,
};

use crate::command::audit::{ledger, time};
use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

/// Number of newest calls that are searched for an id prefix.
const ID_SEARCH_CALLS: usize = 10_000;
/// Maximum range of the ledger that is read for the records of one call.
const MAX_RECORD_RANGE: u64 = 10_000;

type StoredCall = CallRow<String>;
type StoredEvent = TimelineEvent<String>;

pub(crate) async fn run(call: Option<String>, limit: usize, out: &Out) -> Result<ExitCode, Failure> {
    let (host, reader) = ledger("timeline").await?;
    let store = host.store().as_ref();
    match call {
        None => list(&store.calls(reader.owner(), limit).await?, *out),
        Some(asked) => {
            let call = find(store, &reader, &asked).await?;
            let events = store.events(call.id.as_str(), reader.owner()).await?;
            let records = records(store, &call).await?;
            if out.is_json() {
                let events: Vec<Value> = events.iter().map(event).collect();
                out.value(&json!({"call": row(&call), "events": events, "records": records}));
            } else {
                print(&call, &events, &records, *out);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds a call by its id or a unique prefix of it.
async fn find(store: &dyn Store, reader: &Reader, asked: &str) -> Result<StoredCall, Failure> {
    if let Some(call) = store.call(asked).await?
        && store.session(call.session.as_str()).await?.is_some_and(|session| reader.sees_session(&session))
    {
        return Ok(call);
    }
    let calls = store.calls(reader.owner(), ID_SEARCH_CALLS).await?;
    let mut fitting =
        calls.into_iter().filter(|call| !asked.is_empty() && call.id.as_str().starts_with(asked));
    let hint = "`vambrace timeline` lists the newest calls with their ids";
    match (fitting.next(), fitting.next()) {
        (Some(call), None) => Ok(call),
        (Some(_), Some(_)) => Err(Failure::usage(format!("more than one call begins with `{asked}`"), hint)),
        (None, _) => Err(Failure::usage(format!("there is no call `{asked}`"), hint)),
    }
}

/// The numbers of the ledger records of a call.
async fn records(store: &dyn Store, call: &StoredCall) -> Result<Vec<u64>, Failure> {
    let last = call.last_record.as_ref().or(call.first_record.as_ref());
    let (Some(first), Some(last)) = (&call.first_record, last) else { return Ok(Vec::new()) };
    let range = last.seq.saturating_sub(first.seq) + 1;
    if range > MAX_RECORD_RANGE {
        return Ok(vec![first.seq, last.seq]);
    }
    let query = RecordQuery {
        after: Some(RecordId::new(&first.writer, first.seq.saturating_sub(1))),
        limit: usize::try_from(range).unwrap_or(usize::MAX),
        order: RecordOrder::OldestFirst,
        ..RecordQuery::default()
    };
    let about = |fields: &Value| fields.get("execution_id").and_then(Value::as_str) == Some(call.id.as_str());
    let records = store.records(query).await?;
    Ok(records.iter().filter(|record| about(&record.fields())).map(|record| record.id.seq).collect())
}

fn list(calls: &[StoredCall], out: Out) {
    if out.is_json() {
        out.value(&calls.iter().map(row).collect::<Vec<_>>().into());
        return;
    }
    for call in calls {
        let state = paint(tone(call.state), format!("{:<9}", call.state.as_str()));
        let error = call.error.as_deref().map(one_line).unwrap_or_default();
        let line = format!(
            "{}  {}  {:<14} {state} {:>9}  {error}",
            call.id,
            time(&call.started.to_string()),
            one_line(&call.tool),
            took(call).map(|ms| format!("{ms} ms")).unwrap_or_default(),
        );
        out.line(line.trim_end());
    }
    if calls.is_empty() {
        out.message("no calls yet");
    }
}

fn print(call: &StoredCall, events: &[StoredEvent], records: &[u64], out: Out) {
    let state = paint(tone(call.state), call.state);
    out.line(format!("{}  {state}", paint(Tone::Strong, format!("{} {}", one_line(&call.tool), call.id))));
    for event in events {
        let status = paint(event_tone(event.status), format!("{:<7}", event.status.as_str()));
        let took = format!("{:.3} ms", event.duration_ms());
        let clock = event.ts.to_string().get(11..23).unwrap_or_default().to_owned();
        let step = format!("{} {}", event.phase, one_line(&event.action));
        let line = format!("  {clock}  {step:<17} {status} {took:>12}  {}", words(event));
        out.line(line.trim_end());
    }
    if events.is_empty() {
        out.line("  no events");
    }
    let numbers: Vec<String> = records.iter().map(u64::to_string).collect();
    out.line(paint(
        Tone::Faint,
        format!("  session {}  ledger records {}", call.session, numbers.join(", ")),
    ));
}

/// The remaining fields of an event as text.
fn words(event: &StoredEvent) -> String {
    let mut words = Vec::new();
    if let Some(verdict) = &event.verdict {
        words.push(format!("verdict {}", one_line(verdict)));
    }
    if let Some(kind) = &event.violation_type {
        words.push(format!("violation {}", one_line(kind)));
    }
    if let Some(attempted) = &event.attempted_action {
        words.push(format!("attempted {}", one_line(attempted)));
    }
    if let Some(Value::Object(facts)) =
        event.policy.as_deref().filter(|_| event.phase == EventPhase::Egress).map(policy)
    {
        if let Some(rule) = facts.get("rule").and_then(Value::as_str) {
            words.push(format!("rule {}", one_line(rule)));
        }
        let bytes = |key: &str| facts.get(key).and_then(Value::as_u64).unwrap_or_default();
        words.push(format!("{} bytes sent, {} received", bytes("sent_bytes"), bytes("received_bytes")));
    }
    if let Some(code) = event.error {
        words.push(code.to_string());
    }
    if let Some(message) = &event.message {
        words.push(one_line(message));
    }
    words.join("; ")
}

fn row(call: &StoredCall) -> Value {
    json!({
        "call_id": call.id.as_str(),
        "started": call.started.to_string(),
        "tool_id": call.tool,
        "session": call.session.as_str(),
        "state": call.state.as_str(),
        "duration_ms": took(call),
        "error": call.error,
        "plan_digest": call.plan_digest.map(|digest| digest.to_string()),
    })
}

/// An event as JSON (docs/contract.md, Timeline event); empty fields are omitted.
fn event(event: &StoredEvent) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    put("ts", Some(event.ts.to_string().into()));
    put("call_id", Some(event.call.as_str().into()));
    put("phase", Some(event.phase.as_str().into()));
    put("action", Some(event.action.as_str().into()));
    put("tool_id", Some(event.tool.as_str().into()));
    match event.policy.as_deref().map(policy) {
        // The facts of a connection are top-level fields, as in `sandbox run --json`.
        Some(Value::Object(facts)) if event.phase == EventPhase::Egress => {
            facts
                .into_iter()
                .filter(|(_, fact)| !fact.is_null())
                .for_each(|(key, fact)| put(&key, Some(fact)));
        }
        policy => put("policy", policy),
    }
    put("verdict", text(&event.verdict));
    put("violation_type", text(&event.violation_type));
    put("attempted_action", text(&event.attempted_action));
    put("status", Some(event.status.as_str().into()));
    put("error", event.error.map(|code| json!({"code": code.as_str(), "message": event.message})));
    put("attempt", event.attempt.map(Value::from));
    put("duration_ms", Some(event.duration_ms().into()));
    out.into()
}

/// A policy that is a JSON object stays an object.
fn policy(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => object,
        _ => text.into(),
    }
}

fn took(call: &StoredCall) -> Option<i64> {
    call.finished.map(|end| end.millis().saturating_sub(call.started.millis()))
}

fn tone(state: CallState) -> Tone {
    match state {
        CallState::Completed => Tone::Good,
        CallState::Rejected | CallState::Failed | CallState::Expired => Tone::Bad,
        CallState::Pending | CallState::Approved | CallState::Executing => Tone::Care,
    }
}

fn event_tone(status: EventStatus) -> Tone {
    match status {
        EventStatus::Ok => Tone::Good,
        EventStatus::Denied | EventStatus::Timeout | EventStatus::Error => Tone::Bad,
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::error::ErrorCode;
    use vambrace_core::id::Id;
    use vambrace_store::Timestamp;

    use super::*;

    // P9
    #[test]
    fn event_has_the_fields_of_the_contract_and_omits_empty_ones() {
        let id = Id::new("c-1").unwrap();
        let at = Timestamp::from_millis(0);
        let mut shown: StoredEvent = TimelineEvent::new(
            at,
            id,
            EventPhase::Policy,
            "check".into(),
            "read_file".into(),
            EventStatus::Ok,
        );
        shown.duration_us = 1500;
        shown.policy = Some(r#"{"network":"deny"}"#.into());
        let value = event(&shown);
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["ts", "call_id", "phase", "action", "tool_id", "policy", "status", "duration_ms"]);
        assert_eq!(value["policy"]["network"], "deny");
        assert_eq!(value["duration_ms"], 1.5);
        shown.error = Some(ErrorCode::BlockedPath);
        shown.message = Some("no".into());
        shown.policy = Some("words".into());
        assert_eq!(event(&shown)["error"], json!({"code": "BlockedPath", "message": "no"}));
        assert_eq!(event(&shown)["policy"], "words");
    }
}
