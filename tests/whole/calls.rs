//! Calls from the command line: standard output, standard error and exit code.

use serde_json::{Value, json};

use crate::home::{CANARY, Home, file_containing};

fn check(home: &Home, tool: &str, args: &str, code: i32, error: &str) {
    let (exit, answer) = home.call(tool, args);
    assert_eq!((exit, answer["error"]["code"].as_str()), (code, Some(error)), "{tool} {args}: {answer}");
    for secret in ["in-the-env-file", "in-the-secrets-directory", "in-the-outside-file"] {
        assert!(!answer.to_string().contains(secret), "{tool} {args}: {answer}");
    }
}

// T12, T13
#[test]
fn outcomes_have_exit_codes() {
    let home = Home::new();
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
    check(&home, "read_file", r#"{"path":"../outside.txt"}"#, 4, "ScopeViolation");
    check(&home, "read_file", r#"{"path":"link"}"#, 4, "ScopeViolation");
    check(&home, "read_file", r#"{"path":".env"}"#, 4, "BlockedPath");
    check(&home, "search_file", r#"{"path":"secrets","regex":"in"}"#, 4, "BlockedPath");
    check(&home, "read_file", r#"{"path":"nope"}"#, 5, "FileNotFound");
    check(&home, "read_file", r#"{"pfad":"x"}"#, 2, "InvalidArguments");
    check(&home, "run_command", "{}", 2, "UnknownTool");
    assert_eq!(home.run(["call", "read_file", "{broken"]).code, 2);
    assert_eq!(home.run(["call"]).code, 2);
    assert_eq!(home.run(["call", "read_file", "path=x", "--workspace", "src/main.rs"]).code, 2);
}

#[test]
fn content_goes_to_stdout_and_errors_to_stderr() {
    let home = Home::new();
    let ran = home.run(["call", "read_file", "path=src/main.rs", "end_line=1"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "fn main() {\n", ""));
    let ran = home.run(["call", "read_file", "path=.env"]);
    assert_eq!((ran.code, ran.out.as_str()), (4, ""));
    assert_eq!(
        ran.err,
        "error[BlockedPath]: `.env` is a blocked path\n\
         hint: agents can never use this file; ask the user for what you need from it\n"
    );
}

// T6: truncation is marked for programs, people and models
#[test]
fn truncated_read_is_marked() {
    let home = Home::new();
    home.write("long.txt", &(1..=500).map(|n| format!("line {n}\n")).collect::<String>());
    let ran = home.run(["call", "read_file", "path=long.txt"]);
    assert!(ran.out.ends_with("line 200\n"), "{ran:?}");
    assert_eq!(ran.err, "[truncated: lines 1 to 200 of 500; continue with start_line=201]\n");
    let (_, answer) = home.call("read_file", r#"{"path":"long.txt"}"#);
    assert_eq!(answer["data"]["truncated"], true);
    assert_eq!(answer["metadata"]["truncated"], true);
}

// Data on standard output is byte for byte the content of the file
#[test]
fn piped_content_is_unchanged() {
    let home = Home::new();
    let content = "\u{1b}[31mred\u{1b}[0m\ttab\r\n\u{202e}x without a last newline";
    home.write("odd.txt", content);
    let ran = home.run(["call", "read_file", "path=odd.txt"]);
    assert_eq!(ran.out, format!("{content}\n"));
}

// T2, T11: listing and searching show neither blocked paths nor content behind symlinks to the outside
#[test]
fn listing_and_search_omit_blocked_paths() {
    let home = Home::new();
    let (_, listing) = home.call("list_files", r#"{"recursive":true,"pattern":"{*,.*}"}"#);
    let paths: Vec<&str> = listing["data"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["docs", "docs/guide.md", "link", "notes.txt", "src", "src/main.rs"]);
    let (_, found) = home.call("search_file", r#"{"regex":"in-the-"}"#);
    assert_eq!(found["data"]["total"], 0, "{found}");
    let (_, count) = home.call("count_matches", r#"{"regex":"[a-z]+","path":"docs"}"#);
    assert_eq!(count["data"], json!({"count": 1, "files": 1, "complete": true}));
}

// T21, S11: a secret of the broker's environment is neither in answers nor in the state directory
#[test]
fn secrets_of_the_environment_do_not_leak() {
    let home = Home::new();
    let ran = home.run(["call", "read_file", "path=notes.txt", "--json"]);
    assert!(ran.out.contains("[REDACTED:env:") && !ran.out.contains(CANARY), "{ran:?}");
    let path = format!("path={CANARY}");
    for args in [
        vec!["call", "read_file", &path, "--json"],
        vec!["call", "search_file", "regex=token", "--json"],
        vec!["explain", "read_file", &path, "--json"],
        vec!["call", CANARY, "--json"],
        vec!["call", "read_file", "path=notes.txt", "--tool-call-id", CANARY, "--json"],
        vec!["audit", "tail", "--json"],
        vec!["timeline", "--json"],
    ] {
        let ran = home.run(&args);
        assert!(!ran.err.contains(CANARY), "{args:?}: {ran:?}");
        if args[0] != "call" || !args.contains(&"--tool-call-id") {
            assert!(!ran.out.contains(CANARY), "{args:?}: {ran:?}");
        }
    }
    assert_eq!(file_containing(&home.state(), CANARY), None);
}

// T21: a secret that is cut off at the end is still redacted
#[test]
fn truncated_secret_is_redacted() {
    let home = Home::new();
    for bytes in [15, 20, 25, 26] {
        let ran = home.run(["call", "read_file", "path=notes.txt", &format!("max_bytes={bytes}"), "--json"]);
        assert!(!ran.out.contains("canary-"), "{bytes}: {ran:?}");
    }
}

// A hard link bypasses neither a rule nor a role
#[test]
fn hard_link_to_a_denied_file_is_denied() {
    let home =
        Home::with("roles: {default: dev}\napprovals:\n  rules:\n    - {paths: [docs], decision: deny}\n");
    std::fs::hard_link(home.project().join("docs/guide.md"), home.project().join("src/other.md")).unwrap();
    assert_eq!(home.call("read_file", r#"{"path":"src/other.md"}"#).1["error"]["code"], "ScopeViolation");
    assert_eq!(home.call("search_file", r#"{"regex":"Guide"}"#).1["data"]["total"], 0);
    assert_eq!(home.call("search_file", r#"{"regex":"Guide","path":"src/other.md"}"#).0, 4);
}

// `explain` exits with 0 allow, 3 ask, 4 deny
#[test]
fn explain_has_exit_codes() {
    let home = Home::with(
        "roles: {default: dev}\napprovals:\n  rules:\n    - {id: ask-docs, paths: [docs/**], decision: ask}\n",
    );
    for (path, code, verdict) in
        [("src/main.rs", 0, "allow"), ("docs/guide.md", 3, "ask"), (".env", 4, "deny")]
    {
        let ran = home.run(["explain", "read_file", &format!("path={path}"), "--json"]);
        assert_eq!((ran.code, ran.json()["verdict"].as_str()), (code, Some(verdict)), "{ran:?}");
    }
    let (code, asked) = home.call("read_file", r#"{"path":"docs/guide.md"}"#);
    assert_eq!((code, asked["details"]["status"].as_str()), (3, Some("hitl_required")), "{asked}");
}

// T23: violations suspend the session if configured; a person resumes it
#[test]
fn violations_suspend_the_session_until_a_person_resumes_it() {
    let home = Home::with("roles: {default: dev}\nviolations: {action: suspend}\n");
    for _ in 0..6 {
        assert_eq!(home.call("read_file", r#"{"path":"../x"}"#).0, 4);
    }
    check(&home, "read_file", r#"{"path":"src/main.rs"}"#, 4, "SessionSuspended");
    let sessions = home.run(["session", "list", "--json"]).json();
    let session =
        sessions.as_array().unwrap().iter().find(|session| session["state"] == "suspended").unwrap();
    let id = session["id"].as_str().unwrap();
    assert_eq!(home.run(["session", "resume", id]).code, 0);
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
    let resumed = home.records().into_iter().any(|record: Value| record["event_type"] == "session.resumed");
    assert!(resumed);
}

#[test]
fn demo_passes_and_leaves_no_state() {
    let home = Home::bare();
    let ran = home.run(["demo"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!home.state().exists(), "the demo must not use the user's state directory");
}

// T2: contents that are too large for an argument of a command line
#[test]
fn arguments_can_come_from_standard_input() {
    use std::io::Write as _;
    let home = Home::new();
    let mut command = home.command(["call", "read_file", "-", "--json"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"path": "docs/guide.md"}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["data"]["content"], "# Guide\n", "{answer}");
}
