//! `vambrace doctor`: checks the system features, the state and the project that this program uses. Every line that is not ok
//! says what does not work and how to fix it.

mod check;
mod checkpoint;
mod project;
mod sandbox;
mod state;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use self::check::{CheckState, DoctorCheck};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};
use crate::paths;
use crate::terminal_escape::sanitize;

pub(crate) async fn run(workspace: Option<&Path>, out: &Out) -> Result<ExitCode, Failure> {
    let project = paths::project(workspace)?;
    let mut checks = vec![project::kernel(&project)];
    let store = state::look(&mut checks).await;
    project::look(&project, store.as_deref(), &mut checks).await;
    sandbox::look(&mut checks);
    let missing = checks.iter().filter(|check| check.state == CheckState::Missing).count();
    if out.is_json() {
        let list: Vec<Value> = checks.iter().map(DoctorCheck::as_json).collect();
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
