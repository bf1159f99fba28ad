//! After a decision: which process performs, that exactly one does, and that its caller gets the result once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vambrace_broker::{
    Amendment, ApprovalChoice, Broker, BrokerParts, CallContext, DecisionWait, RawCall, read_approval,
};
use vambrace_core::error::ErrorCode;
use vambrace_core::id::Id;
use vambrace_store::{
    ApprovalChange, ApprovalQueries as _, ApprovalRow, ApprovalState, Batch, SqliteStore, StateDir,
    Store as _, StoreOptions,
};

use crate::changes::{DEV, ada, file, id, propose, waiting};
use crate::fixtures::{Fixture, SECRET, call, parts, peer, raw};

/// Reading below `docs` needs an approval.
const ASK: &str =
    "roles:\n  default: dev\napprovals:\n  rules:\n    - {id: ask-docs, paths: [docs/**], decision: ask}\n";

/// Another process: a store of its own on the same state directory.
fn process(fixture: &Fixture) -> Arc<SqliteStore> {
    let dir = StateDir::open(fixture.dir.path().join("state")).unwrap();
    Arc::new(SqliteStore::open(dir, &StoreOptions::new(fixture.clock.clone())).unwrap())
}

fn parts_in(fixture: &Fixture, store: Arc<SqliteStore>) -> BrokerParts {
    parts(&fixture.dir.path().join("project"), ASK, None, store, fixture.clock.clone())
}

fn broker_in(fixture: &Fixture, store: Arc<SqliteStore>) -> Arc<Broker> {
    Broker::new(parts_in(fixture, store))
}

/// A process that cannot change files.
fn without_workspace(fixture: &Fixture) -> Arc<Broker> {
    let mut parts = parts_in(fixture, process(fixture));
    parts.tool_context.changes.applier = None;
    Broker::new(parts)
}

async fn row(fixture: &Fixture, id: &str) -> ApprovalRow<String> {
    fixture.store.approval(id).await.unwrap().unwrap()
}

async fn count(fixture: &Fixture, op: &str) -> usize {
    fixture.records().await.iter().filter(|record| record["op"] == op).count()
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": "new\n"})
}

const READ: &str = "docs/guide.md";

// DESIGN 2: the process in which the caller waits performs, whoever decided
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_process_performs_what_another_process_approves() {
    for holds_workspace in [true, false] {
        let fixture = Fixture::new(ASK);
        let store = process(&fixture);
        let own = store.liveness().id().clone();
        let caller = broker_in(&fixture, store);
        let approver = match holds_workspace {
            true => broker_in(&fixture, process(&fixture)),
            false => without_workspace(&fixture),
        };
        let (change, waits) = waiting(&caller, "write_file", write("src/a.txt")).await;
        assert_eq!(row(&fixture, &change).await.waiter, Some(own.clone()));
        let result = approver.approve(&change, ApprovalChoice::once(), &ada()).await.unwrap().unwrap();
        assert_eq!(result.envelope()["data"]["applied"], true, "the approver sees the result too");
        let answer = waits.await.unwrap();
        assert_eq!(answer["data"]["applied"], true, "{answer}");
        assert_eq!(file(&fixture, "src/a.txt").as_deref(), Some("new\n"));
        let used = row(&fixture, &change).await;
        assert_eq!(
            (used.state, used.performer, used.delivered),
            (ApprovalState::Used, Some(own.clone()), true)
        );
        assert_eq!(count(&fixture, "write_file_apply").await, 1);

        let (read, waits) = waiting(&caller, "read_file", json!({"path": READ})).await;
        assert!(approver.approve(&read, ApprovalChoice::once(), &ada()).await.unwrap().is_none());
        let answer = waits.await.unwrap();
        assert!(answer["data"]["content"].as_str().unwrap().contains("read me"), "{answer}");
        let used = row(&fixture, &read).await;
        assert_eq!((used.state, used.performer, used.delivered), (ApprovalState::Used, Some(own), true));
    }
}

