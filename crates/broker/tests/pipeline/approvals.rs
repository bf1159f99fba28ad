//! Approval requests: floods, no approver, how far a grant reaches, and previews of a part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use vambrace_broker::{
    Amendment, ApprovalChoice, ApproverAvailability, Broker, DecisionReach, read_approval,
};
use vambrace_core::config::{self, ConfigSource};
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::session::SessionState;
use vambrace_store::{Batch, OwnerFilter, StateChange, Store as _};

use crate::changes::{DEV, ada, file, id, propose};
use crate::fixtures::{Fixture, call, peer, raw};

fn write(number: usize) -> Value {
    json!({"path": format!("src/n{number}.rs"), "content": format!("// {number}\n")})
}

async fn state(fixture: &Fixture) -> SessionState {
    fixture.store.session("s-1").await.unwrap().unwrap().state
}

// T25: a flood of approval requests suspends the session
#[tokio::test]
async fn flood_of_approval_requests_suspends_the_session() {
    let mut fixture = Fixture::new(DEV);
    fixture.parts.as_mut().unwrap().approvals.flood_limit = 3;
    let broker = fixture.broker();
    let first = propose(&broker, "write_file", write(0)).await;
    for number in 1..3 {
        propose(&broker, "write_file", write(number)).await;
    }
    assert_eq!(state(&fixture).await, SessionState::Active);
    let flood = call(&broker, "write_file", write(3)).await;
    assert_eq!(
        (flood["error"]["code"].as_str(), flood["details"]["status"].as_str()),
        (Some("SessionSuspended"), Some("denied")),
        "{flood}"
    );
    assert_eq!(state(&fixture).await, SessionState::Suspended);
    let next = call(&broker, "read_file", json!({"path": "src/main.rs"})).await;
    assert_eq!(next["error"]["code"], "SessionSuspended", "no call runs while the session is suspended");
    let alarm = fixture.records().await.into_iter().find(|record| record["level"] == "CRITICAL").unwrap();
    assert_eq!(
        (alarm["op"].as_str(), alarm["event_type"].as_str()),
        (Some("session"), Some("session.suspended"))
    );
    assert!(alarm["message"].as_str().unwrap().contains("flood of approval requests"), "{alarm}");
    // The user resumes it: pending requests can be decided, and counting starts again.
    fixture.clock.0.fetch_add(1000, Ordering::Relaxed);
    let at = vambrace_core::timestamp::Timestamp::from_millis(fixture.clock.0.load(Ordering::Relaxed));
    let (owner, state) = (OwnerFilter::Everyone, SessionState::Active);
    let resume = StateChange::SetSession { id: peer().session, owner, state, at };
    fixture.store.commit(Batch::durable(Vec::new(), vec![resume])).await.unwrap();
    broker.approve(&id(&first), ApprovalChoice::once(), &ada()).await.unwrap();
    propose(&broker, "write_file", write(4)).await;
}

// T25: a session whose requests are approved may continue; old requests do not count
#[tokio::test]
async fn approved_and_old_requests_are_no_flood() {
    let mut fixture = Fixture::new(DEV);
    fixture.parts.as_mut().unwrap().approvals.flood_limit = 2;
    let broker = fixture.broker();
    for number in 0..6 {
        let answer = propose(&broker, "write_file", write(number)).await;
        broker.approve(&id(&answer), ApprovalChoice::once(), &ada()).await.unwrap();
    }
    for number in 6..12 {
        propose(&broker, "write_file", write(number)).await;
        fixture.clock.0.fetch_add(31_000, Ordering::Relaxed);
    }
    assert_eq!(state(&fixture).await, SessionState::Active);
}

// T25: an agent that repeats rejected requests tires people as well
#[tokio::test]
async fn rejected_requests_count_towards_the_flood_limit() {
    let mut fixture = Fixture::new(DEV);
    fixture.parts.as_mut().unwrap().approvals.flood_limit = 2;
    let broker = fixture.broker();
    for number in 0..2 {
        let answer = propose(&broker, "write_file", write(number)).await;
        broker.reject(&id(&answer), Some("no"), &ada()).await.unwrap();
    }
    assert_eq!(call(&broker, "write_file", write(2)).await["error"]["code"], "SessionSuspended");
}

