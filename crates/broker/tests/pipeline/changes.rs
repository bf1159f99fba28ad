//! Changes of files: propose, approve, apply, roll back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vambrace_broker::{
    Amendment, ApprovalChoice, Approver, Broker, CallContext, DecisionReach, DecisionWait, read_approval,
};
use vambrace_core::change::ChangeSet;
use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{KeyKind, SigningKey};
use vambrace_store::{
    AccessToken, ApprovalChange, ApprovalFilter, Batch, OwnerFilter, ProposalState, SealedBlob, SqliteStore,
    StartReceipt, StateDir, Store, StoreOptions, TokenKind, TokenRow,
};
use vambrace_tools::{Catalogue, Tool, ToolContext, ToolDefinition, ToolOutput, ToolPlan, ToolWork};
use vambrace_workspace::Draft;

use crate::fixtures::{Fixture, OneSecret, SECRET, call, parts, peer, raw};

pub(crate) const DEV: &str = "roles:\n  default: dev\n";
const MAIN: &str = "fn main() {\n    println!(\"hello\");\n}\n";

pub(crate) fn ada() -> Approver {
    Approver::of_key("ada", ada_key())
}

pub(crate) fn ada_key() -> SigningKey {
    SigningKey::new("approver/ada", KeyKind::Log, &[7; 32]).unwrap()
}

