//! Changing files: propose, approve, apply, roll back. The tests that 003 names, and those around them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vambrace_broker::{Broker, Choice, Decider, Part, Patience, Reach, look};
use vambrace_core::change::ChangeSet;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_ledger::{KeyKind, SigningKey};
use vambrace_store::{Asked, Kept, Options, ProposalState, SqliteStore, StartReceipt, StateDir, Store};
use vambrace_tools::{Card, Catalogue, Output, Prepared, Room, Tool, Work};
use vambrace_workspace::Draft;

use crate::kit::{Kit, SECRET, call, parts, peer, raw};

pub(crate) const DEV: &str = "roles:\n  default: dev\n";
const MAIN: &str = "fn main() {\n    println!(\"hello\");\n}\n";

pub(crate) fn ada() -> Decider {
    Decider::of_key("ada", ada_key())
}

pub(crate) fn ada_key() -> SigningKey {
    SigningKey::new("approver/ada", KeyKind::Log, &[7; 32]).unwrap()
}

pub(crate) fn id(answer: &Value) -> String {
    answer["details"]["hitl"]["hitl_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

pub(crate) fn file(kit: &Kit, path: &str) -> Option<String> {
    std::fs::read_to_string(kit.folder.path().join("project").join(path)).ok()
}

fn put(kit: &Kit, path: &str, content: &str) {
    std::fs::write(kit.folder.path().join("project").join(path), content).unwrap();
}

pub(crate) async fn propose(broker: &Broker, tool: &str, args: Value) -> Value {
    let answer = call(broker, tool, args).await;
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
    answer
}

/// A caller who waits, and the question it waits for.
pub(crate) async fn waiting(broker: &Arc<Broker>, tool: &str, args: Value) -> (String, JoinHandle<Value>) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (broker, call) = (Arc::clone(broker), raw(tool, args));
    let waiting = tokio::spawn(async move {
        let told = |waiting: &vambrace_broker::Waiting| drop(tell.send(waiting.id.to_string()));
        let patience = Patience { told: Some(&told), ..Patience::whole() };
        broker.call_patiently(call, &peer(), &patience).await.envelope()
    });
    (told.recv().await.unwrap(), waiting)
}

async fn refused(broker: &Broker, id: &str, code: ErrorCode) {
    let error = broker.approve(id, Choice::once(), &ada()).await.unwrap_err();
    assert_eq!(error.code, code, "{error:?}");
}

// B2, 003: write_file returns hitl_required, and writes nothing
#[tokio::test]
async fn write_file_proposes_and_writes_nothing() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let answer =
        propose(&broker, "write_file", json!({"path": "src/new.rs", "content": "fn a() {}\n"})).await;
    assert_eq!(file(&kit, "src/new.rs"), None);
    assert_eq!(answer["details"]["op"], json!({"method": "fs.propose_patch", "path": "src/new.rs"}));
    let hitl = &answer["details"]["hitl"];
    assert!(id(&answer).starts_with("hitl-") && id(&answer).len() == 5 + 36);
    assert_eq!(hitl["ttl_seconds"], 120);
    assert_eq!(hitl["summary"], "CREATE FILE src/new.rs");
    assert_eq!(hitl["diff_preview"], "--- /dev/null\n+++ b/src/new.rs\n@@ -0,0 +1 @@\n+fn a() {}\n");
    let data = &answer["details"]["data"];
    assert_eq!((data["path"].as_str(), data["created"].as_bool()), (Some("src/new.rs"), Some(true)));
    assert_eq!(data["patch_format"], "unified_diff");
    assert!(data["patch_hash"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(answer["details"]["audit"]["durable"], true);
    let records = kit.records().await;
    let proposed = records.iter().find(|record| record["op"] == "write_file_propose").unwrap();
    assert_eq!(proposed["status"], "hitl_required");
    assert_eq!(proposed["path"], "src/new.rs");
    assert_eq!(proposed["created"], true);
    assert_eq!(proposed["patch_hash"], data["patch_hash"]);
    assert_eq!(proposed["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(proposed["tool_call_id"], "tc-1");
    assert_eq!(proposed["event_hash"], answer["details"]["audit"]["event_hash"]);
}

// B3, 003: apply_proposal with a valid id, modify; the answer is that of write_file with the agent's own id
#[tokio::test]
async fn approving_applies_and_the_agent_hears_it_once() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let args = json!({"path": "src/main.rs", "content": "fn main() {}\n"});
    let answer = propose(&broker, "write_file", args.clone()).await;
    assert_eq!(answer["details"]["hitl"]["summary"], "MODIFY src/main.rs");
    let applied = broker.approve(&id(&answer), Choice::once(), &ada()).await.unwrap().unwrap().envelope();
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(
        (applied["tool_name"].as_str(), applied["tool_call_id"].as_str()),
        (Some("write_file"), Some("tc-1"))
    );
    assert_eq!(applied["details"]["op"], json!({"method": "fs.apply_patch", "path": "src/main.rs"}));
    let data = &applied["details"]["data"];
    assert_eq!(data["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(data["before_hash"], answer["details"]["data"]["base_hash"]);
    assert_ne!(data["before_hash"], data["after_hash"]);
    // The same call again is the same record: it hears the outcome, once.
    let heard = call(&broker, "write_file", args.clone()).await;
    assert_eq!(heard["details"]["status"], "allowed", "{heard}");
    assert_eq!(heard["details"]["data"]["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(heard["metadata"]["call_id"], answer["metadata"]["call_id"]);
    let third = call(&broker, "write_file", args).await;
    assert_eq!(third["data"]["summary"], "NOTHING", "{third}");
    let records = kit.records().await;
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(
        ops[..5],
        ["session", "write_file_propose", "tool.approval", "tool.start", "write_file_apply"]
    );
    assert!(records[2]["note"].as_str().unwrap().contains("decision approve"));
    assert_eq!(records[4]["before_hash"], data["before_hash"]);
    assert_eq!(records[4]["after_hash"], data["after_hash"]);
    let call_id = answer["metadata"]["call_id"].as_str().unwrap();
    assert_eq!(kit.store.call(call_id).await.unwrap().unwrap().state.as_str(), "completed");
}

// 003: apply_proposal with an expired id, with a modified file, with a path mismatch, of nothing
#[tokio::test]
async fn what_does_not_stand_any_more_is_not_applied() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    refused(&broker, "hitl-none", ErrorCode::ProposalNotFound).await;

    let late = propose(&broker, "write_file", json!({"path": "a.txt", "content": "a\n"})).await;
    kit.clock.0.fetch_add(120_000, Ordering::Relaxed);
    refused(&broker, &id(&late), ErrorCode::ProposalExpired).await;
    refused(&broker, &id(&late), ErrorCode::ProposalExpired).await;
    assert_eq!(file(&kit, "a.txt"), None);
    let records = kit.records().await;
    let expired = records.iter().filter(|record| record["event_type"] == "approval.expired").count();
    assert_eq!(expired, 1);
    // A6: the agent gets "Approval timeout".
    let heard = call(&broker, "write_file", json!({"path": "a.txt", "content": "a\n"})).await;
    assert_eq!(heard["error"]["code"], "ApprovalTimeout");
    assert!(heard["error"]["message"].as_str().unwrap().contains("Approval timeout"));
    assert_eq!(heard["details"]["status"], "denied");

    let other = propose(&broker, "write_file", json!({"path": "src/main.rs", "content": "x\n"})).await;
    let choice = Choice { path: Some("src/other.rs".to_owned()), ..Choice::once() };
    let error = broker.approve(&id(&other), choice, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PathMismatch);
    put(&kit, "src/main.rs", "somebody else was here\n");
    refused(&broker, &id(&other), ErrorCode::StaleBase).await;
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some("somebody else was here\n"));
    refused(&broker, &id(&other), ErrorCode::ProposalUsed).await;
    let heard = call(&broker, "write_file", json!({"path": "src/main.rs", "content": "x\n"})).await;
    assert_eq!(heard["error"]["code"], "StaleBase", "{heard}");
}

// 003: the path named must be the proposal's, and then it is applied
#[tokio::test]
async fn the_right_path_is_applied() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let answer = propose(&broker, "write_file", json!({"path": "docs/n.md", "content": "n\n"})).await;
    let choice = Choice { path: Some("./docs/n.md".to_owned()), ..Choice::once() };
    broker.approve(&id(&answer), choice, &ada()).await.unwrap().unwrap();
    assert_eq!(file(&kit, "docs/n.md").as_deref(), Some("n\n"));
}

// 003: reject workflow; the reason reaches the agent, also one that waits
#[tokio::test]
async fn a_rejection_reaches_the_agent_with_its_reason() {
    let mut kit = Kit::new(DEV);
    let broker = Arc::new(kit.broker());
    let (id, waiting) = waiting(&broker, "delete_file", json!({"path": "docs/guide.md"})).await;
    let found = look(kit.store.questions(), &id).await.unwrap().question.unwrap();
    // A6: HIGH, and somebody waits: 600 s.
    assert_eq!((found.risk.as_str(), found.expires.millis() - found.created.millis()), ("HIGH", 600_000));
    broker.reject(&id, Some("it is still needed"), &ada()).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer["error"]["code"], "ApprovalRejected");
    assert!(answer["error"]["message"].as_str().unwrap().contains("it is still needed"));
    assert!(file(&kit, "docs/guide.md").is_some());
    let error = broker.approve(&id, Choice::once(), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
}

// A8: whoever waits is woken by the decision and gets the result
#[tokio::test]
async fn a_waiting_caller_gets_the_applied_result() {
    let mut kit = Kit::new(DEV);
    let broker = Arc::new(kit.broker());
    let edits = json!([{"spec": "hello", "content": "goodbye"}]);
    let (id, waiting) = waiting(&broker, "edit_file", json!({"path": "src/main.rs", "edits": edits})).await;
    broker.approve(&id, Choice::once(), &ada()).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer["details"]["status"], "allowed", "{answer}");
    assert_eq!(answer["details"]["op"]["method"], "fs.apply_patch");
    assert_eq!(answer["data"]["applied"], true);
    assert!(file(&kit, "src/main.rs").unwrap().contains("goodbye"));
}

// A6: a waiting caller whose question runs out gets ApprovalTimeout
#[tokio::test]
async fn a_waiting_caller_is_told_that_nobody_decided() {
    let mut kit = Kit::new(DEV);
    let broker = Arc::new(kit.broker());
    let (_, waiting) = waiting(&broker, "write_file", json!({"path": "a.txt", "content": "a"})).await;
    kit.clock.0.fetch_add(300_000, Ordering::Relaxed);
    let answer = waiting.await.unwrap();
    assert_eq!(answer["error"]["code"], "ApprovalTimeout", "{answer}");
    assert_eq!(file(&kit, "a.txt"), None);
}

// B4, A2, T7, T11: what is refused before anybody is asked
#[tokio::test]
async fn some_changes_are_not_even_proposed() {
    let mut kit = Kit::new("roles:\n  default: dev\nlimits:\n  write_bytes: 1000\n");
    for part in ["objects", "refs"] {
        std::fs::create_dir_all(kit.folder.path().join("project/bare").join(part)).unwrap();
    }
    let broker = kit.broker();
    let write = |path: &str, content: &str| ("write_file", json!({"path": path, "content": content}));
    for ((tool, args), code) in [
        (write("bare/hooks/post-checkout", "x"), "BlockedPath"),
        (write("bare/config", "x"), "BlockedPath"),
        (write(".env", "x"), "BlockedPath"),
        (write("a/secrets/b", "x"), "BlockedPath"),
        (write("k.pem", "x"), "BlockedPath"),
        (write(".vambrace/config.yaml", "roles: {}"), "BlockedPath"),
        (write(".git/hooks/pre-commit", "x"), "BlockedPath"),
        (write("../x", "x"), "ScopeViolation"),
        (write("/etc/x", "x"), "ScopeViolation"),
        (write("link.txt", "x"), "ScopeViolation"),
        (write("vendor/x.txt", "x"), "CreateNotAllowed"),
        (write("src/x.exe", "x"), "BlockedPath"),
        (write("src/x.so", "x"), "BlockedPath"),
        (write("big.txt", &"x".repeat(1001)), "TooLarge"),
        (write("s.txt", &format!("a\nb = {SECRET}\n")), "SecretInContent"),
        (write("s.txt", "a = [REDACTED:env:1234]\n"), "SecretInContent"),
        (("delete_file", json!({"path": "src"})), "NotAFile"),
        (("delete_file", json!({"path": "nope"})), "FileNotFound"),
        (
            ("edit_file", json!({"path": "src/main.rs", "edits": [{"spec": "zzz", "content": ""}]})),
            "MatchCountMismatch",
        ),
        (
            ("edit_file", json!({"path": "src/main.rs", "edits": [{"spec": "main", "content": SECRET}]})),
            "SecretInContent",
        ),
        (("apply_patch", json!({"patch": "nonsense"})), "InvalidArguments"),
    ] {
        let answer = call(&broker, tool, args.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{tool} {args} -> {answer}");
        assert!(!answer.to_string().contains(SECRET));
    }
    let open = kit.store.questions().approvals(Asked::default()).await.unwrap();
    assert!(open.is_empty());
    let said =
        call(&broker, "write_file", json!({"path": "s.txt", "content": format!("a\n{SECRET}\n")})).await;
    assert!(said["error"]["message"].as_str().unwrap().contains("line 2"), "{said}");
}

// A2, A5: risk with its reasons
#[tokio::test]
async fn risk_follows_the_file() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    for (path, risk) in
        [("src/x.rs", "MEDIUM"), ("config.json", "HIGH"), ("scripts/a.sh", "HIGH"), ("Makefile", "HIGH")]
    {
        let answer = propose(&broker, "write_file", json!({"path": path, "content": "x"})).await;
        assert_eq!(answer["metadata"]["risk"], risk, "{path}");
    }
}

// B7: a standing rule of a trusted configuration makes it one step, with both records
#[tokio::test]
async fn a_rule_countersigns_at_once_with_both_records() {
    let rules = "approvals:\n  rules:\n    - {id: docs, paths: [docs/**], decision: allow}\n";
    let mut kit = Kit::new(&format!("{DEV}{rules}"));
    let broker = kit.broker();
    let answer = call(&broker, "write_file", json!({"path": "docs/a.md", "content": "a\n"})).await;
    assert_eq!(answer["details"]["status"], "allowed", "{answer}");
    assert_eq!(file(&kit, "docs/a.md").as_deref(), Some("a\n"));
    let records = kit.records().await;
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["session", "write_file_propose", "tool.start", "write_file_apply"]);
    // What is HIGH is asked all the same: the project's file does not answer for it.
    propose(&broker, "delete_file", json!({"path": "docs/a.md"})).await;
    // It can be rolled back like any other.
    let hitl = answer["details"]["data"]["hitl_id"].as_str().unwrap();
    broker.rollback(hitl, &ada()).await.unwrap();
    assert_eq!(file(&kit, "docs/a.md"), None);
}

// B7: several files, one decision, all or nothing; parts of them
#[tokio::test]
async fn a_batch_is_one_decision_and_a_part_of_it_another() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let patch = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,3 +1,3 @@\n fn main() {\n-    println!(\"hello\");\n+    println!(\"bye\");\n }\n\
                 --- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n\
                 --- a/docs/guide.md\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-# Guide\n-read me\n";
    let answer = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    assert_eq!(answer["data"]["files"].as_array().unwrap().len(), 3);
    let records = kit.records().await;
    assert_eq!(records.iter().filter(|record| record["op"] == "write_file_propose").count(), 3);
    // One of the files changed: nothing of it is applied.
    put(&kit, "docs/guide.md", "another\n");
    refused(&broker, &id(&answer), ErrorCode::StaleBase).await;
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some(MAIN));
    assert_eq!(file(&kit, "src/two.rs"), None);

    put(&kit, "docs/guide.md", "# Guide\nread me\n");
    let heard = call(&broker, "apply_patch", json!({"patch": patch})).await;
    assert_eq!(heard["error"]["code"], "StaleBase");
    let answer = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    let some = |part: Part| Choice { part, ..Choice::once() };
    let strange = some(Part::Files(vec!["src/zzz.rs".to_owned()]));
    let error = broker.approve(&id(&answer), strange, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
    let two = some(Part::Files(vec!["src/two.rs".to_owned(), "src/main.rs".to_owned()]));
    broker.approve(&id(&answer), two, &ada()).await.unwrap();
    assert_eq!(file(&kit, "src/two.rs").as_deref(), Some("two\n"));
    assert!(file(&kit, "src/main.rs").unwrap().contains("bye"));
    assert!(file(&kit, "docs/guide.md").is_some());
    let records = kit.records().await;
    let approved = records.iter().rfind(|record| record["event_type"] == "approval.approved").unwrap();
    let asked = records.iter().rfind(|record| record["status"] == "hitl_required").unwrap();
    assert_ne!(approved["plan_digest"], asked["plan_digest"], "a part is another plan, and on record");
    assert!(records.iter().any(|record| record["event_type"] == "proposal.amended"));
}

// Approve some hunks, or with edited content: a new digest, recorded
#[tokio::test]
async fn hunks_and_edited_content_are_agreed_to_as_they_are() {
    let mut kit = Kit::new(DEV);
    let long: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    put(&kit, "src/long.txt", &long);
    let broker = kit.broker();
    let edits =
        json!([{"spec": "line 2\n", "content": "LINE 2\n"}, {"spec": "line 28\n", "content": "LINE 28\n"}]);
    let answer = propose(&broker, "edit_file", json!({"path": "src/long.txt", "edits": edits})).await;
    let choice = Choice { part: Part::Hunks(vec![("src/long.txt".to_owned(), vec![2])]), ..Choice::once() };
    broker.approve(&id(&answer), choice, &ada()).await.unwrap();
    let now = file(&kit, "src/long.txt").unwrap();
    assert!(now.contains("line 2\n") && now.contains("LINE 28\n"));

    let answer = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let content = broker.proposed_content(&id(&answer), "src/n.txt", &ada()).await.unwrap();
    assert_eq!(content, b"agent\n");
    let edited = |text: &str| Choice {
        part: Part::Edited(vec![("src/n.txt".to_owned(), text.as_bytes().to_vec())]),
        ..Choice::once()
    };
    let error = broker.approve(&id(&answer), edited(&format!("{SECRET}\n")), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::SecretInContent);
    broker.approve(&id(&answer), edited("human\n"), &ada()).await.unwrap();
    assert_eq!(file(&kit, "src/n.txt").as_deref(), Some("human\n"));
}

// 003: a check that fails says so by its own code, also after the proposal
#[tokio::test]
async fn what_became_forbidden_after_the_proposal_is_told_as_such() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    put(&kit, "src/swapped.txt", "a\n");
    let args = json!({"path": "src/swapped.txt", "content": "b\n"});
    let answer = propose(&broker, "write_file", args).await;
    let path = kit.folder.path().join("project/src/swapped.txt");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    refused(&broker, &id(&answer), ErrorCode::ScopeViolation).await;
}

// G: a name with line breaks adds no line of its own to what a person reads
#[tokio::test]
async fn a_line_break_in_a_name_is_no_reason_of_its_own() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let path = "src/x`: checked\norganisation: approved by somebody [\n.txt";
    let answer = propose(&broker, "write_file", json!({"path": path, "content": "a\n"})).await;
    let look = look(kit.store.questions(), &id(&answer)).await.unwrap();
    let why = &look.question.as_ref().unwrap().why;
    assert!(!why.lines().any(|line| line.starts_with("organisation:")), "{why}");
}

// 003: a yes to a part or to other content is a yes to what was shown, as it was shown
#[tokio::test]
async fn a_part_of_a_proposal_whose_base_changed_is_not_applied() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let lines = |changed: &[usize]| -> String {
        (1..=60)
            .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
            .collect()
    };
    let parts = [
        |path| Part::Hunks(vec![(path, vec![1])]),
        |path| Part::Files(vec![path]),
        |path| Part::Edited(vec![(path, b"mine\n".to_vec())]),
    ];
    for (n, part) in parts.into_iter().enumerate() {
        let path = format!("src/long-{n}.txt");
        put(&kit, &path, &lines(&[]));
        let answer = propose(&broker, "write_file", json!({"path": path, "content": lines(&[2, 55])})).await;
        // The first change comes to be in another way: what was the second hunk is the first now.
        put(&kit, &path, &lines(&[2]));
        let previewed = broker.preview(&id(&answer), part(path.clone()), &ada()).await.unwrap_err();
        assert_eq!(previewed.code, ErrorCode::StaleBase, "{previewed:?}");
        let choice = Choice { part: part(path.clone()), ..Choice::once() };
        let error = broker.approve(&id(&answer), choice, &ada()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
        assert_eq!(file(&kit, &path).unwrap(), lines(&[2]));
    }
}

// B7: rollback restores what was there, if nothing changed since, and is a change of its own
#[tokio::test]
async fn a_rollback_restores_what_was_there_or_refuses() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let answer = propose(&broker, "write_file", json!({"path": "src/main.rs", "content": "new\n"})).await;
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    broker.approve(&id(&answer), Choice::once(), &ada()).await.unwrap();
    put(&kit, "src/main.rs", "edited by hand\n");
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some("edited by hand\n"));
    put(&kit, "src/main.rs", "new\n");
    let back = broker.rollback(&id(&answer), &ada()).await.unwrap().envelope();
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some(MAIN));
    assert_eq!(back["details"]["status"], "allowed", "{back}");
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    let own = back["details"]["data"]["hitl_id"].as_str().unwrap();
    let row = kit.store.questions().proposal(own).await.unwrap().unwrap();
    assert_eq!(row.undoes.map(|id| id.to_string()), Some(id(&answer)));
    // And a rollback can be rolled back.
    broker.rollback(own, &ada()).await.unwrap();
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some("new\n"));
}

