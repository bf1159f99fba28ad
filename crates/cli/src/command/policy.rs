//! `vambrace policy`: every file that makes the policy with its faults and notes, and the cases beside the rules.

use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::config::ConfigError;
use vambrace_core::policy::Policy;
use vambrace_core::policy::cases::{CaseResult, check_cases};
use vambrace_core::policy::compile::BadPolicy;

use crate::args::{PolicyCommand, Seat};
use crate::desk::{self, Settings, Trust};
use crate::failure::{Failure, exit};
use crate::found::{Found, combine, find, standing, told};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};
use crate::places;
use crate::project::ProjectFiles;

pub(crate) async fn run(what: PolicyCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        PolicyCommand::Check { seat } => check(&seat, *out).await,
        PolicyCommand::Test { seat } => test(&seat, *out),
    }
}

/// What a check has to tell.
struct Report {
    trust: Trust,
    files: Vec<Found>,
    role: Result<String, String>,
    notes: Vec<String>,
    faults: Vec<Fault>,
}

/// Something that makes the policy unusable.
struct Fault {
    file: String,
    line: usize,
    message: String,
    hint: String,
}

async fn check(seat: &Seat, out: Out) -> Result<ExitCode, Failure> {
    let report = examine(seat).await?;
    if out.is_json() {
        out.value(&as_json(&report));
    } else {
        tell(&report, out);
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::DENIED) })
}

async fn examine(seat: &Seat) -> Result<Report, Failure> {
    let project = places::project(seat.workspace.as_deref())?;
    let store = desk::open_store()?;
    let project_files = ProjectFiles::open(&project)?;
    let (trust, _) = standing(&project, &project_files, &store).await?;
    let files = find(&project_files, trust == Trust::Trusted)?;
    let mut report = Report {
        trust,
        files,
        role: Err("the configuration is faulty".into()),
        notes: Vec::new(),
        faults: Vec::new(),
    };
    let effective = match combine(&report.files) {
        Ok(effective) => effective,
        Err(errors) => {
            report.faults = errors.into_iter().map(Fault::from).collect();
            return Ok(report);
        }
    };
    report.notes = effective.notes.iter().map(ToString::to_string).collect();
    let facts = desk::facts(&*desk::catalogue()?);
    if let Err(faults) = Policy::compile(&effective, seat.role.as_deref(), None, &facts) {
        report.faults = faults.into_iter().map(Fault::from).collect();
        return Ok(report);
    }
    // Once more the way every call goes, which also brings the skill and the words for a role that is not in force.
    let settings = Settings::load(&project, &store).await?;
    match settings.policy(seat, &facts) {
        Ok(policy) => report.role = policy.role.map(|role| role.name().to_string()),
        Err(failure) => report.faults.push(failure.into()),
    }
    if let (Some(_), Err(why)) = (&seat.role, &report.role) {
        report.faults.push(Fault { file: String::new(), line: 0, message: why.clone(), hint: String::new() });
    }
    Ok(report)
}