// T25: concurrent requests cannot exceed the limit together
#[tokio::test(flavor = "multi_thread")]
async fn burst_of_requests_does_not_exceed_the_flood_limit() {
    let mut fixture = Fixture::new(DEV);
    fixture.parts.as_mut().unwrap().approvals.flood_limit = 4;
    let broker = Arc::new(fixture.broker());
    let calls: Vec<_> = (0..16)
        .map(|number| {
            let broker = Arc::clone(&broker);
            tokio::spawn(
                async move { broker.call(raw("write_file", write(number)), &peer()).await.envelope() },
            )
        })
        .collect();
    let mut requested = 0;
    for call in calls {
        let answer = call.await.unwrap();
        match answer["details"]["status"].as_str() {
            Some("hitl_required") => requested += 1,
            _ => assert_eq!(answer["error"]["code"], "SessionSuspended", "{answer}"),
        }
    }
    assert_eq!(requested, 4);
    assert_eq!(state(&fixture).await, SessionState::Suspended);
}

// docs/contract.md, Configuration: under `profile: ci` there is no approver; what needs an approval is denied, with a
// record, and no request stays open
#[tokio::test]
async fn without_an_approver_a_request_is_denied() {
    let mut fixture = Fixture::new(DEV);
    fixture.parts.as_mut().unwrap().approvals.approver = ApproverAvailability::Unavailable;
    let broker = fixture.broker();
    let answer = call(&broker, "write_file", write(0)).await;
    assert_eq!(
        (answer["error"]["code"].as_str(), answer["details"]["status"].as_str()),
        (Some("ApprovalRejected"), Some("denied")),
        "{answer}"
    );
    assert_eq!(fixture.store.approval_queries().approvals(Default::default()).await.unwrap().len(), 0);
    assert_eq!(file(&fixture, "src/n0.rs"), None);
    let records = fixture.records().await;
    assert!(records.iter().any(|record| record["error_code"] == "ApprovalRejected"), "{records:?}");
    assert_eq!(call(&broker, "read_file", json!({"path": "src/main.rs"})).await["status"], "success");
}

/// A broker whose rules come from the organisation or the user.
fn under(fixture: &mut Fixture, source: ConfigSource, rules: &str) -> Arc<Broker> {
    let file = |text: &str, source| Some(config::parse(text, "config.yaml", source).unwrap());
    let project = file(DEV, ConfigSource::Project { trusted: true });
    let settings = match source {
        ConfigSource::Organisation => config::combine(file(rules, source), None, project),
        _ => config::combine(None, file(rules, source), project),
    };
    let parts = fixture.parts.as_mut().unwrap();
    let facts: Vec<_> = parts.catalogue.tools().map(|tool| Arc::clone(tool.descriptor())).collect();
    parts.policy = Arc::new(Policy::compile(&settings, None, None, &facts).unwrap());
    fixture.broker()
}

