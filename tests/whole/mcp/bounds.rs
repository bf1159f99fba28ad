//! Limits of the MCP server: unreadable lines, invalid requests, more calls than open files allow.

use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;
use crate::home::Home;

const TOO_LONG: usize = 17 << 20;

/// The `_meta` that the newer revision requires in every request.
fn meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
           "io.modelcontextprotocol/clientCapabilities": {},
           "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"}})
}

/// A server of the older revision and one of the newer.
fn both(home: &Home) -> [Server; 2] {
    let mut modern = Server::start(home, &[]);
    let answer = modern.ask("tools/list", json!({"_meta": meta()}));
    assert!(answer["result"]["tools"].is_array(), "{answer}");
    [Server::greeted(home, &[]), modern]
}

fn check(server: &mut Server, line: &str, code: i64, id: &Value, words: &str) {
    server.send(line);
    let answer = server.receive().expect("the server is running");
    let shown = line.get(..60).unwrap_or(line);
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), id), "{shown}: {answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{shown}: {answer}");
}

fn unreadable(home: &Home) -> usize {
    home.records().iter().filter(|record| record["event_type"] == "mcp.unreadable").count()
}

// T3: every request gets an answer
#[test]
fn unreadable_lines_are_answered_and_recorded() {
    let home = Home::new();
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for mut server in both(&home) {
        let before = unreadable(&home);
        for line in ["nonsense", "{", "\u{0}", "[1,", deep.as_str()] {
            check(&mut server, line, -32_700, &Value::Null, "not valid JSON");
        }
        let surrogate = r#"{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"read_file","arguments":{"path":"\ud800"}}}"#;
        check(&mut server, surrogate, -32_600, &json!("s"), "lone surrogates");
        let nested = format!(
            r#"{{"method":"tools/call","params":{{"name":"read_file","arguments":{{"path":{deep}}}}},"jsonrpc":"2.0","id":8}}"#
        );
        check(&mut server, &nested, -32_600, &json!(8), "nesting");
        for line in
            ["null", "[]", "7", r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"2.0","id":5,"result":7,"x":1}"#]
        {
            // A response to no request may be ignored, but never answered with its id.
            if !line.contains("result") {
                check(&mut server, line, -32_600, &Value::Null, "not a request");
            }
        }
        check(&mut server, r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#, -32_600, &json!(3), "JSON-RPC 2.0");
        let answer = server.ask(
            "tools/call",
            json!({"_meta": meta(), "name": "read_file", "arguments": {"path": "docs/guide.md"}}),
        );
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert_eq!(server.end(), 0);
        assert_eq!(unreadable(&home) - before, 12);
    }
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// T3: the documented limit is the real one
#[test]
fn arguments_of_16_mib_are_rejected_and_smaller_ones_accepted() {
    let home = Home::new();
    for mut server in both(&home) {
        let long = "x".repeat(TOO_LONG);
        let first =
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{long}"}}}}"#);
        check(&mut server, &first, -32_600, &json!(7), "limited to 16 MiB");
        let last =
            format!(r#"{{"method":"tools/call","params":{{"name":"{long}"}},"jsonrpc":"2.0","id":"z"}}"#);
        check(&mut server, &last, -32_600, &json!("z"), "limited to 16 MiB");
        check(&mut server, &long, -32_600, &Value::Null, "limited to 16 MiB");
        let mut call = |bytes: usize| {
            let args = json!({"path": "docs/guide.md", "pattern": "x".repeat(bytes)});
            server.ask("tools/call", json!({"_meta": meta(), "name": "search_file", "arguments": args}))
        };
        let over = call(16 << 20);
        let error = &over["result"]["structuredContent"]["error"];
        assert!(error["message"].as_str().unwrap().contains("larger than 16 MiB"), "{error}");
        let under = call((16 << 20) - 1000);
        let text = under["result"]["content"][0]["text"].as_str().unwrap();
        assert!(!text.contains("16 MiB"), "{}", text.get(..300).unwrap_or(text));
        assert_eq!(server.end(), 0);
    }
}

// T2: the error of an invalid call says what is wrong
#[test]
fn invalid_parameters_are_not_reported_as_unknown_method() {
    let home = Home::new();
    for mut server in both(&home) {
        for (mut params, words) in [
            (json!({"name": "read_file", "arguments": "x"}), "`arguments` is not an object"),
            (json!({"name": "read_file", "arguments": ["x"]}), "`arguments` is not an object"),
            (json!({"arguments": {"path": "docs/guide.md"}}), "`name` is missing"),
            (json!({"name": 7}), "`name` is not a string"),
        ] {
            params["_meta"] = meta();
            let answer = server.ask("tools/call", params);
            assert_eq!(answer["error"]["code"], -32_602, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
            assert!(
                answer["error"]["data"]["suggestion"].as_str().unwrap().contains("tools/list"),
                "{answer}"
            );
        }
        let unknown = server.ask("tools/fall", json!({"_meta": meta()}));
        assert_eq!(unknown["error"]["code"], -32_601, "{unknown}");
        assert_eq!(server.end(), 0);
    }
    let mut server = Server::greeted(&home, &[]);
    assert_eq!(server.ask("tools/call", json!("x"))["error"]["code"], -32_602);
    server.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    assert_eq!(server.receive().unwrap()["error"]["code"], -32_602);
    assert_eq!(server.end(), 0);
    assert_eq!(unreadable(&home), 10);
}

/// A server with a low limit of open files: it runs two requests at a time.
fn few_files(home: &Home) -> Server {
    let command = home.command(["mcp"]);
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .args(["-c", "ulimit -n 72; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    shell.current_dir(home.project()).env_clear();
    shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut server = Server::spawn(shell);
    server.greet();
    server
}

// Calls that wait for approval delay other calls, but not responses, pings and cancellations
#[test]
fn pings_and_cancellations_overtake_calls_that_wait_for_a_slot() {
    let home = Home::new();
    let mut server = few_files(&home);
    let send = |server: &mut Server, id: u64, tool: &str, args: Value| {
        let params = json!({"name": tool, "arguments": args, "_meta": {"progressToken": id}});
        server
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    };
    let mut asked = Vec::new();
    for id in [1, 2] {
        send(&mut server, id, "write_file", json!({"path": format!("p{id}.txt"), "content": "x"}));
        let progress = loop {
            let message = server.receive().unwrap();
            if message["params"]["progressToken"] == id {
                break message;
            }
        };
        let words = progress["params"]["message"].as_str().unwrap().to_owned();
        asked.push(words.split(['(', ',']).find(|word| word.starts_with("hitl-")).unwrap().to_owned());
    }
    for id in [3, 4] {
        send(&mut server, id, "read_file", json!({"path": "docs/guide.md"}));
    }
    server.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
            .to_string(),
    );
    server.send(&json!({"jsonrpc": "2.0", "id": "alive", "method": "ping"}).to_string());
    let answer = |server: &mut Server| loop {
        let message = server.receive().unwrap();
        if message["method"].is_null() {
            return message;
        }
    };
    assert_eq!(answer(&mut server)["id"], "alive");
    for (id, method) in [(1, "tools/call"), (2, "ping"), (4, "tools/call")] {
        let params = json!({"name": "read_file", "arguments": {"path": "src/main.rs"}});
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        let refused = answer(&mut server);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32_600)), "{refused}");
    }
    assert_eq!(crate::changes::decide(&home, &["approvals", "reject", &asked[0]]).code, 0);
    let mut ids = [answer(&mut server)["id"].as_u64(), answer(&mut server)["id"].as_u64()];
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(4)]);
    assert_eq!(crate::changes::decide(&home, &["approvals", "reject", &asked[1]]).code, 0);
    assert_eq!(answer(&mut server)["id"], 2);
    assert_eq!(server.end(), 0);
    assert_eq!(home.records().iter().filter(|record| record["op"] == "read_file").count(), 1);
}