pub(crate) fn id(answer: &Value) -> String {
    answer["details"]["hitl"]["hitl_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

pub(crate) fn file(fixture: &Fixture, path: &str) -> Option<String> {
    std::fs::read_to_string(fixture.dir.path().join("project").join(path)).ok()
}

fn put(fixture: &Fixture, path: &str, content: &str) {
    std::fs::write(fixture.dir.path().join("project").join(path), content).unwrap();
}

pub(crate) async fn propose(broker: &Arc<Broker>, tool: &str, args: Value) -> Value {
    let answer = call(broker, tool, args).await;
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
    answer
}

/// A waiting caller, and the id of its approval request.
pub(crate) async fn waiting(broker: &Arc<Broker>, tool: &str, args: Value) -> (String, JoinHandle<Value>) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let (broker, call) = (Arc::clone(broker), raw(tool, args));
    let waiting = tokio::spawn(async move {
        let on_waiting =
            move |waiting: &vambrace_broker::WaitProgress| drop(sender.send(waiting.id.to_string()));
        let wait = DecisionWait { on_waiting: Some(Arc::new(on_waiting)), ..DecisionWait::until_decided() };
        broker.call_and_wait(call, &peer(), wait, CallContext::default()).await.envelope()
    });
    (receiver.recv().await.unwrap(), waiting)
}

async fn denied(broker: &Arc<Broker>, id: &str, code: ErrorCode) {
    let error = broker.approve(id, ApprovalChoice::once(), &ada()).await.unwrap_err();
    assert_eq!(error.code, code, "{error:?}");
}

// B2: write_file returns hitl_required, and writes nothing
#[tokio::test]
async fn write_file_proposes_and_writes_nothing() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let answer =
        propose(&broker, "write_file", json!({"path": "src/new.rs", "content": "fn a() {}\n"})).await;
    assert_eq!(file(&fixture, "src/new.rs"), None);
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
    let records = fixture.records().await;
    let proposed = records.iter().find(|record| record["op"] == "write_file_propose").unwrap();
    assert_eq!(proposed["status"], "hitl_required");
    assert_eq!(proposed["path"], "src/new.rs");
    assert_eq!(proposed["created"], true);
    assert_eq!(proposed["patch_hash"], data["patch_hash"]);
    assert_eq!(proposed["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(proposed["tool_call_id"], "tc-1");
    assert_eq!(proposed["event_hash"], answer["details"]["audit"]["event_hash"]);
}

// B3: applies a valid proposal that modifies a file; the result is that of write_file with the agent's own id
#[tokio::test]
async fn approval_applies_and_the_outcome_is_delivered_once() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let args = json!({"path": "src/main.rs", "content": "fn main() {}\n"});
    let answer = propose(&broker, "write_file", args.clone()).await;
    assert_eq!(answer["details"]["hitl"]["summary"], "MODIFY src/main.rs");
    let applied =
        broker.approve(&id(&answer), ApprovalChoice::once(), &ada()).await.unwrap().unwrap().envelope();
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!(
        (applied["tool_name"].as_str(), applied["tool_call_id"].as_str()),
        (Some("write_file"), Some("tc-1"))
    );
    assert_eq!(applied["details"]["op"], json!({"method": "fs.apply_patch", "path": "src/main.rs"}));
    let data = &applied["details"]["data"];
    assert_eq!(data["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(data["before_hash"], answer["details"]["data"]["base_hash"]);
    assert_ne!(data["before_hash"], data["after_hash"]);
    // Repeating the call returns the outcome of the same record, once.
    let repeated = call(&broker, "write_file", args.clone()).await;
    assert_eq!(repeated["details"]["status"], "allowed", "{repeated}");
    assert_eq!(repeated["details"]["data"]["hitl_id"].as_str(), Some(id(&answer).as_str()));
    assert_eq!(repeated["metadata"]["call_id"], answer["metadata"]["call_id"]);
    let third = call(&broker, "write_file", args).await;
    assert_eq!(third["data"]["summary"], "NOTHING", "{third}");
    let records = fixture.records().await;
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(
        ops[..5],
        ["session", "write_file_propose", "tool.approval", "tool.start", "write_file_apply"]
    );
    assert!(records[2]["note"].as_str().unwrap().contains("decision approve"));
    assert_eq!(records[4]["before_hash"], data["before_hash"]);
    assert_eq!(records[4]["after_hash"], data["after_hash"]);
    let call_id = answer["metadata"]["call_id"].as_str().unwrap();
    assert_eq!(fixture.store.call(call_id).await.unwrap().unwrap().state.as_str(), "completed");
}

// An expired proposal, a modified file, a wrong path, an unknown id
#[tokio::test]
async fn invalid_proposals_are_not_applied() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    denied(&broker, "hitl-none", ErrorCode::ProposalNotFound).await;

    let late = propose(&broker, "write_file", json!({"path": "a.txt", "content": "a\n"})).await;
    fixture.clock.0.fetch_add(120_000, Ordering::Relaxed);
    denied(&broker, &id(&late), ErrorCode::ProposalExpired).await;
    denied(&broker, &id(&late), ErrorCode::ProposalExpired).await;
    assert_eq!(file(&fixture, "a.txt"), None);
    let records = fixture.records().await;
    let expired = records.iter().filter(|record| record["event_type"] == "approval.expired").count();
    assert_eq!(expired, 1);
    // A6: the agent gets "Approval timeout".
    let repeated = call(&broker, "write_file", json!({"path": "a.txt", "content": "a\n"})).await;
    assert_eq!(repeated["error"]["code"], "ApprovalTimeout");
    assert!(repeated["error"]["message"].as_str().unwrap().contains("Approval timeout"));
    assert_eq!(repeated["details"]["status"], "denied");

    let other = propose(&broker, "write_file", json!({"path": "src/main.rs", "content": "x\n"})).await;
    let choice = ApprovalChoice { path: Some("src/other.rs".to_owned()), ..ApprovalChoice::once() };
    let error = broker.approve(&id(&other), choice, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PathMismatch);
    put(&fixture, "src/main.rs", "somebody else was here\n");
    denied(&broker, &id(&other), ErrorCode::StaleBase).await;
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("somebody else was here\n"));
    denied(&broker, &id(&other), ErrorCode::ProposalUsed).await;
    let repeated = call(&broker, "write_file", json!({"path": "src/main.rs", "content": "x\n"})).await;
    assert_eq!(repeated["error"]["code"], "StaleBase", "{repeated}");
}

// A named path must be one of the proposal's
#[tokio::test]
async fn proposal_with_a_matching_path_is_applied() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let answer = propose(&broker, "write_file", json!({"path": "docs/n.md", "content": "n\n"})).await;
    let choice = ApprovalChoice { path: Some("./docs/n.md".to_owned()), ..ApprovalChoice::once() };
    broker.approve(&id(&answer), choice, &ada()).await.unwrap().unwrap();
    assert_eq!(file(&fixture, "docs/n.md").as_deref(), Some("n\n"));
}

// The reason of a rejection reaches the agent, also one that waits
#[tokio::test]
async fn rejection_reaches_the_agent_with_its_reason() {
    let mut fixture = Fixture::new(DEV);
    let broker = Arc::new(fixture.broker());
    let (id, waiting) = waiting(&broker, "delete_file", json!({"path": "docs/guide.md"})).await;
    let found = read_approval(fixture.store.approval_queries(), &id).await.unwrap().request.unwrap();
    // A6: HIGH, with a waiting caller: 600 s.
    assert_eq!((found.risk.as_str(), found.expires.millis() - found.created.millis()), ("HIGH", 600_000));
    broker.reject(&id, Some("it is still needed"), &ada()).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer["error"]["code"], "ApprovalRejected");
    assert!(answer["error"]["message"].as_str().unwrap().contains("it is still needed"));
    assert!(file(&fixture, "docs/guide.md").is_some());
    let error = broker.approve(&id, ApprovalChoice::once(), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
}

