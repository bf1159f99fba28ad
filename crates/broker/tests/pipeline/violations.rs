//! Limits of a session: violations and call rates.

use std::sync::atomic::Ordering;

use serde_json::json;
use vambrace_core::session::SessionState;
use vambrace_store::Store;

use crate::fixtures::{Fixture, call, read};

const DEV: &str = "roles:\n  default: dev\n";

// T23
#[tokio::test]
async fn more_than_five_violations_in_a_minute_change_the_session_state() {
    for (action, after) in
        [(SessionState::Alert, "success"), (SessionState::Suspended, "error"), (SessionState::Ended, "error")]
    {
        let mut fixture = Fixture::new(DEV);
        fixture.parts.as_mut().unwrap().violations.action = action;
        let broker = fixture.broker();
        for _ in 0..5 {
            read(&broker, "../x").await;
        }
        let state = fixture.store.session("s-1").await.unwrap().unwrap().state;
        assert_eq!(state, SessionState::Active);
        let sixth = read(&broker, "../x").await;
        assert_eq!(fixture.store.session("s-1").await.unwrap().unwrap().state, action);
        let own = fixture
            .records()
            .await
            .into_iter()
            .find(|record| record["event_hash"] == sixth["details"]["audit"]["event_hash"]);
        assert_eq!(
            own.unwrap()["op"],
            "violation",
            "a result refers to its own record, not to that of the session"
        );
        let next = read(&broker, "src/main.rs").await;
        assert_eq!(next["status"], after, "{next}");
        if after == "error" {
            assert_eq!(next["error"]["code"], "SessionSuspended");
        }
        let alarm = fixture.records().await.into_iter().find(|record| record["level"] == "CRITICAL").unwrap();
        assert_eq!(alarm["op"], "session");
        assert!(alarm["message"].as_str().unwrap().contains("6 violations"));
    }
}

// T23: the window passes
#[tokio::test]
async fn violations_outside_the_window_do_not_count() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    for _ in 0..12 {
        read(&broker, ".env").await;
        fixture.clock.0.fetch_add(13_000, Ordering::Relaxed);
    }
    assert_eq!(fixture.store.session("s-1").await.unwrap().unwrap().state, SessionState::Active);
}

// T25: concurrent calls cannot exceed the limit together
#[tokio::test(flavor = "multi_thread")]
async fn burst_of_calls_does_not_exceed_the_rate_limit() {
    let mut fixture = Fixture::new("roles:\n  default: dev\nlimits:\n  calls_per_minute: 5\n");
    let broker = std::sync::Arc::new(fixture.broker());
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let broker = std::sync::Arc::clone(&broker);
            tokio::spawn(async move { read(&broker, "src/main.rs").await })
        })
        .collect();
    let (mut passed, mut limited) = (0, 0);
    for call in calls {
        let answer = call.await.unwrap();
        passed += usize::from(answer["status"] == "success");
        limited += usize::from(answer["error"]["code"] == "RateLimited");
    }
    assert_eq!((passed, limited), (5, 55));
}

// A session that another process ends starts no more calls
#[tokio::test]
async fn session_ended_by_another_process_starts_no_more_calls() {
    use vambrace_store::{Batch, StateChange};
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
    let (id, at) =
        (vambrace_core::id::Id::new("s-1").unwrap(), vambrace_core::timestamp::Timestamp::from_millis(9));
    let (owner, state) = (vambrace_store::OwnerFilter::Everyone, SessionState::Ended);
    let end = StateChange::SetSession { id, owner, state, at };
    fixture.store.commit(Batch::durable(vec![], vec![end])).await.unwrap();
    let denied = read(&broker, "src/main.rs").await;
    assert_eq!(denied["error"]["code"], "SessionSuspended", "{denied}");
}

// T25
#[tokio::test]
async fn rate_limited_calls_report_how_long_to_wait() {
    let mut fixture = Fixture::new("roles:\n  default: dev\nlimits:\n  calls_per_minute: {read_file: 3}\n");
    let broker = fixture.broker();
    for _ in 0..3 {
        assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
        fixture.clock.0.fetch_add(1_000, Ordering::Relaxed);
    }
    let denied = read(&broker, "src/main.rs").await;
    assert_eq!(denied["error"]["code"], "RateLimited", "{denied}");
    assert!(denied["error"]["message"].as_str().unwrap().contains("wait 58 s"), "{denied}");
    assert_eq!(call(&broker, "list_files", json!({})).await["status"], "success");
    fixture.clock.0.fetch_add(58_000, Ordering::Relaxed);
    assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
}
