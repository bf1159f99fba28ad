//! `vambrace sandbox run` as a call of the local user: rules, approvals and records.

use serde_json::Value;

use crate::home::Home;
use crate::mcp::Server;

fn records_of_runs(home: &Home) -> Vec<Value> {
    home.records().into_iter().filter(|record| record["tool_name"] == "sandbox_run").collect()
}

fn rule(decision: &str) -> String {
    format!(
        "approvals: {{rules: [{{id: no-touch, tools: [execute_command], commands: [touch], decision: {decision}}}]}}"
    )
}

// P9, T20: start and end are in the ledger and on the timeline, with the sandbox and its tier
#[test]
fn run_without_a_project_is_recorded() {
    let home = Home::bare();
    let ran = home.run(["sandbox", "run", "--json", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let records = records_of_runs(&home);
    let ops: Vec<&str> = records.iter().map(|record| record["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["tool.start", "tool.end"], "{records:?}");
    for record in &records {
        assert_eq!(record["execution_environment"], "sandbox", "{record}");
        assert_eq!((&record["role"], &record["verdict"]), (&"user".into(), &"allow".into()), "{record}");
    }
    assert_eq!(records[0]["tool_args"]["args"][1], "exit 3", "{}", records[0]);
    assert_eq!(records[1]["sandbox_tier"], ran.json()["sandbox_tier"], "{}", records[1]);
    assert_eq!(records[1]["message"], "exit code 3", "{}", records[1]);
    let call = records[0]["execution_id"].as_str().unwrap();
    let timeline = home.run(["timeline", call, "--json"]);
    for word in ["\"sandbox\"", "\"enforce\"", "\"check\""] {
        assert!(timeline.out.contains(word), "{word}: {timeline:?}");
    }
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// A5: a rule of the user holds for the user's own run, and the denial is recorded
#[test]
fn denied_run_exits_125_with_the_code_and_starts_nothing() {
    let home = Home::bare();
    home.user_config(&rule("deny"));
    let touch = ["sandbox", "run", "--filesystem", "readwrite", "--", "touch", "made"];
    let ran = home.run(touch);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("CommandNotAllowed") && ran.err.contains("config.yaml:1"), "{}", ran.err);
    let mut json = touch.to_vec();
    json.insert(2, "--json");
    let ran = home.run(json);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (125, &"CommandNotAllowed".into()), "{ran:?}");
    assert!(!home.project().join("made").exists());
    let records = records_of_runs(&home);
    assert!(records.iter().all(|record| record["status"] == "denied"), "{records:?}");
    assert_eq!(home.run(["sandbox", "run", "--", "true"]).code, 0, "the rule is about one command");
}

// A5: without a terminal nobody can answer, so the run is denied
#[test]
fn run_that_a_rule_asks_about_is_denied_without_a_terminal() {
    let home = Home::bare();
    home.user_config(&rule("ask"));
    let ran = home.run(["sandbox", "run", "--filesystem", "readwrite", "--", "touch", "made"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("ApprovalRejected"), "{}", ran.err);
    assert!(!home.project().join("made").exists());
    assert!(!home.run(["approvals", "list", "--json"]).out.contains("hitl-"));
}

// T20: a damaged configuration denies the run
#[test]
fn damaged_configuration_denies_the_run() {
    let home = Home::bare();
    home.user_config("limits: {read_byts: 5}");
    let ran = home.run(["sandbox", "run", "--", "true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("read_byts"), "{}", ran.err);
}

// B5: each written file has a record with its hashes
#[test]
fn written_files_are_recorded() {
    let home = Home::bare();
    let script = "echo changed > docs/guide.md; echo new > docs/new.md";
    let ran = home.run(["sandbox", "run", "--filesystem", "readwrite", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let written: Vec<Value> =
        records_of_runs(&home).into_iter().filter(|record| record["op"] == "write_file_apply").collect();
    let paths: Vec<&str> = written.iter().map(|record| record["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["docs/guide.md", "docs/new.md"], "{written:?}");
    assert!(written[0]["before_hash"].is_string() && written[0]["after_hash"].is_string(), "{}", written[0]);
    assert_eq!(written[1]["created"], true, "{}", written[1]);
}

// P11: a rule about files holds inside the program, for the user as well
#[test]
fn rule_about_files_hides_them_from_the_program() {
    let home = Home::bare();
    home.user_config("approvals: {rules: [{paths: ['docs/**'], decision: deny}]}");
    let ran = home.run(["sandbox", "run", "--", "sh", "-c", "cat docs/guide.md src/main.rs"]);
    assert!(ran.out.contains("fn main") && !ran.out.contains("Guide"), "{ran:?}");
}

// S3: the tool is the user's alone
#[test]
fn agents_cannot_call_the_users_run() {
    let home = Home::new();
    let (code, answer) = home.call("sandbox_run", r#"{"command": "true"}"#);
    assert_eq!((code, &answer["error"]["code"]), (2, &"UnknownTool".into()), "{answer}");
    let mut server = Server::greeted(&home, &[]);
    let listed = server.ask("tools/list", serde_json::json!({}));
    assert!(!listed.to_string().contains("sandbox_run"), "{listed}");
}
