//! Approving a part of a proposal, or edited content: which part is selected, and what is reported to the agent.

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_broker::{Amendment, ApprovalChoice, Broker};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_store::{SqliteStore, StateDir, StoreOptions};

use crate::changes::{DEV, ada, file, id, propose};
use crate::faults::{FailingStore, FailureCountdown};
use crate::fixtures::{Fixture, call, parts};

fn put(fixture: &Fixture, path: &str, content: &str) {
    std::fs::write(fixture.dir.path().join("project").join(path), content).unwrap();
}

/// Sixty lines, some of them changed.
fn lines(changed: &[usize]) -> String {
    (1..=60)
        .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
        .collect()
}

async fn approve_part(broker: &Arc<Broker>, request: &Value, part: Amendment) -> Value {
    let choice = ApprovalChoice { part, ..ApprovalChoice::once() };
    broker.approve(&id(request), choice, &ada()).await.unwrap().unwrap().envelope()
}

fn hunks(parts: &[(&str, &[usize])]) -> Amendment {
    Amendment::Hunks(parts.iter().map(|(path, numbers)| ((*path).to_owned(), numbers.to_vec())).collect())
}

// B7: hunks of one file may be named one by one, and a file by any spelling of its path
#[tokio::test]
async fn hunks_are_selected_by_any_spelling_of_the_path() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    for (name, first, second) in [
        ("src/long.txt", "src/long.txt", "src/long.txt"),
        ("src/again.txt", "./src/again.txt", "src//again.txt"),
        (
            "src/with \"quotes\" and \u{e4}.txt",
            "src/with \"quotes\" and \u{e4}.txt",
            "./src/with \"quotes\" and \u{e4}.txt",
        ),
    ] {
        put(&fixture, name, &lines(&[]));
        let request =
            propose(&broker, "write_file", json!({"path": name, "content": lines(&[2, 30, 55])})).await;
        approve_part(&broker, &request, hunks(&[(first, &[1]), (second, &[3])])).await;
        assert_eq!(file(&fixture, name).unwrap(), lines(&[2, 55]), "{name}");
    }
}

// The agent learns that only a part was applied, which one, and the new hash
#[tokio::test]
async fn result_reports_which_part_was_applied() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    put(&fixture, "src/long.txt", &lines(&[]));
    let patch = "--- a/src/long.txt\n+++ b/src/long.txt\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+LINE 2\n line 3\n@@ -54,3 +54,3 @@\n line 54\n-line 55\n+LINE 55\n line 56\n--- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n";
    let request = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    approve_part(&broker, &request, hunks(&[("src/long.txt", &[2])])).await;
    // The agent repeats its call later.
    let repeated = call(&broker, "apply_patch", json!({"patch": patch})).await;
    let data = &repeated["data"];
    assert_eq!((&data["applied"], &data["as_proposed"]), (&json!(true), &json!(false)), "{repeated}");
    assert_eq!(data["not_applied"], json!([{"path": "src/long.txt", "hunks": [1]}, {"path": "src/two.rs"}]));
    let hash = Digest::of(lines(&[55]).as_bytes()).to_string();
    assert_eq!(data["files"][0]["after_hash"], hash.as_str());
    assert_eq!(data["files"][0]["as_proposed"], false);
    let diff = data["diff"].as_str().unwrap();
    assert!(diff.contains("+LINE 55") && !diff.contains("LINE 2"), "{diff}");
    assert_eq!(file(&fixture, "src/two.rs"), None);
}

// So does the text for a model
#[tokio::test]
async fn text_for_a_model_reports_what_was_applied_instead() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let request = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let part = Amendment::Edited(vec![("./src/n.txt".to_owned(), b"human\n".to_vec())]);
    let choice = ApprovalChoice { part, ..ApprovalChoice::once() };
    let answer = broker.approve(&id(&request), choice, &ada()).await.unwrap().unwrap();
    let words = answer.plain_text().unwrap().to_owned();
    let hash = Digest::of(b"human\n").to_string();
    assert!(words.contains("other content than you proposed") && words.contains(&hash), "{words}");
    assert!(words.contains("read these files again"), "{words}");
    assert_eq!(answer.envelope()["data"]["as_proposed"], false);

    // Selecting every part counts as the whole.
    let request = propose(&broker, "write_file", json!({"path": "src/m.txt", "content": "agent\n"})).await;
    let whole = approve_part(&broker, &request, Amendment::Files(vec!["src/m.txt".to_owned()])).await;
    assert_eq!(whole["data"]["as_proposed"], true, "{whole}");
}