fn as_json(report: &Report) -> Value {
    let file = |file: &Found| {
        let rules = file.parsed.as_ref().ok().map(|parsed| parsed.rules.len());
        let trust = file.source.is_project().then(|| told(report.trust));
        json!({"file": file.name, "layer": layer(file), "trust": trust, "rules": rules, "ok": file.parsed.is_ok()})
    };
    let fault = |fault: &Fault| {
        let (file, line) =
            if fault.file.is_empty() { (None, None) } else { (Some(&fault.file), Some(fault.line)) };
        json!({"file": file, "line": line, "message": fault.message, "hint": fault.hint})
    };
    json!({
        "ok": report.faults.is_empty(),
        "trust": told(report.trust),
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
        "role": report.role.as_ref().ok(),
        "no_role_because": report.role.as_ref().err(),
        "notes": report.notes,
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

fn tell(report: &Report, out: Out) {
    for file in &report.files {
        let trust =
            if file.source.is_project() { format!(", {}", told(report.trust)) } else { String::new() };
        let state = match &file.parsed {
            Ok(parsed) => {
                let rules = parsed.rules.len();
                format!(
                    "{}  {rules} {}",
                    paint(Tone::Good, "ok   "),
                    if rules == 1 { "rule" } else { "rules" }
                )
            }
            Err(_) => paint(Tone::Bad, "fault"),
        };
        out.line(format!(
            "{state}  {} {}",
            plain(&file.name),
            paint(Tone::Faint, format!("({}{trust})", layer(file)))
        ));
    }
    if report.files.is_empty() {
        out.line("there is no configuration file; `vambrace init` writes one");
    }
    match &report.role {
        Ok(role) => out.line(format!("role   {}", paint(Tone::Strong, plain(role)))),
        Err(why) if report.faults.is_empty() => {
            out.line(format!("role   {}: {}", paint(Tone::Care, "none"), plain(why)))
        }
        Err(_) => {}
    }
    for note in &report.notes {
        out.line(format!("{}   {}", paint(Tone::Care, "note"), plain(note)));
    }
    for fault in &report.faults {
        let place =
            if fault.file.is_empty() { String::new() } else { format!("{}:{}: ", fault.file, fault.line) };
        out.line(format!("{}  {}{}", paint(Tone::Bad, "fault"), plain(&place), plain(&fault.message)));
        if !fault.hint.is_empty() {
            out.line(format!("       {} {}", paint(Tone::Care, "hint:"), plain(&fault.hint)));
        }
    }
    if report.faults.is_empty() {
        out.line(paint(Tone::Good, "the policy can be used"));
    } else {
        out.line(paint(Tone::Bad, "nothing runs under this policy"));
    }
}

fn layer(file: &Found) -> &'static str {
    if file.source.is_project() { "project" } else { file.source.as_str() }
}

/// Rules of every file count here, also those that take effect only once the project is trusted: whoever writes a
/// rule tests it first.
fn test(seat: &Seat, out: Out) -> Result<ExitCode, Failure> {
    let project = places::project(seat.workspace.as_deref())?;
    let files = find(&ProjectFiles::open(&project)?, true)?;
    let mut rules = Vec::new();
    for file in &files {
        match &file.parsed {
            Ok(parsed) => rules.extend(parsed.rules.iter().cloned()),
            Err(errors) => {
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let hint = "correct the places named, then test again";
                let code = vambrace_core::error::ErrorCode::PermissionDenied;
                return Err(Failure::denied(
                    code,
                    format!("the configuration cannot be used:\n{}", list.join("\n")),
                    hint,
                ));
            }
        }
    }
    let results = check_cases(&rules, &desk::facts(&*desk::catalogue()?));
    let failed = results.iter().filter(|result| result.fault.is_some()).count();
    if out.is_json() {
        let cases: Vec<Value> = results.iter().map(case_json).collect();
        out.value(
            &json!({"ok": failed == 0, "passed": results.len() - failed, "failed": failed, "cases": cases}),
        );
    } else {
        results.iter().for_each(|result| tell_case(result, out));
        let tone = if failed == 0 { Tone::Good } else { Tone::Bad };
        match results.len() {
            0 => out.line(format!("no cases: {} rules have neither `match` nor `not_match`", rules.len())),
            all => out.line(paint(tone, format!("{} of {all} cases hold", all - failed))),
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

fn tell_case(result: &CaseResult, out: Out) {
    let state = match result.fault {
        None => paint(Tone::Good, "ok  "),
        Some(_) => paint(Tone::Bad, "FAIL"),
    };
    let wish = if result.must_match { "match    " } else { "not_match" };
    let place = paint(Tone::Faint, format!("[{}]", plain(&result.at.to_string())));
    let fault = result.fault.map(|fault| format!(": {fault}")).unwrap_or_default();
    out.line(format!("{state}  {}  {wish}  {}{fault} {place}", plain(&result.rule), plain(&result.case)));
}

impl From<ConfigError> for Fault {
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

impl From<BadPolicy> for Fault {
    fn from(bad: BadPolicy) -> Self {
        let (at, message) = match bad {
            BadPolicy::Pattern(at, pattern) => (at, pattern.to_string()),
            BadPolicy::Case { at, rule, fault, case } => (at, format!("rule `{rule}` {fault}: `{case}`")),
        };
        Self { file: at.file, line: at.line, message, hint: String::new() }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { file: String::new(), line: 0, message: failure.error.message, hint: failure.error.suggestion }
    }
}
