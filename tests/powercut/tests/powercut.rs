//! Uses the store at random, logs everything it writes, and cuts the power at random operations of the log.
//! Every record acknowledged as durable must be there, what is there must be a prefix of what was written, and
//! nothing may look like a rollback. Thread timing makes the log of a seed slightly different each time; a
//! directory that fails is kept and named.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and own the directories they create"
)]

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::clock::Clock;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Op, Timestamp};
use vambrace_powercut::{LoggedDisk, SharedLog, log_below};
use vambrace_simdisk::{DiskModel, Random};
use vambrace_store::{
    Batch, Entry, RecordId, SqliteStore, StateDir, Store, StoreError, StoreOptions, VerifyOptions, verify,
};

/// Stores that are written, and power cuts of each.
const STORES: u64 = 24;
const CUTS: usize = 25;

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

/// A clock that stands still.
#[derive(Debug, Clone, Copy)]
struct FixedClock(i64);

const NOON: FixedClock = FixedClock(1_785_000_000_000);
/// The time after the power cut. Not the same as before: a checkpoint signed again would have the bytes of the
/// lost one, and SQLite would continue to read after it what was written before the cut.
const LATER: FixedClock = FixedClock(1_785_000_001_000);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0)
    }
}

/// A record that was acknowledged when the log had this length.
struct Ack {
    when: usize,
    seq: u64,
    hash: String,
    durable: bool,
}

struct RecordedRun {
    temp: tempfile::TempDir,
    log: SharedLog,
    acks: Vec<Ack>,
}

fn options(root: &Path, clock: FixedClock) -> StoreOptions {
    StoreOptions {
        lock_timeout: Duration::from_secs(20),
        segment_interval: Duration::from_millis(1),
        max_segment_bytes: 6000,
        anchors: Some(root.join("anchors")),
        disk: Arc::new(LoggedDisk),
        ..StoreOptions::new(Arc::new(clock))
    }
}

fn open(root: &Path, clock: FixedClock) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(StateDir::open(root.join("state"))?, &options(root, clock))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Writes at random: durable, lazy and next-sync batches, key rotations, WAL checkpoints, restarts.
fn record(seed: u64) -> RecordedRun {
    let temp = tempfile::tempdir().unwrap();
    let log = log_below(temp.path());
    let mut random = Random::new(seed);
    let mut acks = Vec::new();
    let runtime = runtime();
    for _ in 0..1 + random.below(3) {
        let store = open(temp.path(), NOON).unwrap();
        for _ in 0..10 + random.below(30) {
            match random.below(12) {
                0 => store.admin().catch_up().unwrap(),
                1 if random.one_in(3) => drop(store.admin().rotate_key().unwrap()),
                2 => copy_back(temp.path(), &mut random),
                _ => {
                    let entries = (0..1 + random.below(3)).map(|_| entry(&mut random)).collect();
                    let batch = match random.below(4) {
                        0 => Batch::lazy(entries, vec![]),
                        1 => Batch::with_next_sync(entries, vec![]),
                        _ => Batch::durable(entries, vec![]),
                    };
                    let committed = runtime.block_on(store.commit(batch)).unwrap();
                    let when = log.lock().length();
                    acks.extend(committed.positions().iter().map(|sealed| Ack {
                        when,
                        seq: sealed.record.seq,
                        hash: sealed.event_hash.to_string(),
                        durable: committed.is_durable(),
                    }));
                }
            }
        }
    }
    RecordedRun { temp, log, acks }
}

fn entry(random: &mut Random) -> Entry {
    let most = if random.one_in(6) { 9000 } else { 400 };
    let mut entry = Entry::new(Op::Grant, NOON.now());
    entry.message = Some(Redacted::text(&"m".repeat(random.below(most)), &NoRedaction).unwrap());
    entry
}

/// What the background worker does when the WAL is long, and the modes that truncate it.
fn copy_back(root: &Path, random: &mut Random) {
    let how = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][random.below(4)];
    let connection = rusqlite::Connection::open(root.join("state/vambrace.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    // Another thread may be writing: then a later checkpoint copies it.
    let _ = connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), (), |_| Ok(()));
}

/// Writes the files of a disk to a real directory.
fn lay_out(disk: &DiskModel, from: &Path) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    drop(StateDir::open(temp.path().join("state")).unwrap());
    for (path, bytes) in disk.all() {
        let path: PathBuf = temp.path().join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    temp
}

fn check(run: &RecordedRun, cut: usize, random: &mut Random) {
    let mut disk = run.log.lock().until(cut, random);
    disk.cut_power(random);
    let left = lay_out(&disk, run.temp.path());
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| holds(run, cut, left.path())));
    if let Err(panic) = outcome {
        println!("after a cut at operation {cut} of {}: {}", run.log.lock().length(), left.keep().display());
        std::panic::resume_unwind(panic);
    }
}

fn holds(run: &RecordedRun, cut: usize, left: &Path) {
    // Logged, so that nothing is really synced here and the test is fast.
    let _log = log_below(left);
    let store = open(left, LATER).unwrap();
    let runtime = runtime();
    let mut acks: Vec<&Ack> = run.acks.iter().filter(|ack| ack.when <= cut).collect();
    acks.sort_by_key(|ack| ack.seq);
    let is_there = |ack: &&&Ack| {
        let id = RecordId::new(store.writer(), ack.seq);
        let record = runtime.block_on(store.record(&id)).unwrap();
        record.is_some_and(|record| record.line.contains(&ack.hash))
    };
    // The new start may have reused the number of a lost record.
    let there = acks.iter().take_while(is_there).count();
    let lost = &acks[there..];
    let durable = lost.iter().find(|ack| ack.durable).map(|ack| ack.seq);
    assert_eq!(durable, None, "a record acknowledged as durable is lost");
    assert_eq!(lost.iter().filter(is_there).count(), 0, "a record after a lost one is still there");
    store.admin().catch_up().unwrap();
    drop(store);
    let options = VerifyOptions { anchors: Some(left.join("anchors")), ..VerifyOptions::new(LATER.now()) };
    let dir = StateDir::existing(left.join("state")).unwrap();
    let report = verify(&dir, &options, &mut |_| {}).unwrap();
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.anchored, report.records, "not every record is signed");
}

fn cuts(seed: u64) {
    let run = record(seed);
    let mut random = Random::new(seed ^ 0x5eed);
    let length = run.log.lock().length();
    // At the very end, where everything is acknowledged and nothing more is synced; and where a WAL was
    // truncated.
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
fn a_power_cut_loses_nothing_acknowledged_as_durable_1() {
    share(0);
}

#[test]
fn a_power_cut_loses_nothing_acknowledged_as_durable_2() {
    share(1);
}
