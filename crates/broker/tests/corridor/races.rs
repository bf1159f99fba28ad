//! Races around a decision: of two, one wins, and nothing is applied twice or by halves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use vambrace_broker::{Broker, Choice};
use vambrace_core::error::ErrorCode;
use vambrace_store::{AskState, Options, SqliteStore, StateDir, Store};

use crate::changes::{DEV, ada, file, id};
use crate::faults::{Failing, Gate, Stop};
use crate::kit::{Kit, call, parts};

/// Brokers of several processes, as it were: each with a store of its own on the same folder.
fn brokers(kit: &mut Kit, count: usize) -> Vec<Arc<Broker>> {
    let project = kit.folder.path().join("project");
    let state = kit.folder.path().join("state");
    let open = |_| {
        let dir = StateDir::open(&state).unwrap();
        let store = Arc::new(SqliteStore::open(dir, &Options::new(kit.clock.clone())).unwrap());
        Arc::new(Broker::new(parts(&project, DEV, None, store, kit.clock.clone())))
    };
    (0..count).map(open).collect()
}

// A8: two approvers, or one who applies twice: one application
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_approvers_one_applies() {
    let mut kit = Kit::new(DEV);
    let brokers = brokers(&mut kit, 4);
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
                tokio::spawn(async move { broker.approve(&id, Choice::once(), &ada()).await })
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
        assert_eq!(file(&kit, &path).as_deref(), Some(content.as_str()));
    }
    let applied = kit.records().await.iter().filter(|record| record["op"] == "write_file_apply").count();
    assert_eq!(applied, 8);
}

// A6: approve against expire: exactly one of them counts, and the file says the same
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_decider_and_the_clock_one_wins() {
    let mut kit = Kit::new(DEV);
    let brokers = brokers(&mut kit, 2);
    let (mut approved, mut expired) = (0, 0);
    for round in 0..12 {
        let path = format!("src/e{round}.txt");
        let answer = call(&brokers[0], "write_file", json!({"path": path, "content": "x\n"})).await;
        let id = id(&answer);
        let row = kit.store.questions().approval(&id).await.unwrap().unwrap();
        let yes = tokio::spawn({
            let (broker, id) = (Arc::clone(&brokers[0]), id.clone());
            async move { broker.approve(&id, Choice::once(), &ada()).await.is_ok() }
        });
        let clock = Arc::clone(&kit.clock);
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
        let state = kit.store.questions().approval(&id).await.unwrap().unwrap().state;
        match (agreed, state, file(&kit, &path).is_some()) {
            (true, AskState::Used, true) => approved += 1,
            (false, AskState::Expired, false) => expired += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(approved + expired, 12);
}

// A6: both sides of that, one after the other: whichever is committed first counts
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_yes_that_is_committed_first_counts_and_one_that_comes_behind_the_end_does_not() {
    let mut kit = Kit::new(DEV);
    let other = brokers(&mut kit, 1).remove(0);
    let project = kit.folder.path().join("project");
    for (round, (stop, expires, counts)) in [
        // It is written that the time is over; then the yes comes, which was said in time.
        (Stop::BeforeCommit, true, false),
        // The yes is written; while the file is not yet, the time is over.
        (Stop::AfterCommit, true, true),
        // Said in time, and written before anybody wrote that the time is over.
        (Stop::BeforeCommit, false, true),
    ]
    .into_iter()
    .enumerate()
    {
        let gate = Gate::new(stop);
        let store = Failing { gate: Some(Arc::clone(&gate)), ..Failing::never(&kit.store) };
        let broker = Broker::new(parts(&project, DEV, None, Arc::new(store), kit.clock.clone()));
        let path = format!("src/e{round}.txt");
        let id = id(&call(&broker, "write_file", json!({"path": path, "content": "x\n"})).await);
        let row = kit.store.questions().approval(&id).await.unwrap().unwrap();
        let yes = tokio::spawn({
            let id = id.clone();
            async move { broker.approve(&id, Choice::once(), &ada()).await }
        });
        gate.reached.acquire().await.unwrap().forget();
        assert_eq!(file(&kit, &path), None);
        kit.clock.0.store(row.expires.millis(), Ordering::Relaxed);
        if expires {
            other.recover().await.unwrap();
        }
        gate.open.add_permits(1);
        let said = yes.await.unwrap();
        let state = kit.store.questions().approval(&id).await.unwrap().unwrap().state;
        let code = said.as_ref().err().map(|error| error.code);
        let written = file(&kit, &path).is_some();
        match counts {
            true => assert_eq!((code, state, written), (None, AskState::Used, true)),
            false => {
                assert_eq!((code, state, written), (Some(ErrorCode::ProposalUsed), AskState::Expired, false))
            }
        }
        other.recover().await.unwrap();
        let records = kit.records().await;
        let about = |word: &str| {
            let is = |record: &&serde_json::Value| record["hitl_id"] == *id && record["event_type"] == word;
            records.iter().filter(is).count()
        };
        let expected = if counts { (1, 0) } else { (0, 1) };
        assert_eq!((about("approval.approved"), about("approval.expired")), expected);
    }
}

// 003: apply against an outside edit: the edit or the change, never a mixture
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outside_edit_is_not_overwritten() {
    let mut kit = Kit::new(DEV);
    let brokers = brokers(&mut kit, 1);
    let path = kit.folder.path().join("project/src/main.rs");
    for round in 0..16 {
        std::fs::write(&path, format!("base {round}\n")).unwrap();
        let args = json!({"path": "src/main.rs", "content": format!("agent {round}\n")});
        let answer = call(&brokers[0], "write_file", args).await;
        let outside = tokio::task::spawn_blocking({
            let path = path.clone();
            move || std::fs::write(&path, format!("human {round}\n")).unwrap()
        });
        let agreed = brokers[0].approve(&id(&answer), Choice::once(), &ada()).await;
        outside.await.unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        match agreed {
            // Written through the name or into the file that was replaced: both are whole.
            Ok(_) => assert!(now == format!("agent {round}\n") || now == format!("human {round}\n"), "{now}"),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
                assert_eq!(now, format!("human {round}\n"));
            }
        }
    }
}
