//! The ledger through the binary: verified, tampered with, unwritable, shared by processes.

use std::thread;

use crate::home::Home;

// B5
#[test]
fn verify_finds_a_changed_a_missing_and_an_added_line() {
    type Attack = fn(&str) -> String;
    let attacks: [(&str, Attack); 4] = [
        ("changed", |text| text.replacen("main.rs", "mian.rs", 1)),
        ("missing", |text| {
            text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| format!("{line}\n")).collect()
        }),
        ("twice", |text| format!("{text}{}\n", text.lines().last().unwrap())),
        ("torn", |text| text.chars().take(text.chars().count() - 40).collect()),
    ];
    for (name, attack) in attacks {
        let home = Home::new();
        for _ in 0..3 {
            home.call("read_file", r#"{"path":"src/main.rs"}"#);
        }
        assert_eq!(home.run(["audit", "verify"]).code, 0);
        let segment = std::fs::read_dir(home.state().join("ledger")).unwrap().next().unwrap().unwrap().path();
        let text = std::fs::read_to_string(&segment).unwrap();
        assert!(text.lines().count() > 5, "{name}: {text}");
        std::fs::write(&segment, attack(&text)).unwrap();
        let ran = home.run(["audit", "verify", "--json"]);
        assert_eq!(ran.code, 6, "{name}: {ran:?}");
        assert!(!ran.json()["findings"].as_array().unwrap().is_empty(), "{name}: {ran:?}");
    }
}

// No durable record, no effect
#[test]
fn an_unwritable_ledger_denies_every_call() {
    let home = Home::new();
    std::fs::write(
        home.state().join("vambrace.db"),
        "this is not a database, it is long enough to be one".repeat(40),
    )
    .unwrap();
    let _ = std::fs::remove_file(home.state().join("vambrace.db-wal"));
    let _ = std::fs::remove_file(home.state().join("vambrace.db-shm"));
    let ran = home.run(["call", "read_file", "path=src/main.rs", "--json"]);
    assert_eq!((ran.code, ran.json()["error"]["code"].as_str()), (4, Some("AuditUnavailable")), "{ran:?}");
    assert!(!ran.out.contains("println"));
}

// If the database is gone but its segments are there, no second history is started
#[test]
fn a_removed_database_is_not_replaced_silently() {
    let home = Home::new();
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    for name in ["vambrace.db", "vambrace.db-wal", "vambrace.db-shm"] {
        let _ = std::fs::remove_file(home.state().join(name));
    }
    let (code, answer) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_eq!((code, answer["error"]["code"].as_str()), (4, Some("AuditUnavailable")), "{answer}");
}

// B5: several processes on one state directory write one chain
#[test]
fn processes_share_one_chain() {
    let home = Home::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let ran = home.run(["call", "read_file", "path=src/main.rs"]);
                    assert_eq!(ran.code, 0, "{ran:?}");
                }
            });
        }
    });
    let ran = home.run(["audit", "verify", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let reads = home.records().into_iter().filter(|record| record["op"] == "read_file").count();
    assert_eq!(reads, 40);
}

// T22: denials are the security stream
#[test]
fn denials_can_be_queried() {
    let home = Home::new();
    home.call("read_file", r#"{"path":"../../etc/passwd"}"#);
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    let ran = home.run(["audit", "query", "--violations", "--json"]);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert_eq!(lines[0]["violation_type"], "scope");
    assert_eq!(lines[0]["target_path"], "../../etc/passwd");
    assert_eq!(lines[0]["agent_id"], "command-line");
    let call = lines[0]["execution_id"].as_str().unwrap();
    let timeline = home.run(["timeline", call]);
    assert_eq!(timeline.code, 0, "{timeline:?}");
    assert!(timeline.out.contains("ScopeViolation"), "{timeline:?}");
    assert_eq!(home.run(["timeline", "c-nope"]).code, 2);
}

// A line that another program appended to a segment is a finding, and nothing is appended after it
#[test]
fn a_foreign_line_in_a_segment_is_found() {
    let home = Home::new();
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    let segment = std::fs::read_dir(home.state().join("ledger")).unwrap().next().unwrap().unwrap();
    home.append(&format!("ledger/{}", segment.file_name().to_str().unwrap()), b"{\"v\":1}\n");
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_eq!(home.run(["audit", "verify"]).code, 6);
}

fn second_verifier(home: &Home, args: &[&str]) -> (i32, String) {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/verify_ledger.py");
    let mut python = std::process::Command::new("python3");
    let output = python.arg(script).args(args).current_dir(home.project()).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), report)
}

fn changed(text: &str, from: usize) -> impl Iterator<Item = String> {
    let bytes = text.as_bytes().to_vec();
    (from..bytes.len()).step_by(3).filter_map(move |at| {
        let mut other = bytes.clone();
        other[at] ^= 1;
        String::from_utf8(other).ok()
    })
}

