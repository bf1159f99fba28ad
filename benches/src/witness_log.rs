//! Compared with the PyPI package witness-log on the same records: durable appends by 64 writers, and detection of a log
//! that was truncated to half.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::Value;
use vambrace_core::clock::Clock as _;
use vambrace_ledger::FindingKind;
use vambrace_store::{Batch, StateDir, Store as _, VerifyOptions, verify};

use crate::ledger;
use crate::report::{Report, Requirement};
use crate::system_clock::SystemClock;

const WRITERS: u64 = 64;
const EACH: u64 = 60;
const ROUNDS: u32 = 3;

pub(crate) fn run() -> Report {
    let base = std::env::var_os("VAMBRACE_BENCH_DIR").unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(base).expect("a temporary directory");
    let (mut ratios, mut rates, mut found, mut theirs_found) = (Vec::new(), (0.0, 0.0), 0.0, 0.0);
    for round in 0..ROUNDS {
        let home = dir.path().join(format!("ours-{round}"));
        let ours = appends(&home);
        let lines = dir.path().join(format!("lines-{round}"));
        let theirs = peer(&home, &lines, &dir.path().join(format!("theirs-{round}")));
        let count = theirs["records"].as_f64().expect("a count");
        let their_rate = count / theirs["wall"].as_f64().expect("a time");
        ratios.push(ours / their_rate);
        rates = (ours, their_rate);
        found += f64::from(u8::from(cut_in_half_is_found(&home)));
        theirs_found += f64::from(u8::from(theirs["found"] == true));
    }
    ratios.sort_by(f64::total_cmp);
    let mut report = Report::new("witness-log");
    report.require(
        "durable appends, 64 writers, ours / witness-log (median)",
        ratios[ratios.len() / 2],
        "x",
        Requirement::AtLeast(1.0),
    );
    report.require(
        "ours, truncation to half detected",
        found / f64::from(ROUNDS),
        "of 1",
        Requirement::AtLeast(1.0),
    );
    report.add("witness-log, truncation to half detected", theirs_found / f64::from(ROUNDS), "of 1");
    report.add("ours, appends per second", rates.0, "/s");
    report.add("witness-log, appends per second", rates.1, "/s");
    report
}

/// Records per second.
fn appends(home: &Path) -> f64 {
    let store = Arc::new(ledger::open(home, 64 << 20));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let begun = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for n in 0..EACH {
                        let batch = Batch::durable(vec![ledger::entry(writer * EACH + n)], Vec::new());
                        assert!(store.commit(batch).await.expect("a commit").is_durable());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a writer");
        }
    });
    (WRITERS * EACH) as f64 / begun.elapsed().as_secs_f64()
}

/// Runs the peer on the lines that ours has written.
fn peer(home: &Path, lines: &Path, journal: &Path) -> Value {
    let text: Vec<u8> = std::fs::read_dir(home.join("ledger"))
        .expect("segments")
        .map(|entry| entry.expect("a segment").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .flat_map(|path| std::fs::read(path).expect("a segment"))
        .collect();
    std::fs::write(lines, text).expect("a file");
    let python =
        std::env::var_os("VAMBRACE_PEER_WITNESS_LOG").expect("run it with `cargo xtask bench witness-log`");
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/journal.py"))
        .args([lines, journal])
        .output()
        .expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Deletes half of the records, everywhere except in the checkpoints; whether verify reports it.
fn cut_in_half_is_found(home: &Path) -> bool {
    let connection = Connection::open(home.join("vambrace.db")).expect("the database");
    connection
        .execute_batch("DELETE FROM ledger WHERE seq > (SELECT max(seq) / 2 FROM ledger)")
        .expect("half of the records");
    drop(connection);
    let options = VerifyOptions::new(SystemClock.now());
    let report = verify(&StateDir::existing(home).expect("a state directory"), &options, &mut |_| {})
        .expect("a check");
    report.findings.faults().iter().any(|finding| finding.kind == FindingKind::ShorterThanCheckpoint)
}
