//! Several users in one store: every list returns the rows of its owner only, and nobody makes a call in the session of
//! another tenant, user or project.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{DecisionReach, Digest, SessionChange};
use vambrace_store::{
    AccessToken, ApprovalChange, ApprovalFilter, Batch, Entry, EventPhase, EventStatus, GrantRow,
    LedgerReader, OwnerFilter, ProposalRow, ProposalState, RecordQuery, SealedBlob, SessionOwner,
    SessionState, StateChange, StateDir, Store, StoreError, TimelineEvent, TokenKind, TokenRow, ViolationRow,
};

use crate::backends::check;
use crate::fixtures::{approval, at, home, id, open, owner, runtime, session_of, start, text};

/// Two users of one tenant, one of them with two projects, and a user of another tenant with the same name.
const OWNERS: [(&str, &str, &str); 4] = [
    ("default", "ada", "/one"),
    ("default", "ada", "/two"),
    ("default", "bob", "/one"),
    ("other", "ada", "/one"),
];

fn owners() -> [SessionOwner; 4] {
    OWNERS.map(|(tenant, user, project)| owner(tenant, user, project))
}

/// A row of every table for each owner; the rows of owner `n` have names that end in `-n`.
async fn fill(store: &dyn Store) {
    for (n, owner) in owners().into_iter().enumerate() {
        let (session, call) = (format!("s-{n}"), format!("c-{n}"));
        let opened = Entry::session(SessionChange::Open, id(&session), at(0));
        store.commit(Batch::durable(vec![opened], vec![session_of(&session, &owner)])).await.unwrap();
        let mut batch = start(&session, &call, 1);
        let (action, tool) = (Redacted::literal("check"), Redacted::literal("read_file"));
        let event = TimelineEvent::new(at(1), id(&call), EventPhase::Policy, action, tool, EventStatus::Ok);
        let violation = ViolationRow {
            ts: at(1),
            session: id(&session),
            call: Some(id(&call)),
            violation_type: Redacted::literal("scope"),
            target: Some(text("../secret")),
        };
        let user = owner.user.get();
        batch.changes.extend([
            StateChange::Event(event),
            StateChange::Violation(violation),
            approval(&session, &format!("hitl-{n}"), user),
            ApprovalChange::Propose(proposal(&session, &format!("hitl-{n}"), &owner)).into(),
            ApprovalChange::Grant(grant(&session, &format!("g-{n}"), user)).into(),
            ApprovalChange::Token(token(&format!("tok-{n}"), &owner)).into(),
        ]);
        store.commit(batch).await.unwrap();
    }
    // Records without a session are nobody's.
    store.commit(Batch::durable(vec![Entry::new(vambrace_ledger::Op::Grant, at(2))], vec![])).await.unwrap();
}

fn proposal(session: &str, name: &str, owner: &SessionOwner) -> ProposalRow {
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
        state: ProposalState::Proposed,
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
        reach: DecisionReach::Once,
        shape: text("write_file"),
        by: text(user),
        approval: id("hitl"),
        created: at(1),
        expires: at(60_000),
        revoked: None,
        uses: 0,
    }
}

fn token(name: &str, owner: &SessionOwner) -> TokenRow {
    TokenRow {
        id: id(name),
        kind: TokenKind::Agent,
        name: text("a token"),
        tenant: owner.tenant.clone(),
        user: owner.user.clone(),
        hash: AccessToken::make().unwrap().hash(),
        key: None,
        created: at(1),
        expires: None,
        revoked: None,
    }
}

/// The filters, and the owners whose rows they let through.
fn filters() -> Vec<(OwnerFilter, Vec<usize>)> {
    let user = |tenant: &str, user: &str| OwnerFilter::User { tenant: tenant.into(), user: user.into() };
    let mut filters = vec![
        (OwnerFilter::Everyone, vec![0, 1, 2, 3]),
        (user("default", "ada"), vec![0, 1]),
        (user("default", "bob"), vec![2]),
        (user("other", "ada"), vec![3]),
        (user("other", "bob"), vec![]),
        (OwnerFilter::Owner(owner("default", "bob", "/two").stored()), vec![]),
    ];
    filters
        .extend(owners().iter().enumerate().map(|(n, owner)| (OwnerFilter::Owner(owner.stored()), vec![n])));
    filters
}

