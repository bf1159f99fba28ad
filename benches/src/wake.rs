//! From a decision to whoever waits for it: in the same process, and in another one.
//!
//! The decider commits, durably; the caller listens, is woken, and reads the settled question from the store. Counted is the
//! time from the beginning of the commit, with the sync of the disk in it, until the caller has read it; how long the commit
//! itself took is told beside it. What a caller does then (walk the corridor, carry the call out) is not in it. Clocks of
//! both processes are the kernel's monotonic one.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use vambrace_core::{clock::Clock, redacted::Redacted};
use vambrace_ledger::{Decision, Digest, Id, KeyKind, Reach, SigningKey, Timestamp, Verb};
use vambrace_store::{
    ApprovalRow, AskChange, AskKind, AskState, Batch, Decided, Options, SqliteStore, StateDir, Store,
};

use crate::{
    read::{Place, percentile},
    report::{Must, Report},
};

const ROUNDS: usize = 200;
/// Names the state folder to the child.
const FOLDER: &str = "VAMBRACE_BENCH_WAKE";

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_785_000_000_000)
    }
}

pub(crate) fn run() -> Report {
    if let Some(folder) = std::env::var_os(FOLDER) {
        wait_for_all(Path::new(&folder));
        return Report::new("wake");
    }
    let place = Place::new();
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
        .env(FOLDER, &state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut ask, mut told) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = || {
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
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
    report.must("same process, p50", percentile(&mut same, 50), "ms", Must::AtMost(2.0));
    report.must("other process, p50", percentile(&mut other, 50), "ms", Must::AtMost(20.0));
    report.tell("same process, p99", percentile(&mut same, 99), "ms");
    report.tell("other process, p99", percentile(&mut other, 99), "ms");
    report.tell("the commit of the decision alone, p50", percentile(&mut commits, 50), "ms");
    report
}

/// The child: listens for each question it is told, and tells when it knew.
fn wait_for_all(folder: &Path) {
    let store = open(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for id in std::io::stdin().lines() {
        let id = id.unwrap();
        runtime.block_on(async {
            let mut watch = store.questions().watch();
            println!("listening");
            while store.questions().approval(&id).await.unwrap().unwrap().state == AskState::Pending {
                watch.changed(Duration::from_secs(5)).await;
            }
            println!("{}", nanos());
        });
    }
}

async fn settled(store: &SqliteStore, id: &str, listens: tokio::sync::oneshot::Sender<()>) -> u64 {
    let mut watch = store.questions().watch();
    let mut listens = Some(listens);
    while store.questions().approval(id).await.unwrap().unwrap().state == AskState::Pending {
        let _ = listens.take().map(|listens| listens.send(()));
        watch.changed(Duration::from_secs(5)).await;
    }
    nanos()
}

fn open(folder: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(StateDir::open(folder).unwrap(), &Options::new(Arc::new(Still))).unwrap())
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
        kind: AskKind::Call,
        risk: text.clone(),
        summary: text.clone(),
        why: text,
        grantable: false,
        asked: Digest::of(id.as_bytes()),
        digest: Digest::of(id.as_bytes()),
        revision: Digest::ZERO,
        sealed: store.questions().vault().seal(id, b"a call").unwrap(),
        created: Still.now(),
        expires: Still.now().later(60_000),
        state: AskState::Pending,
        delivered: false,
        decided: None,
    };
    store.commit(Batch::durable(Vec::new(), vec![AskChange::Open(row).into()])).await.unwrap();
}

/// Decides; when the commit began and when it was done.
async fn decide(store: &SqliteStore, id: &str) -> (u64, u64) {
    let key = SigningKey::new("approver/bench", KeyKind::Log, &[7; 32]).unwrap();
    let (now, plan) = (Still.now(), Digest::of(id.as_bytes()));
    let about = Id::new(id).unwrap();
    let decision = Decision {
        about: about.clone(),
        plan,
        verb: Verb::Approve,
        reach: Reach::Once,
        at: now,
        expires: now.later(60_000),
    };
    let note = decision.sign(&key).unwrap();
    let decided = Decided {
        verb: decision.verb,
        reach: decision.reach,
        digest: plan,
        at: now,
        expires: decision.expires,
        by: Redacted::literal("bench"),
        reason: None,
    };
    let change = AskChange::Decide { id: about, decided, note };
    let begun = nanos();
    store.commit(Batch::durable(Vec::new(), vec![change.into()])).await.unwrap();
    (begun, nanos())
}

fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