// B7: what another process approved is exactly what is applied, also a part or edited content
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_process_applies_the_approved_part() {
    let fixture = Fixture::new(ASK);
    let (caller, approver) = (broker_in(&fixture, process(&fixture)), broker_in(&fixture, process(&fixture)));
    let path = fixture.dir.path().join("project/src/long.txt");
    let lines = |marks: &[usize]| -> String {
        (1..=60)
            .map(|n| if marks.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
            .collect()
    };
    std::fs::write(&path, lines(&[])).unwrap();
    let args = json!({"path": "src/long.txt", "content": lines(&[2, 55])});
    let (request, waits) = waiting(&caller, "write_file", args).await;
    let part = Amendment::Hunks(vec![("src/long.txt".to_owned(), vec![2])]);
    approver.approve(&request, ApprovalChoice { part, ..ApprovalChoice::once() }, &ada()).await.unwrap();
    let answer = waits.await.unwrap();
    assert_eq!(answer["data"]["as_proposed"], false, "{answer}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), lines(&[55]));
    let shown = read_approval(fixture.store.approval_queries(), &request).await.unwrap();
    assert!(shown.diff.contains("+LINE 55") && !shown.diff.contains("+LINE 2\n"), "{}", shown.diff);
    assert!(shown.proposed.unwrap().contains("+LINE 2\n"));

    let (request, waits) = waiting(&caller, "write_file", write("src/b.txt")).await;
    let edited = Amendment::Edited(vec![("src/b.txt".to_owned(), b"mine\n".to_vec())]);
    let preview = approver.preview(&request, edited.clone(), &ada()).await.unwrap();
    let choice = ApprovalChoice { part: edited, shown: Some(preview.digest), ..ApprovalChoice::once() };
    approver.approve(&request, choice, &ada()).await.unwrap();
    assert_eq!(waits.await.unwrap()["data"]["as_proposed"], false);
    assert_eq!(file(&fixture, "src/b.txt").as_deref(), Some("mine\n"));
}

// A8: the approver learns that the approved change no longer fits, and so does the caller
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stale_change_is_reported_to_approver_and_caller() {
    let fixture = Fixture::new(ASK);
    let (caller, approver) = (broker_in(&fixture, process(&fixture)), without_workspace(&fixture));
    let (request, waits) = waiting(&caller, "write_file", write("src/main.rs")).await;
    std::fs::write(fixture.dir.path().join("project/src/main.rs"), "by hand\n").unwrap();
    let error = approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBase);
    assert_eq!(waits.await.unwrap()["error"]["code"], "StaleBase");
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("by hand\n"));
}

/// A waiting caller in a process that can be killed.
fn killable(
    fixture: &Fixture,
    call: RawCall,
) -> (tokio::runtime::Runtime, Id, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = process(fixture);
    let own = store.liveness().id().clone();
    let broker = {
        let _inside = runtime.enter();
        broker_in(fixture, store)
    };
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    runtime.spawn(async move {
        let on_waiting =
            move |waiting: &vambrace_broker::WaitProgress| drop(sender.send(waiting.id.to_string()));
        let wait = DecisionWait { on_waiting: Some(Arc::new(on_waiting)), ..DecisionWait::until_decided() };
        broker.call_and_wait(call, &peer(), wait, CallContext::default()).await
    });
    (runtime, own, receiver)
}