// T3: every call of a flood is answered, even with few open files
#[test]
fn calls_beyond_the_file_limit_are_queued() {
    const CALLS: u64 = 3_000;
    let home = Home::new();
    let mut server = few_files(&home);
    let mut input = server.input.take().unwrap();
    let sender = std::thread::spawn(move || {
        for id in 0..CALLS {
            let params = json!({"name": "read_file", "arguments": {"path": "src/main.rs"}});
            writeln!(
                input,
                "{}",
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            )
            .unwrap();
        }
        input
    });
    let mut answered = std::collections::BTreeSet::new();
    let mut line = String::new();
    while answered.len() < CALLS as usize {
        line.clear();
        assert!(server.output.read_line(&mut line).unwrap() > 0, "{} are answered", answered.len());
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert!(answered.insert(answer["id"].as_u64().unwrap()));
    }
    drop(sender.join().unwrap());
    assert_eq!(server.end(), 0);
    let ended = home.records().iter().filter(|record| record["op"] == "read_file").count();
    assert_eq!(ended, CALLS as usize);
}

// T3: a project that cannot be reopened denies every call, with a code and a record
#[test]
fn project_that_cannot_be_reopened_denies_calls() {
    let home = Home::new();
    let mut server = Server::greeted(&home, &[]);
    std::fs::rename(home.project(), home.path("elsewhere")).unwrap();
    let begun = Instant::now();
    loop {
        let answer = server.call("read_file", json!({"path": "src/main.rs"}));
        let error = &answer["result"]["structuredContent"]["error"];
        if error["code"] == "PermissionDenied" {
            assert!(error["suggestion"].is_string(), "{answer}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "not denied: {answer}");
    }
    std::fs::rename(home.path("elsewhere"), home.project()).unwrap();
    let begun = Instant::now();
    while server.call("read_file", json!({"path": "src/main.rs"}))["result"]["isError"] != false {
        assert!(begun.elapsed() < Duration::from_secs(20), "the project was not reopened");
    }
    assert_eq!(server.end(), 0);
    assert!(
        home.records()
            .iter()
            .any(|record| record["status"] == "denied" && record["error_code"] == "PermissionDenied")
    );
}
