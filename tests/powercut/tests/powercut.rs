//! The store is used at random, everything it writes is logged, and the power is cut at random operations of the log.
//! Whatever was acknowledged as durable must be there, what is there must be a beginning of what was written, and
//! nothing may look like a rollback. Threads make the log of a seed a little different each time; a folder that fails
//! is kept and named.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests: a fault ends them, and they own the folders they make"
)]

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::clock::Clock;
use vambrace_core::redacted::{Masked, Redact, RedactError, Redacted};
use vambrace_ledger::{Op, Timestamp};
use vambrace_powercut::{LoggedDisk, SharedLog, log_below};
use vambrace_simdisk::{Paper, Random};
use vambrace_store::{
    Batch, Entry, Options, SqliteStore, StateDir, Store, StoreError, VerifyOptions, verify,
};

/// Stores that are written, and power cuts of each.
const STORES: u64 = 24;
const CUTS: usize = 25;

struct Clean;

impl Redact for Clean {
    fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
        Ok(Masked { text: text.into(), count: 0 })
    }
}

/// A clock that stands still.
#[derive(Debug, Clone, Copy)]
struct Stopped(i64);

const NOON: Stopped = Stopped(1_785_000_000_000);
/// When the power is back. Not the same moment: a checkpoint that is signed anew would have the bytes of the one that was
/// lost, and SQLite would go on reading behind it what was written before the cut.
const LATER: Stopped = Stopped(1_785_000_001_000);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0)
    }
}

/// A record that was acknowledged when the log was so long.
struct Ack {
    when: usize,
    seq: u64,
    hash: String,
    durable: bool,
}

struct Run {
    temp: tempfile::TempDir,
    log: SharedLog,
    acks: Vec<Ack>,
}

fn options(root: &Path, clock: Stopped) -> Options {
    Options {
        patience: Duration::from_secs(20),
        projection_interval: Duration::from_millis(1),
        max_segment_bytes: 6000,
        anchors: Some(root.join("anchors")),
        disk: Arc::new(LoggedDisk),
        ..Options::new(Arc::new(clock))
    }
}

fn open(root: &Path, clock: Stopped) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(StateDir::open(root.join("state"))?, &options(root, clock))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Writes at random: batches durable, lazy and with the next sync, keys that change, logs that are copied back, new starts.
fn record(seed: u64) -> Run {
    let temp = tempfile::tempdir().unwrap();
    let log = log_below(temp.path());
    let mut random = Random::new(seed);
    let mut acks = Vec::new();
    let runtime = runtime();
    for _ in 0..1 + random.below(3) {
        let store = open(temp.path(), NOON).unwrap();
        for _ in 0..10 + random.below(30) {
            match random.below(12) {
                0 => store.catch_up().unwrap(),
                1 if random.one_in(3) => drop(store.rotate_key().unwrap()),
                2 => copy_back(temp.path(), &mut random),
                _ => {
                    let entries = (0..1 + random.below(3)).map(|_| entry(&mut random)).collect();
                    let batch = match random.below(4) {
                        0 => Batch::lazy(entries, vec![]),
                        1 => Batch::with_next(entries, vec![]),
                        _ => Batch::durable(entries, vec![]),
                    };
                    let committed = runtime.block_on(store.commit(batch)).unwrap();
                    let when = log.lock().length();
                    acks.extend(committed.sealed().iter().map(|sealed| Ack {
                        when,
                        seq: sealed.seq,
                        hash: sealed.event_hash.to_string(),
                        durable: committed.is_durable(),
                    }));
                }
            }
        }
    }
    Run { temp, log, acks }
}

fn entry(random: &mut Random) -> Entry {
    let most = if random.one_in(6) { 9000 } else { 400 };
    let mut entry = Entry::new(Op::Grant, NOON.now());
    entry.message = Some(Redacted::text(&"m".repeat(random.below(most)), &Clean).unwrap());
    entry
}

/// What the keeper does when the log is long, and what closes it for good.
fn copy_back(root: &Path, random: &mut Random) {
    let how = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][random.below(4)];
    let connection = rusqlite::Connection::open(root.join("state/vambrace.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    // Somebody may be writing: then it is copied another time.
    let _ = connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), (), |_| Ok(()));
}

/// The files of a disk as real ones, in a folder of their own.
fn lay_out(paper: &Paper, from: &Path) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    drop(StateDir::open(temp.path().join("state")).unwrap());
    for (path, bytes) in paper.all() {
        let path: PathBuf = temp.path().join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    temp
}

fn check(run: &Run, cut: usize, random: &mut Random) {
    let mut paper = run.log.lock().until(cut, random);
    paper.cut_power(random);
    let left = lay_out(&paper, run.temp.path());
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| holds(run, cut, left.path())));
    if let Err(panic) = outcome {
        println!("after a cut at operation {cut} of {}: {}", run.log.lock().length(), left.keep().display());
        std::panic::resume_unwind(panic);
    }
}

fn holds(run: &Run, cut: usize, left: &Path) {
    // Nothing is written to the disk for good here, so what is tried is tried fast.
    let _log = log_below(left);
    let store = open(left, LATER).unwrap();
    let runtime = runtime();
    let mut acks: Vec<&Ack> = run.acks.iter().filter(|ack| ack.when <= cut).collect();
    acks.sort_by_key(|ack| ack.seq);
    let is_there = |ack: &&&Ack| {
        let record = runtime.block_on(store.record(ack.seq)).unwrap();
        record.is_some_and(|record| record.line.contains(&ack.hash))
    };
    // By now the place of a lost record may be taken by one of the new start.
    let there = acks.iter().take_while(is_there).count();
    let lost = &acks[there..];
    let durable = lost.iter().find(|ack| ack.durable).map(|ack| ack.seq);
    assert_eq!(durable, None, "it was acknowledged as durable and is lost");
    assert_eq!(lost.iter().filter(is_there).count(), 0, "what is behind a lost record is lost too");
    store.catch_up().unwrap();
    drop(store);
    let options = VerifyOptions { anchors: Some(left.join("anchors")), ..VerifyOptions::new(LATER.now()) };
    let dir = StateDir::existing(left.join("state")).unwrap();
    let report = verify(&dir, &options, &mut |_| {}).unwrap();
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.anchored, report.records, "all that is there is signed");
}

fn cuts(seed: u64) {
    let run = record(seed);
    let mut random = Random::new(seed ^ 0x5eed);
    let length = run.log.lock().length();
    // At the very end, where everything is acknowledged and nothing more synced; and where a log was emptied.
    let mut at = vec![length];
    at.extend(run.log.lock().shortened().take(CUTS / 5));
    at.resize_with(CUTS, || random.below(length + 1));
    at.into_iter().for_each(|cut| check(&run, cut, &mut random));
}

fn share(number: u64) {
    let wanted = std::env::var("VAMBRACE_POWERCUT_STORES").ok().and_then(|stores| stores.parse().ok());
    for seed in (0..wanted.unwrap_or(STORES)).filter(|seed| seed % 2 == number) {
        println!("seed {seed}");
        cuts(seed);
    }
}

// B5: SQLite's files and ours after power cuts
#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged_as_durable_1() {
    share(0);
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged_as_durable_2() {
    share(1);
}
