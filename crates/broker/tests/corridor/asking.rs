//! Who is asked, how often, and how far a yes reaches: floods, nobody there, grants, and looking before agreeing to a part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use vambrace_broker::{Broker, Choice, Part, Person, Reach, look};
use vambrace_core::config::{self, Source};
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::session::SessionState;
use vambrace_store::{Batch, Change, Store as _};

use crate::changes::{DEV, ada, file, id, propose};
use crate::kit::{Kit, call, peer, raw};

fn write(number: usize) -> Value {
    json!({"path": format!("src/n{number}.rs"), "content": format!("// {number}\n")})
}

async fn state(kit: &Kit) -> SessionState {
    kit.store.session("s-1").await.unwrap().unwrap().state
}

// T25: a flood of questions to the human pauses the session
#[tokio::test]
async fn a_flood_of_questions_pauses_the_session() {
    let mut kit = Kit::new(DEV);
    kit.parts.as_mut().unwrap().asking.flood_limit = 3;
    let broker = kit.broker();
    let first = propose(&broker, "write_file", write(0)).await;
    for number in 1..3 {
        propose(&broker, "write_file", write(number)).await;
    }
    assert_eq!(state(&kit).await, SessionState::Active);
    let flood = call(&broker, "write_file", write(3)).await;
    assert_eq!(
        (flood["error"]["code"].as_str(), flood["details"]["status"].as_str()),
        (Some("SessionSuspended"), Some("denied")),
        "{flood}"
    );
    assert_eq!(state(&kit).await, SessionState::Suspended);
    let next = call(&broker, "read_file", json!({"path": "src/main.rs"})).await;
    assert_eq!(next["error"]["code"], "SessionSuspended", "nothing goes on while it is paused");
    let alarm = kit.records().await.into_iter().find(|record| record["level"] == "CRITICAL").unwrap();
    assert_eq!(
        (alarm["op"].as_str(), alarm["event_type"].as_str()),
        (Some("session"), Some("session.suspended"))
    );
    assert!(alarm["message"].as_str().unwrap().contains("flood of questions"), "{alarm}");
    // The user lifts it: what was open can be decided, and the count begins anew.
    kit.clock.0.fetch_add(1000, Ordering::Relaxed);
    let at = vambrace_core::timestamp::Timestamp::from_millis(kit.clock.0.load(Ordering::Relaxed));
    let resume = Change::SetSession { id: peer().session, state: SessionState::Active, at };
    kit.store.commit(Batch::durable(Vec::new(), vec![resume])).await.unwrap();
    broker.approve(&id(&first), Choice::once(), &ada()).await.unwrap();
    propose(&broker, "write_file", write(4)).await;
}

// T25: whoever gets answers may ask on; what is old does not count
#[tokio::test]
async fn answered_and_old_questions_are_no_flood() {
    let mut kit = Kit::new(DEV);
    kit.parts.as_mut().unwrap().asking.flood_limit = 2;
    let broker = kit.broker();
    for number in 0..6 {
        let answer = propose(&broker, "write_file", write(number)).await;
        broker.approve(&id(&answer), Choice::once(), &ada()).await.unwrap();
    }
    for number in 6..12 {
        propose(&broker, "write_file", write(number)).await;
        kit.clock.0.fetch_add(31_000, Ordering::Relaxed);
    }
    assert_eq!(state(&kit).await, SessionState::Active);
}

// T25: an agent that is told no and asks on tires people as well
#[tokio::test]
async fn rejected_questions_count() {
    let mut kit = Kit::new(DEV);
    kit.parts.as_mut().unwrap().asking.flood_limit = 2;
    let broker = kit.broker();
    for number in 0..2 {
        let answer = propose(&broker, "write_file", write(number)).await;
        broker.reject(&id(&answer), Some("no"), &ada()).await.unwrap();
    }
    assert_eq!(call(&broker, "write_file", write(2)).await["error"]["code"], "SessionSuspended");
}

// T25: questions that arrive together cannot all be the last one
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_questions_does_not_pass_the_limit() {
    let mut kit = Kit::new(DEV);
    kit.parts.as_mut().unwrap().asking.flood_limit = 4;
    let broker = Arc::new(kit.broker());
    let calls: Vec<_> = (0..16)
        .map(|number| {
            let broker = Arc::clone(&broker);
            tokio::spawn(
                async move { broker.call(raw("write_file", write(number)), &peer()).await.envelope() },
            )
        })
        .collect();
    let mut asked = 0;
    for call in calls {
        let answer = call.await.unwrap();
        match answer["details"]["status"].as_str() {
            Some("hitl_required") => asked += 1,
            _ => assert_eq!(answer["error"]["code"], "SessionSuspended", "{answer}"),
        }
    }
    assert_eq!(asked, 4);
    assert_eq!(state(&kit).await, SessionState::Suspended);
}

// DESIGN 4.5: under `profile: ci` nobody is there; what would be asked is refused, on record, and nothing is left open
#[tokio::test]
async fn where_nobody_is_there_a_question_is_a_refusal() {
    let mut kit = Kit::new(DEV);
    kit.parts.as_mut().unwrap().asking.person = Person::Nowhere;
    let broker = kit.broker();
    let answer = call(&broker, "write_file", write(0)).await;
    assert_eq!(
        (answer["error"]["code"].as_str(), answer["details"]["status"].as_str()),
        (Some("ApprovalRejected"), Some("denied")),
        "{answer}"
    );
    assert_eq!(kit.store.questions().approvals(Default::default()).await.unwrap().len(), 0);
    assert_eq!(file(&kit, "src/n0.rs"), None);
    let records = kit.records().await;
    assert!(records.iter().any(|record| record["error_code"] == "ApprovalRejected"), "{records:?}");
    assert_eq!(call(&broker, "read_file", json!({"path": "src/main.rs"})).await["status"], "success");
}

