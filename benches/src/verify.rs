//! Checking a ledger against hashing the same bytes once, on one core and on two; what sealing a record and adding it
//! to the tree costs; and a start on a million records.
//!
//! Processor time is compared where one core is, because the machine is shared; the best of some rounds counts.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::{Digest, Frontier, Id, LineReader};
use vambrace_store::{Batch, StateDir, Store as _, VerifyOptions, verify};

use crate::ledger;
use crate::read::Place;
use crate::report::{Must, Report};
use crate::wall::Wall;

const RECORDS: u64 = 1_000_000;
const SEGMENT: u64 = 32 << 20;
const ROUNDS: u32 = 4;
const SEALED: u64 = 200_000;
const STARTS: u32 = 5;

pub(crate) fn run() -> Report {
    let place = Place::new();
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
    report.must("verify beside bulk SHA-256, one core", bulk / one, "x", Must::AtLeast(0.40));
    report.must("two cores beside one", one_wall / two_wall, "x", Must::AtLeast(1.7));
    report.must("seal and Merkle, processor time per record", sealing, "us", Must::AtMost(5.0));
    report.must("start to the first durable record", starting, "s", Must::AtMost(1.0));
    report.must("`vambrace call` from start to end", first, "s", Must::AtMost(1.0));
    report.tell("records", records as f64, "");
    report.tell("segments", segments as f64, "");
    report.tell("bytes of their lines", bytes as f64, "bytes");
    report.tell("records per second of one core", records as f64 / one, "/s");
    report.tell("bulk SHA-256", bytes as f64 / bulk / 1e6, "MB/s");
    report
}

struct Checked {
    cpu: f64,
    wall: f64,
    records: u64,
    segments: u64,
}

fn check(home: &Path, jobs: usize) -> Checked {
    let dir = StateDir::existing(home).expect("a state folder");
    let options = VerifyOptions { jobs, ..VerifyOptions::new(Wall.now()) };
    let (cpu, wall) = (cpu_time(), Instant::now());
    let report = verify(&dir, &options, &mut |_| {}).expect("a check");
    let (cpu, wall) = ((cpu_time() - cpu).as_secs_f64(), wall.elapsed().as_secs_f64());
    assert!(report.findings.is_clean(), "{:?}", report.findings.faults().first());
    assert!(report.records >= RECORDS && report.anchored == report.records, "{} records", report.records);
    Checked { cpu, wall, records: report.records, segments: report.segments }
}

/// Hashes every segment in one piece; only the hashing is counted.
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

/// From the encoded record to the line, its checked leaf and the tree, as writer and keeper do it.
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

/// Opening the folder and putting one record on the disk; the median.
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
    middle(&mut times)
}

/// The whole program: from its start to its end, with one read in between; the median.
fn first_call(place: &Place) -> f64 {
    let mut times: Vec<f64> = (0..STARTS)
        .map(|_| {
            let mut command = place.vambrace();
            command.args(["call", "read_file", &format!("path={}", Place::FILE), "--workspace"]);
            let begun = Instant::now();
            let output = command.arg(place.project()).arg("--json").output().expect("the program");
            assert!(output.status.success(), "{output:?}");
            begun.elapsed().as_secs_f64()
        })
        .collect();
    middle(&mut times)
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
