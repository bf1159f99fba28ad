//! Findings as most linters print them for people: `file:line:column: CODE message`, as flake8 does, and
//! `file:line:column: error: message [rule]`, as compilers and mypy do.

use super::{FindingList, LintFinding, LintSeverity};
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>, list: &mut FindingList) -> bool {
    for line in output.stdout.lines() {
        if let Some(finding) = finding(line, at) {
            list.push(finding);
        }
    }
    !list.findings.is_empty() || (output.exit_code == Some(0) && output.stdout.trim().is_empty())
}

fn finding(line: &str, at: &RunLocation<'_>) -> Option<LintFinding> {
    let mut parts = line.splitn(3, ':');
    let (file, number, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let number: u32 = number.parse().ok()?;
    if file.is_empty() || file.contains(' ') || line.starts_with(char::is_whitespace) {
        return None;
    }
    let (column, message) = match rest.split_once(':') {
        Some((column, message)) if column.parse::<u32>().is_ok() => (column.parse().ok(), message),
        _ => (None, rest),
    };
    let (severity, message) = severity(message.trim());
    let (rule, message) = rule(message);
    // flake8: E9 and F-codes of undefined names stop a program, the rest is style.
    let severity =
        severity.unwrap_or(if rule.starts_with("E9") { LintSeverity::Error } else { LintSeverity::Warning });
    Some(LintFinding {
        file: at.service_path(file),
        line: Some(number),
        column,
        rule: rule.to_owned(),
        severity,
        message: message.to_owned(),
    })
}

fn severity(message: &str) -> (Option<LintSeverity>, &str) {
    let words = [
        ("error: ", LintSeverity::Error),
        ("fatal error: ", LintSeverity::Error),
        ("warning: ", LintSeverity::Warning),
        ("note: ", LintSeverity::Info),
        ("info: ", LintSeverity::Info),
    ];
    words
        .into_iter()
        .find_map(|(word, severity)| Some((Some(severity), message.strip_prefix(word)?)))
        .unwrap_or((None, message))
}

/// A code in front (`E302 expected ...`) or a name in brackets at the end (`... [no-untyped-def]`).
fn rule(message: &str) -> (&str, &str) {
    if let Some((code, rest)) = message.split_once(' ') {
        let letters = code.bytes().take_while(u8::is_ascii_uppercase).count();
        let digits = code.bytes().skip(letters).filter(u8::is_ascii_digit).count();
        if (1..=4).contains(&letters) && digits > 0 && letters + digits == code.len() {
            return (code, rest);
        }
    }
    let bracketed = message.strip_suffix(']').and_then(|message| message.rsplit_once(" ["));
    bracketed
        .filter(|(_, rule)| !rule.contains(' '))
        .map_or(("", message), |(message, rule)| (rule, message.trim_end()))
}
