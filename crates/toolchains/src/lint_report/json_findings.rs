//! The JSON output of ruff, eslint, golangci-lint and shellcheck.

use serde_json::Value;

use super::{FindingList, LintFinding, LintSeverity};
use crate::run_output::{PlainOutput, RunLocation};

/// `ruff check --output-format=json`
pub(super) fn ruff(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    let Some(Value::Array(items)) = document(&output.stdout) else { return false };
    for item in &items {
        let place = item.get("location");
        // Ruff calls every finding an error; only a file that it cannot parse is one.
        let rule = text(item, "code");
        let syntax = rule.is_empty() || rule == "invalid-syntax";
        let severity = if syntax { LintSeverity::Error } else { LintSeverity::Warning };
        list.push(LintFinding {
            file: at.service_path(text(item, "filename")),
            line: place.and_then(|place| number(place, "row")),
            column: place.and_then(|place| number(place, "column")),
            rule: rule.to_owned(),
            severity,
            message: text(item, "message").to_owned(),
        });
    }
    true
}

/// `eslint --format=json`
pub(super) fn eslint(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    let Some(Value::Array(files)) = document(&output.stdout) else { return false };
    for file in &files {
        let path = at.service_path(text(file, "filePath"));
        for message in file.get("messages").and_then(Value::as_array).into_iter().flatten() {
            let grave = message.get("severity").and_then(Value::as_u64) == Some(2);
            list.push(LintFinding {
                file: path.clone(),
                line: number(message, "line"),
                column: number(message, "column"),
                rule: text(message, "ruleId").to_owned(),
                severity: if grave { LintSeverity::Error } else { LintSeverity::Warning },
                message: text(message, "message").to_owned(),
            });
        }
    }
    true
}

/// `golangci-lint run` with JSON on standard output.
pub(super) fn golangci(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    let Some(report) = document(&output.stdout).filter(|report| report.get("Report").is_some()) else {
        return false;
    };
    for issue in report.get("Issues").and_then(Value::as_array).into_iter().flatten() {
        let place = issue.get("Pos");
        let rule = text(issue, "FromLinter");
        // The linter `typecheck` carries the compiler's errors.
        list.broken |= rule == "typecheck";
        let severity = match (text(issue, "Severity"), rule) {
            ("error", _) | (_, "typecheck") => LintSeverity::Error,
            ("info", _) => LintSeverity::Info,
            _ => LintSeverity::Warning,
        };
        list.push(LintFinding {
            file: place.and_then(|place| at.service_path(text(place, "Filename"))),
            line: place.and_then(|place| number(place, "Line")),
            column: place.and_then(|place| number(place, "Column")).filter(|column| *column > 0),
            rule: rule.to_owned(),
            severity,
            message: text(issue, "Text").to_owned(),
        });
    }
    true
}

/// `shellcheck -f json1`
pub(super) fn shellcheck(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    let Some(report) = document(&output.stdout) else { return false };
    let Some(comments) = report.get("comments").and_then(Value::as_array) else { return false };
    for comment in comments {
        let severity = match text(comment, "level") {
            "error" => LintSeverity::Error,
            "warning" => LintSeverity::Warning,
            _ => LintSeverity::Info,
        };
        list.push(LintFinding {
            file: at.service_path(text(comment, "file")),
            line: number(comment, "line"),
            column: number(comment, "column"),
            rule: comment
                .get("code")
                .and_then(Value::as_u64)
                .map_or(String::new(), |code| format!("SC{code}")),
            severity,
            message: text(comment, "message").to_owned(),
        });
    }
    true
}

/// The document in a text: the whole text, or the line that holds it. Launchers print lines of their own.
fn document(text: &str) -> Option<Value> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok().filter(|value| !value.is_number());
    parse(text.trim()).or_else(|| text.lines().filter(|line| line.starts_with(['[', '{'])).find_map(parse))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str) -> Option<u32> {
    value.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}