// B5: a user without this program can check what it prints
#[test]
fn the_second_verifier_checks_proofs_and_state_directories_offline() {
    let home = Home::new();
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    let first = home.run(["audit", "checkpoint", "--json"]).json();
    let old_key = first["key"].as_str().unwrap().to_owned();
    std::fs::write(home.project().join("kept.txt"), first["note"].as_str().unwrap()).unwrap();
    assert_eq!(home.run(["audit", "rotate-key"]).code, 0);
    for _ in 0..3 {
        home.call("read_file", r#"{"path":"src/main.rs"}"#);
    }
    let key = home.run(["audit", "checkpoint", "--json"]).json()["key"].as_str().unwrap().to_owned();
    assert_ne!(key, old_key);

    let proof = home.run(["audit", "prove", "3"]);
    assert_eq!(proof.code, 0, "{proof:?}");
    let check = |text: &str, keys: &[&str]| {
        std::fs::write(home.project().join("proof"), text).unwrap();
        let mut args = vec!["--proof", "proof"];
        keys.iter().for_each(|key| args.extend(["--key", key]));
        second_verifier(&home, &args)
    };
    let (code, report) = check(&proof.out, &[&key]);
    assert_eq!((code, report.contains("record 3 is among the first")), (0, true), "{report}");
    assert_eq!(check(&proof.out, &[&old_key]).0, 6);
    assert_eq!(check(&proof.out, &[]).0, 6);
    for other in changed(&proof.out, 0).step_by(12) {
        let (code, report) = check(&other, &[&key]);
        assert_eq!(code, 6, "{report}\n{other}");
    }

    let grown = home.run(["audit", "consistency", "kept.txt", "--json"]);
    assert_eq!(grown.code, 0, "{grown:?}");
    let (code, report) = check(&grown.out, &[&old_key, &key]);
    assert_eq!((code, report.contains("are a prefix of the first")), (0, true), "{report}");
    assert_eq!(check(&grown.out, &[&key]).0, 6);
    let mut other = grown.json();
    let hash = other["proof"][0].as_str().unwrap().to_owned();
    other["proof"][0] = format!("sha256:{}", "0".repeat(64)).into();
    assert_eq!(check(&other.to_string(), &[&old_key, &key]).0, 6);
    other["proof"] = serde_json::json!([hash]);
    assert_eq!(
        check(&other.to_string(), &[&old_key, &key]).0,
        if grown.json()["proof"].as_array().unwrap().len() == 1 { 0 } else { 6 }
    );

    let state = home.state();
    let args = [state.to_str().unwrap(), "--checkpoint", "kept.txt", "--key", &old_key, "--json"];
    let (code, report) = second_verifier(&home, &args);
    assert_eq!(code, 0, "{report}");
    let kept = home.run(["audit", "verify", "--checkpoint", "kept.txt", "--key", &old_key]);
    assert_eq!(kept.code, 0, "{kept:?}");
    // A checkpoint of this ledger contradicts another ledger.
    let other = Home::new();
    other.call("read_file", r#"{"path":"src/main.rs"}"#);
    let kept = home.project().join("kept.txt");
    let found = other.run(["audit", "verify", "--checkpoint", kept.to_str().unwrap(), "--json"]);
    assert_eq!(found.code, 6, "{found:?}");
    let other_state = other.state();
    let (code, report) = second_verifier(&home, &[other_state.to_str().unwrap(), "--checkpoint", "kept.txt"]);
    assert_eq!((code, report.contains("other_ledger")), (6, true), "{report}");
}

// The event hash in a result selects the record to prove
#[test]
fn a_record_is_proved_by_the_event_hash_of_a_result() {
    let home = Home::new();
    let answer = home.run(["call", "read_file", "path=docs/guide.md", "--json"]).json();
    let hash =
        answer["details"]["audit"]["event_hash"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let proof = home.run(["audit", "prove", &hash, "--json"]).json();
    let record: serde_json::Value = serde_json::from_str(proof["record"].as_str().unwrap()).unwrap();
    assert_eq!(record["event_hash"], hash.as_str());
    assert_eq!(proof["index"].as_u64().unwrap() + 1, record["seq"].as_u64().unwrap());
    let bare = hash.strip_prefix("sha256:").unwrap();
    assert_eq!(home.run(["audit", "prove", bare]).code, 0);
    // `prev_hash` is in this record, but it is the event hash of another one.
    let before = record["prev_hash"].as_str().unwrap();
    let proof = home.run(["audit", "prove", before, "--json"]).json();
    assert!(proof["record"].as_str().unwrap().contains(&format!("\"event_hash\":\"{before}\"")));
    for (which, words) in
        [(&*"0".repeat(64), "no record"), ("x", "neither a record number nor an event hash")]
    {
        let ran = home.run(["audit", "prove", which]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(words) && ran.err.contains("hint:"), "{ran:?}");
    }
}

#[test]
fn zero_requested_lines_are_not_reported_as_an_empty_ledger() {
    let home = Home::new();
    home.run(["call", "read_file", "path=docs/guide.md"]);
    let ran = home.run(["audit", "tail", "-n", "0"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
}