// B2, B7, T21: what is shown of a long deletion is bounded and clean; every byte comes back
#[tokio::test]
async fn a_long_deletion_is_shown_by_its_ends_and_comes_back_whole() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let mut lines: Vec<String> = (1..=30_000).map(|number| format!("{number} {number}\n")).collect();
    for number in [2, 15_000, 29_999] {
        lines[number - 1] = format!("key {number} = {SECRET}\n");
    }
    let old = lines.concat();
    for (tool, more, sign) in [("delete_file", None, "+0,0"), ("write_file", Some("now\n"), "+1")] {
        put(&kit, "src/long.txt", &old);
        let mut args = json!({"path": "src/long.txt"});
        if let Some(content) = more {
            args["content"] = content.into();
        }
        let answer = propose(&broker, tool, args).await;
        let shown = look(kit.store.questions(), &id(&answer)).await.unwrap().diff;
        assert!(shown.len() < 80 * 1024, "{}", shown.len());
        assert!(shown.contains(&format!("@@ -1,30000 {sign} @@\n-1 1\n-key 2 = [REDACTED]\n-3 3\n")));
        assert!(shown.contains(" removed lines with ") && !shown.contains("key 15000"));
        assert!(shown.contains("\n-29998 29998\n-key 29999 = [REDACTED]\n-30000 30000\n"), "{tool}");
        // By its only hunk: what is not shown goes with the rest.
        let part = Part::Hunks(vec![("src/long.txt".to_owned(), vec![1])]);
        let choice = Choice { part, ..Choice::once() };
        broker.approve(&id(&answer), choice, &ada()).await.unwrap();
        assert_eq!(file(&kit, "src/long.txt").as_deref(), more);
        let back = broker.rollback(&id(&answer), &ada()).await.unwrap().envelope();
        assert_eq!(file(&kit, "src/long.txt").as_deref(), Some(old.as_str()), "{tool}");
        let own = back["details"]["data"]["hitl_id"].as_str().unwrap();
        let shown = look(kit.store.questions(), own).await.unwrap().diff;
        assert!(shown.len() < 80 * 1024 && shown.contains(" added lines with "), "{}", shown.len());
        assert!(!shown.contains(SECRET) && shown.contains("+key 29999 = [REDACTED]\n"));
    }
    // A list has nothing of what is kept, and says that there is a way back.
    let listed = kit.store.questions().proposals(10).await.unwrap();
    assert!(listed.iter().any(|row| row.back == Some(Kept::stored(Vec::new()))), "{listed:?}");
}

