//! Appending to the ledger with 256 concurrent callers, compared with plain SQLite inserts of the same bytes in groups of
//! the same size. Rounds of both alternate, so that a noisy disk affects both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use vambrace_core::ErrorCode;
use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
use vambrace_ledger::{Digest, Entry, Id, Op, RecordStatus, RedactedText, Timestamp, seal};
use vambrace_store::{
    Batch, CallRow, SessionRow, SessionState, SqliteStore, StateChange, StateDir, Store, StoreOptions,
};

use crate::report::{Report, Requirement};
use crate::system_clock::SystemClock;

const CALLERS: u64 = 256;
const ROUNDS: u32 = 4;
/// Batches per caller and round: about a second of work.
const EACH: u64 = 300;
const LONE: u32 = 2000;

/// Records per sync, CPU time per record, the rate compared with plain inserts, and the latency of a single caller.
pub(crate) fn run() -> Report {
    let dir = tempfile::tempdir_in(".").expect("a temporary directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let open = |dir| SqliteStore::open(dir, &StoreOptions::new(Arc::new(SystemClock)));
    let store = StateDir::open(dir.path().join("state")).and_then(open).expect("a store");
    let store = Arc::new(store);
    runtime.block_on(open_sessions(&store));

    let mut plain = PlainInserts::open(&dir.path().join("plain.db"));
    let (mut ours, mut theirs) = (Throughput::default(), Throughput::default());
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let mine = runtime.block_on(concurrent(&store));
        let group = (mine.records / mine.syncs.max(1)).max(1);
        let other = plain.round(group);
        // The first round warms up: files grow, caches fill.
        if round > 0 {
            ratios.push(mine.rate() / other.rate());
            ours.add(&mine);
            theirs.add(&other);
        }
    }
    let lone = runtime.block_on(lone(&store));
    let bare = bare_syncs(&dir.path().join("bare"));

    let mut report = Report::new("append");
    let append = ours.cpu_us() - making();
    let per_sync = ours.records as f64 / ours.syncs as f64;
    report.require("records per sync, 256 callers", per_sync, "", Requirement::AtLeast(100.0));
    report.require("CPU time per record, appending", append, "us", Requirement::AtMost(10.0));
    report.require("rate / plain inserts (median)", median(&mut ratios), "x", Requirement::AtLeast(0.7));
    report.add("CPU time per record, including its construction", ours.cpu_us(), "us");
    report.add("records per second", ours.rate(), "/s");
    report.add("plain inserts per second", theirs.rate(), "/s");
    report.add("plain inserts, CPU time per record", theirs.cpu_us(), "us");
    report.add("bytes of a line", line_bytes() as f64, "bytes");
    report.add("bare 4 KB write and fdatasync, median", bare, "us");
    report.add("single caller, durable commit, median", lone.durable, "us");
    report.add("single caller, lazy commit, median", lone.lazy, "us");
    report
}

#[derive(Default)]
struct Throughput {
    records: u64,
    syncs: u64,
    wall: Duration,
    cpu: Duration,
}

impl Throughput {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.syncs += other.syncs;
        self.wall += other.wall;
        self.cpu += other.cpu;
    }

    fn rate(&self) -> f64 {
        self.records as f64 / self.wall.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.records as f64
    }
}

struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
        Ok(RedactOutput { text: text.into(), count: 0 })
    }
}

fn session(caller: u64) -> Id {
    Id::time_ordered("s-", 1_785_000_000_000 + caller, [7; 10])
}

/// A call id as the broker makes it: from the clock, with random bytes.
fn call(caller: u64, n: u64, millis: u64) -> Id {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&(caller << 40 | n).to_be_bytes());
    Id::time_ordered("c-", millis, random)
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_millis(i64::try_from(since.expect("a clock").as_millis()).expect("a date"))
}

fn name(text: &str) -> RedactedText {
    Redacted::text(text, &NoRedaction).expect("a clean text")
}

fn entry(session: &Id, call: &Id, ts: Timestamp) -> Entry {
    let args = json!({"path": "src/broker/pipeline.rs", "start_line": 1, "end_line": 200});
    Entry {
        status: Some(RecordStatus::Allowed),
        user: Some(name("someone")),
        agent_id: Some(name("claude-code")),
        session: Some(session.clone()),
        role: Some(name("dev")),
        execution_id: Some(call.clone()),
        tool_call_id: Some(name("toolu_01ABCDEF")),
        tool_name: Some(Redacted::literal("read_file")),
        tool_args: Some(Redacted::json(args, &NoRedaction).expect("clean arguments")),
        path: Some(name("src/broker/pipeline.rs")),
        execution_environment: Some("in_process"),
        risk: Some("LOW"),
        verdict: Some("allow"),
        error_code: None::<ErrorCode>,
        ..Entry::new(Op::ToolStart, ts)
    }
}

