//! The power goes when a change is made and its end is not on the disk: the start, the decision and the file are, for they
//! were synced; the last commit is lost. The next start finds out how it ended, and says so once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use vambrace_broker::{Broker, Choice};
use vambrace_core::clock::Clock as _;
use vambrace_ledger::Op;
use vambrace_store::{
    Batch, Durability, Entry, Options, ProposalState, Query, SqliteStore, StateDir, Store, VerifyOptions,
    verify,
};

use crate::changes::{DEV, ada, ada_key, file, id, propose, waiting};
use crate::faults::{Failing, Gate, Stop};
use crate::kit::{Hand, Kit, call, parts};

const PATCH: &str = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1 +1 @@\n-a\n+A\n--- a/src/b.txt\n+++ b/src/b.txt\n@@ -1 +1 @@\n-b\n+B\n";

/// Nothing is signed in the background: whatever was committed last is what the power cut takes.
fn open(state: &Path, clock: &Arc<Hand>) -> Arc<SqliteStore> {
    let options = Options { projection_interval: Duration::from_secs(3600), ..Options::new(clock.clone()) };
    let store = SqliteStore::open(StateDir::open(state).unwrap(), &options).unwrap();
    store.catch_up().unwrap();
    Arc::new(store)
}

/// What a disk has after a power cut: all but the last commit of the log, and not the index of the log, which is memory.
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

/// https://sqlite.org/fileformat2.html#walformat: a frame that ends a commit says how large the database is then.
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
    let records = store.records(Query::after(0, 10_000)).await.unwrap();
    records.iter().filter(|record| record.fields()["op"] == "write_file_apply").count()
}

// B5, B7: nothing that was acknowledged is told as lost, and nothing is recorded twice
#[tokio::test]
async fn a_power_cut_that_takes_the_end_of_a_change_takes_nothing_else() {
    let one = ("write_file", json!({"path": "src/a.txt", "content": "A\n"}), 1);
    let two = ("apply_patch", json!({"patch": PATCH}), 2);
    for ((tool, args, files), undone) in [(one.clone(), false), (two, false), (one, true)] {
        let kit = Kit::new(DEV);
        let project = kit.folder.path().join("project");
        for name in ["a", "b"] {
            std::fs::write(project.join(format!("src/{name}.txt")), format!("{name}\n")).unwrap();
        }
        let (before, after) = (kit.folder.path().join("before"), kit.folder.path().join("after"));
        let broker = |store: &Arc<SqliteStore>| {
            Broker::new(parts(&project, DEV, None, store.clone(), kit.clock.clone()))
        };
        let store = open(&before, &kit.clock);
        let mut key = Entry::new(Op::PolicyChange, kit.clock.now());
        (key.event_type, key.key) = (Some("approver.created"), Some(ada_key().verify_key()));
        store.commit(Batch::durable(vec![key], Vec::new())).await.unwrap();
        let first = broker(&store);
        let asked = id(&propose(&first, tool, args.clone()).await);
        let answer = first.approve(&asked, Choice::once(), &ada()).await.unwrap().unwrap().envelope();
        assert_eq!(answer["data"]["applied"], true, "{answer}");
        if undone {
            first.rollback(&asked, &ada()).await.unwrap();
        }
        let now = file(&kit, "src/a.txt").unwrap();
        assert_eq!(now, if undone { "a\n" } else { "A\n" });
        after_the_cut(&before, &after);

        let store = open(&after, &kit.clock);
        let recorded = applied(&store).await;
        assert_eq!(recorded, if undone { files } else { 0 }, "the end is lost");
        let second = broker(&store);
        second.recover().await.unwrap();
        second.recover().await.unwrap();
        assert_eq!(applied(&store).await, recorded + files, "one end for each file");
        assert_eq!(file(&kit, "src/a.txt").unwrap(), now);
        let row = store.questions().proposal(&asked).await.unwrap().unwrap();
        assert_eq!(row.state, if undone { ProposalState::RolledBack } else { ProposalState::Applied });
        let called = store.call(row.call.as_str()).await.unwrap().unwrap();
        assert_eq!(called.state.as_str(), "completed");
        let heard = call(&second, tool, args).await;
        if undone {
            assert_eq!(heard["error"]["code"], "ApprovalRejected", "{heard}");
        } else {
            assert_eq!(heard["data"]["applied"], true, "{heard}");
            second.rollback(&asked, &ada()).await.unwrap();
            assert_eq!(file(&kit, "src/a.txt").as_deref(), Some("a\n"));
            assert_eq!(file(&kit, "src/b.txt").as_deref(), Some("b\n"));
        }
        drop(second);
        store.catch_up().unwrap();
        drop(store);
        let dir = StateDir::existing(&after).unwrap();
        let report = verify(&dir, &VerifyOptions::new(kit.clock.now()), &mut |_| {}).unwrap();
        assert!(report.findings.is_clean(), "{:#?}", report.findings);
    }
}

// B5: on a disk that is full since, what was begun gets its end: the reserve is kept for that
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_begun_is_recorded_on_a_full_disk() {
    let kit = Kit::new(DEV);
    let project = kit.folder.path().join("project");
    let gate = Gate::new(Stop::AfterCommit);
    let store = Failing { gate: Some(Arc::clone(&gate)), ..Failing::never(&kit.store) };
    let full = Arc::clone(&store.full);
    let broker = Broker::new(parts(&project, DEV, None, Arc::new(store), kit.clock.clone()));
    let asked = id(&propose(&broker, "write_file", json!({"path": "src/a.txt", "content": "A\n"})).await);
    let id = asked.clone();
    let yes = tokio::spawn(async move { broker.approve(&id, Choice::once(), &ada()).await });
    gate.reached.acquire().await.unwrap().forget();
    full.store(true, Ordering::Relaxed);
    gate.open.add_permits(1);
    let answer = yes.await.unwrap().unwrap().unwrap().envelope();
    assert_eq!(answer["data"]["applied"], true, "{answer}");
    assert_eq!(applied(&kit.store).await, 1);
    let row = kit.store.questions().proposal(&asked).await.unwrap().unwrap();
    assert_eq!((row.state, file(&kit, "src/a.txt").as_deref()), (ProposalState::Applied, Some("A\n")));
}

// An edit waits for the disk four times, whether its caller waits or comes back: question, start, file and folder
#[tokio::test]
async fn the_end_of_a_change_asks_for_no_sync_of_its_own() {
    use Durability::{Durable, Lazy, WithNext};
    for (sync, waits, expected) in [
        ("reads_later", false, [Durable, Durable, Durable, WithNext]),
        // Nobody was told anything yet: the decision is synced behind the question.
        ("reads_later", true, [Durable, Lazy, Durable, WithNext]),
        ("always", true, [Durable, Durable, Durable, WithNext]),
    ] {
        let mut kit = Kit::new(&format!("{DEV}audit:\n  sync: {sync}\n"));
        let kept = Arc::default();
        let store = Failing { kept: Arc::clone(&kept), ..Failing::never(&kit.store) };
        kit.parts.as_mut().unwrap().store = Arc::new(store);
        let broker = Arc::new(kit.broker());
        let args = json!({"path": "src/a.txt", "content": "A\n"});
        let asked = match waits {
            true => waiting(&broker, "write_file", args).await.0,
            false => id(&propose(&broker, "write_file", args).await),
        };
        broker.approve(&asked, Choice::once(), &ada()).await.unwrap();
        let kept = kept.lock().unwrap();
        assert_eq!(kept[..4], expected, "{sync} {waits}");
    }
}
