//! A ledger with every op, every status and every session change, and with text that tries to break out of its field.

use serde_json::{Map, Value, json};
use vambrace_core::ErrorCode;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{
    Digest, Entry, ExportFormat, FileRange, ForgottenPayload, Id, Op, RecordLevel, RecordStatus,
    RedactedText, SessionChange, Timestamp, line_fields,
};

struct Clean;

impl Redact for Clean {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

fn text(text: &str) -> Option<RedactedText> {
    Some(Redacted::text(text, &Clean).unwrap())
}

fn json_of(value: Value) -> Option<Redacted<Value>> {
    Some(Redacted::json(value, &Clean).unwrap())
}

/// What an agent would send to break a reader.
pub(crate) const HOSTILE: &[&str] = &[
    "a|b\\|c",
    "x=y cs1=sha256:0 cn1=1",
    "two\nlines\r\nCEF:0|Evil|evil|1|x|x|10|",
    "quote\" brace} \\u0000 \u{0}\u{1b}[2J\u{7f}\u{85}\u{2028}",
    " leading and trailing ",
    "ends in a backslash\\",
    "gr\u{fc}n \u{65e5}\u{672c} \u{1f980} \u{202e}esrever",
    "",
    "{\"seq\":1,\"event_hash\":\"sha256:00\"}",
    "%s${jndi:ldap://x}{{7*7}}<script>",
];

fn at(n: i64) -> Timestamp {
    Timestamp::from_millis(1_785_000_000_123 + n * 1000)
}

fn call(op: Op, n: i64) -> Entry {
    let mut entry = Entry::new(op, at(n));
    entry.user = text("ada");
    entry.agent_id = text("agent-7");
    entry.session = Some(Id::new("s-1").unwrap());
    entry.role = text("dev");
    entry.execution_id = Some(Id::new("c-1").unwrap());
    entry.tool_name = text("read_file");
    entry
}

fn entries() -> Vec<Entry> {
    let mut list = Vec::new();
    for (n, op) in (0..).zip(Op::ALL) {
        let mut entry = call(*op, n);
        entry.path = text("src/main.rs");
        entry.skill_name = text("review");
        entry.status = Some(RecordStatus::Success);
        entry.base_hash = Some(Digest::of(b"base"));
        match op {
            Op::ReadFile => entry.range = Some(FileRange { first: 1, last: 40 }),
            Op::WriteFileApply => {
                entry.created = Some(true);
                entry.after_hash = Some(Digest::of(b"after"));
            }
            Op::PolicyChange => entry.event_type = Some("policy.trust"),
            Op::PayloadForgotten => {
                entry.forgotten = Some(ForgottenPayload { seq: 3, commitment: Digest::of(b"payload") });
            }
            _ => entry.duration_ms = Some(12),
        }
        list.push(entry);
    }
    for (n, status) in (100..).zip(RecordStatus::ALL) {
        let mut entry = call(Op::ToolEnd, n);
        entry.status = Some(*status);
        entry.risk = Some("low");
        entry.verdict = Some("allow");
        entry.reasons = vec![text("first reason").unwrap(), text("second").unwrap()];
        entry.policy_revision = text(&Digest::of(b"policy").to_string());
        list.push(entry);
    }
    for (n, change) in (200..).zip(SessionChange::ALL) {
        list.push(Entry::session(*change, Id::new("s-1").unwrap(), at(n)));
    }
    for (n, hostile) in (300..).zip(HOSTILE) {
        let mut entry = call(Op::Violation, n);
        entry.level = if n % 2 == 0 { RecordLevel::Warn } else { RecordLevel::Critical };
        entry.status = Some(RecordStatus::Denied);
        entry.user = text(hostile);
        entry.agent_id = text(hostile);
        entry.tool_name = text(hostile);
        entry.tool_call_id = text(hostile);
        entry.path = text(hostile);
        entry.target_path = text(hostile);
        entry.rule = text(hostile);
        entry.message = text(hostile);
        entry.reasons = vec![text(hostile).unwrap()];
        entry.tool_args = json_of(json!({*hostile: hostile, "list": [1, -2.5, null, true]}));
        entry.error_code = Some(ErrorCode::ScopeViolation);
        entry.violation_type = Some("scope");
        entry.severity = Some("HIGH");
        list.push(entry);
    }
    let mut long = call(Op::ToolStart, 400);
    long.status = Some(RecordStatus::Allowed);
    long.path = text(&"p/".repeat(5000));
    long.message = text(&"\u{e9}".repeat(5000));
    long.tool_args = json_of(json!({"content": "z=".repeat(20_000)}));
    long.command_args = json_of(json!(["x".repeat(5000)]));
    list.push(long);
    let mut deep = call(Op::Violation, 401);
    deep.tool_args = json_of((0..200).fold(json!("core"), |inner, _| json!([inner])));
    list.push(deep);
    list.push(Entry::new(Op::Recovery, at(402)));
    list
}

/// The lines of that ledger.
pub(crate) fn ledger() -> Vec<String> {
    let writer = Id::new("w-0123456789abcdef").unwrap();
    let mut prev = Digest::ZERO;
    (1..)
        .zip(entries())
        .map(|(seq, entry)| {
            let line = entry.encode_with_payloads(&mut || [seq as u8; 32]).seal(&writer, seq, prev).unwrap();
            prev = line.event_hash();
            line.as_str().to_owned()
        })
        .collect()
}

/// The export of a line, without its newline.
pub(crate) fn exported(format: ExportFormat, line: &str) -> String {
    let mut out = Vec::new();
    format.write(line, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

/// Every line of the ledger with its export.
pub(crate) fn pairs(format: ExportFormat) -> Vec<(Map<String, Value>, String)> {
    ledger().iter().map(|line| (line_fields(line).unwrap(), exported(format, line))).collect()
}
