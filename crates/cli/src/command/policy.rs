//! `vambrace policy`: reports errors and notes of all policy files, and runs the test cases of the rules.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_commands::{Classification, CommandTable};
use vambrace_core::policy::rule_cases::CaseResult;
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::{ConfigFile, Paths, PolicyProblem, PolicyReport, check_policy, test_rules};

use crate::args::{CallerArgs, PolicyCommand};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(what: PolicyCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        PolicyCommand::Check { caller } => check(&caller, *out).await,
        PolicyCommand::Test { caller } => test(&caller, *out),
        PolicyCommand::Classify => classify(*out),
    }
}

/// Classifies each line of standard input with the built-in table.
fn classify(out: Out) -> Result<ExitCode, Failure> {
    let table = CommandTable::built_in();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| Failure::failed(format!("standard input: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let found = classify_line(&table, &line)?;
        out.line(json!({
            "class": found.class.as_str(), "risk": found.risk.as_str(), "why": found.why,
            "allowed": !found.is_refused(), "typed_tool": found.typed_tool, "suggestion": found.suggestion,
            "programs": found.programs.iter().map(|program| &program.argv).collect::<Vec<_>>(),
            "unparsed": found.unparsed, "connects": found.connects,
        }));
    }
    Ok(ExitCode::SUCCESS)
}

fn classify_line(table: &CommandTable, line: &str) -> Result<Classification, Failure> {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Ok(table.classify_shell(line)) };
    let words = fields.get("argv").and_then(Value::as_array);
    let words: Option<Vec<&str>> = words.and_then(|words| words.iter().map(Value::as_str).collect());
    match (words, fields.get("shell").and_then(Value::as_str)) {
        (Some(words), None) => Ok(table.classify_argv(&words)),
        (None, Some(text)) => Ok(table.classify_shell(text)),
        _ => Err(Failure::usage(
            "a JSON line needs either `argv`, a list of words, or `shell`, a text",
            "for example {\"argv\": [\"ls\", \"-la\"]}",
        )),
    }
}

async fn check(caller: &CallerArgs, out: Out) -> Result<ExitCode, Failure> {
    let (host, project) = super::open_host_for(caller.workspace.as_deref())?;
    let report = check_policy(&host, &project, caller.role.as_deref(), caller.skill.as_deref()).await?;
    if out.is_json() {
        out.value(&as_json(&report));
    } else {
        print(&report, out);
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::DENIED) })
}

fn as_json(report: &PolicyReport) -> Value {
    let file = |file: &ConfigFile| {
        let rules = file.parsed.as_ref().ok().map(|parsed| parsed.rules.len());
        let trust = file.source.is_project().then(|| report.trust.label());
        json!({"file": file.name, "layer": file.layer(), "trust": trust, "rules": rules, "ok": file.parsed.is_ok()})
    };
    let fault = |fault: &PolicyProblem| {
        let (file, line) =
            if fault.file.is_empty() { (None, None) } else { (Some(&fault.file), Some(fault.line)) };
        json!({"file": file, "line": line, "message": fault.message, "hint": fault.hint})
    };
    json!({
        "ok": report.faults.is_empty(),
        "trust": report.trust.label(),
        "files": report.files.list().iter().map(file).collect::<Vec<_>>(),
        "role": report.role.as_ref().ok(),
        "no_role_because": report.role.as_ref().err(),
        "notes": report.notes,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

fn print(report: &PolicyReport, out: Out) {
    for file in report.files.list() {
        let trust =
            if file.source.is_project() { format!(", {}", report.trust.label()) } else { String::new() };
        let state = match &file.parsed {
            Ok(parsed) => {
                let rules = parsed.rules.len();
                format!(
                    "{}  {rules} {}",
                    paint(Tone::Good, "ok   "),
                    if rules == 1 { "rule" } else { "rules" }
                )
            }
            Err(_) => paint(Tone::Bad, "error"),
        };
        out.line(format!(
            "{state}  {} {}",
            sanitize(&file.name),
            paint(Tone::Faint, format!("({}{trust})", file.layer()))
        ));
    }
    if report.files.list().is_empty() {
        out.line("there is no configuration file; `vambrace init` writes one");
    }
    match &report.role {
        Ok(role) => out.line(format!("role   {}", paint(Tone::Strong, sanitize(role)))),
        Err(why) if report.faults.is_empty() => {
            out.line(format!("role   {}: {}", paint(Tone::Care, "none"), sanitize(why)))
        }
        Err(_) => {}
    }
    for note in &report.notes {
        out.line(format!("{}   {}", paint(Tone::Care, "note"), sanitize(note)));
    }
    for fault in &report.faults {
        let place =
            if fault.file.is_empty() { String::new() } else { format!("{}:{}: ", fault.file, fault.line) };
        out.line(format!("{}  {}{}", paint(Tone::Bad, "error"), sanitize(&place), sanitize(&fault.message)));
        if !fault.hint.is_empty() {
            out.line(format!("       {} {}", paint(Tone::Care, "hint:"), sanitize(&fault.hint)));
        }
    }
    if report.faults.is_empty() {
        out.line(paint(Tone::Good, "the policy is valid"));
    } else {
        out.line(paint(Tone::Bad, "the policy is invalid: every call is denied"));
    }
}

fn test(caller: &CallerArgs, out: Out) -> Result<ExitCode, Failure> {
    let paths = Paths::from_environment()?;
    let tests = test_rules(&paths, &paths.project(caller.workspace.as_deref())?)?;
    let results = &tests.results;
    let failed = results.iter().filter(|result| result.fault.is_some()).count();
    if out.is_json() {
        let cases: Vec<Value> = results.iter().map(case_json).collect();
        out.value(
            &json!({"ok": failed == 0, "passed": results.len() - failed, "failed": failed, "cases": cases}),
        );
    } else {
        results.iter().for_each(|result| print_case(result, out));
        let tone = if failed == 0 { Tone::Good } else { Tone::Bad };
        match results.len() {
            0 => {
                out.line(format!("no test cases: {} rules have neither `match` nor `not_match`", tests.rules))
            }
            all => out.line(paint(tone, format!("{} of {all} test cases passed", all - failed))),
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn case_json(result: &CaseResult) -> Value {
    json!({
        "rule": result.rule, "at": result.at.to_string(), "case": result.case, "must_match": result.must_match,
        "ok": result.fault.is_none(), "fault": result.fault,
    })
}

fn print_case(result: &CaseResult, out: Out) {
    let state = match result.fault {
        None => paint(Tone::Good, "ok  "),
        Some(_) => paint(Tone::Bad, "FAIL"),
    };
    let wish = if result.must_match { "match    " } else { "not_match" };
    let place = paint(Tone::Faint, format!("[{}]", sanitize(&result.at.to_string())));
    let fault = result.fault.map(|fault| format!(": {fault}")).unwrap_or_default();
    out.line(format!(
        "{state}  {}  {wish}  {}{fault} {place}",
        sanitize(&result.rule),
        sanitize(&result.case)
    ));
}
