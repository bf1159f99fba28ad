//! Power cut after a change is made, before its end is on disk: the start, the decision and the file were synced; the
//! last commit is lost. Recovery finds out how the change ended, and records it once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use vambrace_broker::{ApprovalChoice, Broker};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::Op;
use vambrace_store::{
    Batch, Durability, Entry, ProposalState, RecordOrder, RecordQuery, SqliteStore, StateDir, Store,
    StoreOptions, VerifyOptions, verify,
};

use crate::changes::{DEV, ada, ada_key, file, id, propose, waiting};
use crate::faults::{FailingStore, Gate, GatePoint};
use crate::fixtures::{Fixture, ManualClock, call, parts};

const PATCH: &str = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1 +1 @@\n-a\n+A\n--- a/src/b.txt\n+++ b/src/b.txt\n@@ -1 +1 @@\n-b\n+B\n";

/// No background signing: the last commit is the one that the power cut loses.
fn open(state: &Path, clock: &Arc<ManualClock>) -> Arc<SqliteStore> {
    let options =
        StoreOptions { segment_interval: Duration::from_secs(3600), ..StoreOptions::new(clock.clone()) };
    let store = SqliteStore::open(StateDir::open(state).unwrap(), &options).unwrap();
    store.admin().catch_up().unwrap();
    Arc::new(store)
}

/// Copies the disk as after a power cut: all but the last commit of the WAL, and not the WAL index, which is memory.
fn after_the_cut(from: &Path, to: &Path) {
    drop(StateDir::open(to).unwrap());
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, there) = (entry.file_name(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            after_the_cut(&entry.path(), &there);
        } else if name != "vambrace.db-shm" {
            std::fs::copy(entry.path(), &there).unwrap();
        }
        if name == "vambrace.db-wal" {
            lose_the_last_commit(&there);
        }
    }
}

/// https://sqlite.org/fileformat2.html#walformat: the last frame of a commit holds the size of the database.
fn lose_the_last_commit(wal: &Path) {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4096;
    let bytes = std::fs::read(wal).unwrap();
    let frames = bytes[HEADER..].chunks_exact(FRAME).take_while(|frame| frame[8..16] == bytes[16..24]);
    let ends: Vec<usize> =
        frames.enumerate().filter(|(_, frame)| frame[4..8] != [0; 4]).map(|(number, _)| number + 1).collect();
    let [.., kept, _lost] = ends[..] else { panic!("there are only {} commits", ends.len()) };
    let file = std::fs::File::options().write(true).open(wal).unwrap();
    file.set_len((HEADER + kept * FRAME) as u64).unwrap();
}

async fn applied(store: &SqliteStore) -> usize {
    let all = RecordQuery { limit: 10_000, order: RecordOrder::OldestFirst, ..RecordQuery::default() };
    let records = store.records(all).await.unwrap();
    records.iter().filter(|record| record.fields()["op"] == "write_file_apply").count()
}

