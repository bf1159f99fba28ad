//! `vambrace demo`: a scripted agent in a temporary project. Every step runs the real program and checks its result; then
//! copies of the ledger are altered and verified.

mod script;
mod tamper;
mod temp_project;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use vambrace_host::organisation_config;

use self::script::DemoStep;
use self::temp_project::DemoProject;
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

pub(crate) async fn run(out: &Out) -> Result<ExitCode, Failure> {
    let out = *out;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    if !out.is_json() {
        out.line(paint(Tone::Strong, "Vambrace demo: a scripted agent in a temporary project."));
        out.line("It has its own state and configuration; none of your files are read or changed.");
    }
    // On its own thread, so that it can clean up after an interrupt.
    let mut played = tokio::task::spawn_blocking(move || {
        let project = DemoProject::set_up(&out)?;
        let mut steps = Vec::new();
        script::play(&project, &mut |step: DemoStep| {
            if !out.is_json() {
                print(steps.len() + 1, &step, out);
            }
            steps.push(step);
            !seen.load(Ordering::Relaxed)
        })?;
        Ok::<_, Failure>(steps)
    });
    let steps = tokio::select! {
        ended = &mut played => ended,
        _ = tokio::signal::ctrl_c() => {
            stop.store(true, Ordering::Relaxed);
            played.await
        }
    };
    let steps = steps.map_err(|_| Failure::failed("the demo task panicked"))??;
    let good = steps.iter().all(|step| step.ok) && !stop.load(Ordering::Relaxed);
    if out.is_json() {
        out.value(&steps.iter().map(DemoStep::as_json).collect::<Vec<Value>>().into());
    } else {
        close(&steps, good, out);
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn print(number: usize, step: &DemoStep, out: Out) {
    out.line(format!("\n{}", paint(Tone::Strong, format!("{number}. {}", step.title))));
    for command in step.command.lines() {
        out.line(paint(Tone::Faint, format!("   $ {command}")));
    }
    for line in step.output.lines() {
        out.line(format!("     {line}"));
    }
    if step.ok {
        out.line(format!("   {} {}", paint(Tone::Good, "=>"), step.meaning));
    } else {
        let exit = step.exit.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
        let wish = format!("unexpected result ({exit}, expected {})", step.expected);
        out.line(format!("   {}", paint(Tone::Bad, wish)));
    }
}

fn close(steps: &[DemoStep], good: bool, out: Out) {
    let held = steps.iter().filter(|step| step.ok).count();
    if good {
        out.line(format!("\n{}", paint(Tone::Good, format!("All {held} steps passed."))));
    } else {
        out.line(format!("\n{}", paint(Tone::Bad, format!("{held} of {} steps passed.", steps.len()))));
        let file = organisation_config();
        if file.try_exists().unwrap_or(false) {
            out.line(format!("`{}` also applies here and may be the reason.", file.display()));
        }
    }
    out.line("The temporary directory was removed.");
    out.line(format!(
        "Next, in your own project: run {}, then paste its output into your MCP client; {} checks this machine.",
        paint(Tone::Strong, "vambrace init"),
        paint(Tone::Strong, "vambrace doctor"),
    ));
}
