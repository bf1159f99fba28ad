//! `vambrace policy replay`: which verdicts about recorded calls another configuration would change.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;
use vambrace_core::verdict::VerdictKind;
use vambrace_host::{Reader, ReplayReport, VerdictChange, replay_policy};

use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

/// Exit code if a verdict changes.
const CHANGED: u8 = 1;

#[expect(clippy::disallowed_methods, reason = "the user names the file")]
pub(crate) async fn run(
    workspace: Option<&Path>,
    against: &Path,
    since: Option<&str>,
    out: Out,
) -> Result<ExitCode, Failure> {
    let since = since.map(super::audit::parse_time).transpose()?;
    let bytes = std::fs::read(against).map_err(|error| {
        Failure::usage(format!("`{}`: {error}", against.display()), "name a configuration file")
    })?;
    let (host, project) = super::open_host_for(workspace)?;
    let reader = Reader::from_environment("policy replay", || Ok(host.clone())).await?;
    let name = against.display().to_string();
    let report = replay_policy(&host, &project, (&name, &bytes), since, reader.owner()).await?;
    if out.is_json() {
        out.value(&as_json(&report));
    } else {
        report.changes.iter().for_each(|change| print(change, out));
        out.line(format!(
            "{} judged, {} of them change, {} not judged (recorded without effects)",
            report.judged,
            report.changes.len(),
            report.not_judged
        ));
    }
    Ok(if report.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(CHANGED) })
}

fn as_json(report: &ReplayReport) -> Value {
    let change = |change: &VerdictChange| {
        json!({
            "call": change.call, "session": change.session, "tool": change.tool, "at": change.at.to_string(),
            "before": change.before.as_str(), "after": change.after.as_str(), "effects": change.effects,
            "why": change.why,
        })
    };
    json!({
        "judged": report.judged, "not_judged": report.not_judged, "changed": report.changes.len(),
        "changes": report.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

fn print(change: &VerdictChange, out: Out) {
    let tone = match change.after {
        VerdictKind::Allow => Tone::Good,
        VerdictKind::Ask => Tone::Care,
        VerdictKind::Deny => Tone::Bad,
    };
    let verdicts = format!("{} -> {}", change.before.as_str(), paint(tone, change.after.as_str()));
    let (tool, effects) = (sanitize(&change.tool), sanitize(&change.effects.join(", ")));
    out.line(format!("{verdicts}  {} {tool}: {effects}", paint(Tone::Faint, &change.call)));
    change.why.iter().for_each(|why| out.line(format!("    {}", sanitize(why))));
}
