//! `vambrace audit verify`: verifies the ledger of a state directory without changing it, and states what it cannot detect.
#![expect(clippy::disallowed_methods, reason = "the user names the checkpoint file")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::system::SystemClock;
use vambrace_host::{Paths, configured_witness, no_ledger};
use vambrace_ledger::{BadKey, Finding, FindingKind, FindingLocation, Timestamp};
use vambrace_store::{
    CheckpointWitness, DiskSegments, SegmentFiles as _, StateDir, VerifyOptions, VerifyProgress,
    VerifyReport, WitnessReply,
};

use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

/// What cannot be detected from the state directory alone.
const UNDETECTABLE: &str = "an attacker who has the key can write and sign another ledger; only a checkpoint kept elsewhere \
                     (`--checkpoint`, `--key`, a witness) reveals that";

/// What to verify, and against which checkpoints.
#[derive(Debug)]
pub(super) struct VerifyArgs {
    pub(super) since: Option<Timestamp>,
    pub(super) checkpoint: Vec<PathBuf>,
    pub(super) key: Option<String>,
    pub(super) jobs: Option<usize>,
    pub(super) thorough: bool,
}

impl VerifyArgs {
    fn options(self, anchors: Option<PathBuf>) -> Result<VerifyOptions, Failure> {
        let hint = "name a file that `vambrace audit checkpoint` printed";
        let read = |file: PathBuf| {
            let bytes = std::fs::read(&file)
                .map_err(|error| Failure::usage(format!("`{}`: {error}", file.display()), hint))?;
            Ok((file.display().to_string(), bytes))
        };
        let key = self.key.map(|key| {
            key.trim().parse().map_err(|error: BadKey| {
                Failure::usage(error.to_string(), "`vambrace audit checkpoint` prints the key")
            })
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(VerifyOptions {
            since: self.since,
            checkpoints: self.checkpoint.into_iter().map(read).collect::<Result<_, Failure>>()?,
            key: key.transpose()?,
            anchors,
            jobs: self.jobs.unwrap_or(cores),
            thorough: self.thorough,
            now: SystemClock.now(),
        })
    }
}

pub(super) async fn run(home: Option<&Path>, args: VerifyArgs, out: Out) -> Result<ExitCode, Failure> {
    // Anchors and the witness belong to the current state directory; a copy may be older.
    let (place, anchors, witness) = match home {
        Some(home) => (home.to_owned(), None, None),
        None => {
            let paths = Paths::from_environment()?;
            let anchors = paths.anchors().map(Path::to_owned);
            (paths.state().to_owned(), anchors, configured_witness(&paths)?)
        }
    };
    let options = args.options(anchors)?;
    let dir = StateDir::existing(&place).map_err(|_| no_ledger(&place))?;
    let has_segments = DiskSegments::new(&dir.ledger()).list().is_ok_and(|found| !found.is_empty());
    if !dir.database().try_exists().unwrap_or(true) && !has_segments {
        return Err(no_ledger(&place).into());
    }
    let checked = tokio::task::spawn_blocking(move || {
        let mut bar = ProgressDisplay { since: Instant::now(), shown: None };
        let report = vambrace_store::verify(&dir, &options, &mut |progress| bar.show(progress));
        bar.clear();
        report.map(|mut report| {
            if let Some(witness) = witness {
                check_witness(&dir, witness.as_ref(), &mut report);
            }
            report
        })
    });
    let report = checked.await.map_err(|_| Failure::failed("the verification task panicked"))??;
    if out.is_json() {
        out.value(&as_json(&report, &place));
    } else {
        print(&report, &place, out);
    }
    Ok(if report.findings.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(exit::FOUND) })
}

/// Shows the ledger to the witness and reports its answer.
fn check_witness(dir: &StateDir, witness: &dyn CheckpointWitness, report: &mut VerifyReport) {
    match vambrace_store::submit_to_witness(dir, witness) {
        Ok(WitnessReply::Signed(_)) => {}
        Ok(WitnessReply::RolledBack(size)) => {
            let detail =
                "the witness signed records that are not in this ledger: it was rolled back or rewritten";
            let place = FindingLocation::Checkpoint("witness".to_owned(), size);
            report.findings.fault(place, FindingKind::ShorterThanCheckpoint, detail);
        }
        Ok(WitnessReply::Inconclusive(why)) => report.unchecked.push(format!("the witness: {why}")),
        Err(error) => report.unchecked.push(format!("the witness: {error}")),
    }
}

fn limits(report: &VerifyReport) -> Vec<&str> {
    report.unchecked.iter().map(String::as_str).chain([UNDETECTABLE]).collect()
}

fn as_json(report: &VerifyReport, place: &Path) -> Value {
    let list = |found: &[Finding]| -> Vec<Value> {
        let one = |f: &Finding| json!({"place": f.location.to_string(), "kind": f.kind.as_str(), "detail": f.detail});
        found.iter().map(one).collect()
    };
    json!({
        "ok": report.findings.is_clean(),
        "state": place.display().to_string(),
        "records": report.records,
        "skipped": report.skipped,
        "segments": report.segments,
        "checkpoints": report.checkpoints,
        "anchored": report.anchored,
        "root": report.root.to_string(),
        "head": report.head.hash.to_string(),
        "findings": list(report.findings.faults()),
        "findings_total": report.findings.count(),
        "notes": list(report.findings.notes()),
        "limits": limits(report),
    })
}

fn print(report: &VerifyReport, place: &Path, out: Out) {
    out.line(format!("state     {}", sanitize(&place.display().to_string())));
    out.line(format!("records   {}", report.records));
    if report.skipped > 0 {
        out.line(format!("skipped   {} (not verified; their checkpoint is valid)", report.skipped));
    }
    out.line(format!("segments  {}", report.segments));
    out.line(format!("signed    {} ({} checkpoints)", report.anchored, report.checkpoints));
    out.line(format!("head      {} (record {})", report.head.hash, report.head.seq));
    let line = |tone, word: &str, finding: &Finding| {
        let kind = paint(Tone::Faint, format!("[{}]", finding.kind));
        out.line(format!(
            "{}  {}: {} {kind}",
            paint(tone, word),
            finding.location,
            sanitize(&finding.detail)
        ));
    };
    report.findings.notes().iter().for_each(|note| line(Tone::Care, "note   ", note));
    report.findings.faults().iter().for_each(|fault| line(Tone::Bad, "finding", fault));
    let count = report.findings.count();
    if count == 0 {
        out.line(paint(Tone::Good, "no findings: records, segments, tree and checkpoints are consistent"));
        for limit in limits(report) {
            out.line(paint(Tone::Faint, format!("not checked: {limit}")));
        }
    } else {
        let noun = if count == 1 { "finding" } else { "findings" };
        let verdict = if report.table_read {
            "the ledger was altered"
        } else {
            "the table could not be read, so the ledger is not verified"
        };
        out.line(paint(Tone::Bad, format!("{count} {noun}: {verdict}")));
    }
}

/// A progress bar after the first second, on a terminal only.
struct ProgressDisplay {
    since: Instant,
    shown: Option<ProgressBar>,
}

impl ProgressDisplay {
    fn show(&mut self, progress: VerifyProgress) {
        if self.since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            let bar = ProgressBar::new(progress.total);
            match ProgressStyle::with_template("verifying {bar:30} {pos}/{len} records") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        bar.set_length(progress.total.max(progress.records));
        bar.set_position(progress.records);
    }

    fn clear(&self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
