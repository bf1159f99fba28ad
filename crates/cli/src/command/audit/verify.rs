//! `vambrace audit verify`: checks a state folder without changing it, and says what such a check cannot find.
#![expect(clippy::disallowed_methods, reason = "a checkpoint file is named by the person who asks")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::{BadKey, Finding, Kind, Place, Timestamp};
use vambrace_store::{
    DiskSegments, Heard, Progress, SegmentFiles as _, StateDir, VerifyOptions, VerifyReport, Witness,
};

use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::machine::SystemClock;
use crate::out::{Out, Tone, paint};
use crate::places;
use crate::witness;

/// What no check of the folder alone can find.
const LIMIT: &str = "whoever has the key can write another ledger and sign it; a checkpoint that was kept elsewhere \
                     (`--checkpoint`, `--key`, a witness) contradicts that";

/// What the ledger is held against.
#[derive(Debug)]
pub(super) struct Against {
    pub(super) since: Option<Timestamp>,
    pub(super) checkpoint: Vec<PathBuf>,
    pub(super) key: Option<String>,
    pub(super) jobs: Option<usize>,
    pub(super) thorough: bool,
}

impl Against {
    fn options(self, home: Option<&Path>) -> Result<VerifyOptions, Failure> {
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
            // An anchor speaks of the folder that is in use; a copy may be older.
            anchors: if home.is_some() { None } else { places::anchors() },
            jobs: self.jobs.unwrap_or(cores),
            thorough: self.thorough,
            now: SystemClock.now(),
        })
    }
}

pub(super) async fn run(home: Option<&Path>, against: Against, out: Out) -> Result<ExitCode, Failure> {
    let options = against.options(home)?;
    // A witness knows the folder that is in use; a copy may be older.
    let witness = if home.is_none() { witness::configured()? } else { None };
    let place = match home {
        Some(home) => home.to_owned(),
        None => places::state()?,
    };
    let dir = StateDir::existing(&place).map_err(|_| super::no_ledger(&place))?;
    let has_segments = DiskSegments::new(&dir.ledger()).list().is_ok_and(|found| !found.is_empty());
    if !dir.database().try_exists().unwrap_or(true) && !has_segments {
        return Err(super::no_ledger(&place));
    }
    let checked = tokio::task::spawn_blocking(move || {
        let mut bar = Bar { since: Instant::now(), shown: None };
        let report = vambrace_store::verify(&dir, &options, &mut |progress| bar.show(progress));
        bar.clear();
        report.map(|mut report| {
            if let Some(witness) = witness {
                ask(&dir, witness.as_ref(), &mut report);
            }
            report
        })
    });
    let report = checked.await.map_err(|_| Failure::failed("the check broke off"))??;
    if out.is_json() {
        out.value(&as_json(&report, &place));
    } else {
        tell(&report, &place, out);
    }
    Ok(if report.findings.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(exit::FOUND) })
}

/// What the witness says of the ledger.
fn ask(dir: &StateDir, witness: &dyn Witness, report: &mut VerifyReport) {
    match vambrace_store::show(dir, witness) {
        Ok(Heard::Signed(_)) => {}
        Ok(Heard::RolledBack(size)) => {
            let detail =
                "it has signed records that this ledger does not continue: it was set back or rewritten";
            let place = Place::Checkpoint("witness".to_owned(), size);
            report.findings.fault(place, Kind::ShorterThanCheckpoint, detail);
        }
        Ok(Heard::Nothing(why)) => report.unchecked.push(format!("the witness: {why}")),
        Err(error) => report.unchecked.push(format!("the witness: {error}")),
    }
}

fn limits(report: &VerifyReport) -> Vec<&str> {
    report.unchecked.iter().map(String::as_str).chain([LIMIT]).collect()
}

fn as_json(report: &VerifyReport, place: &Path) -> Value {
    let list = |found: &[Finding]| -> Vec<Value> {
        let one =
            |f: &Finding| json!({"place": f.place.to_string(), "kind": f.kind.as_str(), "detail": f.detail});
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

fn tell(report: &VerifyReport, place: &Path, out: Out) {
    out.line(format!("state     {}", plain(&place.display().to_string())));
    out.line(format!("records   {}", report.records));
    if report.skipped > 0 {
        out.line(format!("before    {} (not looked at; their checkpoint holds)", report.skipped));
    }
    out.line(format!("segments  {}", report.segments));
    out.line(format!("signed    {} ({} checkpoints)", report.anchored, report.checkpoints));
    out.line(format!("head      {} (record {})", report.head.hash, report.head.seq));
    let line = |tone, word: &str, finding: &Finding| {
        let kind = paint(Tone::Faint, format!("[{}]", finding.kind));
        out.line(format!("{}  {}: {} {kind}", paint(tone, word), finding.place, plain(&finding.detail)));
    };
    report.findings.notes().iter().for_each(|note| line(Tone::Care, "note   ", note));
    report.findings.faults().iter().for_each(|fault| line(Tone::Bad, "finding", fault));
    let count = report.findings.count();
    if count == 0 {
        out.line(paint(Tone::Good, "nothing found: records, segments, tree and checkpoints agree"));
        for limit in limits(report) {
            out.line(paint(Tone::Faint, format!("not checked: {limit}")));
        }
    } else {
        let noun = if count == 1 { "finding" } else { "findings" };
        let verdict = if report.table_read {
            "the ledger is not what was written"
        } else {
            "the table could not be read, so nothing shows that the ledger is what was written"
        };
        out.line(paint(Tone::Bad, format!("{count} {noun}: {verdict}")));
    }
}

/// A bar for what takes over a second; where nobody looks, nothing is drawn.
struct Bar {
    since: Instant,
    shown: Option<ProgressBar>,
}

impl Bar {
    fn show(&mut self, progress: Progress) {
        if self.since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            let bar = ProgressBar::new(progress.total);
            match ProgressStyle::with_template("checking {bar:30} {pos}/{len} records") {
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
