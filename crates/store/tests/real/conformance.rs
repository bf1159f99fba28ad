//! The guarantees of every store, tested through its traits. `backends.rs` lists the stores that are tested.

use std::time::Duration;

use vambrace_core::ErrorCode;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{Checkpoint, Digest, Op, RecordStatus, SessionChange};
use vambrace_store::{
    Batch, BoxFuture, CallFinish, CallRow, CallState, Entry, EventPhase, EventStatus, OwnerFilter, RecordId,
    RecordOrder, RecordQuery, SealedBlob, SessionState, StateChange, Store, StoreError, TimelineEvent,
    TrustRow, ViolationRow,
};

use crate::backends::{check, check_dir};
use crate::fixtures::{KEY_RECORDS, approval, at, id, session, start, text};

const EVERYONE: &OwnerFilter = &OwnerFilter::Everyone;

async fn begin(store: &dyn Store, name: &str) {
    let opened = Entry::session(SessionChange::Open, id(name), at(0));
    store.commit(Batch::durable(vec![opened], vec![session(name)])).await.unwrap();
}

fn finish(call: &str, state: CallState) -> StateChange {
    StateChange::FinishCall(CallFinish { id: id(call), state, at: at(9), error: Some(ErrorCode::Timeout) })
}

#[test]
fn state_and_record_are_written_together() {
    check(async |store| {
        begin(store, "s-1").await;
        let committed = store.commit(start("s-1", "c-1", 5)).await.unwrap();
        assert!(committed.is_durable());
        let sealed = committed.last().unwrap();
        assert_eq!(sealed.record, RecordId::new(store.writer(), KEY_RECORDS + 2));
        let head = store.head().await.unwrap();
        assert_eq!((head.seq, head.hash), (KEY_RECORDS + 2, sealed.event_hash));
        let record = store.record(&sealed.record).await.unwrap().unwrap();
        assert_eq!(record.id, sealed.record);
        assert_eq!(record.fields()["execution_id"], "c-1");
        assert_eq!(record.fields()["writer"], store.writer().as_str());
        assert_eq!(record.fields()["prev_hash"], sealed.prev_hash.to_string());
        let call = store.call("c-1").await.unwrap().unwrap();
        assert_eq!(call.state, CallState::Executing);
        assert_eq!((call.first_record, call.last_record), (Some(sealed.record.clone()), Some(sealed.record)));
        assert_eq!(call.plan_digest, Some(Digest::of(b"c-1")));
        store.commit(Batch::lazy(vec![], vec![finish("c-1", CallState::Failed)])).await.unwrap();
        let call = store.call("c-1").await.unwrap().unwrap();
        assert_eq!((call.state, call.finished), (CallState::Failed, Some(at(9))));
        assert_eq!(call.error.as_deref(), Some("Timeout"));
        assert_eq!(store.calls(EVERYONE, 5).await.unwrap().len(), 1);
    });
}

#[test]
fn a_start_receipt_requires_a_durable_start_record() {
    check(async |store| {
        begin(store, "s-1").await;
        let receipt = store.commit(start("s-1", "c-1", 1)).await.unwrap().into_start().unwrap();
        assert_eq!(receipt.call(), Some(&id("c-1")));
        assert_eq!(receipt.position().record.seq, KEY_RECORDS + 2);
        let other = Batch::durable(vec![Entry::new(Op::Grant, at(2))], vec![]);
        assert!(store.commit(other).await.unwrap().into_start().is_none());
        let mut lazy = start("s-1", "c-2", 3);
        lazy.durability = vambrace_store::Durability::Lazy;
        let lazy = store.commit(lazy).await.unwrap();
        assert!(!lazy.is_durable());
        assert!(lazy.into_start().is_none());
    });
}

