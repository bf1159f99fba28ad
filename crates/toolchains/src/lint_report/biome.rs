//! biome with `--reporter=github`: workflow commands, one finding a line. The JSON reporter of biome is marked unstable.

use super::{FindingList, LintFinding, LintSeverity};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    for line in output.stdout.lines() {
        if let Some(finding) = finding(line, at) {
            list.push(finding);
        }
    }
    !list.findings.is_empty() || output.exit_code == Some(0)
}

/// `::error title=lint/x,file=b.js,line=2,endLine=2,col=7,endColumn=9::message`
fn finding(line: &str, at: &RunLocation<'_>) -> Option<LintFinding> {
    let (level, rest) = line.strip_prefix("::")?.split_once(' ')?;
    let severity = match level {
        "error" => LintSeverity::Error,
        "warning" => LintSeverity::Warning,
        "notice" => LintSeverity::Info,
        _ => return None,
    };
    let (properties, message) = rest.split_once("::")?;
    let property = |name: &str| {
        properties.split(',').find_map(|property| property.strip_prefix(name)?.strip_prefix('=')).map(decoded)
    };
    let rule = property("title").unwrap_or_default();
    Some(LintFinding {
        file: property("file").and_then(|file| at.service_path(&file)),
        line: property("line").and_then(|line| line.parse().ok()),
        column: property("col").and_then(|column| column.parse().ok()),
        rule: if rule == "parse" { String::new() } else { rule },
        severity,
        message: decoded(message),
    })
}

/// Workflow commands encode line breaks and separators.
fn decoded(text: &str) -> String {
    text.replace("%0D", "").replace("%0A", "\n").replace("%3A", ":").replace("%2C", ",").replace("%25", "%")
}