/// Texts of a session are redacted once; a call adds its own.
fn batch(template: &Entry, caller: u64, n: u64) -> (Batch, Id) {
    let ts = now();
    let id = call(caller, n, ts.millis().unsigned_abs());
    let entry = Entry { ts, execution_id: Some(id.clone()), ..template.clone() };
    let session = template.session.clone().expect("a session");
    let row = CallRow::executing(id.clone(), session, Redacted::literal("read_file"), ts);
    (Batch::durable(vec![entry], vec![StateChange::InsertCall(row)]), id)
}

fn line_bytes() -> usize {
    let entry = entry(&session(1), &call(1, 1, 1), now());
    let writer = Id::new("w-0123456789abcdef").expect("an id");
    seal(&entry, &writer, 100_000, Digest::ZERO).expect("a line").as_str().len()
}

async fn open_sessions(store: &SqliteStore) {
    let at = Timestamp::from_millis(1_785_000_000_000);
    let rows = (0..CALLERS).map(|caller| {
        StateChange::OpenSession(SessionRow {
            id: session(caller),
            tenant: name("default"),
            user: name("someone"),
            agent: name("claude-code"),
            role: name("dev"),
            project: name("/home/someone/project"),
            state: SessionState::Active,
            opened: at,
            changed: at,
        })
    });
    store.commit(Batch::durable(Vec::new(), rows.collect())).await.expect("sessions");
}

async fn concurrent(store: &Arc<SqliteStore>) -> Throughput {
    let before = store.admin().counters();
    let (wall, cpu) = (Instant::now(), cpu_time());
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let session = session(caller);
                let template = entry(&session, &session, now());
                for n in 0..EACH {
                    let (batch, _) = batch(&template, caller, n);
                    assert!(store.commit(batch).await.expect("a commit").is_durable());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a caller");
    }
    let after = store.admin().counters();
    Throughput {
        records: after.records - before.records,
        syncs: after.syncs - before.syncs,
        wall: wall.elapsed(),
        cpu: cpu_time() - cpu,
    }
}

/// CPU time for constructing and dropping a batch, in us: the callers' cost, not the ledger's.
fn making() -> f64 {
    let session = session(0);
    let template = entry(&session, &session, now());
    let cpu = cpu_time();
    for n in 0..u64::from(LONE) * 10 {
        std::hint::black_box(batch(&template, 0, n));
    }
    (cpu_time() - cpu).as_secs_f64() * 1e6 / (f64::from(LONE) * 10.0)
}

struct SingleCaller {
    durable: f64,
    lazy: f64,
}

/// Latency of one call's commits: a durable start, then a lazy end.
async fn lone(store: &SqliteStore) -> SingleCaller {
    let session = session(0);
    let template = entry(&session, &session, now());
    let (mut durable, mut lazy) = (Vec::new(), Vec::new());
    for n in 0..u64::from(LONE) {
        let (start, id) = batch(&template, 0, n);
        let ts = now();
        let end = Entry { ts, execution_id: Some(id.clone()), ..template.clone() };
        let finish = vambrace_store::CallFinish {
            id,
            state: vambrace_store::CallState::Completed,
            at: ts,
            error: None,
        };
        let begun = Instant::now();
        store.commit(start).await.expect("a start");
        durable.push(begun.elapsed().as_secs_f64() * 1e6);
        let begun = Instant::now();
        store.commit(Batch::lazy(vec![end], vec![StateChange::FinishCall(finish)])).await.expect("an end");
        lazy.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    SingleCaller { durable: median(&mut durable), lazy: median(&mut lazy) }
}

/// Inserts the same bytes into one table, with all of them at hand.
struct PlainInserts {
    connection: Connection,
    row: String,
    seq: i64,
}

impl PlainInserts {
    fn open(path: &Path) -> Self {
        let connection = Connection::open(path).expect("a database");
        let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                        CREATE TABLE plain (seq INTEGER PRIMARY KEY, line TEXT NOT NULL) STRICT";
        connection.execute_batch(settings).expect("a table");
        // The size of a ledger line and of a row in the calls table.
        let row = "x".repeat(line_bytes() + 120);
        Self { connection, row, seq: 0 }
    }

    fn round(&mut self, group: u64) -> Throughput {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let mut tally = Throughput::default();
        let mut insert = self.connection.prepare("INSERT INTO plain VALUES (?1, ?2)").expect("a statement");
        while tally.records < CALLERS * EACH {
            self.connection.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
            for _ in 0..group {
                self.seq += 1;
                insert.execute((self.seq, &self.row)).expect("a row");
            }
            self.connection.execute_batch("COMMIT").expect("a commit");
            tally.records += group;
            tally.syncs += 1;
        }
        tally.wall = wall.elapsed();
        tally.cpu = cpu_time() - cpu;
        tally
    }
}

fn bare_syncs(path: &Path) -> f64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("a file");
    file.write_all_at(&vec![0; 4096 * LONE as usize], 0).expect("room");
    file.sync_all().expect("a sync");
    let mut times: Vec<f64> = (0..u64::from(LONE))
        .map(|n| {
            let begun = Instant::now();
            file.write_all_at(&[1; 4096], n * 4096).expect("a write");
            file.sync_data().expect("a sync");
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    median(&mut times)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
