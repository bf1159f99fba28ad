//! The server is killed again and again; whatever it acknowledged is in the ledger afterwards.

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
        // The rest is under way: somewhere between its start and its end.
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
