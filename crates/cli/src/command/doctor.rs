//! `vambrace doctor`: prints the checks of this machine and this project.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::Paths;
use vambrace_host::doctor::{CheckState, DoctorCheck, examine};

use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(workspace: Option<&Path>, out: &Out) -> Result<ExitCode, Failure> {
    let paths = Paths::from_environment()?;
    let project = paths.project(workspace)?;
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("path of this program: {error}")))?;
    let checks = examine(&paths, &project, &program).await;
    let missing = checks.iter().filter(|check| check.state == CheckState::Missing).count();
    if out.is_json() {
        let list: Vec<Value> = checks.iter().map(as_json).collect();
        out.value(&json!({"ok": missing == 0, "project": project.display().to_string(), "checks": list}));
    } else {
        checks.iter().for_each(|check| print(check, *out));
        let degraded = checks.iter().filter(|check| check.state == CheckState::Degraded).count();
        out.line(match (missing, degraded) {
            (0, 0) => paint(Tone::Good, "All checks passed"),
            (0, 1) => "All required checks passed, 1 warning".to_owned(),
            (0, _) => format!("All required checks passed, {degraded} warnings"),
            _ => paint(
                Tone::Bad,
                format!("{missing} required checks failed: calls are denied until they are fixed"),
            ),
        });
    }
    Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn as_json(check: &DoctorCheck) -> Value {
    let unless_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "name": check.name, "state": check.state.as_str(), "found": check.found,
        "lost": unless_empty(&check.lost), "fix": unless_empty(&check.fix),
    })
}

fn print(check: &DoctorCheck, out: Out) {
    let tone = match check.state {
        CheckState::Ok => Tone::Good,
        CheckState::Degraded => Tone::Care,
        CheckState::Missing => Tone::Bad,
    };
    let word = paint(tone, format!("{:<8}", check.state.as_str()));
    out.line(format!("{word}  {:<14} {}", check.name, sanitize(&check.found)));
    if check.state != CheckState::Ok {
        out.line(format!("{:<25}{}", "", sanitize(&check.lost)));
        out.line(format!("{:<25}{} {}", "", paint(Tone::Care, "fix:"), sanitize(&check.fix)));
    }
}
