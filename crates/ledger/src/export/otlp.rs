//! OpenTelemetry logs in OTLP JSON, as its file exporter writes them: one `ExportLogsServiceRequest` per line, 64-bit
//! numbers as strings, enumerations as numbers. Fields with a semantic convention use its name, all others the prefix
//! `vambrace.`.

use serde_json::{Value, json};

use super::{ExportEvent, VERSION, fits};
use crate::op::RecordLevel;

/// Fields that OpenTelemetry has a name for.
const NAMES: &[(&str, &str)] = &[
    ("user", "user.name"),
    ("session", "session.id"),
    ("agent_id", "gen_ai.agent.id"),
    ("tool_name", "gen_ai.tool.name"),
    ("tool_call_id", "gen_ai.tool.call.id"),
    ("tool_args", "gen_ai.tool.call.arguments"),
    ("path", "file.path"),
    ("error_code", "error.type"),
];
/// Fields that are represented elsewhere in the log record.
const ELSEWHERE: &[&str] = &["ts", "level", "writer", "event_type", "message"];

pub(super) fn request(event: &ExportEvent<'_>) -> Value {
    let nanos = (i128::from(event.millis()) * 1_000_000).max(0).to_string();
    let (number, text) = severity(event);
    let attributes: Vec<Value> = event
        .fields
        .iter()
        .filter(|(field, _)| !ELSEWHERE.contains(&field.as_str()))
        .map(|(field, value)| attribute(&name(field), value))
        .collect();
    let record = json!({
        "timeUnixNano": nanos,
        "observedTimeUnixNano": nanos,
        "severityNumber": number,
        "severityText": text,
        "eventName": format!("vambrace.{}", event.event_type()),
        "body": {"stringValue": event.text("message").unwrap_or_else(|| event.event_type())},
        "attributes": attributes,
    });
    let resource = [
        attribute("service.name", &"vambrace".into()),
        attribute("service.version", &VERSION.into()),
        attribute("service.instance.id", &event.text("writer").into()),
    ];
    json!({"resourceLogs": [{
        "resource": {"attributes": resource},
        "scopeLogs": [{"scope": {"name": "vambrace.ledger", "version": VERSION}, "logRecords": [record]}],
    }]})
}

pub(super) fn record_ref(exported: &Value) -> Option<(u64, &str)> {
    let record = exported.pointer("/resourceLogs/0/scopeLogs/0/logRecords/0")?;
    let attributes = record.get("attributes")?.as_array()?;
    let value = |name: &str| {
        let found = attributes.iter().find(|attribute| attribute.get("key").is_some_and(|key| key == name));
        found?.get("value")
    };
    let seq = value("vambrace.seq")?.get("intValue")?.as_str()?.parse().ok()?;
    Some((seq, value("vambrace.event_hash")?.get("stringValue")?.as_str()?))
}

fn name(field: &str) -> String {
    let known = NAMES.iter().find(|(name, _)| *name == field).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| format!("vambrace.{field}"))
}

fn attribute(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": any(value)})
}

/// An `AnyValue`. Objects and nested lists become JSON text, because their native form takes four levels each; flat
/// lists stay.
fn any(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(flag) => json!({"boolValue": flag}),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!({"intValue": number.to_string()}),
            None => json!({"doubleValue": number.as_f64()}),
        },
        Value::String(text) => json!({"stringValue": text}),
        Value::Array(items) if items.iter().all(|item| fits(item, 0)) => {
            json!({"arrayValue": {"values": items.iter().map(any).collect::<Vec<_>>()}})
        }
        Value::Array(_) | Value::Object(_) => json!({"stringValue": value.to_string()}),
    }
}

fn severity(event: &ExportEvent<'_>) -> (u8, &'static str) {
    match event.level() {
        RecordLevel::Info => (9, "INFO"),
        RecordLevel::Warn => (13, "WARN"),
        RecordLevel::Critical => (21, "CRITICAL"),
    }
}