// A7: an approval grants what is MEDIUM; never what is HIGH, never what a rule of the organisation requires
#[tokio::test]
async fn approval_grants_only_what_is_grantable() {
    let ask = "approvals:\n  rules:\n    - {id: each, paths: [src/**], decision: ask}\n";
    let session = ApprovalChoice { reach: DecisionReach::Session, ..ApprovalChoice::once() };
    let grantable = |answer: Value| async move { id(&answer) };

    let mut fixture = Fixture::new(DEV);
    let broker = under(&mut fixture, ConfigSource::Organisation, ask);
    let request = grantable(propose(&broker, "write_file", write(0)).await).await;
    let row = read_approval(fixture.store.approval_queries(), &request).await.unwrap().request.unwrap();
    assert!(!row.grantable, "a rule of the organisation requires each approval");
    let error = broker.approve(&request, session.clone(), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
    assert_eq!(fixture.store.approval_queries().grants(None, &OwnerFilter::Everyone).await.unwrap().len(), 0);
    broker.approve(&request, ApprovalChoice::once(), &ada()).await.unwrap();

    let mut fixture = Fixture::new(DEV);
    let broker = under(&mut fixture, ConfigSource::User, ask);
    let request = grantable(propose(&broker, "write_file", write(0)).await).await;
    broker.approve(&request, session.clone(), &ada()).await.unwrap();
    assert_eq!(call(&broker, "write_file", write(1)).await["data"]["applied"], true, "a rule of the user");
    // The widest grant does not cover what is HIGH.
    let high = propose(&broker, "write_file", json!({"path": "config.json", "content": "{}\n"})).await;
    let error = broker.approve(&id(&high), session, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
}

// A7, A5: a rule that the user wrote can grant what is HIGH, a rule of the project cannot
#[tokio::test]
async fn only_a_rule_of_the_user_grants_high_risk() {
    let allow = "approvals:\n  rules:\n    - {id: mine, paths: [config.json], decision: allow}\n";
    let content = json!({"path": "config.json", "content": "{}\n"});
    let mut fixture = Fixture::new(DEV);
    let broker = under(&mut fixture, ConfigSource::User, allow);
    assert_eq!(call(&broker, "write_file", content.clone()).await["data"]["applied"], true);
    let mut fixture = Fixture::new(&format!("{DEV}{allow}"));
    let broker = fixture.broker();
    propose(&broker, "write_file", content).await;
}

// B7: exactly what was previewed is approved
#[tokio::test]
async fn previewed_part_is_applied_as_shown_or_not_at_all() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let lines = |mark: &str| (0..60).map(|n| format!("{n}{mark}\n")).collect::<String>();
    let place = fixture.dir.path().join("project/src/long.txt");
    std::fs::write(&place, lines("")).unwrap();
    let wanted = lines("").replace("\n3\n", "\nthree\n").replace("\n50\n", "\nfifty\n");
    let args = json!({"path": "src/long.txt", "content": wanted});
    let request = id(&propose(&broker, "write_file", args).await);
    let part = Amendment::Hunks(vec![("src/long.txt".to_owned(), vec![2])]);
    let records = fixture.records().await.len();
    let preview = broker.preview(&request, part.clone(), &ada()).await.unwrap();
    assert!(preview.diff.contains("+fifty") && !preview.diff.contains("+three"), "{}", preview.diff);
    assert_eq!(fixture.records().await.len(), records, "a preview leaves no record");
    let of = |part: &Amendment, shown| ApprovalChoice { part: part.clone(), shown, ..ApprovalChoice::once() };
    let other = Amendment::Hunks(vec![("src/long.txt".to_owned(), vec![1])]);
    let error = broker.approve(&request, of(&other, Some(preview.digest)), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBase, "a different part than the previewed one");
    let again = id(&propose(
        &broker,
        "write_file",
        json!({"path": "src/long.txt", "content": wanted, "mode": "write"}),
    )
    .await);
    let preview = broker.preview(&again, part.clone(), &ada()).await.unwrap();
    broker.approve(&again, of(&part, Some(preview.digest)), &ada()).await.unwrap();
    let now = file(&fixture, "src/long.txt").unwrap();
    assert!(now.contains("\nfifty\n") && now.contains("\n3\n"), "{now}");
    // The view shows the approved diff, and the proposed one beside it.
    let shown = read_approval(fixture.store.approval_queries(), &again).await.unwrap();
    assert!(shown.diff.contains("+fifty") && !shown.diff.contains("+three"), "{}", shown.diff);
    assert!(shown.proposed.as_deref().is_some_and(|diff| diff.contains("+three")), "{shown:?}");
    let decided = shown.request.as_ref().and_then(|row| row.decision.as_ref()).unwrap();
    assert_eq!(decided.digest, preview.digest);
}