// A8: the decision wakes a waiting caller, which gets the result
#[tokio::test]
async fn waiting_caller_gets_the_applied_result() {
    let mut fixture = Fixture::new(DEV);
    let broker = Arc::new(fixture.broker());
    let edits = json!([{"spec": "hello", "content": "goodbye"}]);
    let (id, waiting) = waiting(&broker, "edit_file", json!({"path": "src/main.rs", "edits": edits})).await;
    broker.approve(&id, ApprovalChoice::once(), &ada()).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer["details"]["status"], "allowed", "{answer}");
    assert_eq!(answer["details"]["op"]["method"], "fs.apply_patch");
    assert_eq!(answer["data"]["applied"], true);
    assert!(file(&fixture, "src/main.rs").unwrap().contains("goodbye"));
}

// A6: a waiting caller whose request expires gets ApprovalTimeout
#[tokio::test]
async fn waiting_caller_gets_a_timeout_without_a_decision() {
    let mut fixture = Fixture::new(DEV);
    let broker = Arc::new(fixture.broker());
    let (_, waiting) = waiting(&broker, "write_file", json!({"path": "a.txt", "content": "a"})).await;
    fixture.clock.0.fetch_add(300_000, Ordering::Relaxed);
    let answer = waiting.await.unwrap();
    assert_eq!(answer["error"]["code"], "ApprovalTimeout", "{answer}");
    assert_eq!(file(&fixture, "a.txt"), None);
}

// B4, A2, T7, T11: changes that are denied without an approval request
#[tokio::test]
async fn forbidden_changes_are_not_proposed() {
    let mut fixture = Fixture::new("roles:\n  default: dev\nlimits:\n  write_bytes: 1000\n");
    for part in ["objects", "refs"] {
        std::fs::create_dir_all(fixture.dir.path().join("project/bare").join(part)).unwrap();
    }
    let broker = fixture.broker();
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
    let open = fixture.store.approval_queries().approvals(ApprovalFilter::default()).await.unwrap();
    assert!(open.is_empty());
    let said =
        call(&broker, "write_file", json!({"path": "s.txt", "content": format!("a\n{SECRET}\n")})).await;
    assert!(said["error"]["message"].as_str().unwrap().contains("line 2"), "{said}");
}

// A2, A5
#[tokio::test]
async fn risk_depends_on_the_file() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    for (path, risk) in
        [("src/x.rs", "MEDIUM"), ("config.json", "HIGH"), ("scripts/a.sh", "HIGH"), ("Makefile", "HIGH")]
    {
        let answer = propose(&broker, "write_file", json!({"path": path, "content": "x"})).await;
        assert_eq!(answer["metadata"]["risk"], risk, "{path}");
    }
}

// B7: with a rule of a trusted configuration it takes one step, with both records
#[tokio::test]
async fn rule_applies_a_change_at_once_with_both_records() {
    let rules = "approvals:\n  rules:\n    - {id: docs, paths: [docs/**], decision: allow}\n";
    let mut fixture = Fixture::new(&format!("{DEV}{rules}"));
    let broker = fixture.broker();
    let answer = call(&broker, "write_file", json!({"path": "docs/a.md", "content": "a\n"})).await;
    assert_eq!(answer["details"]["status"], "allowed", "{answer}");
    assert_eq!(file(&fixture, "docs/a.md").as_deref(), Some("a\n"));
    let records = fixture.records().await;
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["session", "write_file_propose", "tool.start", "write_file_apply"]);
    // HIGH still needs an approval: the project's configuration cannot grant it.
    propose(&broker, "delete_file", json!({"path": "docs/a.md"})).await;
    // It can be rolled back like any other change.
    let hitl = answer["details"]["data"]["hitl_id"].as_str().unwrap();
    broker.rollback(hitl, &ada()).await.unwrap();
    assert_eq!(file(&fixture, "docs/a.md"), None);
}

