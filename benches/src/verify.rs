//! Verifying a ledger compared with hashing the same bytes once, on one core and on two; the cost of sealing a record and
//! adding it to the tree; and a start with a million records.
//!
//! One-core figures compare CPU time, because the machine is shared; the best of several rounds counts.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::{Digest, Frontier, Id, LineReader};
use vambrace_store::{Batch, StateDir, Store as _, VerifyOptions, verify};

use crate::ledger;
use crate::read::BenchProject;
use crate::report::{Report, Requirement};
use crate::system_clock::SystemClock;

const RECORDS: u64 = 1_000_000;
const SEGMENT: u64 = 32 << 20;
const ROUNDS: u32 = 4;
const SEALED: u64 = 200_000;
const STARTS: u32 = 5;

pub(crate) fn run() -> Report {
    let place = BenchProject::new();
    let home = place.state();
    ledger::write(&home, RECORDS, SEGMENT);
    let (mut bulk, mut one, mut one_wall, mut two_wall) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    let (mut bytes, mut records, mut segments) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let (seconds, size) = hashed(&home.join("ledger"));
        (bulk, bytes) = (bulk.min(seconds), size);
        let checked = check(&home, 1);
        (one, one_wall) = (one.min(checked.cpu), one_wall.min(checked.wall));
        (records, segments) = (checked.records, checked.segments);
        two_wall = two_wall.min(check(&home, 2).wall);
    }
    let (sealing, starting, first) = (sealing(), starting(&home), first_call(&place));

    let mut report = Report::new("verify");
    report.require("bulk SHA-256 / verify, one core", bulk / one, "x", Requirement::AtLeast(0.40));
    report.require("one core / two cores", one_wall / two_wall, "x", Requirement::AtLeast(1.7));
    report.require("seal and Merkle tree, CPU time per record", sealing, "us", Requirement::AtMost(5.0));
    report.require("start to the first durable record", starting, "s", Requirement::AtMost(1.0));
    report.require("`vambrace call` from start to exit", first, "s", Requirement::AtMost(1.0));
    report.add("records", records as f64, "");
    report.add("segments", segments as f64, "");
    report.add("bytes of their lines", bytes as f64, "bytes");
    report.add("records per second of one core", records as f64 / one, "/s");
    report.add("bulk SHA-256", bytes as f64 / bulk / 1e6, "MB/s");
    report
}

struct VerifyTime {
    cpu: f64,
    wall: f64,
    records: u64,
    segments: u64,
}

fn check(home: &Path, jobs: usize) -> VerifyTime {
    let dir = StateDir::existing(home).expect("a state directory");
    let options = VerifyOptions { jobs, ..VerifyOptions::new(SystemClock.now()) };
    let (cpu, wall) = (cpu_time(), Instant::now());
    let report = verify(&dir, &options, &mut |_| {}).expect("a check");
    let (cpu, wall) = ((cpu_time() - cpu).as_secs_f64(), wall.elapsed().as_secs_f64());
    assert!(report.findings.is_clean(), "{:?}", report.findings.faults().first());
    assert!(report.records >= RECORDS && report.anchored == report.records, "{} records", report.records);
    VerifyTime { cpu, wall, records: report.records, segments: report.segments }
}

/// Hashes every segment in one piece; counts only the hashing.
fn hashed(ledger: &Path) -> (f64, u64) {
    let (mut seconds, mut bytes) = (0.0, 0);
    for entry in std::fs::read_dir(ledger).expect("segments") {
        let path = entry.expect("a segment").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read(path).expect("a segment");
            let cpu = cpu_time();
            std::hint::black_box(Digest::of(&text));
            seconds += (cpu_time() - cpu).as_secs_f64();
            bytes += text.len() as u64;
        }
    }
    (seconds, bytes)
}

/// From the encoded record to the line, its checked leaf and the tree, as the store's threads do it; CPU time in us.
fn sealing() -> f64 {
    let writer = Id::new("w-0123456789abcdef").expect("an id");
    let encoded: Vec<_> = (0..1000).map(|n| ledger::entry(n).encode()).collect();
    let (mut tree, reader, mut prev, mut buffer) =
        (Frontier::new(), LineReader::default(), Digest::ZERO, Vec::new());
    let cpu = cpu_time();
    for (seq, record) in (1..=SEALED).zip(encoded.iter().cycle()) {
        let line = record.seal_in(buffer, &writer, seq, prev).expect("a line");
        let (read, leaf) = reader.read(line.as_str().as_bytes());
        assert!(read.is_ok());
        tree.push(leaf);
        prev = line.event_hash();
        buffer = line.into_buffer();
    }
    std::hint::black_box(tree.root());
    (cpu_time() - cpu).as_secs_f64() * 1e6 / SEALED as f64
}

/// Opening the state directory and committing one durable record; median in seconds.
fn starting(home: &Path) -> f64 {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut times: Vec<f64> = (0..STARTS)
        .map(|n| {
            let begun = Instant::now();
            let store = ledger::open(home, SEGMENT);
            let batch = Batch::durable(vec![ledger::entry(n.into())], Vec::new());
            runtime.block_on(store.commit(batch)).expect("a record");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    median(&mut times)
}

/// The whole program with one read, from start to exit; median in seconds.
fn first_call(place: &BenchProject) -> f64 {
    let mut times: Vec<f64> = (0..STARTS)
        .map(|_| {
            let mut command = place.vambrace();
            command.args(["call", "read_file", &format!("path={}", BenchProject::FILE), "--workspace"]);
            let begun = Instant::now();
            let output = command.arg(place.project()).arg("--json").output().expect("the program");
            assert!(output.status.success(), "{output:?}");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    median(&mut times)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