// T21, B2: a secret in a long line hides nothing else of it, and no piece of it is shown where the line is cut
#[tokio::test]
async fn a_secret_in_a_long_line_hides_no_other_change_of_it() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let far = "x ".repeat(100_000);
    // The part that is shown begins 1024 bytes before the change: within the secret.
    let (first, second) = SECRET.split_at(SECRET.len() / 2);
    let near = "y".repeat(1024 - second.len());
    let old = format!("begin {far} {SECRET} end\nlet it be\n{far}{SECRET}{near}1\n");
    put(&kit, "src/long.js", &old);
    let edits = |texts: &[(&str, &str)]| -> Value {
        texts.iter().map(|(spec, content)| json!({"spec": spec, "content": content})).collect()
    };
    for (both, seen) in [
        (edits(&[("begin", "BEGIN"), ("end", "END")]), ["+BEGIN x", "[REDACTED] END"]),
        (edits(&[("1\n", "2\n")]), ["-[REDACTED]yy", "+[REDACTED]yy"]),
    ] {
        let answer = propose(&broker, "edit_file", json!({"path": "src/long.js", "edits": both})).await;
        let shown = look(kit.store.questions(), &id(&answer)).await.unwrap().diff;
        for words in seen {
            assert!(shown.contains(words), "{words}");
        }
        assert!(!shown.contains(first) && !shown.contains(second));
    }
}

