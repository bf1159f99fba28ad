//! A machine that runs, crashes and starts again, and what must hold each time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rusqlite::Connection;
use vambrace_core::clock::Clock;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Checkpoint, Entry, Id, KeyKind, Op, SegmentName, SigningKey, Timestamp};
use vambrace_simdisk::Random;

use super::faulty_disk::{DiskFault, SimDisk};
use crate::checkpoints::CheckpointFiles;
use crate::disk::{self, Disk};
use crate::error::StoreError;
use crate::ledger_keys::{LedgerKeyFiles, origin};
use crate::lock::StateDirLock;
use crate::segment_files::DiskSegments;
use crate::sqlite::background::BackgroundWorker;
use crate::sqlite::rollback_check::{Contradiction, RollbackCheck};
use crate::sqlite::rows::checkpoints;
use crate::sqlite::segment_writer::SegmentCursor;
use crate::sqlite::shared_state::SharedState;
use crate::sqlite::sqlite_store::writer_and_head;
use crate::sqlite::sync_state::SyncState;
use crate::sqlite::verify::verify;
use crate::sqlite::{append, key_rotation, schema, segment_seal};
use crate::state_dir::StateDir;
use crate::verify_report::VerifyOptions;

/// Full `verify` on real files for one of this many seeds.
const SEEDS_PER_VERIFY: u64 = 40;

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

#[derive(Debug, Default)]
struct TickClock(AtomicI64);

impl Clock for TickClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_785_000_000_000 + self.0.fetch_add(7, Ordering::Relaxed))
    }
}

pub(super) struct SimMachine {
    seed: u64,
    random: Random,
    _temp: tempfile::TempDir,
    dir: StateDir,
    disk: SimDisk,
    clock: Arc<TickClock>,
    /// The table, while nothing runs.
    connection: Option<Connection>,
    /// Which of the two copies of the table is durable.
    kept: usize,
    /// The size of the last checkpoint that was published without a fault.
    published: u64,
    max_segment: u64,
}

/// The tables that matter, and the two databases that they are copied to.
const TABLES: [&str; 7] =
    ["writer", "ledger", "projection", "tree", "tree_nodes", "checkpoints", "ledger_keys"];
const COPIES: [&str; 2] = ["one", "two"];

