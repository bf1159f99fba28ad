//! Full disks and file size limits: the program denies the call, says why, records the denial, and continues when there is
//! space again. The full disk is a small tmpfs in its own mount namespace, in which this binary runs again; an
//! ordinary user becomes root of a user namespace for it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::home::{Home, binary};
use crate::mcp::Server;

const INSIDE: &str = "VAMBRACE_WHOLE_FULL";

/// Uses every byte that is left.
fn fill(path: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn answer(server: &mut Server, path: &str) -> Value {
    server.call("read_file", json!({"path": path}))["result"]["structuredContent"].clone()
}

fn assert_denied_by_full_disk(answer: &Value) {
    assert_eq!(answer["error"]["code"], "AuditUnavailable", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("the disk is full"), "{answer}");
    assert_eq!(answer["details"]["status"], "denied", "{answer}");
    assert_eq!(answer["details"]["audit"]["durable"], true, "{answer}");
}

// B5: no durable record, no effect; and the denial itself is recorded
#[test]
fn a_full_disk_denies_reads_and_records_the_denial() {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    let me = Command::new("id").arg("-u").output().unwrap();
    if me.stdout != b"0\n" {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "disk::inside", "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("INSIDE DONE"), "{text}");
}

/// Not a test by itself: does nothing unless it runs in its own namespace.
#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let home = Home::bare();
    std::fs::create_dir_all(home.state()).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=12m,mode=700", "tmpfs"])
        .arg(home.state())
        .status()
        .unwrap();
    assert!(mounted.success());
    assert_eq!(home.run(["init"]).code, 0);
    let filler = home.state().join("filler");
    let mut server = Server::greeted(&home, &[]);
    assert_eq!(answer(&mut server, "src/main.rs")["status"], "success");
    fill(&filler);
    let mut denied = json!(null);
    for _ in 0..500 {
        denied = answer(&mut server, "src/main.rs");
        if denied["status"] == "error" {
            break;
        }
    }
    assert_denied_by_full_disk(&denied);
    assert!(!denied.to_string().contains("println"), "{denied}");
    // A violation is still reported and recorded as a violation.
    let outside = answer(&mut server, "../outside.txt");
    assert_eq!(outside["details"]["status"], "denied", "{outside}");
    assert_ne!(outside["error"]["code"], "AuditUnavailable", "{outside}");
    assert_eq!(outside["details"]["audit"]["durable"], true, "{outside}");
    // A process that starts now denies the call too.
    let (code, other) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_ne!(code, 0);
    assert_denied_by_full_disk(&other);
    // Space is free again: the same server continues.
    std::fs::remove_file(&filler).unwrap();
    let again = answer(&mut server, "src/main.rs");
    assert_eq!(again["status"], "success", "{again}");
    drop(server);
    let records = home.records();
    for denial in [&denied, &outside, &other] {
        let hash = &denial["details"]["audit"]["event_hash"];
        let record = records.iter().find(|record| record["event_hash"] == *hash).unwrap();
        assert_eq!(record["status"], "denied", "{record}");
    }
    let ran = home.run(["audit", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    println!("INSIDE DONE");
}

// SIGXFSZ must not kill the program before it answers
#[test]
fn a_file_size_limit_denies_the_call_and_does_not_kill_the_program() {
    let home = Home::new();
    let mut plain = home.command(["call", "read_file", r#"{"path":"src/main.rs"}"#, "--json"]);
    // Too little for the index of the WAL, and too little for the WAL.
    for limit in [4096, 36 << 10] {
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={limit}")).arg(binary()).args(plain.get_args());
        command.current_dir(home.project()).env_clear();
        command.envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = command.output().unwrap();
        // After a signal there would be no exit code.
        assert_eq!(output.status.code(), Some(4), "{limit}: {output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["error"]["code"], "AuditUnavailable", "{answer}");
        assert!(!answer.to_string().contains("println"), "{answer}");
    }
    // Without the limit the call succeeds.
    assert_eq!(plain.output().unwrap().status.code(), Some(0));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}
