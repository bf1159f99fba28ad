//! Payloads, the arguments that are too large for a record: stored, shown, forgotten.

use serde_json::{Value, json};

use crate::home::{CANARY, Home, file_containing};
use crate::mcp::Server;

/// A call whose arguments do not fit, and the record of it.
fn large(home: &Home, mark: &str) -> Value {
    let args = json!({"path": "src/main.rs", "extra": mark.repeat(20_000 / mark.len())});
    home.run(["call", "read_file", &args.to_string()]);
    home.records().pop().unwrap()
}

fn seq(record: &Value) -> String {
    record["seq"].to_string()
}

// B5
#[test]
fn large_arguments_are_stored_shown_and_forgotten_for_good() {
    let home = Home::new();
    let record = large(&home, "private-matter ");
    let payload = &record["payloads"][0];
    assert_eq!(
        (payload["field"].as_str(), payload["kept"].as_u64()),
        (Some("tool_args"), payload["bytes"].as_u64())
    );
    assert_eq!(record["tool_args"]["truncated"], true);
    let (seq, commitment) = (seq(&record), payload["commitment"].as_str().unwrap());
    for which in [seq.as_str(), commitment, commitment.trim_start_matches("sha256:")] {
        let ran = home.run(["audit", "payload", which]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.json()["path"], "src/main.rs");
        assert!(ran.out.contains("private-matter"));
    }
    assert_eq!(home.run(["audit", "verify"]).code, 0);
    assert!(file_containing(&home.state(), "private-matter").is_some());
    // Not without confirmation.
    assert_eq!(home.run(["audit", "forget", &seq]).code, 2);
    assert!(file_containing(&home.state(), "private-matter").is_some());

    let ran = home.run(["audit", "forget", &seq, "--yes", "--json"]);
    assert_eq!(
        (ran.code, ran.json()["forgotten"][0]["commitment"].as_str()),
        (0, Some(commitment)),
        "{ran:?}"
    );
    assert_eq!(file_containing(&home.state(), "private-matter"), None);
    let last = home.records().pop().unwrap();
    assert_eq!((last["op"].as_str(), last["user"].as_str()), (Some("payload.forgotten"), Some("ada")));
    assert_eq!(last["forgotten"], json!({"seq": record["seq"], "commitment": commitment}));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
    for which in [seq.as_str(), commitment] {
        let ran = home.run(["audit", "payload", which]);
        assert_eq!(ran.code, 5, "{ran:?}");
        assert!(ran.err.contains("deleted by ada"), "{ran:?}");
        // Repeating it is not an error and writes no second record.
        assert_eq!(home.run(["audit", "forget", which, "--yes"]).code, 0);
    }
    assert_eq!(home.records().len().to_string(), last["seq"].to_string());
}

// B5
#[test]
fn old_payloads_are_forgotten_together_while_a_server_runs() {
    let home = Home::new();
    let mut server = Server::greeted(&home, &[]);
    for mark in ["first-mark ", "second-mark ", "third-mark "] {
        large(&home, mark);
    }
    assert_eq!(home.run(["audit", "forget", "--before", "2020-01-01", "--yes"]).code, 0);
    assert!(file_containing(&home.state(), "first-mark").is_some());
    let ran = home.run(["audit", "forget", "--before", "2999-01-01", "--yes", "--json"]);
    assert_eq!((ran.code, ran.json()["forgotten"].as_array().unwrap().len()), (0, 3), "{ran:?}");
    for mark in ["first-mark", "second-mark", "third-mark"] {
        assert_eq!(file_containing(&home.state(), mark), None);
    }
    // The server keeps working.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "read_file", "arguments": {"path": "src/main.rs"}}});
    server.send(&call.to_string());
    assert!(server.receive().unwrap().to_string().contains("println"));
    drop(server);
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// B5
#[test]
fn a_lost_or_altered_payload_is_found_and_cannot_be_forgotten_away() {
    for (edit, kind, shown) in [
        ("DELETE FROM payloads", "payload_missing", 6),
        ("UPDATE payloads SET content = x'7b7d'", "payload_differs", 4),
    ] {
        let home = Home::new();
        let seq = seq(&large(&home, "evidence "));
        let database = rusqlite::Connection::open(home.state().join("vambrace.db")).unwrap();
        assert_eq!(database.execute(edit, ()).unwrap(), 1);
        drop(database);
        let ran = home.run(["audit", "verify", "--json"]);
        assert_eq!((ran.code, ran.json()["findings"][0]["kind"].as_str()), (6, Some(kind)), "{ran:?}");
        assert_eq!(home.run(["audit", "payload", &seq]).code, shown);
        if kind == "payload_missing" {
            assert_eq!(home.run(["audit", "forget", &seq, "--yes"]).code, 6);
        }
    }
}

// B5: redacted before it is stored
#[test]
fn a_secret_of_the_environment_is_not_in_a_payload() {
    let home = Home::new();
    let seq = seq(&large(&home, &format!("{CANARY} ")));
    let ran = home.run(["audit", "payload", &seq]);
    assert_eq!(ran.code, 0);
    assert!(!ran.out.contains(CANARY));
    assert_eq!(file_containing(&home.state(), CANARY), None);
}

#[test]
fn an_unknown_payload_is_reported() {
    let home = Home::new();
    for which in ["1", "77", "sha256:00", "x", &format!("sha256:{}", "0".repeat(64))] {
        assert_eq!(home.run(["audit", "payload", which]).code, 2, "{which}");
        assert_eq!(home.run(["audit", "forget", which, "--yes"]).code, 2, "{which}");
    }
    assert_eq!(home.run(["audit", "forget", "--yes"]).code, 2);
}