// B7: several files, one decision, all or nothing; parts of them
#[tokio::test]
async fn batch_needs_one_decision_and_a_part_of_it_another() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let patch = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,3 +1,3 @@\n fn main() {\n-    println!(\"hello\");\n+    println!(\"bye\");\n }\n\
                 --- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n\
                 --- a/docs/guide.md\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-# Guide\n-read me\n";
    let answer = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    assert_eq!(answer["data"]["files"].as_array().unwrap().len(), 3);
    let records = fixture.records().await;
    assert_eq!(records.iter().filter(|record| record["op"] == "write_file_propose").count(), 3);
    // One of the files changed: none of the changes is applied.
    put(&fixture, "docs/guide.md", "another\n");
    denied(&broker, &id(&answer), ErrorCode::StaleBase).await;
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some(MAIN));
    assert_eq!(file(&fixture, "src/two.rs"), None);

    put(&fixture, "docs/guide.md", "# Guide\nread me\n");
    let repeated = call(&broker, "apply_patch", json!({"patch": patch})).await;
    assert_eq!(repeated["error"]["code"], "StaleBase");
    let answer = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    let some = |part: Amendment| ApprovalChoice { part, ..ApprovalChoice::once() };
    let strange = some(Amendment::Files(vec!["src/zzz.rs".to_owned()]));
    let error = broker.approve(&id(&answer), strange, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments);
    let two = some(Amendment::Files(vec!["src/two.rs".to_owned(), "src/main.rs".to_owned()]));
    broker.approve(&id(&answer), two, &ada()).await.unwrap();
    assert_eq!(file(&fixture, "src/two.rs").as_deref(), Some("two\n"));
    assert!(file(&fixture, "src/main.rs").unwrap().contains("bye"));
    assert!(file(&fixture, "docs/guide.md").is_some());
    let records = fixture.records().await;
    let approved = records.iter().rfind(|record| record["event_type"] == "approval.approved").unwrap();
    let request = records.iter().rfind(|record| record["status"] == "hitl_required").unwrap();
    assert_ne!(approved["plan_digest"], request["plan_digest"], "a part is another plan, and recorded");
    assert!(records.iter().any(|record| record["event_type"] == "proposal.amended"));
}

// Approve some hunks, or with edited content: a new digest, recorded
#[tokio::test]
async fn approved_hunks_and_edited_content_are_applied_exactly() {
    let mut fixture = Fixture::new(DEV);
    let long: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    put(&fixture, "src/long.txt", &long);
    let broker = fixture.broker();
    let edits =
        json!([{"spec": "line 2\n", "content": "LINE 2\n"}, {"spec": "line 28\n", "content": "LINE 28\n"}]);
    let answer = propose(&broker, "edit_file", json!({"path": "src/long.txt", "edits": edits})).await;
    let choice = ApprovalChoice {
        part: Amendment::Hunks(vec![("src/long.txt".to_owned(), vec![2])]),
        ..ApprovalChoice::once()
    };
    broker.approve(&id(&answer), choice, &ada()).await.unwrap();
    let now = file(&fixture, "src/long.txt").unwrap();
    assert!(now.contains("line 2\n") && now.contains("LINE 28\n"));

    let answer = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let content = broker.proposed_content(&id(&answer), "src/n.txt", &ada()).await.unwrap();
    assert_eq!(content, b"agent\n");
    let edited = |text: &str| ApprovalChoice {
        part: Amendment::Edited(vec![("src/n.txt".to_owned(), text.as_bytes().to_vec())]),
        ..ApprovalChoice::once()
    };
    let error = broker.approve(&id(&answer), edited(&format!("{SECRET}\n")), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::SecretInContent);
    broker.approve(&id(&answer), edited("human\n"), &ada()).await.unwrap();
    assert_eq!(file(&fixture, "src/n.txt").as_deref(), Some("human\n"));
}

// A check that fails after the proposal reports its own code
#[tokio::test]
async fn symlink_swapped_after_the_proposal_is_denied() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    put(&fixture, "src/swapped.txt", "a\n");
    let args = json!({"path": "src/swapped.txt", "content": "b\n"});
    let answer = propose(&broker, "write_file", args).await;
    let path = fixture.dir.path().join("project/src/swapped.txt");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    denied(&broker, &id(&answer), ErrorCode::ScopeViolation).await;
}

// A name with line breaks adds no line to what a person reads
#[tokio::test]
async fn line_break_in_a_name_does_not_forge_a_reason() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let path = "src/x`: checked\norganisation: approved by somebody [\n.txt";
    let answer = propose(&broker, "write_file", json!({"path": path, "content": "a\n"})).await;
    let read_approval = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap();
    let why = &read_approval.request.as_ref().unwrap().why;
    assert!(!why.lines().any(|line| line.starts_with("organisation:")), "{why}");
}

// Approving a part or edited content approves what was shown
#[tokio::test]
async fn part_of_a_proposal_whose_base_changed_is_not_applied() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let lines = |changed: &[usize]| -> String {
        (1..=60)
            .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
            .collect()
    };
    let parts = [
        |path| Amendment::Hunks(vec![(path, vec![1])]),
        |path| Amendment::Files(vec![path]),
        |path| Amendment::Edited(vec![(path, b"mine\n".to_vec())]),
    ];
    for (n, part) in parts.into_iter().enumerate() {
        let path = format!("src/long-{n}.txt");
        put(&fixture, &path, &lines(&[]));
        let answer = propose(&broker, "write_file", json!({"path": path, "content": lines(&[2, 55])})).await;
        // The first change is made by someone else: the former second hunk is the first now.
        put(&fixture, &path, &lines(&[2]));
        let previewed = broker.preview(&id(&answer), part(path.clone()), &ada()).await.unwrap_err();
        assert_eq!(previewed.code, ErrorCode::StaleBase, "{previewed:?}");
        let choice = ApprovalChoice { part: part(path.clone()), ..ApprovalChoice::once() };
        let error = broker.approve(&id(&answer), choice, &ada()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
        assert_eq!(file(&fixture, &path).unwrap(), lines(&[2]));
    }
}