impl SimMachine {
    pub(super) fn new(seed: u64) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        let mut random = Random::new(seed);
        let disk = SimDisk::new(random.draw());
        let connection = schema::open_for_writing(Path::new(":memory:")).unwrap();
        connection.set_prepared_statement_cache_capacity(128);
        for copy in COPIES {
            connection.execute_batch(&format!("ATTACH ':memory:' AS {copy}")).unwrap();
            for table in TABLES {
                connection
                    .execute_batch(&format!("CREATE TABLE {copy}.{table} AS SELECT * FROM main.{table}"))
                    .unwrap();
            }
            connection.execute_batch(&format!("CREATE INDEX {copy}.by_seq ON ledger (seq)")).unwrap();
        }
        // Created here and not on the simulated disk: reading keys checks the modes of real files.
        let (writer, _) = writer_and_head(&connection, Path::new("db")).unwrap();
        let key = SigningKey::new(&origin(&writer), KeyKind::Log, &[7; 32]).unwrap();
        let path = dir.keys().join("ledger.key");
        private(&path, key.secret_text().as_bytes());
        disk.open(&dir.wal(), disk::OpenFor::Creating).unwrap();
        disk.sync_dir(dir.path()).unwrap();
        let max_segment = 500 + random.draw() % 20_000;
        let clock = Arc::new(TickClock::default());
        let connection = Some(connection);
        Self { seed, random, _temp: temp, dir, disk, clock, connection, kept: 0, published: 0, max_segment }
    }

    /// Several runs.
    pub(super) fn live(mut self) {
        for _ in 0..2 + self.random.below(3) {
            let mut worker = self.start();
            let fault = match self.random.below(8) {
                0 => None,
                1 => Some(DiskFault::NoRoom),
                2 => Some(DiskFault::Write),
                3 => Some(DiskFault::Sync),
                _ => Some(DiskFault::PowerCut),
            };
            let after = 1 + self.random.draw() % 60;
            self.disk.plan(fault.map(|fault| (after, fault)));
            for _ in 0..1 + self.random.below(6) {
                self.record(&worker);
                if !self.catch_up(&mut worker) {
                    break;
                }
            }
            self.connection = worker.connection.take();
            drop(worker);
            self.crash();
        }
        let mut worker = self.start();
        self.connection = worker.connection.take();
        if self.seed.is_multiple_of(SEEDS_PER_VERIFY) {
            self.verify();
        }
    }

    /// One run without faults.
    pub(super) fn live_quietly(&mut self, records: usize) {
        let (mut worker, _) = self.begin();
        (0..records).for_each(|_| self.record_one(&worker, 150));
        assert!(self.catch_up(&mut worker));
        self.connection = worker.connection.take();
    }

    /// A new start, which may find a crash or a changed directory; `false` if the directory is rejected.
    pub(super) fn restart(&mut self) -> bool {
        let (mut worker, contradictions) = self.begin();
        let goes_on = contradictions.is_empty() && self.catch_up(&mut worker);
        self.connection = worker.connection.take();
        goes_on
    }

    /// The table, while nothing runs.
    pub(super) fn table(&self) -> &Connection {
        self.connection.as_ref().unwrap()
    }

    pub(super) fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    /// The segments on the disk.
    pub(super) fn segments(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "jsonl");
        self.disk.contents().into_iter().filter(|(path, _)| is_segment(path)).collect()
    }

    /// Replaces all segments by one.
    pub(super) fn replace_segments(&self, path: &Path, bytes: &[u8]) {
        for (path, _) in self.segments() {
            self.disk.remove(&path);
        }
        disk::replace(&self.disk, path, bytes).unwrap();
    }

    /// A process starts: no contradiction is found, and everything is brought up to date.
    fn start(&mut self) -> BackgroundWorker {
        let (mut worker, contradictions) = self.begin();
        assert!(contradictions.is_empty(), "a crash was taken for a rollback: {contradictions:?}");
        assert!(self.catch_up(&mut worker));
        self.check_all(worker.connection.as_ref().unwrap());
        worker
    }

    fn begin(&mut self) -> (BackgroundWorker, Vec<Contradiction>) {
        self.disk.plan(None);
        let connection = self.connection.take().unwrap();
        let database = PathBuf::from("db");
        let (writer, head) = writer_and_head(&connection, &database).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut files = Box::new(DiskSegments::on(Arc::clone(&disk), &self.dir.ledger()));
        let anchors = Some(Path::new("/elsewhere"));
        let checkpoint_files =
            CheckpointFiles::on(Arc::clone(&disk), self.dir.latest_checkpoint(), anchors, &writer);
        let sync_state = Arc::new(SyncState::new(Arc::clone(&disk), self.dir.wal()));
        let rollback_check = RollbackCheck {
            connection: &connection,
            database: &database,
            files: files.as_mut(),
            checkpoint_files: &checkpoint_files,
            head,
            sync_state: &sync_state,
        };
        let contradictions = rollback_check.find_contradictions().unwrap();
        let keys = LedgerKeyFiles::of(&self.dir);
        key_rotation::ensure(&connection, &database, &writer, &keys, &sync_state, self.clock.now()).unwrap();
        let (tasks, _) = channel();
        let seen = checkpoints::newest(&connection).unwrap();
        let seen = seen.map(|row| Checkpoint::parse(row.note.as_bytes()).unwrap().0);
        let worker = BackgroundWorker {
            database,
            connection: Some(connection),
            files,
            segment_lock: StateDirLock::new(self.dir.segment_lock().unwrap()),
            writer_lock: StateDirLock::new(self.dir.writer_lock().unwrap()),
            interval: Duration::ZERO,
            max_segment: self.max_segment,
            shared: Arc::new(SharedState::new(tasks)),
            sync_state,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            id: writer,
            keys,
            checkpoint_files,
            witness: None,
            witness_schedule: crate::witness::WitnessSchedule::default(),
            seen,
        };
        (worker, contradictions)
    }

    /// Some records, not yet durable.
    fn record(&mut self, worker: &BackgroundWorker) {
        for _ in 0..self.random.below(9) {
            let most = if self.random.one_in(5) { 9000 } else { 300 };
            let length = self.random.below(most);
            self.record_one(worker, length);
        }
    }

    fn record_one(&self, worker: &BackgroundWorker, length: usize) {
        let connection = worker.connection.as_ref().unwrap();
        let mut entry = Entry::new(Op::Grant, self.clock.now());
        entry.message = Some(Redacted::text(&"x".repeat(length), &NoRedaction).unwrap());
        append::append(connection, &worker.database, &worker.id, &[entry], |_| Ok(())).unwrap();
    }

    /// `false` if the process has to end.
    fn catch_up(&mut self, worker: &mut BackgroundWorker) -> bool {
        loop {
            let next = 1 - self.kept;
            copy(worker.connection.as_ref().unwrap(), "main", COPIES[next]);
            let flushed = self.disk.syncs(&self.dir.wal());
            let turned = worker.run_once();
            if self.disk.syncs(&self.dir.wal()) > flushed {
                self.kept = next;
            }
            match turned {
                Ok(more) => {
                    let newest = checkpoints::newest(worker.connection.as_ref().unwrap()).unwrap();
                    self.published = newest.map_or(0, |row| row.size);
                    if !more {
                        return true;
                    }
                }
                Err(_) if self.disk.has_lost_power() => return false,
                Err(StoreError::Unsynced(_) | StoreError::Poisoned(_)) => {
                    assert!(worker.sync_state.check().is_err(), "a failed sync must close the store");
                    return false;
                }
                // The disk state is known: the same process continues.
                Err(StoreError::Full(_) | StoreError::Io(_)) => return true,
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// The process is killed, or the power is cut.
    fn crash(&mut self) {
        let connection = self.connection.take().unwrap();
        if self.disk.has_lost_power() || self.random.one_in(2) {
            self.disk.cut_power();
            if self.random.one_in(2) {
                copy(&connection, COPIES[self.kept], "main");
            }
        }
        self.check_left(&connection);
        self.connection = Some(connection);
    }

    /// What a crash must leave: segments as far as the cursor says, and published checkpoints.
    fn check_left(&self, connection: &Connection) {
        let cursor = SegmentCursor::read(connection).unwrap();
        let there = self.disk.contents();
        for (name, lines) in segments(connection) {
            let due = lines.iter().filter(|(seq, _)| *seq <= cursor.seq).map(|(_, line)| line.as_slice());
            let due = due.collect::<Vec<_>>().concat();
            let file = there.get(&self.dir.ledger().join(name.file_name()));
            assert!(due.is_empty() || file.is_some_and(|bytes| bytes.starts_with(&due)), "{name} lost lines");
        }
        let copies = [self.dir.latest_checkpoint(), self.anchor(connection)];
        for path in copies.iter().filter(|_| self.published > 0) {
            let (checkpoint, _) = Checkpoint::parse(&there[path]).unwrap();
            assert!(checkpoint.size >= self.published, "{} was rolled back", path.display());
        }
    }

    /// After a start without faults everything matches the table.
    fn check_all(&self, connection: &Connection) {
        let there = self.segments();
        let wanted: Vec<(PathBuf, Vec<u8>)> = segments(connection)
            .into_iter()
            .map(|(name, lines)| {
                let bytes = lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().concat();
                (self.dir.ledger().join(name.file_name()), bytes)
            })
            .collect();
        let sizes = |files: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
            files.iter().map(|(path, bytes)| (path.file_name().unwrap().to_owned(), bytes.len())).collect()
        };
        assert!(there == wanted, "{:?} instead of {:?}", sizes(&there), sizes(&wanted));
        let head = writer_and_head(connection, Path::new("db")).unwrap().1;
        let (checkpoint, _) =
            Checkpoint::parse(&self.disk.contents()[&self.dir.latest_checkpoint()]).unwrap();
        assert_eq!(checkpoint.size, head.seq);
    }

    /// Full `verify` on real files.
    fn verify(&mut self) {
        let connection = self.connection.take().unwrap();
        let database = self.dir.database();
        connection.execute("VACUUM INTO ?1", [database.to_str().unwrap()]).unwrap();
        for (path, bytes) in self.disk.contents() {
            if path.starts_with(self.dir.ledger()) {
                private(&path, &bytes);
            }
        }
        let options = VerifyOptions::new(self.clock.now());
        let report = verify(&self.dir, &options, &mut |_| {}).unwrap();
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
    }

    fn anchor(&self, connection: &Connection) -> PathBuf {
        let (writer, _): (Id, _) = writer_and_head(connection, Path::new("db")).unwrap();
        Path::new("/elsewhere").join(format!("{writer}.checkpoint"))
    }
}

fn copy(connection: &Connection, from: &str, to: &str) {
    let run = |sql: String| connection.prepare_cached(&sql).unwrap().execute(()).unwrap();
    run("BEGIN".to_owned());
    for table in TABLES {
        if table != "ledger" {
            run(format!("DELETE FROM {to}.{table}"));
            run(format!("INSERT INTO {to}.{table} SELECT * FROM {from}.{table}"));
        }
    }
    // Records are only ever added.
    run(format!("DELETE FROM {to}.ledger WHERE seq > (SELECT max(seq) FROM {from}.ledger)"));
    let last = format!("SELECT ifnull(max(seq), 0) FROM {to}.ledger");
    run(format!("INSERT INTO {to}.ledger SELECT * FROM {from}.ledger WHERE seq > ({last})"));
    run("COMMIT".to_owned());
}

type NumberedLines = Vec<(u64, Vec<u8>)>;

/// The segments that the table requires.
fn segments(connection: &Connection) -> Vec<(SegmentName, NumberedLines)> {
    let mut statement = connection.prepare("SELECT seq, line FROM ledger ORDER BY seq").unwrap();
    let rows = statement.query_map((), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).unwrap();
    let mut segments: Vec<(SegmentName, NumberedLines)> = Vec::new();
    let mut sealed = true;
    for row in rows {
        let (seq, line) = row.unwrap();
        let seq = seq.unsigned_abs();
        if sealed {
            segments.push((SegmentName::starting(seq), Vec::new()));
        }
        sealed = segment_seal::is_seal(line.as_bytes());
        segments.last_mut().unwrap().1.push((seq, format!("{line}\n").into_bytes()));
    }
    segments
}

#[expect(clippy::disallowed_methods, reason = "files of a test")]
fn private(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
