//! `vambrace demo`: the first minute. A scripted agent in a temporary project, every step through the real program,
//! each with what it must come to; then copies of its ledger, tampered with, and what the check finds.

mod script;
mod stage;
mod tamper;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::script::Step;
use self::stage::Stage;
use crate::failure::{Failure, exit};
use crate::out::{Out, Tone, paint};
use crate::places;

pub(crate) async fn run(out: &Out) -> Result<ExitCode, Failure> {
    let out = *out;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    if !out.is_json() {
        out.line(paint(Tone::Strong, "Vambrace in a minute: a scripted agent in a temporary project."));
        out.line("It has its own state and configuration; nothing of yours is read or changed.");
    }
    // In a thread of its own, so that an interrupt lets it end and clean up.
    let mut played = tokio::task::spawn_blocking(move || {
        let stage = Stage::set_up(&out)?;
        let mut steps = Vec::new();
        script::play(&stage, &mut |step: Step| {
            if !out.is_json() {
                tell(steps.len() + 1, &step, out);
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
    let steps = steps.map_err(|_| Failure::failed("the demo broke off"))??;
    let good = steps.iter().all(|step| step.ok) && !stop.load(Ordering::Relaxed);
    if out.is_json() {
        out.value(&steps.iter().map(Step::as_json).collect::<Vec<Value>>().into());
    } else {
        close(&steps, good, out);
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn tell(number: usize, step: &Step, out: Out) {
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
        let wish = format!("this is not what must happen ({exit}, expected {})", step.expected);
        out.line(format!("   {}", paint(Tone::Bad, wish)));
    }
}

fn close(steps: &[Step], good: bool, out: Out) {
    let held = steps.iter().filter(|step| step.ok).count();
    if good {
        out.line(format!("\n{}", paint(Tone::Good, format!("All {held} steps came out as they must."))));
    } else {
        out.line(format!(
            "\n{}",
            paint(Tone::Bad, format!("{held} of {} steps came out as they must.", steps.len()))
        ));
        let (file, _) = places::organisation();
        if file.try_exists().unwrap_or(false) {
            out.line(format!("`{}` is in force here too and may be the reason.", file.display()));
        }
    }
    out.line("The temporary folder is removed. Not shown, because it is not there yet: an agent that runs commands.");
    out.line(format!(
        "Next, in a project of yours: {}, then paste what it prints into your client; {} looks at this machine.",
        paint(Tone::Strong, "vambrace init"),
        paint(Tone::Strong, "vambrace doctor"),
    ));
}
