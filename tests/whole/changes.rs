//! File changes through the binary: the whole proposal workflow at the command line, the config.json scenario, credentials, MCP.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::home::{Home, Ran, file_containing};
use crate::mcp::Server;

pub(crate) const PHRASE: &str = "correct horse battery";

pub(crate) fn decide(home: &Home, args: &[&str]) -> Ran {
    with(home, &[("VAMBRACE_PASSPHRASE", PHRASE)], args)
}

fn with(home: &Home, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = home.command(args);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

pub(crate) fn read(home: &Home, path: &str) -> Option<String> {
    std::fs::read_to_string(home.project().join(path)).ok()
}

pub(crate) fn propose(home: &Home, tool: &str, args: Value) -> String {
    let (code, answer) = home.call(tool, &args.to_string());
    assert_eq!((code, answer["details"]["status"].as_str()), (3, Some("hitl_required")), "{answer}");
    answer["details"]["hitl"]["hitl_id"].as_str().unwrap().to_owned()
}

// B6, B3, A14: propose, show, approve, apply, roll back; all records are there and the ledger verifies
#[test]
fn whole_workflow_at_the_command_line() {
    let home = Home::new();
    let id = propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
    assert_eq!(read(&home, "src/new.rs"), None);
    let listed = home.run(["approvals", "list", "--json"]).json();
    assert_eq!(listed[0]["id"].as_str(), Some(id.as_str()));
    assert_eq!((listed[0]["risk"].as_str(), listed[0]["state"].as_str()), (Some("MEDIUM"), Some("pending")));
    let shown = home.run(["approvals", "show", &id]);
    for words in ["CREATE FILE src/new.rs", "+fn new() {}", "command-line", "s left", "approve  "] {
        assert!(shown.out.contains(words), "{words}: {shown:?}");
    }
    let applied = decide(&home, &["approvals", "approve", &id, "--json"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(applied.json()["details"]["op"]["method"], "fs.apply_patch");
    assert_eq!(applied.json()["tool_name"], "write_file");
    assert_eq!(read(&home, "src/new.rs").as_deref(), Some("fn new() {}\n"));
    let again = decide(&home, &["proposals", "apply", &id, "--json"]);
    assert_eq!((again.code, again.json()["error"]["code"].as_str()), (4, Some("ProposalUsed")), "{again:?}");
    let back = decide(&home, &["proposals", "rollback", &id]);
    assert_eq!(back.code, 0, "{back:?}");
    assert_eq!(read(&home, "src/new.rs"), None);
    let proposals = home.run(["proposals", "list", "--json"]).json();
    assert_eq!(
        (proposals[1]["state"].as_str(), proposals[0]["undoes"].as_str()),
        (Some("rolled_back"), Some(id.as_str()))
    );
    let ops: Vec<String> =
        home.records().iter().map(|record| record["op"].as_str().unwrap().to_owned()).collect();
    for op in ["write_file_propose", "tool.approval", "tool.start", "write_file_apply"] {
        assert!(ops.iter().any(|found| found == op), "{op}: {ops:?}");
    }
    let verified = home.run(["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

// B6: the end of an id is enough; a wrong one is reported
#[test]
fn ids_are_found_by_their_end() {
    let home = Home::new();
    let id = propose(&home, "write_file", json!({"path": "a.txt", "content": "a\n"}));
    let end: String = id.chars().skip(id.len() - 12).collect();
    assert_eq!(decide(&home, &["approvals", "approve", &end]).code, 0);
    assert_eq!(read(&home, "a.txt").as_deref(), Some("a\n"));
    let none = home.run(["approvals", "show", "hitl-nope", "--json"]);
    assert_eq!((none.code, none.json()["error"]["code"].as_str()), (4, Some("ProposalNotFound")));
}

// Rejection: nothing changes, the agent gets the reason, and the proposal cannot be used again
#[test]
fn rejected_proposal_changes_nothing_and_the_agent_gets_the_reason() {
    let home = Home::new();
    home.write("src/kept.rs", "old\n");
    let args = json!({"path": "src/kept.rs", "content": "new\n"});
    let id = propose(&home, "write_file", args.clone());
    assert_eq!(decide(&home, &["proposals", "reject", &id, "--reason", "keep it"]).code, 0);
    assert_eq!(read(&home, "src/kept.rs").as_deref(), Some("old\n"));
    let (code, heard) = home.call("write_file", &args.to_string());
    assert_eq!((code, heard["error"]["code"].as_str()), (4, Some("ApprovalRejected")), "{heard}");
    assert!(heard["error"]["message"].as_str().unwrap().contains("keep it"), "{heard}");
    let late = decide(&home, &["proposals", "apply", &id, "--json"]);
    assert_eq!((late.code, late.json()["error"]["code"].as_str()), (4, Some("ProposalUsed")), "{late:?}");
    assert_eq!(read(&home, "src/kept.rs").as_deref(), Some("old\n"));
    let rejected =
        home.records().into_iter().filter(|record| record["event_type"] == "approval.rejected").count();
    assert_eq!(rejected, 1);
}

// Modification: approved with its path, denied with another path or if the file has changed
#[test]
fn existing_file_is_modified_only_with_its_path_and_while_unchanged() {
    let home = Home::new();
    home.write("src/kept.rs", "old\n");
    let id = propose(&home, "write_file", json!({"path": "src/kept.rs", "content": "new\n"}));
    let code = |ran: &Ran| ran.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    let other = decide(&home, &["proposals", "apply", &id, "--path", "src/main.rs", "--json"]);
    assert_eq!(code(&other), "PathMismatch", "{other:?}");
    let applied = decide(&home, &["proposals", "apply", &id, "--path", "src/kept.rs", "--json"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(read(&home, "src/kept.rs").as_deref(), Some("new\n"));
    let id = propose(&home, "write_file", json!({"path": "src/kept.rs", "content": "newer\n"}));
    home.write("src/kept.rs", "by hand\n");
    let stale = decide(&home, &["proposals", "apply", &id, "--json"]);
    assert_eq!(code(&stale), "StaleBase", "{stale:?}");
    assert_eq!(read(&home, "src/kept.rs").as_deref(), Some("by hand\n"));
}

// A13 scenario 2: a HIGH change is requested, shown, approved and applied; the waiting agent gets the result
#[test]
fn scenario_2_agent_changes_config_json_after_approval() {
    let home = Home::new();
    home.write("config.json", "{\"debug\": false}\n");
    let mut agent = home
        .command([
            "call",
            "tool_write_file",
            r#"{"path":"config.json","content":"{\"debug\": true}\n"}"#,
            "--wait",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = loop {
        let listed = home.run(["approvals", "list", "--json"]).json();
        if let Some(id) = listed[0]["id"].as_str() {
            assert_eq!(
                (listed[0]["risk"].as_str(), listed[0]["summary"].as_str()),
                (Some("HIGH"), Some("MODIFY config.json"))
            );
            assert!(listed[0]["seconds_left"].as_i64().unwrap() > 500, "deadline of HIGH requests: {listed}");
            break id.to_owned();
        }
        assert!(agent.try_wait().unwrap().is_none(), "the agent did not wait");
    };
    assert_eq!(read(&home, "config.json").as_deref(), Some("{\"debug\": false}\n"));
    assert_eq!(decide(&home, &["approvals", "approve", &id]).code, 0);
    let output = agent.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (answer["details"]["status"].as_str(), answer["data"]["applied"].as_bool()),
        (Some("allowed"), Some(true))
    );
    assert_eq!(read(&home, "config.json").as_deref(), Some("{\"debug\": true}\n"));
}

// A decision needs the approver key or an approver token; `--yes` is not a credential (docs/contract.md, Command line)
#[test]
fn only_the_approver_key_or_an_approver_token_can_decide() {
    let home = Home::new();
    let id = propose(&home, "write_file", json!({"path": "a.txt", "content": "a\n"}));
    for args in [
        vec!["approvals", "approve", &id, "--yes"],
        vec!["approvals", "reject", &id],
        vec!["proposals", "apply", &id, "--yes"],
        vec!["token", "create", "approver"],
    ] {
        let ran = home.run(&args);
        assert_eq!(ran.code, 4, "{args:?}: {ran:?}");
        assert!(ran.err.contains("VAMBRACE_PASSPHRASE"), "{ran:?}");
    }
    let token = |kind: &str| {
        let made = decide(&home, &["token", "create", kind, "--json"]).json();
        (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
    };
    for kind in ["agent", "runner"] {
        let (_, token) = token(kind);
        let ran = with(&home, &[("VAMBRACE_TOKEN", &token)], &["approvals", "approve", &id]);
        assert_eq!(ran.code, 4, "{kind}: {ran:?}");
    }
    let wrong = with(&home, &[("VAMBRACE_PASSPHRASE", "wrong")], &["approvals", "approve", &id]);
    assert_eq!(wrong.code, 4, "{wrong:?}");
    assert_eq!(read(&home, "a.txt"), None);
    let (approver, secret) = token("approver");
    // The random part may contain the separator too.
    let (_, random) = secret.split_once(&format!("{approver}_")).unwrap();
    assert_eq!(file_containing(&home.state(), random), None, "only the hash of a token is stored");
    let ran = with(&home, &[("VAMBRACE_TOKEN", &secret)], &["approvals", "approve", &id]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(read(&home, "a.txt").as_deref(), Some("a\n"));
    // An approver token can neither create nor revoke tokens.
    for args in [vec!["token", "create", "admin"], vec!["token", "revoke", &approver]] {
        let ran = with(&home, &[("VAMBRACE_TOKEN", &secret)], &args);
        assert_eq!(ran.code, 4, "{args:?}: {ran:?}");
    }
    assert_eq!(decide(&home, &["token", "revoke", &approver]).code, 0);
    let id = propose(&home, "write_file", json!({"path": "b.txt", "content": "b\n"}));
    let ran = with(&home, &[("VAMBRACE_TOKEN", &secret)], &["approvals", "approve", &id]);
    assert_eq!(ran.code, 4, "{ran:?}");
    let verified = home.run(["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    // After a change of the passphrase, the old one is not accepted.
    let changed = with(
        &home,
        &[("VAMBRACE_PASSPHRASE", PHRASE), ("VAMBRACE_NEW_PASSPHRASE", "another one")],
        &["approvals", "passphrase"],
    );
    assert_eq!(changed.code, 0, "{changed:?}");
    assert_eq!(decide(&home, &["approvals", "approve", &id]).code, 4);
    let file = home.path("phrase");
    std::fs::File::create(&file).unwrap().write_all(b"another one\n").unwrap();
    let ran =
        with(&home, &[("VAMBRACE_PASSPHRASE_FILE", file.to_str().unwrap())], &["approvals", "approve", &id]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

// The record names the approver; the passphrase is stored nowhere
#[test]
fn record_names_the_approver_and_no_passphrase_is_stored() {
    let home = Home::new();
    let id = propose(&home, "write_file", json!({"path": "a.txt", "content": "a\n"}));
    assert_eq!(decide(&home, &["approvals", "approve", &id]).code, 0);
    assert_eq!(home.run(["audit", "verify"]).code, 0);
    let approved =
        home.records().into_iter().find(|record| record["event_type"] == "approval.approved").unwrap();
    assert!(approved["message"].as_str().unwrap().contains("approver/ada"), "{approved}");
    assert_eq!(file_containing(&home.state(), PHRASE), None);
}

// `call --yes` approves its own request, with the approver key
#[test]
fn call_with_yes_is_approved_at_once() {
    let home = Home::new();
    let ran = decide(&home, &["call", "write_file", "path=y.txt", "content=y", "--yes", "--json"]);
    assert_eq!((ran.code, ran.json()["data"]["applied"].as_bool()), (0, Some(true)), "{ran:?}");
    let bare = home.run(["call", "write_file", "path=z.txt", "content=z", "--yes"]);
    assert_eq!(bare.code, 4, "{bare:?}");
    assert_eq!(read(&home, "z.txt"), None);
}

// A7: grants are listed and revoked
#[test]
fn grant_is_listed_and_revoked() {
    let home = Home::new();
    let id = propose(&home, "write_file", json!({"path": "src/a.rs", "content": "a\n"}));
    assert_eq!(decide(&home, &["approvals", "approve", &id, "--scope", "class"]).code, 0);
    let write = |path: &str| home.call("write_file", &json!({"path": path, "content": "x\n"}).to_string()).0;
    assert_eq!(write("src/b.rs"), 0);
    let grants = home.run(["grants", "list", "--json"]).json();
    assert_eq!((grants[0]["shape"].as_str(), grants[0]["uses"].as_u64()), (Some("write_file"), Some(1)));
    assert_eq!(home.run(["grants", "revoke", grants[0]["id"].as_str().unwrap()]).code, 4);
    assert_eq!(decide(&home, &["grants", "revoke", grants[0]["id"].as_str().unwrap()]).code, 0);
    assert_eq!(write("src/c.rs"), 3);
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// Counts in the user's configuration only, not in a project's
const CLIENTS: &str = "approvals: {trusted_clients: [tester]}\n";

fn greeted(home: &Home, capabilities: Value) -> Server {
    let mut server = Server::start(home, &[]);
    let info = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "tester", "version": "1"}});
    server.ask("initialize", info);
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    server
}

fn send(server: &mut Server, id: u32, path: &str, meta: Value) {
    let params = json!({"name": "write_file", "arguments": {"path": path, "content": "m\n"}, "_meta": meta});
    server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
}

fn form(server: &mut Server) -> (Value, Value) {
    let asked = server.receive().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    (asked["id"].clone(), asked["params"].clone())
}

// MCP client without forms and progress: it gets the id and repeats the call
#[test]
fn simple_client_gets_the_id_and_the_outcome_later() {
    let home = Home::new();
    let mut server = Server::greeted(&home, &[]);
    let args = json!({"path": "m.txt", "content": "m\n"});
    let answer = server.call("write_file", args.clone());
    let result = &answer["result"];
    assert_eq!(result["isError"], false, "{answer}");
    assert_eq!(result["structuredContent"]["details"]["status"], "hitl_required");
    let id = result["structuredContent"]["details"]["hitl"]["hitl_id"].as_str().unwrap().to_owned();
    assert!(result["content"][0]["text"].as_str().unwrap().contains(&id));
    assert_eq!(decide(&home, &["approvals", "approve", &id]).code, 0);
    let heard = server.call("write_file", args);
    assert_eq!(heard["result"]["structuredContent"]["data"]["applied"], true, "{heard}");
}

// MCP client with progress: it waits, and a decision in another process wakes it
#[test]
fn client_with_progress_waits_for_the_decision() {
    let home = Home::new();
    let mut server = Server::greeted(&home, &[]);
    send(&mut server, 7, "p.txt", json!({"progressToken": "t"}));
    let progress = server.receive().unwrap();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    let words = progress["params"]["message"].as_str().unwrap();
    let id = words.split(['(', ',']).find(|word| word.starts_with("hitl-")).unwrap().to_owned();
    assert_eq!(decide(&home, &["approvals", "reject", &id, "--reason", "not now"]).code, 0);
    let answer = loop {
        let message = server.receive().unwrap();
        if message["id"] == 7 {
            break message;
        }
    };
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "ApprovalRejected", "{answer}");
    assert!(error["message"].as_str().unwrap().contains("not now"));
}

// A12: a form of a client that the user trusts can decide
#[test]
fn form_of_a_trusted_client_decides() {
    let home = Home::new();
    home.user_config(CLIENTS);
    let mut server = greeted(&home, json!({"elicitation": {}}));
    send(&mut server, 7, "f.txt", json!({}));
    let (id, params) = form(&mut server);
    assert!(params["message"].as_str().unwrap().contains("CREATE FILE f.txt"), "{params}");
    let said = json!({"action": "accept", "content": {"decision": "approve"}});
    server.send(&json!({"jsonrpc": "2.0", "id": id, "result": said}).to_string());
    let answer = server.receive().unwrap();
    assert_eq!(answer["result"]["structuredContent"]["data"]["applied"], true, "{answer}");
    assert_eq!(read(&home, "f.txt").as_deref(), Some("m\n"));
    let approved =
        home.records().into_iter().find(|record| record["event_type"] == "approval.approved").unwrap();
    assert!(approved["message"].as_str().unwrap().contains("through the client `tester`"), "{approved}");
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// A5, A7: in a form too, a HIGH request needs the typed name, and a change that the form does not show cannot be approved
#[test]
fn form_needs_the_name_for_high_and_cannot_approve_a_truncated_change() {
    let home = Home::new();
    home.user_config(CLIENTS);
    let mut server = greeted(&home, json!({"elicitation": {}}));
    let mut said = |path: &str, content: &str, said: Value| {
        let params = json!({"name": "write_file", "arguments": {"path": path, "content": content}});
        server
            .send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string());
        let (id, shown) = form(&mut server);
        let result = json!({"action": "accept", "content": said});
        server.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
        let answer = server.receive().unwrap();
        (shown, answer["result"]["structuredContent"].clone())
    };
    for wrong in [json!({"decision": "approve"}), json!({"decision": "approve", "name": "yes"})] {
        let (shown, answer) = said("config.json", "{}\n", wrong);
        assert!(
            shown["requestedSchema"]["properties"]["name"]["title"].as_str().unwrap().contains("config.json")
        );
        assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
        assert_eq!(read(&home, "config.json"), None);
    }
    let (_, answer) = said("config.json", "{}\n", json!({"decision": "approve", "name": "config.json"}));
    assert_eq!(answer["data"]["applied"], true, "{answer}");
    let long = "a line that stands for many others\n".repeat(1000);
    let (shown, answer) = said("long.txt", &long, json!({"decision": "approve"}));
    assert!(shown["message"].as_str().unwrap().contains("too long for a form"), "{shown}");
    assert_eq!(answer["details"]["status"], "hitl_required", "{answer}");
    assert_eq!(read(&home, "long.txt"), None);
}

// A12: the form of any other client only explains how to decide; its response has no effect
#[test]
fn form_of_an_untrusted_client_decides_nothing() {
    for trusted_by_project in [false, true] {
        let home = if trusted_by_project {
            Home::with(&format!("roles: {{default: dev}}\n{CLIENTS}"))
        } else {
            Home::new()
        };
        let mut server = greeted(&home, json!({"elicitation": {}}));
        send(&mut server, 7, "f.txt", json!({}));
        let (id, params) = form(&mut server);
        assert!(params["message"].as_str().unwrap().contains("vambrace approvals approve hitl-"), "{params}");
        assert!(params["requestedSchema"]["properties"].get("decision").is_none());
        let said = json!({"action": "accept", "content": {"decision": "approve"}});
        server.send(&json!({"jsonrpc": "2.0", "id": id, "result": said}).to_string());
        let answer = server.receive().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["details"]["status"], "hitl_required", "{answer}");
        assert_eq!(read(&home, "f.txt"), None);
    }
}

/// A request of revision 2026-07-28, which carries the client information in every request.
fn modern(server: &mut Server, id: u32, more: Value) -> Value {
    let mut params = json!({
        "name": "write_file", "arguments": {"path": "i.txt", "content": "i\n"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        },
    });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    server.receive().unwrap()
}

// 2026-07-28: input_required, answered in the repeated call
#[test]
fn input_required_of_a_trusted_client_decides() {
    let home = Home::new();
    home.user_config(CLIENTS);
    let mut server = Server::start(&home, &[]);
    let asked = modern(&mut server, 1, json!({}));
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let state = result["requestState"].clone();
    assert!(state.as_str().unwrap().starts_with("hitl-"));
    assert!(
        result["inputRequests"]["decision"]["params"]["message"]
            .as_str()
            .unwrap()
            .contains("CREATE FILE i.txt")
    );
    let said = json!({"decision": {"action": "accept", "content": {"decision": "approve"}}});
    let answer = modern(&mut server, 2, json!({"requestState": state, "inputResponses": said}));
    assert_eq!(answer["result"]["structuredContent"]["data"]["applied"], true, "{answer}");
    assert_eq!(read(&home, "i.txt").as_deref(), Some("i\n"));
}

// T25: a response that is malformed, for another request, repeated or late decides nothing
#[test]
fn form_response_counts_once_and_only_for_its_request() {
    let home = Home::new();
    home.user_config(CLIENTS);
    let mut server = Server::start(&home, &[]);
    let other = json!({"path": "j.txt", "content": "j\n"});
    let state = |asked: Value| asked["result"]["requestState"].clone();
    let own = state(modern(&mut server, 1, json!({})));
    let others = state(modern(&mut server, 2, json!({"arguments": other})));
    let said = json!({"action": "accept", "content": {"decision": "approve"}});
    let crossed = json!({"requestState": others, "inputResponses": {"decision": said}});
    let answer = modern(&mut server, 3, crossed);
    assert_eq!(answer["result"]["structuredContent"]["details"]["status"], "hitl_required", "{answer}");
    for bad in [
        json!("approve"),
        json!({"action": "accept"}),
        json!({"action": "agree", "content": {"decision": "approve"}}),
        json!({"action": "accept", "content": {"decision": ["approve"]}}),
        json!({"action": "cancel", "content": {"decision": "approve"}}),
    ] {
        modern(&mut server, 4, json!({"requestState": own, "inputResponses": {"decision": bad}}));
    }
    assert_eq!((read(&home, "i.txt"), read(&home, "j.txt")), (None, None));
    // Too late: the request was decided elsewhere.
    let id = others.as_str().unwrap();
    assert_eq!(decide(&home, &["approvals", "reject", id, "--reason", "no"]).code, 0);
    let late = json!({"arguments": other, "requestState": others, "inputResponses": {"decision": said}});
    let answer = modern(&mut server, 5, late);
    assert_eq!(answer["result"]["structuredContent"]["error"]["code"], "ApprovalRejected", "{answer}");
    for round in [6, 7] {
        modern(&mut server, round, json!({"requestState": own, "inputResponses": {"decision": said}}));
        assert_eq!(read(&home, "i.txt").as_deref(), Some("i\n"));
    }
    let applied = home.records().iter().filter(|record| record["op"] == "write_file_apply").count();
    assert_eq!((applied, read(&home, "j.txt")), (1, None));
}

// If there is an approver key, trusting a configuration needs it (docs/contract.md, Command line)
#[test]
fn trust_needs_the_approver_key_if_there_is_one() {
    let home = Home::new();
    assert_eq!(decide(&home, &["call", "write_file", "path=a.txt", "content=a", "--yes"]).code, 0);
    home.write(".vambrace/config.yaml", "roles: {default: dev}\nlimits: {read_bytes: 100}\n");
    let bare = home.run(["trust", "--yes"]);
    assert_eq!(bare.code, 4, "{bare:?}");
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 4);
    assert_eq!(decide(&home, &["trust", "--yes"]).code, 0);
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
    let trusted = home.records().into_iter().rfind(|record| record["event_type"] == "policy.trust").unwrap();
    assert!(trusted["note"].as_str().unwrap().contains("decision trust"), "{trusted}");
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// T7: existing lines can complete a secret, like added ones
#[test]
fn secret_completed_by_existing_lines_is_denied() {
    let home = Home::new();
    let body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz\n".repeat(6);
    let (first, last) =
        (format!("-----BEGIN {} KEY-----\n", "PRIVATE"), format!("-----END {} KEY-----\n", "PRIVATE"));
    let refused = |path: &str, content: &str, tool: &str, args: Value| {
        home.write(path, content);
        let (code, answer) = home.call(tool, &args.to_string());
        assert_eq!(answer["error"]["code"], "SecretInContent", "{code} {answer}");
        assert_eq!(read(&home, path).as_deref(), Some(content));
    };
    // The BEGIN line is added above an existing body.
    let edit = |spec: &str, operation: &str, content: &str| json!({"path": "src/k.txt", "edits": [{"operation": operation, "spec": spec, "content": content}]});
    let args = edit("# here\n", "append_after", &first);
    refused("src/k.txt", &format!("# here\n{body}"), "edit_file", args);
    // The line between them is removed; nothing is added.
    let args = edit("not a key\n", "delete", "");
    refused("src/k.txt", &format!("{first}not a key\n{body}{last}"), "edit_file", args);
    // A placeholder in another spelling.
    let args = edit("secret: x\n", "replace", "secret: [redacted:env:0123abcd]\n");
    refused("src/k.txt", "secret: x\n", "edit_file", args);
    // An existing secret may stay next to other changes.
    home.write("src/k.txt", &format!("a\n{first}{body}{last}"));
    propose(&home, "edit_file", edit("a\n", "replace", "b\n"));
}

// A12
#[test]
fn expired_token_is_listed_as_expired() {
    let home = Home::new();
    let made = |days: &str| decide(&home, &["token", "create", "approver", "--days", days, "--json"]).json();
    let (over, counts) = (made("0")["id"].clone(), made("1")["id"].clone());
    let listed = home.run(["token", "list", "--json"]).json();
    for row in listed.as_array().unwrap() {
        let expected = if row["id"] == over { "expired" } else { "counts" };
        assert_eq!(row["state"], expected, "{row}");
    }
    let out = home.run(["token", "list"]).out;
    let state = |id: &Value| {
        let line = out.lines().find(|line| line.starts_with(id.as_str().unwrap())).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((state(&over), state(&counts)), ("expired".to_owned(), "counts".to_owned()));
}