/// `write_file`, with a diff that goes on where nobody reads any more.
struct Endless(Arc<dyn Tool>);

struct EndlessWork {
    draft: Draft,
    whole: Box<dyn Work>,
}

impl Tool for Endless {
    fn card(&self) -> &Card {
        self.0.card()
    }

    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError> {
        let Prepared { effects, risk, path, weight, work: whole } = self.0.plan(args, room)?;
        let mut draft = whole.change().unwrap().clone();
        draft.diff.extend_from_slice(b"\\ 3 further hunks with 300 bytes are not shown: sha256:00\n");
        Ok(Prepared { effects, risk, path, weight, work: Box::new(EndlessWork { draft, whole }) })
    }
}

impl Work for EndlessWork {
    fn change(&self) -> Option<&Draft> {
        Some(&self.draft)
    }

    fn ready(&mut self, room: &Room, fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        self.whole.ready(room, fence)
    }

    fn run(self: Box<Self>, room: &Room, fence: &Fence, start: &StartReceipt) -> Result<Output, CallError> {
        self.whole.run(room, fence, start)
    }
}

// A2, B2: a byte that makes a file binary would leave nothing of it in the diff, so nobody is asked about one
#[tokio::test]
async fn nothing_hides_behind_a_nul_byte() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let patch = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -3 +3,2 @@\n }\n+// \0 evil()\n";
    for (tool, args) in [
        ("write_file", json!({"path": "src/new.js", "content": "/* \0 */ evil()\n"})),
        ("write_file", json!({"path": "src/main.rs", "content": "\0", "mode": "append"})),
        ("edit_file", json!({"path": "src/main.rs", "edits": [{"spec": "hello", "content": "\0"}]})),
        ("apply_patch", json!({"patch": patch})),
    ] {
        let answer = call(&broker, tool, args).await;
        assert_eq!(answer["error"]["code"], "BinaryFile", "{answer}");
    }
    assert!(kit.store.questions().approvals(Asked::default()).await.unwrap().is_empty());
    // Nor in what a person writes instead, who would not see it again.
    let answer = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let part = Part::Edited(vec![("src/n.txt".to_owned(), b"a\0".to_vec())]);
    let error = broker.approve(&id(&answer), Choice { part, ..Choice::once() }, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BinaryFile);
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some(MAIN));
}