/// A broker whose rules come from the organisation or the user.
fn under(kit: &mut Kit, source: Source, rules: &str) -> Broker {
    let file = |text: &str, source| Some(config::parse(text, "config.yaml", source).unwrap());
    let project = file(DEV, Source::Project { trusted: true });
    let settings = match source {
        Source::Organisation => config::combine(file(rules, source), None, project),
        _ => config::combine(None, file(rules, source), project),
    };
    let parts = kit.parts.as_mut().unwrap();
    let facts: Vec<_> = parts.catalogue.tools().map(|tool| Arc::clone(tool.facts())).collect();
    parts.policy = Arc::new(Policy::compile(&settings, None, None, &facts).unwrap());
    kit.broker()
}

// A7, issue 5.5: a click grants what is MEDIUM; never what is HIGH, never what the organisation asks
#[tokio::test]
async fn a_click_grants_only_what_is_grantable() {
    let ask = "approvals:\n  rules:\n    - {id: each, paths: [src/**], decision: ask}\n";
    let session = Choice { reach: Reach::Session, ..Choice::once() };
    let grantable = |answer: Value| async move { id(&answer) };

    let mut kit = Kit::new(DEV);
    let broker = under(&mut kit, Source::Organisation, ask);
    let asked = grantable(propose(&broker, "write_file", write(0)).await).await;
    let row = look(kit.store.questions(), &asked).await.unwrap().question.unwrap();
    assert!(!row.grantable, "the organisation asks each time");
    let error = broker.approve(&asked, session.clone(), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
    assert_eq!(kit.store.questions().grants(None).await.unwrap().len(), 0);
    broker.approve(&asked, Choice::once(), &ada()).await.unwrap();

    let mut kit = Kit::new(DEV);
    let broker = under(&mut kit, Source::User, ask);
    let asked = grantable(propose(&broker, "write_file", write(0)).await).await;
    broker.approve(&asked, session.clone(), &ada()).await.unwrap();
    assert_eq!(
        call(&broker, "write_file", write(1)).await["data"]["applied"],
        true,
        "the user's own question"
    );
    // The widest grant there is does not reach what is HIGH.
    let high = propose(&broker, "write_file", json!({"path": "config.json", "content": "{}\n"})).await;
    let error = broker.approve(&id(&high), session, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
}

// A7, A5: what is HIGH is granted by a rule that the user wrote, not by one of the project
#[tokio::test]
async fn high_is_granted_in_writing_only() {
    let allow = "approvals:\n  rules:\n    - {id: mine, paths: [config.json], decision: allow}\n";
    let content = json!({"path": "config.json", "content": "{}\n"});
    let mut kit = Kit::new(DEV);
    let broker = under(&mut kit, Source::User, allow);
    assert_eq!(call(&broker, "write_file", content.clone()).await["data"]["applied"], true);
    let mut kit = Kit::new(&format!("{DEV}{allow}"));
    let broker = kit.broker();
    propose(&broker, "write_file", content).await;
}

// B7, DESIGN 2: what was looked at is what is agreed to
#[tokio::test]
async fn a_previewed_part_is_applied_as_it_was_shown_or_not_at_all() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let lines = |mark: &str| (0..60).map(|n| format!("{n}{mark}\n")).collect::<String>();
    let place = kit.folder.path().join("project/src/long.txt");
    std::fs::write(&place, lines("")).unwrap();
    let wanted = lines("").replace("\n3\n", "\nthree\n").replace("\n50\n", "\nfifty\n");
    let args = json!({"path": "src/long.txt", "content": wanted});
    let asked = id(&propose(&broker, "write_file", args).await);
    let part = Part::Hunks(vec![("src/long.txt".to_owned(), vec![2])]);
    let records = kit.records().await.len();
    let preview = broker.preview(&asked, part.clone(), &ada()).await.unwrap();
    assert!(preview.diff.contains("+fifty") && !preview.diff.contains("+three"), "{}", preview.diff);
    assert_eq!(kit.records().await.len(), records, "looking leaves no record");
    let of = |part: &Part, shown| Choice { part: part.clone(), shown, ..Choice::once() };
    let other = Part::Hunks(vec![("src/long.txt".to_owned(), vec![1])]);
    let error = broker.approve(&asked, of(&other, Some(preview.digest)), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBase, "another part than the one that was shown");
    let again = id(&propose(
        &broker,
        "write_file",
        json!({"path": "src/long.txt", "content": wanted, "mode": "write"}),
    )
    .await);
    let preview = broker.preview(&again, part.clone(), &ada()).await.unwrap();
    broker.approve(&again, of(&part, Some(preview.digest)), &ada()).await.unwrap();
    let now = file(&kit, "src/long.txt").unwrap();
    assert!(now.contains("\nfifty\n") && now.contains("\n3\n"), "{now}");
    // Issue 5.6: what was agreed to is shown, with the proposal marked as such.
    let shown = look(kit.store.questions(), &again).await.unwrap();
    assert!(shown.diff.contains("+fifty") && !shown.diff.contains("+three"), "{}", shown.diff);
    assert!(shown.proposed.as_deref().is_some_and(|diff| diff.contains("+three")), "{shown:?}");
    let decided = shown.question.as_ref().and_then(|row| row.decided.as_ref()).unwrap();
    assert_eq!(decided.digest, preview.digest);
}