#[test]
fn a_rejected_batch_leaves_nothing_and_affects_no_other_batch() {
    check(async |store| {
        begin(store, "s-1").await;
        store.commit(start("s-1", "c-0", 1)).await.unwrap();
        // Many at once, so that valid and invalid ones share a transaction.
        let names: Vec<String> = (0..60).map(|n| format!("c-{}", n % 40)).collect();
        let mut waiting = Vec::new();
        for name in &names {
            waiting.push(store.commit(start("s-1", name, 2)));
        }
        let (mut good, mut bad) = (0, 0);
        for result in join(waiting).await {
            match result {
                Ok(committed) => good += committed.positions().len(),
                Err(StoreError::Conflict(_)) => bad += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((good, bad), (39, 21));
        assert_eq!(store.head().await.unwrap().seq, KEY_RECORDS + 2 + 39);
    });
}

/// Polls all of them before waiting for any.
pub(crate) async fn join<T: Send>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut slots: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in &mut slots {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        match slots.iter().all(|(_, slot)| slot.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    slots.into_iter().filter_map(|(_, slot)| slot).collect()
}

#[test]
fn a_call_ends_once() {
    check(async |store| {
        begin(store, "s-1").await;
        store.commit(start("s-1", "c-1", 1)).await.unwrap();
        let set = |state| Batch::durable(vec![], vec![StateChange::SetCall { id: id("c-1"), state }]);
        store.commit(set(CallState::Executing)).await.unwrap();
        let conflict = |result: Result<_, StoreError>| matches!(result, Err(StoreError::Conflict(_)));
        assert!(conflict(store.commit(set(CallState::Completed)).await));
        let end = |state| Batch::durable(vec![], vec![finish("c-1", state)]);
        assert!(conflict(store.commit(end(CallState::Executing)).await));
        store.commit(end(CallState::Completed)).await.unwrap();
        assert!(conflict(store.commit(end(CallState::Failed)).await));
        assert!(conflict(store.commit(set(CallState::Executing)).await));
        assert_eq!(store.call("c-1").await.unwrap().unwrap().state, CallState::Completed);
    });
}

// T23, T25
#[test]
fn recent_calls_and_violations_are_counted_within_their_window() {
    check(async |store| {
        begin(store, "s-1").await;
        begin(store, "s-2").await;
        for n in 0..6 {
            store.commit(start("s-1", &format!("c-{n}"), n * 100)).await.unwrap();
            let violation = ViolationRow {
                ts: at(n * 100),
                session: id("s-1"),
                call: Some(id(&format!("c-{n}"))),
                violation_type: Redacted::literal("scope"),
                target: Some(text("../secret")),
            };
            store.commit(Batch::durable(vec![], vec![StateChange::Violation(violation)])).await.unwrap();
        }
        let recent = store.recent_calls("s-1", "read_file", at(300)).await.unwrap();
        assert_eq!((recent.count, recent.oldest), (3, Some(at(300))));
        let none = store.recent_calls("s-2", "read_file", at(0)).await.unwrap();
        assert_eq!((none.count, none.oldest), (0, None));
        assert_eq!(store.recent_calls("s-1", "write_file", at(0)).await.unwrap().count, 0);
        assert_eq!(store.violations_since("s-1", at(400)).await.unwrap(), 2);
        assert_eq!(store.violations(Some("s-2"), EVERYONE, 9).await.unwrap(), []);
        let newest = store.violations(None, EVERYONE, 1).await.unwrap();
        assert_eq!((newest[0].ts, newest[0].target.as_deref()), (at(500), Some("../secret")));
    });
}

#[test]
fn sessions_change_their_state_and_are_listed_newest_first() {
    check(async |store| {
        begin(store, "s-1").await;
        begin(store, "s-2").await;
        let set = |name: &str| {
            let (owner, state) = (OwnerFilter::Everyone, SessionState::Suspended);
            StateChange::SetSession { id: id(name), owner, state, at: at(7) }
        };
        store.commit(Batch::durable(vec![], vec![set("s-1")])).await.unwrap();
        let row = store.session("s-1").await.unwrap().unwrap();
        assert_eq!((row.state, row.changed, row.user.as_str()), (SessionState::Suspended, at(7), "someone"));
        assert!(store.session("s-9").await.unwrap().is_none());
        assert!(store.commit(Batch::durable(vec![], vec![set("s-9")])).await.is_err());
        assert_eq!(store.sessions(EVERYONE, 1).await.unwrap()[0].id, id("s-2"));
    });
}

// P9
#[test]
fn the_timeline_of_a_call_keeps_its_order() {
    check(async |store| {
        let event = |phase, action, status| {
            let (action, tool) = (Redacted::literal(action), Redacted::literal("http"));
            TimelineEvent::new(at(1), id("c-1"), phase, action, tool, status)
        };
        let mut denied = event(EventPhase::Policy, "violation", EventStatus::Denied);
        denied.violation_type = Some(Redacted::literal("network"));
        denied.error = Some(ErrorCode::Policy);
        denied.message = Some(text("host `example.com` is not allowed by tool `http`"));
        denied.duration_us = 1500;
        let first = vec![
            StateChange::Event(event(EventPhase::Policy, "check", EventStatus::Ok)),
            StateChange::Event(denied),
        ];
        store.commit(Batch::lazy(vec![], first)).await.unwrap();
        let last = vec![StateChange::Event(event(EventPhase::Result, "answer", EventStatus::Error))];
        store.commit(Batch::lazy(vec![], last)).await.unwrap();
        let events = store.events("c-1", EVERYONE).await.unwrap();
        let actions: Vec<_> = events.iter().map(|event| event.action.as_str()).collect();
        assert_eq!(actions, ["check", "violation", "answer"]);
        assert_eq!((events[1].error, events[1].duration_ms()), (Some(ErrorCode::Policy), 1.5));
        assert_eq!(store.events("c-2", EVERYONE).await.unwrap(), []);
        // A call that has ended when its row is inserted brings its events along.
        let mut row = CallRow::executing(id("c-3"), id("s-1"), Redacted::literal("http"), at(1));
        let mut said = event(EventPhase::Policy, "check", EventStatus::Ok);
        said.policy = Some(text("words with \"quotes\", \u{e4} and \\"));
        (said.attempt, said.duration_us) = (Some(2), 1500);
        row.events = vec![said, event(EventPhase::Call, "call", EventStatus::Timeout)];
        row.events[1].call = id("c-3");
        store.commit(Batch::lazy(vec![], vec![StateChange::InsertCall(row)])).await.unwrap();
        let events = store.events("c-3", EVERYONE).await.unwrap();
        assert_eq!(events.iter().map(|event| event.call.as_str()).collect::<Vec<_>>(), ["c-3", "c-3"]);
        assert_eq!(events[0].policy.as_deref(), Some("words with \"quotes\", \u{e4} and \\"));
        assert_eq!((events[0].attempt, events[0].duration_us, events[0].ts), (Some(2), 1500, at(1)));
        assert_eq!((events[1].phase, events[1].status), (EventPhase::Call, EventStatus::Timeout));
    });
}

#[test]
fn trust_is_pinned_replaced_and_removed() {
    check(async |store| {
        let project = Digest::of(b"/project");
        let row = |config: &[u8]| TrustRow {
            project,
            path: text("/project"),
            digest: Digest::of(config),
            by: text("someone"),
            at: at(1),
        };
        for config in [b"one".as_slice(), b"two"] {
            let change = StateChange::Trust(row(config));
            let entry = Entry::new(Op::PolicyChange, at(1));
            store.commit(Batch::durable(vec![entry], vec![change])).await.unwrap();
        }
        assert_eq!(store.trust(project).await.unwrap().unwrap().digest, Digest::of(b"two"));
        store.commit(Batch::durable(vec![], vec![StateChange::Untrust { project }])).await.unwrap();
        assert!(store.trust(project).await.unwrap().is_none());
    });
}

#[test]
fn records_are_found_by_their_fields() {
    check(async |store| {
        begin(store, "s-1").await;
        for n in 0..5 {
            store.commit(start("s-1", &format!("c-{n}"), n)).await.unwrap();
        }
        let mut denied = Entry::new(Op::Violation, at(50));
        denied.status = Some(RecordStatus::Denied);
        denied.target_path = Some(text("secrets/key.pem"));
        // Text inside the arguments is not a field of the record.
        denied.message = Some(text("\"session\":\"s-1\""));
        store.commit(Batch::durable(vec![denied], vec![])).await.unwrap();
        let found = async |query: RecordQuery| -> Vec<u64> {
            store.records(query).await.unwrap().into_iter().map(|record| record.id.seq).collect()
        };
        let all = RecordQuery::default();
        assert_eq!(found(RecordQuery::newest(2)).await, [8, 7]);
        assert_eq!(found(RecordQuery::after(RecordId::new(store.writer(), 4), 2)).await, [5, 6]);
        assert_eq!(found(RecordQuery { op: Some(Op::Violation), ..all.clone() }).await, [8]);
        assert_eq!(found(RecordQuery { status: Some(RecordStatus::Denied), ..all.clone() }).await, [8]);
        assert_eq!(
            found(RecordQuery { session: Some("s-1".into()), limit: 9, ..all.clone() }).await.len(),
            6
        );
        assert_eq!(found(RecordQuery { execution_id: Some("c-3".into()), ..all.clone() }).await, [6]);
        assert_eq!(found(RecordQuery { path: Some("secrets".into()), ..all.clone() }).await, [8]);
        assert_eq!(found(RecordQuery { since: Some(at(4)), ..all.clone() }).await, [8, 7, 1]);
        let tool =
            RecordQuery { tool: Some("read_file".into()), order: RecordOrder::OldestFirst, limit: 1, ..all };
        assert_eq!(found(tool).await, [3]);
    });
}

#[test]
fn a_lazy_commit_is_synced_soon() {
    check(async |store| {
        store.commit(Batch::lazy(vec![Entry::new(Op::ToolEnd, at(1))], vec![])).await.unwrap();
        let begun = std::time::Instant::now();
        while store.admin().counters().syncs == 0 {
            assert!(begun.elapsed().as_secs() < 20, "never synced");
            tokio::task::yield_now().await;
        }
        assert_eq!(store.admin().counters().records, 1);
    });
}

#[test]
fn a_record_of_another_writer_is_not_in_the_store() {
    check(async |store| {
        begin(store, "s-1").await;
        let own = store.commit(start("s-1", "c-1", 1)).await.unwrap().last().unwrap().record;
        assert_eq!(own.to_string(), format!("{}/{}", store.writer(), KEY_RECORDS + 2));
        let other = RecordId::new(&id("w-other"), own.seq);
        assert!(store.record(&other).await.unwrap().is_none());
        assert_eq!(
            store.records(RecordQuery::after(RecordId { seq: 0, ..other.clone() }, 9)).await.unwrap(),
            []
        );
        assert_eq!(store.admin().payloads_of(&other).unwrap(), []);
        store.admin().catch_up().unwrap();
        assert!(store.admin().inclusion_proof(&own, own.seq).is_ok());
        assert!(store.admin().inclusion_proof(&other, own.seq).is_err());
        // Nothing refers to it either.
        let mut row = CallRow::executing(id("c-2"), id("s-1"), Redacted::literal("http"), at(1));
        row.first_record = Some(other.clone());
        for change in [
            StateChange::InsertCall(row),
            StateChange::ForgetPayload { record: other, field: "tool_args".to_owned() },
        ] {
            let result =
                store.commit(Batch::durable(vec![Entry::new(Op::ToolEnd, at(1))], vec![change])).await;
            assert!(matches!(result, Err(StoreError::Conflict(_))), "{result:?}");
        }
        assert_eq!(store.head().await.unwrap().seq, own.seq);
    });
}

// B5
#[test]
fn checkpoints_keys_and_proofs_follow_the_records() {
    check(async |store| {
        let admin = store.admin();
        begin(store, "s-1").await;
        let record = store.commit(start("s-1", "c-1", 1)).await.unwrap().last().unwrap().record;
        admin.catch_up().unwrap();
        assert_eq!((admin.segment_error(), admin.witness_reply()), (None, None));
        let row = admin.newest_checkpoint().unwrap().unwrap();
        let (checkpoint, _) = Checkpoint::parse(row.note.as_bytes()).unwrap();
        assert_eq!((row.size, checkpoint.root), (record.seq, admin.root_at(record.seq).unwrap()));
        assert_eq!(admin.checkpoint_of(row.size).unwrap(), Some(row.clone()));
        let line = store.record(&record).await.unwrap().unwrap().line;
        let leaf = vambrace_ledger::leaf(line.as_bytes());
        let proof = admin.inclusion_proof(&record, row.size).unwrap();
        assert!(vambrace_ledger::is_included(record.seq - 1, row.size, leaf, &proof, checkpoint.root));
        let new = admin.rotate_key().unwrap();
        let keys = admin.ledger_keys().unwrap();
        assert_eq!((keys.len(), keys.last()), (2, Some(&new)));
        let newer = admin.newest_checkpoint().unwrap().unwrap();
        let (grown, _) = Checkpoint::parse(newer.note.as_bytes()).unwrap();
        let proof = admin.consistency_proof(row.size, newer.size).unwrap();
        let (old, new) = ((row.size, checkpoint.root), (newer.size, grown.root));
        assert!(new.0 > old.0 && vambrace_ledger::is_consistent(old, new, &proof));
    });
}

// A waiter does not wait for its next poll.
#[test]
fn a_watch_is_woken_by_a_changed_approval_request_of_any_process() {
    check_dir(async |backend, home| {
        let [here, there] = [(backend.open)(home), (backend.open)(home)];
        begin(&*here, "s-1").await;
        for store in [&here, &there] {
            let mut watch = here.approval_queries().notifier().watch();
            let mut fastest = Duration::MAX;
            // The fastest of several, because the machine may be busy.
            for n in 0..8 {
                let name = format!("hitl-{}-{n}", store.approval_queries().liveness().id());
                let open = Batch::durable(vec![], vec![approval("s-1", &name, "someone")]);
                store.commit(open).await.unwrap();
                let begun = std::time::Instant::now();
                watch.changed(Duration::from_secs(20)).await;
                fastest = fastest.min(begun.elapsed());
                assert!(here.approval_queries().approval(&name).await.unwrap().is_some());
            }
            assert!(fastest < Duration::from_millis(250), "{fastest:?}");
        }
    });
}

#[test]
fn a_process_is_alive_while_its_store_is_open() {
    check_dir(async |backend, home| {
        let [here, there] = [(backend.open)(home), (backend.open)(home)];
        let life = |store: &dyn Store| store.approval_queries().liveness().id().clone();
        let (own, other) = (life(&*here), life(&*there));
        let is_alive = |life| here.approval_queries().liveness().is_alive(life);
        assert!(own != other && is_alive(&own) && is_alive(&other));
        drop(there);
        assert!(is_alive(&own) && !is_alive(&other) && !is_alive(&id("l-never")));
    });
}

#[test]
fn a_sealed_blob_is_read_by_every_process_in_its_own_context_only() {
    check_dir(async |backend, home| {
        let [here, there] = [(backend.open)(home), (backend.open)(home)];
        let blob = here.approval_queries().blob_sealer().seal("hitl-1", b"the raw call").unwrap();
        let sealer = there.approval_queries().blob_sealer();
        assert_eq!(sealer.unseal("hitl-1", &blob).as_deref(), Some(b"the raw call".as_slice()));
        assert_eq!(sealer.unseal("hitl-2", &blob), None);
        assert_eq!(sealer.unseal("hitl-1", &SealedBlob::stored(vec![1; 60])), None);
    });
}
