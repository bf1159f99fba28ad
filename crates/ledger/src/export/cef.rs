//! CEF version 0: a header of seven fields and an extension of `key=value` pairs. The format has no quotes: `|` and `\`
//! are escaped in the header, `=` and `\` in the extension, and line ends everywhere.

use std::fmt::Write as _;

use serde_json::Value;

use super::{ExportEvent, PRODUCT, VERSION};
use crate::op::{Op, RecordLevel, RecordStatus};

/// Maximum length of a value, in characters: the limit that CEF's dictionary sets for a custom string. The ledger has
/// the rest.
const MAX_VALUE_CHARS: usize = 4000;
/// Marks a truncated value.
const TRUNCATED: char = '\u{2026}';

/// Fields with a key in CEF's dictionary: the field, the key, the label of a custom key.
const KEYS: &[(&str, &str, Option<&str>)] = &[
    ("seq", "cn1", Some("seq")),
    ("event_hash", "cs1", Some("event_hash")),
    ("prev_hash", "cs2", Some("prev_hash")),
    ("session", "cs3", Some("session")),
    ("rule", "cs4", Some("rule")),
    ("tool_name", "cs5", Some("tool_name")),
    ("tool_args", "cs6", Some("tool_args")),
    ("execution_id", "externalId", None),
    ("writer", "deviceExternalId", None),
    ("user", "suser", None),
    ("role", "spriv", None),
    ("agent_id", "sourceServiceName", None),
    ("path", "filePath", None),
    ("target_path", "fname", None),
    ("base_hash", "fileHash", None),
    ("status", "outcome", None),
    ("verdict", "act", None),
    ("error_code", "reason", None),
    ("message", "msg", None),
    ("op", "cat", None),
];

pub(super) fn line(event: &ExportEvent<'_>) -> String {
    let kind = event.event_type();
    let mut out = String::from("CEF:0");
    for field in [PRODUCT, "vambrace", VERSION, kind, name(event)] {
        out.push('|');
        escape(&mut out, field, '|');
    }
    let _ = write!(out, "|{}|rt={}", severity(event), event.millis());
    for (field, value) in event.fields {
        if field == "ts" || field == "event_type" {
            continue;
        }
        match KEYS.iter().find(|(name, ..)| name == field) {
            Some((_, key, label)) => {
                pair(&mut out, key, value);
                if let Some(label) = label {
                    let _ = write!(out, " {key}Label={label}");
                }
            }
            None => pair(&mut out, &custom_key(field), value),
        }
    }
    out
}

/// The number and the hash of an exported line.
pub(super) fn record_ref(line: &str) -> Option<(u64, &str)> {
    // Neither value needs escaping, and `=` is escaped in all others: the first match is the pair itself.
    let value = |key: &str| {
        let (_, rest) = line.split_once(key)?;
        rest.split(' ').next()
    };
    line.strip_prefix("CEF:0|")?;
    Some((value(" cn1=")?.parse().ok()?, value(" cs1=")?))
}

fn pair(out: &mut String, key: &str, value: &Value) {
    out.push(' ');
    out.push_str(key);
    out.push('=');
    match value {
        Value::String(text) => escape(out, text, '='),
        other => escape(out, &other.to_string(), '='),
    }
}

/// `plan_digest` becomes `vambracePlanDigest`: custom keys are letters and digits.
fn custom_key(field: &str) -> String {
    let mut key = String::from("vambrace");
    for word in field.split('_') {
        let mut letters = word.chars().filter(char::is_ascii_alphanumeric);
        key.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        key.extend(letters);
    }
    key
}

fn escape(out: &mut String, text: &str, special: char) {
    for (at, ch) in text.chars().enumerate() {
        if at == MAX_VALUE_CHARS {
            out.push(TRUNCATED);
            return;
        }
        match ch {
            '\\' => out.push_str("\\\\"),
            ch if ch == special => {
                out.push('\\');
                out.push(ch);
            }
            // The extension has an escape for line ends, the header has none.
            '\n' if special == '=' => out.push_str("\\n"),
            '\r' if special == '=' => out.push_str("\\r"),
            // Also characters that some readers treat as a line end or terminal command: written as their code point.
            ch if ch.is_control() || matches!(ch, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\\\u{:04x}", u32::from(ch));
            }
            ch => out.push(ch),
        }
    }
}

fn severity(event: &ExportEvent<'_>) -> u8 {
    match (event.level(), event.text("severity")) {
        (RecordLevel::Critical, _) => 10,
        (_, Some("HIGH")) => 8,
        (RecordLevel::Warn, _) => 6,
        (RecordLevel::Info, _) if event.status() == Some(RecordStatus::Error) => 4,
        (RecordLevel::Info, _) => 2,
    }
}

fn name<'l>(event: &ExportEvent<'l>) -> &'l str {
    match event.op() {
        Some(Op::ReadFile) => "File read",
        Some(Op::WriteFilePropose) => "Change proposed",
        Some(Op::WriteFileApply) => "Change applied",
        Some(Op::ToolStart) => "Call started",
        Some(Op::ToolEnd) => "Call ended",
        Some(Op::ToolApproval) => "Call decided",
        Some(Op::Violation) => "Call denied",
        Some(Op::Session) => "Session changed",
        Some(Op::Grant) => "Grant changed",
        Some(Op::Elevation) => "Rights elevated",
        Some(Op::PolicyChange) => "Policy changed",
        Some(Op::SkillsRegistryInstall) => "Skill installed",
        Some(Op::Checkpoint) => "Ledger checkpoint",
        Some(Op::Recovery) => "Recovered after a crash",
        Some(Op::PayloadForgotten) => "Payload forgotten",
        Some(Op::AdminRead) => "Administrator read data of other users",
        // Also an op of a newer version.
        _ => event.event_type(),
    }
}
