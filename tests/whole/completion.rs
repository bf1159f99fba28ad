//! After a decision, with real processes: the process in which the caller waits performs; if it was killed, the process that
//! decides does.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::changes::{decide, read};
use crate::home::Home;

/// `vambrace call --wait` that waits, and the id of its approval request.
fn waiting(home: &Home, path: &str) -> (Child, String) {
    let args = json!({"path": path, "content": "new\n"}).to_string();
    let mut child = home
        .command(["call", "write_file", &args, "--wait=120"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting for approval"), "{line}");
    let request = line.split(['(', ',']).find(|word| word.starts_with("hitl-")).unwrap().to_owned();
    (child, request)
}

fn count(home: &Home, op: &str) -> usize {
    home.records().iter().filter(|record| record["op"] == op).count()
}

fn state(home: &Home, request: &str) -> Value {
    let rows = home.run(["proposals", "list", "--json"]).json();
    rows.as_array().unwrap().iter().find(|row| row["id"] == request).unwrap()["state"].clone()
}

// A8, DESIGN 2: approved by another process while the call waits
#[test]
fn waiting_call_is_performed_by_its_own_process() {
    let home = Home::new();
    let (child, request) = waiting(&home, "a.txt");
    let approved = decide(&home, &["approvals", "approve", &request]);
    assert_eq!(approved.code, 0, "{approved:?}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("applied"), "{output:?}");
    assert_eq!(read(&home, "a.txt").as_deref(), Some("new\n"));
    assert_eq!((count(&home, "tool.start"), count(&home, "write_file_apply")), (1, 1));
    assert_eq!(state(&home, &request), "applied");
    // Decision and start are two commits: the process that performs is not the one that decided.
    let records = home.records();
    let at = |word: &str| records.iter().position(|record| record["event_type"] == word).unwrap();
    assert!(at("approval.approved") < at("tool.start"));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// A8: the waiting process is killed: the decision is not lost, and the caller that comes back gets the result
#[test]
fn killed_call_is_performed_by_the_process_that_decides() {
    let home = Home::new();
    let (mut child, request) = waiting(&home, "a.txt");
    child.kill().unwrap();
    child.wait().unwrap();
    let approved = decide(&home, &["approvals", "approve", &request, "--json"]);
    assert_eq!(
        (approved.code, approved.json()["data"]["applied"].as_bool()),
        (0, Some(true)),
        "{approved:?}"
    );
    assert_eq!(read(&home, "a.txt").as_deref(), Some("new\n"));
    let (code, answer) = home.call("write_file", &json!({"path": "a.txt", "content": "new\n"}).to_string());
    assert_eq!((code, answer["data"]["applied"].as_bool()), (0, Some(true)), "{answer}");
    assert_eq!((count(&home, "tool.start"), count(&home, "write_file_apply")), (1, 1));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// A8, T20: a rule that is added while the call waits holds: what is performed is judged by today's policy
#[test]
fn rule_added_during_the_wait_denies_the_approved_call() {
    for config in
        ["approvals: {rules: [{tools: [write_file], decision: deny}]}\n", "limits: {read_byts: 1}\n"]
    {
        let home = Home::new();
        let (child, request) = waiting(&home, "a.txt");
        home.user_config(config);
        let approved = decide(&home, &["approvals", "approve", &request]);
        assert_ne!(approved.code, 0, "{config}: {approved:?}");
        drop(child.wait_with_output().unwrap());
        assert_eq!(read(&home, "a.txt"), None, "{config}");
        home.user_config("");
        assert_eq!(count(&home, "write_file_apply"), 0, "{config}");
    }
}