// B7: edited content for a file that is also renamed, or gets other permissions
#[tokio::test]
async fn edited_content_of_a_renamed_file_gets_the_new_name() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    put(&fixture, "src/old.txt", "a\nb\n");
    let patch = "diff --git a/src/old.txt b/src/new.txt\nsimilarity index 50%\nrename from src/old.txt\nrename to src/new.txt\n--- a/src/old.txt\n+++ b/src/new.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    let request = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    let edited = |path: &str| Amendment::Edited(vec![(path.to_owned(), b"mine\n".to_vec())]);
    let twice = Amendment::Edited(vec![
        ("src/new.txt".to_owned(), b"a".to_vec()),
        ("src/old.txt".to_owned(), b"b".to_vec()),
    ]);
    let error = broker
        .approve(&id(&request), ApprovalChoice { part: twice, ..ApprovalChoice::once() }, &ada())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments, "{error:?}");
    approve_part(&broker, &request, edited("src/new.txt")).await;
    assert_eq!(
        (file(&fixture, "src/old.txt"), file(&fixture, "src/new.txt").as_deref()),
        (None, Some("mine\n"))
    );

    let request = propose(&broker, "delete_file", json!({"path": "src/new.txt"})).await;
    let choice = ApprovalChoice { part: edited("src/new.txt"), ..ApprovalChoice::once() };
    let error = broker.approve(&id(&request), choice, &ada()).await.unwrap_err();
    assert!(error.message.contains("is deleted by this proposal"), "{error:?}");
}

// A8: the approving process dies after any step; the part is applied completely or not at all, and the agent learns
// which
#[tokio::test]
async fn interrupted_partial_approval_is_atomic_and_reported_as_partial() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let (project, state) = (fixture.dir.path().join("project"), fixture.dir.path().join("state"));
    let (mut recovered, mut untouched) = (0, 0);
    for at in 0.. {
        let path = format!("src/cut-{at}.txt");
        put(&fixture, &path, &lines(&[]));
        let args = json!({"path": path, "content": lines(&[2, 55])});
        let request = propose(&broker, "write_file", args.clone()).await;
        let countdown = FailureCountdown::new(at);
        {
            let dir = StateDir::open(&state).unwrap();
            let store = Arc::new(SqliteStore::open(dir, &StoreOptions::new(fixture.clock.clone())).unwrap());
            let failing = FailingStore { countdown: Arc::clone(&countdown), ..FailingStore::never(&store) };
            let doomed = parts(&project, DEV, None, Arc::new(failing), fixture.clock.clone());
            let choice = ApprovalChoice { part: hunks(&[(&path, &[2])]), ..ApprovalChoice::once() };
            // Its result is lost.
            let _ = Broker::new(doomed).approve(&id(&request), choice, &ada()).await;
        }
        broker.recover().await.unwrap();
        let now = file(&fixture, &path).unwrap();
        let repeated = call(&broker, "write_file", args).await;
        if now == lines(&[]) {
            untouched += 1;
            assert_ne!(repeated["data"]["applied"], true, "{repeated}");
        } else {
            assert_eq!(now, lines(&[55]), "half of a part");
            assert_eq!(
                (&repeated["data"]["applied"], &repeated["data"]["as_proposed"]),
                (&json!(true), &json!(false)),
                "{repeated}"
            );
            assert_eq!(repeated["data"]["files"][0]["after_hash"], Digest::of(now.as_bytes()).to_string());
            recovered += usize::from(countdown.is_spent());
        }
        if !countdown.is_spent() {
            break;
        }
    }
    assert!(recovered > 0 && untouched > 0, "{recovered} recovered, {untouched} untouched");
}
