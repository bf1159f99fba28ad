//! Decisions and who performs: a decision about the row of another owner is rejected inside the transaction, and of several
//! processes that would perform an approved call, one does.

use vambrace_ledger::{
    Decision, DecisionReach, DecisionVerb, Digest, KeyKind, SessionChange, SignedNote, SigningKey,
};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalState, Batch, DecisionRow, Entry, GrantRow, OwnerFilter,
    ProposalRow, ProposalState, SealedBlob, SessionOwner, SessionState, StateChange, Store, StoreError,
};

use crate::backends::{check, check_dir};
use crate::fixtures::{approval, at, id, owner, session_of, text};

/// Two users, and one of another tenant with the name of the first.
fn owners() -> [SessionOwner; 3] {
    [("default", "ada"), ("default", "bob"), ("other", "ada")]
        .map(|(tenant, user)| owner(tenant, user, "/project"))
}

/// A session, an approval request, an applied change and a grant for each owner; those of owner `n` end in `-n`.
async fn fill(store: &dyn Store) {
    for (n, owner) in owners().iter().enumerate() {
        let session = format!("s-{n}");
        let user = owner.user.get();
        let changes = vec![
            session_of(&session, owner),
            approval(&session, &format!("hitl-{n}"), user),
            ApprovalChange::Propose(applied(&session, &format!("done-{n}"), owner)).into(),
            ApprovalChange::Grant(grant(&session, &format!("g-{n}"), user)).into(),
        ];
        let opened = Entry::session(SessionChange::Open, id(&session), at(0));
        store.commit(Batch::durable(vec![opened], changes)).await.unwrap();
    }
}

fn applied(session: &str, name: &str, owner: &SessionOwner) -> ProposalRow {
    ProposalRow {
        id: id(name),
        call: id(name),
        session: id(session),
        user: owner.user.clone(),
        project: owner.project.clone(),
        tool: text("write_file"),
        path: text("f"),
        summary: text("MODIFY f"),
        files: 1,
        patch_hash: Digest::ZERO,
        digest: Digest::ZERO,
        state: ProposalState::Applied,
        created: at(1),
        changed: at(1),
        undoes: None,
        life: None,
        shown: SealedBlob::stored(vec![1]),
        changes: None,
        undo: None,
        outcome: None,
    }
}

fn grant(session: &str, name: &str, user: &str) -> GrantRow {
    GrantRow {
        id: id(name),
        session: id(session),
        user: text(user),
        agent: text("agent"),
        reach: DecisionReach::Class,
        shape: text("write_file"),
        by: text(user),
        approval: id("hitl"),
        created: at(1),
        expires: at(60_000),
        revoked: None,
        uses: 0,
    }
}

fn note(about: &str, verb: DecisionVerb) -> SignedNote {
    let key = SigningKey::new("approver/ada", KeyKind::Log, &[7; 32]).unwrap();
    let (plan, reach) = (Digest::of(about.as_bytes()), DecisionReach::Once);
    Decision { about: id(about), plan, verb, reach, at: at(2), expires: at(50_000) }.sign(&key).unwrap()
}

fn decide(about: &str, owner: OwnerFilter, verb: DecisionVerb) -> StateChange {
    let decision = DecisionRow {
        verb,
        reach: DecisionReach::Once,
        digest: Digest::of(about.as_bytes()),
        at: at(2),
        expires: at(50_000),
        by: text("ada"),
        reason: None,
        amendment: Some(SealedBlob::stored(vec![4, 2])),
    };
    ApprovalChange::Decide { id: id(about), owner, decision, note: note(about, verb) }.into()
}

async fn commit(store: &dyn Store, change: impl Into<StateChange>) -> Result<(), StoreError> {
    store.commit(Batch::durable(vec![], vec![change.into()])).await.map(drop)
}

// A12: every decision, for every pair of users; a name counts only together with its tenant
#[test]
fn decisions_about_the_rows_of_another_owner_are_rejected() {
    let decisions: [fn(usize, OwnerFilter) -> StateChange; 5] = [
        |n, owner| decide(&format!("hitl-{n}"), owner, DecisionVerb::Approve),
        |n, owner| decide(&format!("hitl-{n}"), owner, DecisionVerb::Reject),
        |n, owner| ApprovalChange::RequireApplied { id: id(&format!("done-{n}")), owner }.into(),
        |n, owner| ApprovalChange::RevokeGrant { id: id(&format!("g-{n}")), owner, at: at(3) }.into(),
        |n, owner| {
            let state = SessionState::Ended;
            StateChange::SetSession { id: id(&format!("s-{n}")), owner, state, at: at(3) }
        },
    ];
    for decision in decisions {
        check(async |store| {
            fill(store).await;
            for (n, own) in owners().iter().enumerate() {
                let user = |owner: &SessionOwner| {
                    let SessionOwner { tenant, user, .. } = owner.stored();
                    OwnerFilter::User { tenant, user }
                };
                for other in owners().iter().filter(|other| *other != own) {
                    for filter in [user(other), OwnerFilter::Owner(other.stored())] {
                        let result = commit(store, decision(n, filter)).await;
                        assert!(
                            matches!(&result, Err(StoreError::ForeignSession(session)) if *session == id(&format!("s-{n}"))),
                            "{result:?}"
                        );
                    }
                }
                let unknown = commit(store, decision(9, user(own))).await;
                assert!(matches!(unknown, Err(StoreError::Conflict(_))), "{unknown:?}");
                commit(store, decision(n, user(own))).await.unwrap();
            }
        });
    }
}

