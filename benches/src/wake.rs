//! Latency from a decision to the call that waits for it: in the same process, and in another one.
//!
//! The approver commits, durably; the waiting call is woken and reads the decided approval request from the store. Measured
//! is the time from the beginning of the commit, including its fdatasync, until the caller has read it; the commit alone
//! is reported as well. What the caller does then (the rest of the pipeline) is not included. Both processes use
//! CLOCK_MONOTONIC.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use vambrace_core::{clock::Clock, redacted::Redacted};
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Digest, Id, KeyKind, SigningKey, Timestamp};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, Batch, DecisionRow, OwnerFilter, SqliteStore,
    StateDir, Store, StoreOptions,
};

use crate::{
    read::{BenchProject, percentile},
    report::{Report, Requirement},
};

const ROUNDS: usize = 200;
/// Environment variable with the state directory, for the child process.
const STATE_DIR_VARIABLE: &str = "VAMBRACE_BENCH_WAKE";

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_785_000_000_000)
    }
}

pub(crate) fn run() -> Report {
    if let Some(dir) = std::env::var_os(STATE_DIR_VARIABLE) {
        wait_for_all(Path::new(&dir));
        return Report::new("wake");
    }
    let place = BenchProject::new();
    let state = place.project().with_file_name("wake-state");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = open(&state);

    let (mut same, mut commits) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        for round in 0..ROUNDS {
            let id = format!("hitl-same-{round}");
            put(&store, &id).await;
            let (tell, listens) = tokio::sync::oneshot::channel();
            let waiter = tokio::spawn({
                let (store, id) = (Arc::clone(&store), id.clone());
                async move { settled(&store, &id, tell).await }
            });
            listens.await.unwrap();
            let (begun, ended) = decide(&store, &id).await;
            let woken = waiter.await.unwrap();
            same.push(woken.saturating_sub(begun) as f64 / 1e6);
            commits.push(ended.saturating_sub(begun) as f64 / 1e6);
        }
    });

    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("wake")
        .env(STATE_DIR_VARIABLE, &state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut ask, mut reported) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = || {
        let mut line = String::new();
        reported.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let mut other = Vec::new();
    for round in 0..ROUNDS {
        let id = format!("hitl-other-{round}");
        runtime.block_on(put(&store, &id));
        writeln!(ask, "{id}").unwrap();
        assert_eq!(line(), "listening");
        let (begun, ended) = runtime.block_on(decide(&store, &id));
        let woken: u64 = line().parse().unwrap();
        other.push(woken.saturating_sub(begun) as f64 / 1e6);
        commits.push(ended.saturating_sub(begun) as f64 / 1e6);
    }
    drop(ask);
    child.wait().unwrap();

    let mut report = Report::new("wake");
    report.require("same process, p50", percentile(&mut same, 50), "ms", Requirement::AtMost(2.0));
    report.require("other process, p50", percentile(&mut other, 50), "ms", Requirement::AtMost(20.0));
    report.add("same process, p99", percentile(&mut same, 99), "ms");
    report.add("other process, p99", percentile(&mut other, 99), "ms");
    report.add("the commit of the decision alone, p50", percentile(&mut commits, 50), "ms");
    report
}

/// The child process: waits for each approval request that it reads an id of, and prints when it saw the decision.
fn wait_for_all(dir: &Path) {
    let store = open(dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for id in std::io::stdin().lines() {
        let id = id.unwrap();
        runtime.block_on(async {
            let mut watch = store.approval_queries().notifier().watch();
            println!("listening");
            while store.approval_queries().approval(&id).await.unwrap().unwrap().state
                == ApprovalState::Pending
            {
                watch.changed(Duration::from_secs(5)).await;
            }
            println!("{}", nanos());
        });
    }
}

async fn settled(store: &SqliteStore, id: &str, listens: tokio::sync::oneshot::Sender<()>) -> u64 {
    let mut watch = store.approval_queries().notifier().watch();
    let mut listens = Some(listens);
    while store.approval_queries().approval(id).await.unwrap().unwrap().state == ApprovalState::Pending {
        let _ = listens.take().map(|listens| listens.send(()));
        watch.changed(Duration::from_secs(5)).await;
    }
    nanos()
}

fn open(dir: &Path) -> Arc<SqliteStore> {
    Arc::new(
        SqliteStore::open(StateDir::open(dir).unwrap(), &StoreOptions::new(Arc::new(FixedClock))).unwrap(),
    )
}

async fn put(store: &SqliteStore, id: &str) {
    let text = Redacted::literal("bench");
    let name = Id::new(id).unwrap();
    let row = ApprovalRow {
        id: name.clone(),
        call: name,
        session: Id::new("s-1").unwrap(),
        user: text.clone(),
        agent: text.clone(),
        project: text.clone(),
        tool: text.clone(),
        kind: ApprovalKind::Call,
        risk: text.clone(),
        summary: text.clone(),
        why: text,
        grantable: false,
        asked: Digest::of(id.as_bytes()),
        digest: Digest::of(id.as_bytes()),
        revision: Digest::ZERO,
        sealed: store.approval_queries().blob_sealer().seal(id, b"a call").unwrap(),
        created: FixedClock.now(),
        expires: FixedClock.now().later(60_000),
        state: ApprovalState::Pending,
        delivered: false,
        waiter: None,
        performer: None,
        decision: None,
    };
    store.commit(Batch::durable(Vec::new(), vec![ApprovalChange::Open(row).into()])).await.unwrap();
}

/// Commits a decision; returns when the commit began and when it was done, in ns.
async fn decide(store: &SqliteStore, id: &str) -> (u64, u64) {
    let key = SigningKey::new("approver/bench", KeyKind::Log, &[7; 32]).unwrap();
    let (now, plan) = (FixedClock.now(), Digest::of(id.as_bytes()));
    let about = Id::new(id).unwrap();
    let decision = Decision {
        about: about.clone(),
        plan,
        verb: DecisionVerb::Approve,
        reach: DecisionReach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let note = decision.sign(&key).unwrap();
    let decided = DecisionRow {
        verb: decision.verb,
        reach: decision.reach,
        digest: plan,
        at: now,
        expires: decision.expires,
        by: Redacted::literal("bench"),
        reason: None,
        amendment: None,
    };
    let change = ApprovalChange::Decide { id: about, owner: OwnerFilter::Everyone, decision: decided, note };
    let begun = nanos();
    store.commit(Batch::durable(Vec::new(), vec![change.into()])).await.unwrap();
    (begun, nanos())
}

fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