// B7: rollback restores what was there, if nothing changed since, and is a change of its own
#[tokio::test]
async fn rollback_restores_the_previous_content_or_fails() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let answer = propose(&broker, "write_file", json!({"path": "src/main.rs", "content": "new\n"})).await;
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    broker.approve(&id(&answer), ApprovalChoice::once(), &ada()).await.unwrap();
    put(&fixture, "src/main.rs", "edited by hand\n");
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBase, "{error:?}");
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("edited by hand\n"));
    put(&fixture, "src/main.rs", "new\n");
    let back = broker.rollback(&id(&answer), &ada()).await.unwrap().envelope();
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some(MAIN));
    assert_eq!(back["details"]["status"], "allowed", "{back}");
    let error = broker.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    let own = back["details"]["data"]["hitl_id"].as_str().unwrap();
    let row = fixture.store.approval_queries().proposal(own).await.unwrap().unwrap();
    assert_eq!(row.undoes.map(|id| id.to_string()), Some(id(&answer)));
    // A rollback can be rolled back.
    broker.rollback(own, &ada()).await.unwrap();
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("new\n"));
}

// B2, B7, T21: the diff of a long deletion is bounded and redacted; a rollback restores every byte
#[tokio::test]
async fn long_deletion_is_shown_abbreviated_and_rolls_back_completely() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let mut lines: Vec<String> = (1..=30_000).map(|number| format!("{number} {number}\n")).collect();
    for number in [2, 15_000, 29_999] {
        lines[number - 1] = format!("key {number} = {SECRET}\n");
    }
    let old = lines.concat();
    for (tool, more, sign) in [("delete_file", None, "+0,0"), ("write_file", Some("now\n"), "+1")] {
        put(&fixture, "src/long.txt", &old);
        let mut args = json!({"path": "src/long.txt"});
        if let Some(content) = more {
            args["content"] = content.into();
        }
        let answer = propose(&broker, tool, args).await;
        let shown = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap().diff;
        assert!(shown.len() < 80 * 1024, "{}", shown.len());
        assert!(shown.contains(&format!("@@ -1,30000 {sign} @@\n-1 1\n-key 2 = [REDACTED]\n-3 3\n")));
        assert!(shown.contains(" removed lines with ") && !shown.contains("key 15000"));
        assert!(shown.contains("\n-29998 29998\n-key 29999 = [REDACTED]\n-30000 30000\n"), "{tool}");
        // Approved by its only hunk: the lines that are not shown belong to it.
        let part = Amendment::Hunks(vec![("src/long.txt".to_owned(), vec![1])]);
        let choice = ApprovalChoice { part, ..ApprovalChoice::once() };
        broker.approve(&id(&answer), choice, &ada()).await.unwrap();
        assert_eq!(file(&fixture, "src/long.txt").as_deref(), more);
        let back = broker.rollback(&id(&answer), &ada()).await.unwrap().envelope();
        assert_eq!(file(&fixture, "src/long.txt").as_deref(), Some(old.as_str()), "{tool}");
        let own = back["details"]["data"]["hitl_id"].as_str().unwrap();
        let shown = read_approval(fixture.store.approval_queries(), own).await.unwrap().diff;
        assert!(shown.len() < 80 * 1024 && shown.contains(" added lines with "), "{}", shown.len());
        assert!(!shown.contains(SECRET) && shown.contains("+key 29999 = [REDACTED]\n"));
    }
    // A list contains no stored content, but shows that there is a rollback.
    let listed = fixture.store.approval_queries().proposals(&OwnerFilter::Everyone, 10).await.unwrap();
    assert!(listed.iter().any(|row| row.undo == Some(SealedBlob::stored(Vec::new()))), "{listed:?}");
}