// A8: nothing is lost when the process of the caller is killed while it waits; the next one gets the result, once
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deciding_process_performs_when_the_waiting_one_was_killed() {
    for (tool, args) in [("write_file", write("src/k.txt")), ("read_file", json!({"path": READ}))] {
        let fixture = Fixture::new(ASK);
        let (runtime, own, mut waits) = killable(&fixture, raw(tool, args.clone()));
        let request = waits.recv().await.unwrap();
        assert_eq!(row(&fixture, &request).await.waiter, Some(own.clone()));
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        assert!(!fixture.store.liveness().is_alive(&own));
        let store = process(&fixture);
        let decider = store.liveness().id().clone();
        let approver = broker_in(&fixture, store);
        let result = approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().unwrap();
        assert_eq!(result.envelope()["status"], "success");
        let used = row(&fixture, &request).await;
        assert_eq!((used.performer, used.delivered), (Some(decider), false));
        let next = broker_in(&fixture, process(&fixture));
        let answer = call(&next, tool, args.clone()).await;
        assert_eq!(answer["status"], "success", "{answer}");
        assert_eq!(answer["data"], result.envelope()["data"], "the stored result");
        assert!(row(&fixture, &request).await.delivered);
        assert_eq!(fixture.store.call_outcome(&request).await.unwrap(), None);
        assert_eq!(count(&fixture, "tool.start").await, 1, "{tool}");
    }
}

/// Commits what another process would.
async fn commit(store: &SqliteStore, change: ApprovalChange) {
    store.commit(Batch::durable(Vec::new(), vec![change.into()])).await.unwrap();
}

// A8: killed after the decision and before it began
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_process_that_dies_after_the_decision_is_overtaken() {
    let fixture = Fixture::new(ASK);
    let approver = broker_in(&fixture, process(&fixture));
    let request = id(&propose(&approver, "write_file", write("src/k.txt")).await);
    let waiter = process(&fixture);
    let (name, process) = (Id::new(&request).unwrap(), waiter.liveness().id().clone());
    commit(&waiter, ApprovalChange::Wait { id: name, process }).await;
    let approving = tokio::spawn({
        let (approver, request) = (Arc::clone(&approver), request.clone());
        async move { approver.approve(&request, ApprovalChoice::once(), &ada()).await }
    });
    while row(&fixture, &request).await.state != ApprovalState::Approved {
        tokio::task::yield_now().await;
    }
    assert_eq!(file(&fixture, "src/k.txt"), None, "it is the waiting process that performs");
    drop(waiter);
    assert_eq!(approving.await.unwrap().unwrap().unwrap().envelope()["data"]["applied"], true);
    assert_eq!(file(&fixture, "src/k.txt").as_deref(), Some("new\n"));
    assert_eq!(count(&fixture, "write_file_apply").await, 1);
}

// A process that lives and does not begin: its place is taken after a while
#[tokio::test(start_paused = true)]
async fn waiting_process_that_does_not_begin_is_overtaken() {
    let fixture = Fixture::new(ASK);
    let approver = broker_in(&fixture, process(&fixture));
    let waiter = process(&fixture);
    for (tool, args) in [("write_file", write("src/k.txt")), ("read_file", json!({"path": READ}))] {
        let request = id(&propose(&approver, tool, args).await);
        let (name, process) = (Id::new(&request).unwrap(), waiter.liveness().id().clone());
        commit(&waiter, ApprovalChange::Wait { id: name, process }).await;
        let begun = tokio::time::Instant::now();
        let result = approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().unwrap();
        assert_eq!(result.envelope()["status"], "success");
        assert!(begun.elapsed() >= Duration::from_secs(5));
    }
}

// A8: several processes at the same moment: one performs, and every caller learns its result
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_several_processes_performs() {
    let fixture = Fixture::new(ASK);
    let undecided = without_workspace(&fixture);
    let brokers: Vec<_> = (0..4).map(|_| broker_in(&fixture, process(&fixture))).collect();
    for round in 0..8 {
        let args = json!({"path": format!("src/r{round}.txt"), "content": "x\n", "mode": "append"});
        let request = id(&propose(&brokers[0], "write_file", args.clone()).await);
        // No process performs yet: this one does not hold the files, and nobody waits.
        assert!(undecided.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().is_none());
        let calls: Vec<_> = brokers
            .iter()
            .map(|broker| {
                let (broker, call) = (Arc::clone(broker), raw("write_file", args.clone()));
                let wait = DecisionWait::until_decided();
                tokio::spawn(async move {
                    broker.call_and_wait(call, &peer(), wait, CallContext::default()).await.envelope()
                })
            })
            .collect();
        for call in calls {
            let answer = call.await.unwrap();
            // A process that comes after the delivery makes a call of its own, which changes nothing.
            let waits = answer["details"]["status"] == "hitl_required";
            assert!(waits || answer["data"]["applied"] == true, "{answer}");
        }
        assert_eq!(file(&fixture, &format!("src/r{round}.txt")).as_deref(), Some("x\n"));
        assert_eq!(count(&fixture, "write_file_apply").await, round + 1);
    }
}