// B2: nobody is asked about what nobody could look through; a rule may agree to it
#[tokio::test]
async fn nobody_is_asked_about_a_diff_that_is_not_shown_whole() {
    let allow = "approvals:\n  rules:\n    - {id: bulk, paths: [docs/**], decision: allow}\n";
    let mut kit = Kit::new(&format!("{DEV}{allow}"));
    let parts = kit.parts.as_mut().unwrap();
    let write = Arc::clone(parts.catalogue.find("write_file").unwrap());
    parts.catalogue = Arc::new(Catalogue::new(vec![Arc::new(Endless(write))]).unwrap());
    let broker = kit.broker();
    for (path, code) in [("src/a.txt", Some("TooLarge")), ("docs/a.txt", None)] {
        let answer = call(&broker, "write_file", json!({"path": path, "content": "a\n"})).await;
        assert_eq!(answer["error"]["code"].as_str(), code, "{answer}");
        assert_eq!(file(&kit, path).is_none(), code.is_some());
    }
    assert!(kit.store.questions().approvals(Asked::default()).await.unwrap().is_empty());
}

// B7: who asks after a rollback hears of it, once, and can propose again
#[tokio::test]
async fn a_caller_is_not_told_that_an_undone_change_stands() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let args = || json!({"path": "src/main.rs", "content": "new\n"});
    let first = id(&propose(&broker, "write_file", args()).await);
    broker.approve(&first, Choice::once(), &ada()).await.unwrap();
    let back = broker.rollback(&first, &ada()).await.unwrap().envelope();
    let back = back["details"]["data"]["hitl_id"].as_str().unwrap();
    let heard = call(&broker, "write_file", args()).await;
    assert_eq!(heard["error"]["code"], "ApprovalRejected", "{heard}");
    let why = heard["error"]["message"].as_str().unwrap();
    assert!(why.contains(&first) && why.contains(back) && why.contains("rolled it back"), "{why}");
    let second = id(&propose(&broker, "write_file", args()).await);
    assert_ne!(second, first);
    // A rollback that was undone: it stands again.
    broker.approve(&second, Choice::once(), &ada()).await.unwrap();
    let back = broker.rollback(&second, &ada()).await.unwrap().envelope();
    broker.rollback(back["details"]["data"]["hitl_id"].as_str().unwrap(), &ada()).await.unwrap();
    let heard = call(&broker, "write_file", args()).await;
    assert_eq!(heard["data"]["applied"], true, "{heard}");
    assert_eq!(file(&kit, "src/main.rs").as_deref(), Some("new\n"));
}

