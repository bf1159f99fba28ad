//! Violations have consequences, and haste has a limit.

use std::sync::atomic::Ordering;

use serde_json::json;
use vambrace_core::session::SessionState;
use vambrace_store::Store;

use crate::kit::{Kit, call, read};

const DEV: &str = "roles:\n  default: dev\n";

// T23
#[tokio::test]
async fn more_than_five_violations_in_a_minute_raise_the_alarm() {
    for (action, after) in
        [(SessionState::Alert, "success"), (SessionState::Suspended, "error"), (SessionState::Ended, "error")]
    {
        let mut kit = Kit::new(DEV);
        kit.parts.as_mut().unwrap().violations.action = action;
        let broker = kit.broker();
        for _ in 0..5 {
            read(&broker, "../x").await;
        }
        let state = kit.store.session("s-1").await.unwrap().unwrap().state;
        assert_eq!(state, SessionState::Active);
        let sixth = read(&broker, "../x").await;
        assert_eq!(kit.store.session("s-1").await.unwrap().unwrap().state, action);
        let own = kit
            .records()
            .await
            .into_iter()
            .find(|record| record["event_hash"] == sixth["details"]["audit"]["event_hash"]);
        assert_eq!(own.unwrap()["op"], "violation", "an answer names its own record, not the alarm's");
        let next = read(&broker, "src/main.rs").await;
        assert_eq!(next["status"], after, "{next}");
        if after == "error" {
            assert_eq!(next["error"]["code"], "SessionSuspended");
        }
        let alarm = kit.records().await.into_iter().find(|record| record["level"] == "CRITICAL").unwrap();
        assert_eq!(alarm["op"], "session");
        assert!(alarm["message"].as_str().unwrap().contains("6 violations"));
    }
}

// T23: the window passes
#[tokio::test]
async fn old_violations_are_forgotten() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    for _ in 0..12 {
        read(&broker, ".env").await;
        kit.clock.0.fetch_add(13_000, Ordering::Relaxed);
    }
    assert_eq!(kit.store.session("s-1").await.unwrap().unwrap().state, SessionState::Active);
}

// T25: calls that arrive together cannot all be the last one
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_does_not_pass_the_limit() {
    let mut kit = Kit::new("roles:\n  default: dev\nlimits:\n  calls_per_minute: 5\n");
    let broker = std::sync::Arc::new(kit.broker());
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

// A session that somebody ends meanwhile starts nothing more
#[tokio::test]
async fn a_session_ended_by_somebody_else_starts_nothing_more() {
    use vambrace_store::{Batch, Change};
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
    let (id, at) =
        (vambrace_core::id::Id::new("s-1").unwrap(), vambrace_core::timestamp::Timestamp::from_millis(9));
    let end = Change::SetSession { id, state: SessionState::Ended, at };
    kit.store.commit(Batch::durable(vec![], vec![end])).await.unwrap();
    let refused = read(&broker, "src/main.rs").await;
    assert_eq!(refused["error"]["code"], "SessionSuspended", "{refused}");
}

// T25
#[tokio::test]
async fn calls_past_the_limit_are_told_how_long_to_wait() {
    let mut kit = Kit::new("roles:\n  default: dev\nlimits:\n  calls_per_minute: {read_file: 3}\n");
    let broker = kit.broker();
    for _ in 0..3 {
        assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
        kit.clock.0.fetch_add(1_000, Ordering::Relaxed);
    }
    let refused = read(&broker, "src/main.rs").await;
    assert_eq!(refused["error"]["code"], "RateLimited", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("wait 58 s"), "{refused}");
    assert_eq!(call(&broker, "list_files", json!({})).await["status"], "success");
    kit.clock.0.fetch_add(58_000, Ordering::Relaxed);
    assert_eq!(read(&broker, "src/main.rs").await["status"], "success");
}
