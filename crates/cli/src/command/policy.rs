//! `vambrace policy`: reports errors and notes of all policy files, and runs the test cases of the rules.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::config::ConfigError;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::BadPolicy;
use vambrace_core::policy::rule_cases::{CaseResult, check_cases};

use crate::args::{CallerOptions, PolicyCommand};
use crate::config_files::{ConfigFile, combine, find, trust_label, trust_state};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::paths;
use crate::project_context::{self, ProjectTrust, Settings};
use crate::project_files::ProjectFiles;
use crate::terminal_escape::sanitize;

pub(crate) async fn run(what: PolicyCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        PolicyCommand::Check { caller } => check(&caller, *out).await,
        PolicyCommand::Test { caller } => test(&caller, *out),
    }
}

/// Result of `policy check`.
struct PolicyReport {
    trust: ProjectTrust,
    files: Vec<ConfigFile>,
    role: Result<String, String>,
    notes: Vec<String>,
    faults: Vec<PolicyProblem>,
}

/// An error that makes the policy invalid.
struct PolicyProblem {
    file: String,
    line: usize,
    message: String,
    hint: String,
}

async fn check(caller: &CallerOptions, out: Out) -> Result<ExitCode, Failure> {
    let report = examine(caller).await?;
    if out.is_json() {
        out.value(&as_json(&report));
    } else {
        print(&report, out);
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::DENIED) })
}

async fn examine(caller: &CallerOptions) -> Result<PolicyReport, Failure> {
    let project = paths::project(caller.workspace.as_deref())?;
    let store = project_context::open_store()?;
    let project_files = ProjectFiles::open(&project)?;
    let (trust, _) = trust_state(&project, &project_files, &store).await?;
    let files = find(&project_files, trust == ProjectTrust::Trusted)?;
    let mut report = PolicyReport {
        trust,
        files,
        role: Err("the configuration is invalid".into()),
        notes: Vec::new(),
        faults: Vec::new(),
    };
    let effective = match combine(&report.files) {
        Ok(effective) => effective,
        Err(errors) => {
            report.faults = errors.into_iter().map(PolicyProblem::from).collect();
            return Ok(report);
        }
    };
    report.notes = effective.notes.iter().map(ToString::to_string).collect();
    let facts = project_context::facts(&*project_context::catalogue()?);
    if let Err(faults) = Policy::compile(&effective, caller.role.as_deref(), None, &facts) {
        report.faults = faults.into_iter().map(PolicyProblem::from).collect();
        return Ok(report);
    }
    // Load it again as a call does: this includes the skill, and the message for a role that is not active.
    let settings = Settings::load(&project, &store).await?;
    match settings.policy(caller, &facts) {
        Ok(policy) => report.role = policy.role.map(|role| role.name().to_string()),
        Err(failure) => report.faults.push(failure.into()),
    }
    if let (Some(_), Err(why)) = (&caller.role, &report.role) {
        report.faults.push(PolicyProblem {
            file: String::new(),
            line: 0,
            message: why.clone(),
            hint: String::new(),
        });
    }
    Ok(report)
}

fn as_json(report: &PolicyReport) -> Value {
    let file = |file: &ConfigFile| {
        let rules = file.parsed.as_ref().ok().map(|parsed| parsed.rules.len());
        let trust = file.source.is_project().then(|| trust_label(report.trust));
        json!({"file": file.name, "layer": layer(file), "trust": trust, "rules": rules, "ok": file.parsed.is_ok()})
    };
    let fault = |fault: &PolicyProblem| {
        let (file, line) =
            if fault.file.is_empty() { (None, None) } else { (Some(&fault.file), Some(fault.line)) };
        json!({"file": file, "line": line, "message": fault.message, "hint": fault.hint})
    };
    json!({
        "ok": report.faults.is_empty(),
        "trust": trust_label(report.trust),
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
        "role": report.role.as_ref().ok(),
        "no_role_because": report.role.as_ref().err(),
        "notes": report.notes,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

fn print(report: &PolicyReport, out: Out) {
    for file in &report.files {
        let trust =
            if file.source.is_project() { format!(", {}", trust_label(report.trust)) } else { String::new() };
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
            paint(Tone::Faint, format!("({}{trust})", layer(file)))
        ));
    }
    if report.files.is_empty() {
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

fn layer(file: &ConfigFile) -> &'static str {
    if file.source.is_project() { "project" } else { file.source.as_str() }
}

/// Tests the rules of all files, including those of an untrusted project: rules are tested before they are trusted.
fn test(caller: &CallerOptions, out: Out) -> Result<ExitCode, Failure> {
    let project = paths::project(caller.workspace.as_deref())?;
    let files = find(&ProjectFiles::open(&project)?, true)?;
    let mut rules = Vec::new();
    for file in &files {
        match &file.parsed {
            Ok(parsed) => rules.extend(parsed.rules.iter().cloned()),
            Err(errors) => {
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let hint = "fix the errors, then test again";
                let code = vambrace_core::error::ErrorCode::PermissionDenied;
                return Err(Failure::denied(
                    code,
                    format!("invalid configuration:\n{}", list.join("\n")),
                    hint,
                ));
            }
        }
    }
    let results = check_cases(&rules, &project_context::facts(&*project_context::catalogue()?));
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
                out.line(format!("no test cases: {} rules have neither `match` nor `not_match`", rules.len()))
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

impl From<ConfigError> for PolicyProblem {
    fn from(error: ConfigError) -> Self {
        let message =
            if error.key.is_empty() { error.message } else { format!("{}: {}", error.key, error.message) };
        Self {
            file: error.file,
            line: usize::try_from(error.line).unwrap_or_default(),
            message,
            hint: error.hint,
        }
    }
}

impl From<BadPolicy> for PolicyProblem {
    fn from(bad: BadPolicy) -> Self {
        let (at, message) = match bad {
            BadPolicy::Pattern(at, pattern) => (at, pattern.to_string()),
            BadPolicy::Case { at, rule, fault, case } => (at, format!("rule `{rule}` {fault}: `{case}`")),
        };
        Self { file: at.file, line: at.line, message, hint: String::new() }
    }
}

impl From<Failure> for PolicyProblem {
    fn from(failure: Failure) -> Self {
        Self { file: String::new(), line: 0, message: failure.error.message, hint: failure.error.suggestion }
    }
}
