//! Prints a record as one line.

use serde_json::Value;
use vambrace_core::terminal_escape::one_line;
use vambrace_store::LedgerRecord;

use crate::output::{Tone, paint};

/// Maximum length of the shown path or message.
const MAX_OBJECT_CHARS: usize = 72;

/// Number, time, operation, status, tool, object, session.
pub(super) fn line(record: &LedgerRecord) -> String {
    let fields = record.fields();
    let number = paint(Tone::Faint, format!("{:>5}", record.id.seq));
    if fields.is_null() {
        return format!(
            "{number}  {}",
            paint(Tone::Bad, "not a valid ledger line; run `vambrace audit verify`")
        );
    }
    let word = |key: &str| fields.get(key).and_then(Value::as_str).map(one_line).unwrap_or_default();
    let what = if word("op") == "session" { word("event_type") } else { word("op") };
    let status = word("status");
    let status = if status.is_empty() { " ".repeat(8) } else { paint(tone(&status), format!("{status:<8}")) };
    let session = word("session");
    let session = if session.is_empty() { session } else { paint(Tone::Faint, session) };
    let (ts, tool, object) = (time(&word("ts")), word("tool_name"), object(&fields));
    format!("{number}  {ts}  {what:<17} {status} {tool:<13} {object}  {session}").trim_end().to_owned()
}

/// `2026-01-31 12:00:00Z` from a ledger timestamp.
pub(crate) fn time(ts: &str) -> String {
    match (ts.get(..10), ts.get(11..19)) {
        (Some(day), Some(time)) => format!("{day} {time}Z"),
        _ => ts.to_owned(),
    }
}

/// The object of the record: its path, else its message.
fn object(fields: &Value) -> String {
    let word = |key: &str| fields.get(key).and_then(Value::as_str).map(one_line);
    let object =
        word("target_path").or_else(|| word("path")).or_else(|| word("message")).or_else(|| word("agent_id"));
    let object = object.unwrap_or_default();
    let mut object = if object.chars().count() > MAX_OBJECT_CHARS {
        let kept: String = object.chars().take(MAX_OBJECT_CHARS).collect();
        format!("{kept}…")
    } else {
        object
    };
    if let Some(code) = word("error_code") {
        object += &format!(" ({code})");
    }
    object
}

fn tone(status: &str) -> Tone {
    match status {
        "success" | "allowed" | "approved" => Tone::Good,
        "denied" | "error" | "rejected" | "timeout" => Tone::Bad,
        _ => Tone::Care,
    }
}

#[cfg(test)]
mod tests {
    use vambrace_store::{Id, RecordId};

    use super::*;

    #[test]
    fn record_with_control_characters_stays_on_one_sanitized_line() {
        let line_of = |text: &str| {
            line(&LedgerRecord { id: RecordId::new(&Id::new("w").unwrap(), 3), line: text.to_owned() })
        };
        let shown = line_of(
            r#"{"ts":"2026-01-31T12:00:00.000Z","op":"violation","status":"denied","target_path":"a\u001b[2J\nb"}"#,
        );
        assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\n'), "{shown}");
        assert!(shown.contains("2026-01-31 12:00:00Z") && shown.contains("a\u{fffd}[2J b"), "{shown}");
        assert!(line_of("{broken").contains("not a valid ledger line"));
    }
}