/// The owners in the names of some rows, sorted, each once.
fn numbers(names: impl IntoIterator<Item = impl ToString>) -> Vec<usize> {
    let number = |name: String| name.rsplit('-').next().unwrap().parse().unwrap();
    let mut numbers: Vec<usize> = names.into_iter().map(|name| number(name.to_string())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

// A12
#[test]
fn every_list_returns_the_rows_of_its_owner_only() {
    check(async |store| {
        fill(store).await;
        let queries = store.approval_queries();
        for (filter, expected) in filters() {
            let sessions = store.sessions(&filter, 99).await.unwrap();
            assert_eq!(numbers(sessions.iter().map(|row| &row.id)), expected, "sessions of {filter:?}");
            for session in &sessions {
                let [tenant, user, project] = [&session.tenant, &session.user, &session.project];
                let n = numbers([&session.id])[0];
                assert_eq!((tenant.as_str(), user.as_str(), project.as_str()), OWNERS[n]);
            }
            let calls = store.calls(&filter, 99).await.unwrap();
            assert_eq!(numbers(calls.iter().map(|row| &row.id)), expected, "calls of {filter:?}");
            let violations = store.violations(None, &filter, 99).await.unwrap();
            assert_eq!(
                numbers(violations.iter().map(|row| &row.session)),
                expected,
                "violations of {filter:?}"
            );
            for n in 0..OWNERS.len() {
                let (own, session) = (expected.contains(&n), format!("s-{n}"));
                let events = store.events(&format!("c-{n}"), &filter).await.unwrap();
                assert_eq!(events.len(), usize::from(own), "events of {filter:?}");
                let violations = store.violations(Some(&session), &filter, 99).await.unwrap();
                assert_eq!(violations.len(), usize::from(own), "violations of {session}, {filter:?}");
                let grants = queries.grants(Some(&session), &filter).await.unwrap();
                assert_eq!(grants.len(), usize::from(own), "grants of {session}, {filter:?}");
            }
            let grants = queries.grants(None, &filter).await.unwrap();
            assert_eq!(numbers(grants.iter().map(|row| &row.id)), expected, "grants of {filter:?}");
            let proposals = queries.proposals(&filter, 99).await.unwrap();
            assert_eq!(numbers(proposals.iter().map(|row| &row.id)), expected, "proposals of {filter:?}");
            for open in [true, false] {
                let asked = ApprovalFilter { open, owner: filter.clone(), limit: 0 };
                let approvals = queries.approvals(asked).await.unwrap();
                assert_eq!(numbers(approvals.iter().map(|row| &row.id)), expected, "approvals of {filter:?}");
            }
            let query = RecordQuery { owner: filter.clone(), limit: 99, ..RecordQuery::default() };
            assert_eq!(sessions_in(&store.records(query).await.unwrap()), expected, "records of {filter:?}");
        }
        // A limit counts the rows of the owner, not those before them.
        let bob = OwnerFilter::Owner(owners()[2].stored());
        assert_eq!(numbers(store.calls(&bob, 1).await.unwrap().iter().map(|row| &row.id)), [2]);
        assert_eq!(numbers(queries.proposals(&bob, 1).await.unwrap().iter().map(|row| &row.id)), [2]);
    });
}

/// The owners of the sessions that some records name.
fn sessions_in(records: &[vambrace_store::LedgerRecord]) -> Vec<usize> {
    numbers(records.iter().filter_map(|record| record.fields()["session"].as_str().map(str::to_owned)))
}

#[test]
fn records_without_a_session_are_only_in_the_list_of_everybody() {
    check(async |store| {
        fill(store).await;
        let user = OwnerFilter::User { tenant: "default".into(), user: "ada".into() };
        let query = |owner| RecordQuery { owner, limit: 99, ..RecordQuery::default() };
        let own = store.records(query(user)).await.unwrap();
        assert!(!own.is_empty() && own.iter().all(|record| !record.fields()["session"].is_null()));
        let all = store.records(query(OwnerFilter::Everyone)).await.unwrap();
        assert!(all.iter().any(|record| record.fields()["session"].is_null()));
    });
}

// A12
#[test]
fn tokens_are_listed_for_their_user_in_every_project() {
    check(async |store| {
        fill(store).await;
        for (filter, expected) in filters() {
            let tokens = store.approval_queries().tokens(&filter).await.unwrap();
            let expected = match &filter {
                // A token has no project.
                OwnerFilter::Owner(owner) => (0..OWNERS.len())
                    .filter(|n| (OWNERS[*n].0, OWNERS[*n].1) == (owner.tenant.as_str(), owner.user.as_str()))
                    .collect(),
                _ => expected,
            };
            assert_eq!(numbers(tokens.iter().map(|row| &row.id)), expected, "tokens of {filter:?}");
        }
        let row = store.approval_queries().token("tok-3").await.unwrap().unwrap();
        assert_eq!((row.tenant.as_str(), row.user.as_str()), ("other", "ada"));
    });
}

// A12: an older program let a user ask in the session of another one; the row is in no list but that of everybody
#[test]
fn an_approval_request_of_another_user_in_a_session_is_shown_to_neither() {
    check(async |store| {
        fill(store).await;
        let foreign = approval("s-2", "hitl-9", "ada");
        store.commit(Batch::durable(vec![], vec![foreign])).await.unwrap();
        for (filter, expected) in filters() {
            let asked = ApprovalFilter { owner: filter.clone(), ..ApprovalFilter::default() };
            let found = store.approval_queries().approvals(asked).await.unwrap();
            let shown = found.iter().any(|row| row.id.as_str() == "hitl-9");
            assert_eq!(shown, filter == OwnerFilter::Everyone, "{filter:?}");
            assert_eq!(found.len(), expected.len() + usize::from(shown));
        }
    });
}

fn require(session: &str, owner: &SessionOwner) -> StateChange {
    StateChange::RequireSession { id: id(session), owner: owner.clone() }
}

// A12: of every session and every owner, only the right pair starts a call
#[test]
fn a_call_starts_only_in_a_session_of_its_owner() {
    check(async |store| {
        fill(store).await;
        let before = store.head().await.unwrap();
        let mut started = 0;
        for (n, owner) in owners().iter().enumerate() {
            for session in 0..OWNERS.len() {
                let (session, call) = (format!("s-{session}"), format!("d-{n}-{session}"));
                let mut batch = start(&session, &call, 5);
                batch.changes.insert(0, require(&session, owner));
                let result = store.commit(batch).await;
                let own = session == format!("s-{n}");
                match result {
                    Ok(_) if own => started += 1,
                    Err(error @ StoreError::ForeignSession(_)) if !own => {
                        assert!(error.concerns_batch_only() && error.to_string().contains(&session));
                        assert_eq!(CallError::from(&error).code, ErrorCode::PermissionDenied);
                    }
                    other => panic!("{session} for {owner:?}: {other:?}"),
                }
                assert_eq!(store.call(&call).await.unwrap().is_some(), own);
            }
        }
        assert_eq!((started, store.head().await.unwrap().seq), (4, before.seq + 4));
        // A session that is suspended, or does not exist, is not open for its owner either.
        let suspend = StateChange::SetSession {
            id: id("s-0"),
            owner: OwnerFilter::Owner(owners()[0].stored()),
            state: SessionState::Suspended,
            at: at(6),
        };
        store.commit(Batch::durable(vec![], vec![suspend])).await.unwrap();
        for session in ["s-0", "s-9"] {
            let result = store.commit(Batch::durable(vec![], vec![require(session, &owners()[0])])).await;
            assert!(matches!(result, Err(StoreError::Conflict(_))), "{result:?}");
        }
    });
}

// A12
#[test]
fn a_foreign_session_rejects_its_own_batch_and_no_other() {
    check(async |store| {
        fill(store).await;
        let [ada, _, bob, _] = owners();
        let before = store.head().await.unwrap().seq;
        // Together, so that they share a transaction.
        let commits = (0..60).map(|n| {
            let mut batch = start("s-0", &format!("e-{n}"), 5);
            batch.changes.insert(0, require("s-0", if n % 3 == 0 { &bob } else { &ada }));
            store.commit(batch)
        });
        let results = crate::conformance::join(commits.collect()).await;
        let (mut good, mut foreign) = (0, 0);
        for result in results {
            match result {
                Ok(_) => good += 1,
                Err(StoreError::ForeignSession(session)) if session == id("s-0") => foreign += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((good, foreign), (40, 20));
        assert_eq!(store.head().await.unwrap().seq, before + 40);
        assert_eq!(store.calls(&OwnerFilter::Owner(ada.stored()), 99).await.unwrap().len(), 41);
    });
}

#[test]
fn an_owner_is_compared_with_its_session() {
    check(async |store| {
        fill(store).await;
        for (n, owner) in owners().iter().enumerate() {
            for session in 0..OWNERS.len() {
                let row = store.session(&format!("s-{session}")).await.unwrap().unwrap();
                assert_eq!(owner.owns(&row), session == n);
            }
        }
    });
}

// A12: also in a directory that no newer program has opened, where every session is of the one tenant of that time
#[test]
fn a_reader_of_the_ledger_filters_by_owner() {
    let (_temp, home) = home();
    runtime().block_on(fill(&open(&home)));
    let read = |owner: &OwnerFilter| {
        let reader = LedgerReader::open(StateDir::existing(&home).unwrap()).unwrap();
        let query = RecordQuery { owner: owner.clone(), limit: 99, ..RecordQuery::default() };
        sessions_in(&reader.records(&query).unwrap())
    };
    for (filter, expected) in filters() {
        assert_eq!(read(&filter), expected, "{filter:?}");
    }
    let older = "ALTER TABLE sessions DROP COLUMN tenant; ALTER TABLE tokens DROP COLUMN tenant;
                 DELETE FROM migrations WHERE version >= 7; PRAGMA user_version = 6";
    rusqlite::Connection::open(home.join("vambrace.db")).unwrap().execute_batch(older).unwrap();
    let user = |tenant: &str| OwnerFilter::User { tenant: tenant.into(), user: "ada".into() };
    assert_eq!(read(&user("default")), [0, 1, 3]);
    assert!(read(&user("other")).is_empty());
}
