//! The server is killed repeatedly; every record it acknowledged is in the ledger afterwards.

use std::collections::BTreeSet;

use serde_json::json;

use crate::home::Home;
use crate::mcp::Server;

const KILLS: usize = 200;

// B5: at least 200 kills, no acknowledged record lost, one chain over all of them
#[test]
fn no_acknowledged_record_is_lost_when_the_server_is_killed() {
    let home = Home::new();
    let mut acknowledged = BTreeSet::new();
    for round in 0..KILLS {
        let mut server = Server::greeted(&home, &[]);
        let mut note = |answer: &serde_json::Value| {
            let hash = &answer["result"]["structuredContent"]["details"]["audit"]["event_hash"];
            acknowledged.insert(hash.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
        };
        let calls = 1 + round % 7;
        for id in 0..calls + 3 {
            let args = json!({"path": if id % 4 == 3 { "../x" } else { "src/main.rs" }});
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "read_file", "arguments": args}});
            server.send(&call.to_string());
        }
        for _ in 0..calls {
            note(&server.receive().unwrap());
        }
        // The other calls are in progress.
        server.child.kill().unwrap();
        while let Some(answer) = server.receive() {
            note(&answer);
        }
        server.child.wait().unwrap();
    }
    let kept: BTreeSet<String> =
        home.records().iter().map(|record| record["event_hash"].as_str().unwrap().to_owned()).collect();
    let lost: Vec<&String> = acknowledged.difference(&kept).collect();
    assert!(lost.is_empty(), "{} of {} lost", lost.len(), acknowledged.len());
    let ran = home.run(["audit", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

const CHANGES: usize = 500;

/// Pseudo-random numbers, the same in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn change(number: usize) -> (serde_json::Value, Vec<(String, String)>) {
    let names: &[&str] = if number.is_multiple_of(3) { &["a", "b", "c"] } else { &["a"] };
    let files: Vec<(String, String)> = names
        .iter()
        .map(|name| (format!("src/g{number}/{name}.txt"), format!("{name} of {number}\n").repeat(200)))
        .collect();
    let call = match files.as_slice() {
        [(path, content)] => json!({"name": "write_file", "arguments": {"path": path, "content": content}}),
        several => {
            let section = |(path, content): &(String, String)| {
                let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
                format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{} @@\n{lines}", content.lines().count())
            };
            let patch: String = several.iter().map(section).collect();
            json!({"name": "apply_patch", "arguments": {"patch": patch}})
        }
    };
    (call, files)
}

// A8, B7: 500 proposals and applies, single and batch, killed at random: nothing half-applied, no decision lost
#[test]
fn no_change_is_half_applied_and_no_decision_lost_when_the_server_is_killed() {
    let home = Home::new();
    home.user_config("approvals: {trusted_clients: [tester], proposal_ttl_sec: 86400}\n");
    let mut random = Lcg(5);
    let mut acknowledged = Vec::new();
    let (mut number, mut kills) = (0, 0);
    while number < CHANGES {
        let mut server = Server::start(&home, &[]);
        let info = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "tester", "version": "1"}});
        server.ask("initialize", info);
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let whole = random.below(12);
        let phase = random.below(3);
        for call in 0..=whole {
            let last = call == whole;
            let (params, _) = change(number);
            let id = number;
            number += 1;
            server.send(
                &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string(),
            );
            if last && phase == 0 {
                break;
            }
            let form = server.receive().unwrap();
            assert_eq!(form["method"], "elicitation/create", "{form}");
            if last && phase == 1 {
                break;
            }
            let decision = json!({"action": "accept", "content": {"decision": "approve"}});
            server.send(&json!({"jsonrpc": "2.0", "id": form["id"], "result": decision}).to_string());
            if last {
                break;
            }
            let answer = server.receive().unwrap();
            assert_eq!(answer["result"]["structuredContent"]["data"]["applied"], true, "{answer}");
            acknowledged.push(id);
        }
        // Kill somewhere between the approval request and the end of its change.
        for _ in 0..random.below(400_000) {
            std::hint::black_box(());
        }
        server.child.kill().unwrap();
        kills += 1;
        while let Some(answer) = server.receive() {
            if answer["result"]["structuredContent"]["data"]["applied"] == true {
                acknowledged.push(usize::try_from(answer["id"].as_u64().unwrap()).unwrap());
            }
        }
        server.child.wait().unwrap();
    }
    // The next start completes or fails unfinished proposals.
    assert_eq!(home.run(["call", "read_file", "path=src/main.rs"]).code, 0);
    let proposals = home.run(["proposals", "list", "--limit", "100000", "--json"]).json();
    let states: std::collections::BTreeMap<String, String> = proposals
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["path"].as_str().unwrap().to_owned(), row["state"].as_str().unwrap().to_owned()))
        .collect();
    let mut applied = 0;
    for number in 0..number {
        let (_, files) = change(number);
        let there: Vec<bool> = files
            .iter()
            .map(|(path, content)| match std::fs::read_to_string(home.project().join(path)) {
                Ok(found) => {
                    assert_eq!(found, *content, "{path} is half written");
                    true
                }
                Err(_) => false,
            })
            .collect();
        let whole = there.iter().all(|there| *there);
        assert!(whole || there.iter().all(|there| !there), "change {number} is half applied: {there:?}");
        let state = states.get(&files[0].0).map(String::as_str);
        match state {
            Some("applied") => assert!(whole, "change {number} is recorded as applied but is not"),
            Some("pending" | "failed") | None => {
                assert!(!whole, "change {number} is {state:?} but is on disk")
            }
            other => panic!("change {number} is {other:?}"),
        }
        applied += usize::from(whole);
        assert!(whole || !acknowledged.contains(&number), "change {number} was acknowledged and is lost");
    }
    assert!(applied >= acknowledged.len() && kills > 50, "{applied} {} {kills}", acknowledged.len());
    assert!(applied > CHANGES / 2);
    let ran = home.run(["audit", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}