// A8: the waiting process and an approver that overtakes it, at the same moment
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_process_and_overtaking_approver_perform_once() {
    for round in 0..6 {
        let fixture = Fixture::new(ASK);
        let (caller, approver) =
            (broker_in(&fixture, process(&fixture)), broker_in(&fixture, process(&fixture)));
        let (request, waits) = waiting(&caller, "write_file", write("src/k.txt")).await;
        // The approver believes in a process that is dead: it overtakes at once, while the caller still waits.
        let gone = process(&fixture);
        let (name, process) = (Id::new(&request).unwrap(), gone.liveness().id().clone());
        commit(&gone, ApprovalChange::Wait { id: name, process }).await;
        let approving = tokio::spawn({
            let (approver, request) = (Arc::clone(&approver), request.clone());
            async move { approver.approve(&request, ApprovalChoice::once(), &ada()).await }
        });
        if round % 2 == 0 {
            while row(&fixture, &request).await.state == ApprovalState::Pending {
                tokio::task::yield_now().await;
            }
        }
        drop(gone);
        let result = approving.await.unwrap().unwrap().unwrap().envelope();
        assert_eq!(result["data"]["applied"], true, "{result}");
        let answer = waits.await.unwrap();
        assert_eq!(answer["data"]["applied"], true, "{answer}");
        assert_eq!(count(&fixture, "write_file_apply").await, 1);
        assert_eq!(count(&fixture, "tool.start").await, 1);
        assert!(row(&fixture, &request).await.delivered);
    }
}

// A cancelled wait is not a decision: the request stays open, and the outcome is not lost
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_wait_leaves_the_request_open() {
    let fixture = Fixture::new(ASK);
    let store = process(&fixture);
    let caller = broker_in(&fixture, store);
    for (tool, args) in [("write_file", write("src/c.txt")), ("read_file", json!({"path": READ}))] {
        let (sender, mut started) = tokio::sync::mpsc::unbounded_channel();
        let context = CallContext::default();
        let waits = tokio::spawn({
            let (caller, call, context) = (Arc::clone(&caller), raw(tool, args.clone()), context.clone());
            let on_waiting =
                move |waiting: &vambrace_broker::WaitProgress| drop(sender.send(waiting.id.to_string()));
            let wait =
                DecisionWait { on_waiting: Some(Arc::new(on_waiting)), ..DecisionWait::until_decided() };
            async move { caller.call_and_wait(call, &peer(), wait, context).await.envelope() }
        });
        let request = started.recv().await.unwrap();
        context.cancel.cancel();
        let answer = waits.await.unwrap();
        assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
        assert_eq!(id(&answer), request);
        let open = row(&fixture, &request).await;
        assert_eq!((open.state, open.delivered, open.waiter), (ApprovalState::Pending, false, None));
        let approver = broker_in(&fixture, process(&fixture));
        let result = approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().unwrap();
        let answer = call(&caller, tool, args).await;
        assert_eq!(answer["data"], result.envelope()["data"], "the repeated call gets the outcome");
        assert!(row(&fixture, &request).await.delivered);
    }
}

