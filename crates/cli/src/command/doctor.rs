//! `vambrace doctor`: what this program uses of the machine and the project, and how each of it stands. Only what is
//! used today is looked at; every line that is not ok says what is lost and how to get it back.

mod check;
mod project;
mod sandbox;
mod signed;
mod state;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use self::check::{Check, State};
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};
use crate::places;

pub(crate) async fn run(workspace: Option<&Path>, out: &Out) -> Result<ExitCode, Failure> {
    let project = places::project(workspace)?;
    let mut checks = vec![project::kernel(&project)];
    let store = state::look(&mut checks).await;
    project::look(&project, store.as_deref(), &mut checks).await;
    sandbox::look(&mut checks);
    let missing = checks.iter().filter(|check| check.state == State::Missing).count();
    if out.is_json() {
        let list: Vec<Value> = checks.iter().map(Check::as_json).collect();
        out.value(&json!({"ok": missing == 0, "project": project.display().to_string(), "checks": list}));
    } else {
        checks.iter().for_each(|check| tell(check, *out));
        let degraded = checks.iter().filter(|check| check.state == State::Degraded).count();
        out.line(match (missing, degraded) {
            (0, 0) => paint(Tone::Good, "everything is there"),
            (0, _) => format!("everything needed is there; {degraded} worth a look"),
            _ => paint(
                Tone::Bad,
                format!("{missing} of what is needed is missing: calls are refused until it is there"),
            ),
        });
    }
    Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn tell(check: &Check, out: Out) {
    let tone = match check.state {
        State::Ok => Tone::Good,
        State::Degraded => Tone::Care,
        State::Missing => Tone::Bad,
    };
    let word = paint(tone, format!("{:<8}", check.state.as_str()));
    out.line(format!("{word}  {:<14} {}", check.name, plain(&check.found)));
    if check.state != State::Ok {
        out.line(format!("{:<25}{}", "", plain(&check.lost)));
        out.line(format!("{:<25}{} {}", "", paint(Tone::Care, "fix:"), plain(&check.fix)));
    }
}
