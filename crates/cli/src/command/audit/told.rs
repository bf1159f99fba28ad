//! One record on one line, for people.

use serde_json::Value;
use vambrace_store::Record;

use crate::harmless::plain;
use crate::out::{Tone, paint};

/// The longest object of a record that is shown.
const MOST: usize = 72;

/// Number, time, what, how it ended, tool, object, session.
pub(super) fn line(record: &Record) -> String {
    let fields = record.fields();
    let number = paint(Tone::Faint, format!("{:>5}", record.seq));
    if fields.is_null() {
        return format!(
            "{number}  {}",
            paint(Tone::Bad, "this is not a ledger line; `vambrace audit verify` tells more")
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

/// `2026-01-31 12:00:00Z` of the fixed form.
pub(crate) fn time(ts: &str) -> String {
    match (ts.get(..10), ts.get(11..19)) {
        (Some(day), Some(time)) => format!("{day} {time}Z"),
        _ => ts.to_owned(),
    }
}

/// Text of a record on one line.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// What it was about: the path, or what was said.
fn object(fields: &Value) -> String {
    let word = |key: &str| fields.get(key).and_then(Value::as_str).map(one_line);
    let object =
        word("target_path").or_else(|| word("path")).or_else(|| word("message")).or_else(|| word("agent_id"));
    let object = object.unwrap_or_default();
    let mut object = if object.chars().count() > MOST {
        let kept: String = object.chars().take(MOST).collect();
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
    use super::*;

    #[test]
    fn a_record_cannot_drive_the_terminal_or_break_its_line() {
        let line_of = |text: &str| line(&Record { seq: 3, line: text.to_owned() });
        let told = line_of(
            r#"{"ts":"2026-01-31T12:00:00.000Z","op":"violation","status":"denied","target_path":"a\u001b[2J\nb"}"#,
        );
        assert!(!told.contains("\u{1b}[2J") && !told.contains('\n'), "{told}");
        assert!(told.contains("2026-01-31 12:00:00Z") && told.contains("a\u{fffd}[2J b"), "{told}");
        assert!(line_of("{broken").contains("not a ledger line"));
    }
}