// T21, B2: a secret in a long line hides no other change of the line, and no part of it is shown where the line is
// truncated
#[tokio::test]
async fn secret_in_a_long_line_hides_no_other_change_of_it() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let far = "x ".repeat(100_000);
    // The excerpt begins 1024 bytes before the change: inside the secret.
    let (first, second) = SECRET.split_at(SECRET.len() / 2);
    let near = "y".repeat(1024 - second.len());
    let old = format!("begin {far} {SECRET} end\nlet it be\n{far}{SECRET}{near}1\n");
    put(&fixture, "src/long.js", &old);
    let edits = |texts: &[(&str, &str)]| -> Value {
        texts.iter().map(|(spec, content)| json!({"spec": spec, "content": content})).collect()
    };
    for (both, seen) in [
        (edits(&[("begin", "BEGIN"), ("end", "END")]), ["+BEGIN x", "[REDACTED] END"]),
        (edits(&[("1\n", "2\n")]), ["-[REDACTED]yy", "+[REDACTED]yy"]),
    ] {
        let answer = propose(&broker, "edit_file", json!({"path": "src/long.js", "edits": both})).await;
        let shown = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap().diff;
        for words in seen {
            assert!(shown.contains(words), "{words}");
        }
        assert!(!shown.contains(first) && !shown.contains(second));
    }
}

/// `write_file` with a diff that is too long to be shown.
struct TruncatedDiffTool(Arc<dyn Tool>);

struct TruncatedDiffWork {
    draft: Draft,
    whole: Box<dyn ToolWork>,
}

impl Tool for TruncatedDiffTool {
    fn definition(&self) -> &ToolDefinition {
        self.0.definition()
    }

    fn plan(&self, args: &Value, room: &ToolContext) -> Result<ToolPlan, CallError> {
        let ToolPlan { effects, risk, path, weight, work: whole } = self.0.plan(args, room)?;
        let mut draft = whole.change().unwrap().clone();
        draft.diff.extend_from_slice(b"\\ 3 further hunks with 300 bytes are not shown: sha256:00\n");
        Ok(ToolPlan { effects, risk, path, weight, work: Box::new(TruncatedDiffWork { draft, whole }) })
    }
}

impl ToolWork for TruncatedDiffWork {
    fn change(&self) -> Option<&Draft> {
        Some(&self.draft)
    }

    fn ready(&mut self, room: &ToolContext, fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        self.whole.ready(room, fence)
    }

    fn run(
        self: Box<Self>,
        room: &ToolContext,
        fence: &Fence,
        start: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        self.whole.run(room, fence, start)
    }
}

// A2, B2: a NUL byte makes a file binary, and its diff empty; so such content is rejected without an approval request
#[tokio::test]
async fn content_with_a_nul_byte_is_rejected() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
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
    assert!(fixture.store.approval_queries().approvals(ApprovalFilter::default()).await.unwrap().is_empty());
    // Nor in content that a person edits, who would not see it again.
    let answer = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let part = Amendment::Edited(vec![("src/n.txt".to_owned(), b"a\0".to_vec())]);
    let error = broker
        .approve(&id(&answer), ApprovalChoice { part, ..ApprovalChoice::once() }, &ada())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::BinaryFile);
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some(MAIN));
}

// B2: a diff that is not shown completely cannot be approved; a rule may allow it
#[tokio::test]
async fn change_with_an_incomplete_diff_is_not_proposed() {
    let allow = "approvals:\n  rules:\n    - {id: bulk, paths: [docs/**], decision: allow}\n";
    let mut fixture = Fixture::new(&format!("{DEV}{allow}"));
    let parts = fixture.parts.as_mut().unwrap();
    let write = Arc::clone(parts.catalogue.find("write_file").unwrap());
    parts.catalogue = Arc::new(Catalogue::new(vec![Arc::new(TruncatedDiffTool(write))]).unwrap());
    let broker = fixture.broker();
    for (path, code) in [("src/a.txt", Some("TooLarge")), ("docs/a.txt", None)] {
        let answer = call(&broker, "write_file", json!({"path": path, "content": "a\n"})).await;
        assert_eq!(answer["error"]["code"].as_str(), code, "{answer}");
        assert_eq!(file(&fixture, path).is_none(), code.is_some());
    }
    assert!(fixture.store.approval_queries().approvals(ApprovalFilter::default()).await.unwrap().is_empty());
}

// B7: repeating the call after a rollback reports the rollback, once; then it can be proposed again
#[tokio::test]
async fn repeated_call_reports_a_rollback() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let args = || json!({"path": "src/main.rs", "content": "new\n"});
    let first = id(&propose(&broker, "write_file", args()).await);
    broker.approve(&first, ApprovalChoice::once(), &ada()).await.unwrap();
    let back = broker.rollback(&first, &ada()).await.unwrap().envelope();
    let back = back["details"]["data"]["hitl_id"].as_str().unwrap();
    let repeated = call(&broker, "write_file", args()).await;
    assert_eq!(repeated["error"]["code"], "ApprovalRejected", "{repeated}");
    let why = repeated["error"]["message"].as_str().unwrap();
    assert!(why.contains(&first) && why.contains(back) && why.contains("rolled it back"), "{why}");
    let second = id(&propose(&broker, "write_file", args()).await);
    assert_ne!(second, first);
    // A rollback that was rolled back: the change is applied again.
    broker.approve(&second, ApprovalChoice::once(), &ada()).await.unwrap();
    let back = broker.rollback(&second, &ada()).await.unwrap().envelope();
    broker.rollback(back["details"]["data"]["hitl_id"].as_str().unwrap(), &ada()).await.unwrap();
    let repeated = call(&broker, "write_file", args()).await;
    assert_eq!(repeated["data"]["applied"], true, "{repeated}");
    assert_eq!(file(&fixture, "src/main.rs").as_deref(), Some("new\n"));
}