// B5, B7: nothing acknowledged is reported as lost, and nothing is recorded twice
#[tokio::test]
async fn power_cut_loses_only_the_end_record_of_a_change() {
    let one = ("write_file", json!({"path": "src/a.txt", "content": "A\n"}), 1);
    let two = ("apply_patch", json!({"patch": PATCH}), 2);
    for ((tool, args, files), undone) in [(one.clone(), false), (two, false), (one, true)] {
        let fixture = Fixture::new(DEV);
        let project = fixture.dir.path().join("project");
        for name in ["a", "b"] {
            std::fs::write(project.join(format!("src/{name}.txt")), format!("{name}\n")).unwrap();
        }
        let (before, after) = (fixture.dir.path().join("before"), fixture.dir.path().join("after"));
        let broker = |store: &Arc<SqliteStore>| {
            Broker::new(parts(&project, DEV, None, store.clone(), fixture.clock.clone()))
        };
        let store = open(&before, &fixture.clock);
        let mut key = Entry::new(Op::PolicyChange, fixture.clock.now());
        (key.event_type, key.key) = (Some("approver.created"), Some(ada_key().verify_key()));
        store.commit(Batch::durable(vec![key], Vec::new())).await.unwrap();
        let first = broker(&store);
        let request = id(&propose(&first, tool, args.clone()).await);
        let answer =
            first.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().unwrap().envelope();
        assert_eq!(answer["data"]["applied"], true, "{answer}");
        if undone {
            first.rollback(&request, &ada()).await.unwrap();
        }
        let now = file(&fixture, "src/a.txt").unwrap();
        assert_eq!(now, if undone { "a\n" } else { "A\n" });
        after_the_cut(&before, &after);

        let store = open(&after, &fixture.clock);
        let recorded = applied(&store).await;
        assert_eq!(recorded, if undone { files } else { 0 }, "the end is lost");
        let second = broker(&store);
        second.recover().await.unwrap();
        second.recover().await.unwrap();
        assert_eq!(applied(&store).await, recorded + files, "one end record per file");
        assert_eq!(file(&fixture, "src/a.txt").unwrap(), now);
        let row = store.approval_queries().proposal(&request).await.unwrap().unwrap();
        assert_eq!(row.state, if undone { ProposalState::RolledBack } else { ProposalState::Applied });
        let called = store.call(row.call.as_str()).await.unwrap().unwrap();
        assert_eq!(called.state.as_str(), "completed");
        let repeated = call(&second, tool, args).await;
        if undone {
            assert_eq!(repeated["error"]["code"], "ApprovalRejected", "{repeated}");
        } else {
            assert_eq!(repeated["data"]["applied"], true, "{repeated}");
            second.rollback(&request, &ada()).await.unwrap();
            assert_eq!(file(&fixture, "src/a.txt").as_deref(), Some("a\n"));
            assert_eq!(file(&fixture, "src/b.txt").as_deref(), Some("b\n"));
        }
        drop(second);
        store.admin().catch_up().unwrap();
        drop(store);
        let dir = StateDir::existing(&after).unwrap();
        let report = verify(&dir, &VerifyOptions::new(fixture.clock.now()), &mut |_| {}).unwrap();
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
    }
}

// B5: when the disk fills up after the start, the end is still recorded: the reserve is for that
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_a_started_change_is_recorded_on_a_full_disk() {
    let fixture = Fixture::new(DEV);
    let project = fixture.dir.path().join("project");
    let gate = Gate::new(GatePoint::AfterCommit);
    let store = FailingStore { gate: Some(Arc::clone(&gate)), ..FailingStore::never(&fixture.store) };
    let full = Arc::clone(&store.full);
    let broker = Broker::new(parts(&project, DEV, None, Arc::new(store), fixture.clock.clone()));
    let request = id(&propose(&broker, "write_file", json!({"path": "src/a.txt", "content": "A\n"})).await);
    let id = request.clone();
    let yes = tokio::spawn(async move { broker.approve(&id, ApprovalChoice::once(), &ada()).await });
    gate.reached.acquire().await.unwrap().forget();
    full.store(true, Ordering::Relaxed);
    gate.open.add_permits(1);
    let answer = yes.await.unwrap().unwrap().unwrap().envelope();
    assert_eq!(answer["data"]["applied"], true, "{answer}");
    assert_eq!(applied(&fixture.store).await, 1);
    let row = fixture.store.approval_queries().proposal(&request).await.unwrap().unwrap();
    assert_eq!((row.state, file(&fixture, "src/a.txt").as_deref()), (ProposalState::Applied, Some("A\n")));
}

// An edit is synced four times, whether its caller waits or comes back: request, start, file and directory
#[tokio::test]
async fn end_of_a_change_needs_no_sync_of_its_own() {
    use Durability::{Durable, Lazy, NextSync};
    for (sync, waits, expected) in [
        ("reads_later", false, [Durable, Durable, Durable, NextSync]),
        // Nothing was returned to the caller yet: the decision is synced after the request.
        ("reads_later", true, [Durable, Lazy, Durable, NextSync]),
        ("always", true, [Durable, Durable, Durable, NextSync]),
    ] {
        let mut fixture = Fixture::new(&format!("{DEV}audit:\n  sync: {sync}\n"));
        let kept = Arc::default();
        let store = FailingStore { kept: Arc::clone(&kept), ..FailingStore::never(&fixture.store) };
        fixture.parts.as_mut().unwrap().store = Arc::new(store);
        let broker = Arc::new(fixture.broker());
        let args = json!({"path": "src/a.txt", "content": "A\n"});
        let request = match waits {
            true => waiting(&broker, "write_file", args).await.0,
            false => id(&propose(&broker, "write_file", args).await),
        };
        broker.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap();
        let kept = kept.lock().unwrap();
        assert_eq!(kept[..4], expected, "{sync} {waits}");
    }
}