// A8, B7: a restart between every two steps loses nothing and applies nothing twice
#[tokio::test]
async fn a_restart_between_every_two_steps_loses_nothing() {
    let mut kit = Kit::new(DEV);
    let project = kit.folder.path().join("project");
    let state = kit.folder.path().join("state");
    let first = kit.broker();
    let answer = propose(&first, "write_file", json!({"path": "src/r.rs", "content": "r\n"})).await;
    drop(first);
    let again = || {
        let dir = StateDir::open(&state).unwrap();
        let store = Arc::new(SqliteStore::open(dir, &Options::new(kit.clock.clone())).unwrap());
        Broker::new(parts(&project, DEV, None, store, kit.clock.clone()))
    };
    let second = again();
    second.recover().await.unwrap();
    second.approve(&id(&answer), Choice::once(), &ada()).await.unwrap();
    drop(second);
    let third = again();
    third.recover().await.unwrap();
    refused(&third, &id(&answer), ErrorCode::ProposalUsed).await;
    let heard = call(&third, "write_file", json!({"path": "src/r.rs", "content": "r\n"})).await;
    assert_eq!(heard["data"]["applied"], true, "{heard}");
    drop(third);
    let fourth = again();
    fourth.rollback(&id(&answer), &ada()).await.unwrap();
    drop(fourth);
    let fifth = again();
    let error = fifth.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    assert_eq!(file(&kit, "src/r.rs"), None);
    let row = kit.store.questions().proposal(&id(&answer)).await.unwrap().unwrap();
    assert_eq!(row.state, ProposalState::RolledBack);
}