// A8, B7: a restart between every two steps loses nothing and applies nothing twice
#[tokio::test]
async fn restart_between_any_two_steps_loses_nothing() {
    let mut fixture = Fixture::new(DEV);
    let project = fixture.dir.path().join("project");
    let state = fixture.dir.path().join("state");
    let first = fixture.broker();
    let answer = propose(&first, "write_file", json!({"path": "src/r.rs", "content": "r\n"})).await;
    drop(first);
    let again = || {
        let dir = StateDir::open(&state).unwrap();
        let store = Arc::new(SqliteStore::open(dir, &StoreOptions::new(fixture.clock.clone())).unwrap());
        Broker::new(parts(&project, DEV, None, store, fixture.clock.clone()))
    };
    let second = again();
    second.recover().await.unwrap();
    second.approve(&id(&answer), ApprovalChoice::once(), &ada()).await.unwrap();
    drop(second);
    let third = again();
    third.recover().await.unwrap();
    denied(&third, &id(&answer), ErrorCode::ProposalUsed).await;
    let repeated = call(&third, "write_file", json!({"path": "src/r.rs", "content": "r\n"})).await;
    assert_eq!(repeated["data"]["applied"], true, "{repeated}");
    drop(third);
    let fourth = again();
    fourth.rollback(&id(&answer), &ada()).await.unwrap();
    drop(fourth);
    let fifth = again();
    let error = fifth.rollback(&id(&answer), &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalUsed);
    assert_eq!(file(&fixture, "src/r.rs"), None);
    let row = fixture.store.approval_queries().proposal(&id(&answer)).await.unwrap().unwrap();
    assert_eq!(row.state, ProposalState::RolledBack);
}

// A7: a grant for a class of calls in this session: listed, expiring, revocable; HIGH needs an approval each time
#[tokio::test]
async fn grant_covers_its_class_in_its_session_until_it_expires() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let write = |n: u32, path: &str| json!({"path": path, "content": format!("{n}\n")});
    let answer = propose(&broker, "write_file", write(1, "src/a.rs")).await;
    let class = ApprovalChoice { reach: DecisionReach::Class, ..ApprovalChoice::once() };
    broker.approve(&id(&answer), class.clone(), &ada()).await.unwrap();
    assert_eq!(call(&broker, "write_file", write(2, "src/b.rs")).await["data"]["applied"], true);
    // Another tool, another session, another risk: each needs an approval.
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
    let grants = fixture.store.approval_queries().grants(None, &OwnerFilter::Everyone).await.unwrap();
    assert_eq!((grants.len(), grants[0].shape.as_str(), grants[0].uses), (1, "write_file", 1));
    fixture.clock.0.fetch_add(3_600_000, Ordering::Relaxed);
    propose(&broker, "write_file", write(5, "src/d.rs")).await;
}

// A5: approving any other call gives its caller a voucher, used once
#[tokio::test]
async fn approved_call_is_run_once_by_its_caller() {
    let rules = "approvals:\n  rules:\n    - {id: ask-docs, paths: [docs/**], decision: ask}\n";
    let mut fixture = Fixture::new(&format!("{DEV}{rules}"));
    let broker = fixture.broker();
    let read = json!({"path": "docs/guide.md"});
    let request = propose(&broker, "read_file", read.clone()).await;
    assert!(!request.to_string().contains("read me"));
    assert_eq!(
        id(&propose(&broker, "read_file", read.clone()).await),
        id(&request),
        "one approval request per call"
    );
    let own = ApprovalChoice::once_for_own_call;
    assert!(broker.approve(&id(&request), own(), &ada()).await.unwrap().is_none());
    let answer = call(&broker, "read_file", read.clone()).await;
    assert_eq!(answer["status"], "success", "{answer}");
    assert!(answer["data"]["content"].as_str().unwrap().contains("read me"), "{answer}");
    assert_eq!(answer["metadata"]["call_id"], request["metadata"]["call_id"]);
    let next = propose(&broker, "read_file", read.clone()).await;
    assert_ne!(id(&next), id(&request));
    // An unused approval expires, and the next call needs another.
    broker.approve(&id(&next), own(), &ada()).await.unwrap();
    fixture.clock.0.fetch_add(600_000, Ordering::Relaxed);
    assert_eq!(call(&broker, "read_file", read.clone()).await["error"]["code"], "ApprovalTimeout");
    let fresh = propose(&broker, "read_file", read).await;
    assert_ne!(id(&fresh), id(&next));
}

