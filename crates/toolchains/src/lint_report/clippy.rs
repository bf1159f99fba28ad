//! `cargo clippy --message-format=json`: one message a line. A file that is compiled twice, for the library and for its
//! tests, reports twice; the second is dropped.

use std::collections::HashSet;

use serde_json::Value;

use super::{FindingList, LintFinding, LintSeverity};
use crate::run_output::{PlainOutput, RunLocation};

/// Maximum number of messages that are compared with earlier ones.
const MAX_COMPARED: usize = 20_000;

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    let mut finished = false;
    let mut seen = HashSet::new();
    for line in output.stdout.lines().filter(|line| line.starts_with('{')) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        match message.get("reason").and_then(Value::as_str) {
            Some("build-finished") => {
                finished = true;
                list.broken |= message.get("success").and_then(Value::as_bool) == Some(false);
            }
            Some("compiler-message") => {
                if let Some(finding) = message.get("message").and_then(|message| finding(message, at))
                    && (seen.len() >= MAX_COMPARED || seen.insert(finding.to_string()))
                {
                    list.push(finding);
                }
            }
            _ => {}
        }
    }
    // Lints at level `deny` fail the build, and are findings like others.
    if list.broken
        && list.findings.iter().all(|finding| finding.rule.contains("::"))
        && !list.findings.is_empty()
    {
        list.broken = false;
    }
    finished
}

fn finding(message: &Value, at: &RunLocation<'_>) -> Option<LintFinding> {
    let severity = match message.get("level")?.as_str()? {
        "error" | "error: internal compiler error" => LintSeverity::Error,
        "warning" => LintSeverity::Warning,
        _ => return None,
    };
    let spans = message.get("spans")?.as_array()?;
    let rule =
        message.get("code").and_then(|code| code.get("code")).and_then(Value::as_str).unwrap_or_default();
    let text = message.get("message")?.as_str()?;
    let Some(span) = spans.iter().find(|span| span.get("is_primary").and_then(Value::as_bool) == Some(true))
    else {
        // "aborting due to ..." and "2 warnings emitted" have no place and no rule.
        if rule.is_empty() {
            return None;
        }
        return Some(LintFinding {
            file: None,
            line: None,
            column: None,
            rule: rule.to_owned(),
            severity,
            message: text.to_owned(),
        });
    };
    let number =
        |name: &str| span.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    Some(LintFinding {
        file: span.get("file_name").and_then(Value::as_str).and_then(|file| at.service_path(file)),
        line: number("line_start"),
        column: number("column_start"),
        rule: rule.to_owned(),
        severity,
        message: text.to_owned(),
    })
}