// A7: a class of calls for this session, listed, expiring, revocable; HIGH is asked each time
#[tokio::test]
async fn a_grant_answers_its_class_in_its_session_until_it_ends() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let write = |n: u32, path: &str| json!({"path": path, "content": format!("{n}\n")});
    let answer = propose(&broker, "write_file", write(1, "src/a.rs")).await;
    let class = Choice { reach: Reach::Class, ..Choice::once() };
    broker.approve(&id(&answer), class.clone(), &ada()).await.unwrap();
    assert_eq!(call(&broker, "write_file", write(2, "src/b.rs")).await["data"]["applied"], true);
    // Another tool, another session, another risk: asked.
    propose(
        &broker,
        "edit_file",
        json!({"path": "src/main.rs", "edits": [{"spec": "hello", "content": "x"}]}),
    )
    .await;
    let high = propose(&broker, "write_file", write(3, "config.json")).await;
    let mut stranger = peer();
    stranger.session = vambrace_core::id::Id::new("s-2").unwrap();
    let other = broker.call(raw("write_file", write(4, "src/c.rs")), &stranger).await.envelope();
    assert_eq!(other["details"]["status"], "hitl_required");
    let error = broker.approve(&id(&high), class, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
    let grants = kit.store.questions().grants(None).await.unwrap();
    assert_eq!((grants.len(), grants[0].shape.as_str(), grants[0].uses), (1, "write_file", 1));
    kit.clock.0.fetch_add(3_600_000, Ordering::Relaxed);
    propose(&broker, "write_file", write(5, "src/d.rs")).await;
}