// A12: an approver can neither decide nor see the requests of another user
#[tokio::test]
async fn request_of_another_user_is_not_found() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let answer = propose(&broker, "write_file", json!({"path": "a.txt", "content": "a"})).await;
    let eve = Approver::of_client("eve", "x", SigningKey::new("client/x", KeyKind::Log, &[9; 32]).unwrap());
    let error = broker.approve(&id(&answer), ApprovalChoice::once(), &eve).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalNotFound);
    let error = broker.reject(&id(&answer), None, &eve).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProposalNotFound);
}

/// The approver who holds a token.
async fn token_of(fixture: &Fixture, kind: TokenKind, user: &str) -> Approver {
    let (token, now) = (AccessToken::make().unwrap(), fixture.clock.now());
    let text = |text: &str| Redacted::text(text, &OneSecret).unwrap();
    let row = TokenRow {
        id: token.id.clone(),
        kind,
        name: text("a token"),
        tenant: text(vambrace_core::principal::DEFAULT_TENANT),
        user: text(user),
        hash: token.hash(),
        key: Some(token.key().unwrap().verify_key()),
        created: now,
        expires: None,
        revoked: None,
    };
    let change = ApprovalChange::Token(row).into();
    fixture.store.commit(Batch::durable(Vec::new(), vec![change])).await.unwrap();
    Approver::of_token(&token, fixture.store.approval_queries(), now).await.unwrap()
}

// A12: an administrator decides about nothing of another user, and like any approver about what belongs to its own
#[tokio::test]
async fn administrator_decides_only_for_its_own_user() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let carol = token_of(&fixture, TokenKind::Admin, "carol").await;
    assert!(carol.administers());
    let approver = token_of(&fixture, TokenKind::Approver, "carol").await;
    assert!(!approver.administers());
    let open = id(&propose(&broker, "write_file", json!({"path": "a.txt", "content": "a\n"})).await);
    let done = id(&propose(&broker, "write_file", json!({"path": "b.txt", "content": "b\n"})).await);
    broker.approve(&done, ApprovalChoice::once(), &ada()).await.unwrap();
    // The administrator may know that it exists; an approver of another user may not.
    for (other, code) in [(&carol, ErrorCode::PermissionDenied), (&approver, ErrorCode::ProposalNotFound)] {
        let errors = [
            broker.approve(&open, ApprovalChoice::once(), other).await.unwrap_err(),
            broker.reject(&open, None, other).await.unwrap_err(),
            broker.preview(&open, Amendment::Whole, other).await.unwrap_err(),
            broker.proposed_content(&open, "a.txt", other).await.unwrap_err(),
            broker.rollback(&done, other).await.unwrap_err(),
        ];
        assert_eq!(errors.map(|error| error.code), [code; 5]);
    }
    let unknown = broker.approve("hitl-none", ApprovalChoice::once(), &carol).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::ProposalNotFound);
    assert_eq!((file(&fixture, "a.txt"), file(&fixture, "b.txt").as_deref()), (None, Some("b\n")));
    let own = token_of(&fixture, TokenKind::Admin, "ada").await;
    broker.approve(&open, ApprovalChoice::once(), &own).await.unwrap().unwrap();
    broker.rollback(&done, &own).await.unwrap();
    assert_eq!((file(&fixture, "a.txt").as_deref(), file(&fixture, "b.txt")), (Some("a\n"), None));
}

// The owner of the approver key rolls back a change of another user: in its session, and the decision names the approver
#[tokio::test]
async fn directory_owner_rolls_back_the_change_of_another_user() {
    let mut fixture = Fixture::new(DEV);
    let broker = fixture.broker();
    let done = id(&propose(&broker, "write_file", json!({"path": "b.txt", "content": "b\n"})).await);
    let root = Approver::of_key("root", ada_key());
    broker.approve(&done, ApprovalChoice::once(), &root).await.unwrap().unwrap();
    broker.rollback(&done, &root).await.unwrap();
    assert_eq!(file(&fixture, "b.txt"), None);
    let records = fixture.records().await;
    let decided = records.iter().rfind(|record| record["event_type"] == "approval.rollback").unwrap();
    assert_eq!(decided["user"], "ada");
    assert!(decided["message"].as_str().unwrap().starts_with("by root "), "{decided}");
}