// A12
#[test]
fn a_request_or_a_change_belongs_to_its_owner() {
    check(async |store| {
        fill(store).await;
        let queries = store.approval_queries();
        for (n, own) in owners().iter().enumerate() {
            for name in [format!("hitl-{n}"), format!("done-{n}")] {
                assert!(queries.is_owned(&name, &OwnerFilter::Everyone).await.unwrap());
                for other in &owners() {
                    let filter = OwnerFilter::Owner(other.stored());
                    assert_eq!(queries.is_owned(&name, &filter).await.unwrap(), other == own, "{name}");
                }
            }
        }
        assert!(!queries.is_owned("hitl-9", &OwnerFilter::Everyone).await.unwrap());
    });
}

// A8: two processes use the same approval: one does
#[test]
fn an_approval_is_used_by_one_process() {
    check_dir(async |backend, home| {
        let (one, two) = ((backend.open)(home), (backend.open)(home));
        fill(&*one).await;
        commit(&*one, decide("hitl-0", OwnerFilter::Everyone, DecisionVerb::Approve)).await.unwrap();
        let uses = [&one, &two].map(|store| {
            let process = store.approval_queries().liveness().id().clone();
            let take = ApprovalChange::Use { id: id("hitl-0"), process, at: at(3) };
            store.commit(Batch::durable(vec![], vec![take.into()]))
        });
        let results = crate::conformance::join(uses.into_iter().collect()).await;
        let won: Vec<usize> = (0..2).filter(|n| results[*n].is_ok()).collect();
        assert_eq!(won.len(), 1, "{results:?}");
        let row = one.approval_queries().approval("hitl-0").await.unwrap().unwrap();
        assert_eq!(row.state, ApprovalState::Used);
        let winner = [&one, &two][won[0]].approval_queries().liveness().id().clone();
        assert_eq!(row.performer, Some(winner));
        assert_eq!(row.decision.unwrap().amendment, Some(SealedBlob::stored(vec![4, 2])));
    });
}

#[test]
fn the_process_of_a_waiting_caller_is_known_until_it_stops() {
    check(async |store| {
        fill(store).await;
        let (name, waiter) = (id("hitl-0"), async || {
            store.approval_queries().approval("hitl-0").await.unwrap().unwrap().waiter
        });
        let wait = |process: &str| ApprovalChange::Wait { id: name.clone(), process: id(process) };
        let stop = |process: &str| ApprovalChange::StopWaiting { id: name.clone(), process: id(process) };
        commit(store, wait("l-1")).await.unwrap();
        commit(store, wait("l-2")).await.unwrap();
        assert_eq!(waiter().await, Some(id("l-2")));
        commit(store, stop("l-1")).await.unwrap();
        assert_eq!(waiter().await, Some(id("l-2")), "only the process that waits stops");
        commit(store, stop("l-2")).await.unwrap();
        assert_eq!(waiter().await, None);
        commit(store, decide("hitl-0", OwnerFilter::Everyone, DecisionVerb::Approve)).await.unwrap();
        commit(store, wait("l-3")).await.unwrap();
        assert_eq!(waiter().await, None, "nobody waits for what is decided");
    });
}

#[test]
fn the_outcome_of_a_call_is_kept_until_it_is_delivered() {
    check(async |store| {
        fill(store).await;
        let queries = store.approval_queries();
        let outcome =
            |name: &str| ApprovalChange::CallOutcome { id: id(name), outcome: SealedBlob::stored(vec![7]) };
        commit(store, call_request("hitl-c")).await.unwrap();
        commit(store, outcome("hitl-c")).await.unwrap();
        assert_eq!(queries.call_outcome("hitl-c").await.unwrap(), Some(SealedBlob::stored(vec![7])));
        commit(store, ApprovalChange::Deliver { id: id("hitl-c") }).await.unwrap();
        assert_eq!(queries.call_outcome("hitl-c").await.unwrap(), None);
        // After the delivery, and for a change, which has its own.
        for name in ["hitl-c", "hitl-0"] {
            commit(store, outcome(name)).await.unwrap();
            assert_eq!(queries.call_outcome(name).await.unwrap(), None);
        }
    });
}

fn call_request(name: &str) -> StateChange {
    match approval("s-0", name, "ada") {
        StateChange::Approval(change) => match *change {
            ApprovalChange::Open(row) => {
                ApprovalChange::Open(vambrace_store::ApprovalRow { kind: ApprovalKind::Call, ..row }).into()
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
