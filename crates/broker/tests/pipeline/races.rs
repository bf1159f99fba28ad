//! Races around a decision: one of two wins, and nothing is applied twice or partly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use vambrace_broker::{ApprovalChoice, Broker};
use vambrace_core::error::ErrorCode;
use vambrace_store::{ApprovalState, SqliteStore, StateDir, Store, StoreOptions};

use crate::changes::{DEV, ada, file, id};
use crate::faults::{FailingStore, Gate, GatePoint};
use crate::fixtures::{Fixture, call, parts};

/// Brokers as in several processes: each with its own store on the same directory.
fn brokers(fixture: &mut Fixture, count: usize) -> Vec<Arc<Broker>> {
    let project = fixture.dir.path().join("project");
    let state = fixture.dir.path().join("state");
    let open = |_| {
        let dir = StateDir::open(&state).unwrap();
        let store = Arc::new(SqliteStore::open(dir, &StoreOptions::new(fixture.clock.clone())).unwrap());
        Broker::new(parts(&project, DEV, None, store, fixture.clock.clone()))
    };
    (0..count).map(open).collect()
}

// A8: two approvers, or one who approves twice: applied once
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_approvals_apply_once() {
    let mut fixture = Fixture::new(DEV);
    let brokers = brokers(&mut fixture, 4);
    for round in 0..8 {
        let path = format!("src/f{round}.txt");
        let content = format!("{round}\n");
        let args = json!({"path": path, "content": content, "mode": "append"});
        let answer = call(&brokers[0], "write_file", args).await;
        let id = id(&answer);
        let tasks: Vec<_> = brokers
            .iter()
            .map(|broker| {
                let (broker, id) = (Arc::clone(broker), id.clone());
                tokio::spawn(async move { broker.approve(&id, ApprovalChoice::once(), &ada()).await })
            })
            .collect();
        let mut won = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => won += 1,
                Err(error) => assert!(
                    matches!(
                        error.code,
                        ErrorCode::ProposalUsed | ErrorCode::StaleBase | ErrorCode::ResourceBusy
                    ),
                    "{error:?}"
                ),
            }
        }
        assert_eq!(won, 1);
        assert_eq!(file(&fixture, &path).as_deref(), Some(content.as_str()));
    }
    let applied = fixture.records().await.iter().filter(|record| record["op"] == "write_file_apply").count();
    assert_eq!(applied, 8);
}

// A6: approval against expiry: exactly one of them counts, and the file agrees
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approval_races_with_expiry() {
    let mut fixture = Fixture::new(DEV);
    let brokers = brokers(&mut fixture, 2);
    let (mut approved, mut expired) = (0, 0);
    for round in 0..12 {
        let path = format!("src/e{round}.txt");
        let answer = call(&brokers[0], "write_file", json!({"path": path, "content": "x\n"})).await;
        let id = id(&answer);
        let row = fixture.store.approval_queries().approval(&id).await.unwrap().unwrap();
        let yes = tokio::spawn({
            let (broker, id) = (Arc::clone(&brokers[0]), id.clone());
            async move { broker.approve(&id, ApprovalChoice::once(), &ada()).await.is_ok() }
        });
        let clock = Arc::clone(&fixture.clock);
        let over = tokio::spawn({
            let broker = Arc::clone(&brokers[1]);
            async move {
                for _ in 0..round * 20 {
                    tokio::task::yield_now().await;
                }
                clock.0.store(row.expires.millis(), Ordering::Relaxed);
                broker.recover().await.unwrap();
            }
        });
        let agreed = yes.await.unwrap();
        over.await.unwrap();
        let state = fixture.store.approval_queries().approval(&id).await.unwrap().unwrap().state;
        match (agreed, state, file(&fixture, &path).is_some()) {
            (true, ApprovalState::Used, true) => approved += 1,
            (false, ApprovalState::Expired, false) => expired += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(approved + expired, 12);
}

// A6: both orders, one after the other: whichever is committed first counts
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approval_counts_only_if_committed_before_the_expiry() {
    let mut fixture = Fixture::new(DEV);
    let other = brokers(&mut fixture, 1).remove(0);
    let project = fixture.dir.path().join("project");
    for (round, (stop, expires, counts)) in [
        // The expiry is committed; then the approval arrives, which was given in time.
        (GatePoint::BeforeCommit, true, false),
        // The approval is committed; the request expires before the file is written.
        (GatePoint::AfterCommit, true, true),
        // Given in time, and committed before any process recorded the expiry.
        (GatePoint::BeforeCommit, false, true),
    ]
    .into_iter()
    .enumerate()
    {
        let gate = Gate::new(stop);
        let store = FailingStore { gate: Some(Arc::clone(&gate)), ..FailingStore::never(&fixture.store) };
        let broker = Broker::new(parts(&project, DEV, None, Arc::new(store), fixture.clock.clone()));
        let path = format!("src/e{round}.txt");
        let id = id(&call(&broker, "write_file", json!({"path": path, "content": "x\n"})).await);
        let row = fixture.store.approval_queries().approval(&id).await.unwrap().unwrap();
        let yes = tokio::spawn({
            let id = id.clone();
            async move { broker.approve(&id, ApprovalChoice::once(), &ada()).await }
        });
        gate.reached.acquire().await.unwrap().forget();
        assert_eq!(file(&fixture, &path), None);
        fixture.clock.0.store(row.expires.millis(), Ordering::Relaxed);
        if expires {
            other.recover().await.unwrap();
        }
        gate.open.add_permits(1);
        let said = yes.await.unwrap();
        let state = fixture.store.approval_queries().approval(&id).await.unwrap().unwrap().state;
        let code = said.as_ref().err().map(|error| error.code);
        let written = file(&fixture, &path).is_some();
        match counts {
            true => assert_eq!((code, state, written), (None, ApprovalState::Used, true)),
            false => {
                assert_eq!(
                    (code, state, written),
                    (Some(ErrorCode::ProposalUsed), ApprovalState::Expired, false)
                )
            }
        }
        other.recover().await.unwrap();
        let records = fixture.records().await;
        let about = |word: &str| {
            let is = |record: &&serde_json::Value| record["hitl_id"] == *id && record["event_type"] == word;
            records.iter().filter(is).count()
        };
        let expected = if counts { (1, 0) } else { (0, 1) };
        assert_eq!((about("approval.approved"), about("approval.expired")), expected);
    }
}

// Applying against an outside edit: the edit or the change, never a mixture
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outside_edit_is_not_overwritten() {
    let mut fixture = Fixture::new(DEV);
    let brokers = brokers(&mut fixture, 1);
    let path = fixture.dir.path().join("project/src/main.rs");
    for round in 0..16 {
        std::fs::write(&path, format!("base {round}\n")).unwrap();
        let args = json!({"path": "src/main.rs", "content": format!("agent {round}\n")});
        let answer = call(&brokers[0], "write_file", args).await;
        let outside = tokio::task::spawn_blocking({
            let path = path.clone();
            move || std::fs::write(&path, format!("human {round}\n")).unwrap()
        });
        let agreed = brokers[0].approve(&id(&answer), ApprovalChoice::once(), &ada()).await;
        outside.await.unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        match agreed {
            // Written through the name or into the replaced file: both are complete.
            Ok(_) => assert!(now == format!("agent {round}\n") || now == format!("human {round}\n"), "{now}"),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
                assert_eq!(now, format!("human {round}\n"));
            }
        }
    }
}