// A8, T21: the result of a call that its approver's process ran is redacted, marked as untrusted, and delivered once
#[tokio::test]
async fn call_without_a_waiting_caller_is_run_once_and_its_result_is_kept() {
    let fixture = Fixture::new(ASK);
    let guide = fixture.dir.path().join("project/docs/guide.md");
    std::fs::write(&guide, format!("one {SECRET}\n")).unwrap();
    let (caller, approver) = (broker_in(&fixture, process(&fixture)), broker_in(&fixture, process(&fixture)));
    let args = json!({"path": READ});
    let request = id(&propose(&caller, "read_file", args.clone()).await);
    approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().unwrap();
    // What was approved is what was read then.
    std::fs::write(&guide, "two\n").unwrap();
    let answer = call(&caller, "read_file", args.clone()).await;
    assert_eq!(answer["data"]["content"], "one [REDACTED]\n", "{answer}");
    assert_eq!(answer["metadata"]["redactions_applied"], 1);
    let marked = caller.call(raw("read_file", json!({"path": "src/main.rs"})), &peer()).await.envelope();
    assert_eq!(answer["details"]["provenance"], marked["details"]["provenance"], "{answer}");
    assert_ne!(id(&propose(&caller, "read_file", args).await), request, "delivered once");
    assert_eq!(count(&fixture, "read_file").await, 2);
}

// A8: a process that died while it performed: the caller learns that the outcome is unknown, and nothing runs again
#[tokio::test]
async fn call_whose_process_died_has_an_unknown_outcome() {
    let fixture = Fixture::new(ASK);
    let (caller, approver) = (broker_in(&fixture, process(&fixture)), without_workspace(&fixture));
    let args = json!({"path": READ});
    let request = id(&propose(&caller, "read_file", args.clone()).await);
    let own = ApprovalChoice::once_for_own_call();
    assert!(approver.approve(&request, own, &ada()).await.unwrap().is_none());
    let performer = process(&fixture);
    let (name, process) = (Id::new(&request).unwrap(), performer.liveness().id().clone());
    let at = row(&fixture, &request).await.created;
    commit(&performer, ApprovalChange::Use { id: name, process, at }).await;
    drop(performer);
    let answer = call(&caller, "read_file", args.clone()).await;
    assert_eq!(answer["error"]["code"], "OutcomeUnknown", "{answer}");
    assert_eq!(count(&fixture, "tool.start").await, 0);
    propose(&caller, "read_file", args).await;
}

// The caller is in the process that decides: it gets the result of a change, and runs any other call itself
#[tokio::test]
async fn caller_that_returns_gets_the_result_from_its_own_process() {
    let mut fixture = Fixture::new(ASK);
    let broker = fixture.broker();
    let own = ApprovalChoice::once_for_own_call;
    let request = id(&propose(&broker, "write_file", write("src/o.txt")).await);
    let applied = broker.approve(&request, own(), &ada()).await.unwrap().unwrap().envelope();
    assert_eq!(applied["data"]["applied"], true);
    assert!(row(&fixture, &request).await.delivered);
    let again = call(&broker, "write_file", write("src/o.txt")).await;
    assert_eq!(again["data"]["summary"], "NOTHING", "not the old outcome: {again}");
    let request = id(&propose(&broker, "read_file", json!({"path": READ})).await);
    assert!(broker.approve(&request, own(), &ada()).await.unwrap().is_none());
    assert_eq!(row(&fixture, &request).await.state, ApprovalState::Approved);
    assert_eq!(call(&broker, "read_file", json!({"path": READ})).await["status"], "success");
}

/// `DEV` has no rule that asks about reads.
#[tokio::test]
async fn change_is_applied_by_a_repeated_call_after_a_process_without_files_approved_it() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let approver = without_workspace(&fixture);
    let request = id(&propose(&broker, "write_file", write("src/l.txt")).await);
    assert!(approver.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap().is_none());
    assert_eq!(file(&fixture, "src/l.txt"), None);
    let answer = call(&broker, "write_file", write("src/l.txt")).await;
    assert_eq!(answer["data"]["applied"], true, "{answer}");
    assert_eq!(file(&fixture, "src/l.txt").as_deref(), Some("new\n"));
    assert!(row(&fixture, &request).await.delivered);
}