// A5, DESIGN 2: any other call that a rule asks about is a voucher for its caller, used once
#[tokio::test]
async fn an_approved_call_is_carried_out_by_its_caller_once() {
    let rules = "approvals:\n  rules:\n    - {id: ask-docs, paths: [docs/**], decision: ask}\n";
    let mut kit = Kit::new(&format!("{DEV}{rules}"));
    let broker = kit.broker();
    let read = json!({"path": "docs/guide.md"});
    let asked = propose(&broker, "read_file", read.clone()).await;
    assert!(!asked.to_string().contains("read me"));
    assert_eq!(
        id(&propose(&broker, "read_file", read.clone()).await),
        id(&asked),
        "one question for one call"
    );
    assert!(broker.approve(&id(&asked), Choice::once(), &ada()).await.unwrap().is_none());
    let answer = call(&broker, "read_file", read.clone()).await;
    assert_eq!(answer["status"], "success", "{answer}");
    assert!(answer["data"]["content"].as_str().unwrap().contains("read me"), "{answer}");
    assert_eq!(answer["metadata"]["call_id"], asked["metadata"]["call_id"]);
    let next = propose(&broker, "read_file", read.clone()).await;
    assert_ne!(id(&next), id(&asked));
    // A yes that nobody uses runs out, and the next call is asked about again.
    broker.approve(&id(&next), Choice::once(), &ada()).await.unwrap();
    kit.clock.0.fetch_add(600_000, Ordering::Relaxed);
    assert_eq!(call(&broker, "read_file", read.clone()).await["error"]["code"], "ApprovalTimeout");
    let fresh = propose(&broker, "read_file", read).await;
    assert_ne!(id(&fresh), id(&next));
}

// A12: nobody decides another user's questions, and they are not there for him
#[tokio::test]
async fn another_users_question_is_not_there() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let answer = propose(&broker, "write_file", json!({"path": "a.txt", "content": "a"})).await;
    let eve = Decider::of_client("eve", "x", SigningKey::new("client/x", KeyKind::Log, &[9; 32]).unwrap());
    let error = broker.approve(&id(&answer), Choice::once(), &eve).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalNotFound);
    let error = broker.reject(&id(&answer), None, &eve).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalNotFound);
}
