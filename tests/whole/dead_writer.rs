//! Calls whose process ended: each start in the ledger gets its end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::home::Home;
use crate::mcp::Server;

const POLICY: &str = "roles: {default: dev}\n";

fn records_of(home: &Home, tool: &str) -> Vec<Value> {
    home.records().into_iter().filter(|record| record["tool_name"] == tool).collect()
}

fn ops(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["op"].as_str().unwrap()).collect()
}

// B5: kill -9 leaves a start; the next process on the state directory records that the outcome is unknown, once
#[test]
fn call_of_a_killed_process_gets_an_end_with_unknown_outcome() {
    let home = Home::with(POLICY);
    let script = "echo started; exec sleep 600";
    let mut run = home.command(["sandbox", "run", "--", "sh", "-c", script]);
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    // Another process leaves a call alone that still runs.
    assert_eq!(home.call("read_file", &json!({"path": "docs/guide.md"}).to_string()).1["status"], "success");
    assert_eq!(ops(&records_of(&home, "sandbox_run")), ["tool.start"]);

    run.kill().unwrap();
    run.wait().unwrap();
    for _ in 0..2 {
        home.call("read_file", &json!({"path": "docs/guide.md"}).to_string());
        let records = records_of(&home, "sandbox_run");
        assert_eq!(ops(&records), ["tool.start", "tool.end"], "{records:?}");
        assert_eq!(records[0]["execution_id"], records[1]["execution_id"]);
        let end = (&records[1]["status"], &records[1]["error_code"]);
        assert_eq!(end, (&"unknown".into(), &"OutcomeUnknown".into()), "{}", records[1]);
    }
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// B5: a server that is terminated cancels its calls and records their ends
#[test]
fn terminated_server_records_the_end_of_its_calls() {
    let home = Home::with(POLICY);
    for signal in ["-TERM", "-HUP"] {
        let before = records_of(&home, "execute_command").len();
        let mut server = Server::greeted(&home, &[]);
        let arguments = json!({"command": "tail", "args": ["-f", "docs/guide.md"], "timeout": 600});
        let params = json!({"name": "execute_command", "arguments": arguments});
        server
            .send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).to_string());
        while records_of(&home, "execute_command").len() == before {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended by itself");
        }
        let sent = std::process::Command::new("kill").args([signal, &server.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        server.child.wait().unwrap();
        let records = records_of(&home, "execute_command").split_off(before);
        assert_eq!(ops(&records), ["tool.start", "tool.end"], "{signal}: {records:?}");
        assert_ne!(records[1]["error_code"], "OutcomeUnknown", "{signal}: {records:?}");
    }
}
