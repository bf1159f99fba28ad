//! Disks that are full and files that may not grow: the program refuses, says why, puts the refusal on record, and goes
//! on when there is room again. The full disk is a small tmpfs in a mount namespace of its own, in which this binary
//! runs again; an ordinary user becomes root of a user namespace for it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::home::{Home, binary};
use crate::mcp::Server;

const INSIDE: &str = "VAMBRACE_WHOLE_FULL";

/// Takes every byte that is left.
fn fill(path: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn answer(server: &mut Server, path: &str) -> Value {
    server.call("read_file", json!({"path": path}))["result"]["structuredContent"].clone()
}

fn is_refused_for_want_of_room(answer: &Value) {
    assert_eq!(answer["error"]["code"], "AuditUnavailable", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("the disk is full"), "{answer}");
    assert_eq!(answer["details"]["status"], "denied", "{answer}");
    assert_eq!(answer["details"]["audit"]["durable"], true, "{answer}");
}

// B5: no durable record, no effect; and the refusal itself is recorded
#[test]
fn a_full_disk_refuses_reads_and_records_it() {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    let me = Command::new("id").arg("-u").output().unwrap();
    if me.stdout != b"0\n" {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "disk::inside", "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("INSIDE DONE"), "{said}");
}

/// Not a test by itself: does something only in a namespace of its own.
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
    let mut refused = json!(null);
    for _ in 0..500 {
        refused = answer(&mut server, "src/main.rs");
        if refused["status"] == "error" {
            break;
        }
    }
    is_refused_for_want_of_room(&refused);
    assert!(!refused.to_string().contains("println"), "{refused}");
    // A violation is a violation, and on record as one.
    let outside = answer(&mut server, "../outside.txt");
    assert_eq!(outside["details"]["status"], "denied", "{outside}");
    assert_ne!(outside["error"]["code"], "AuditUnavailable", "{outside}");
    assert_eq!(outside["details"]["audit"]["durable"], true, "{outside}");
    // So does a process that starts now.
    let (code, other) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_ne!(code, 0);
    is_refused_for_want_of_room(&other);
    // Room again: the same server goes on.
    std::fs::remove_file(&filler).unwrap();
    let again = answer(&mut server, "src/main.rs");
    assert_eq!(again["status"], "success", "{again}");
    drop(server);
    let records = home.records();
    for refusal in [&refused, &outside, &other] {
        let hash = &refusal["details"]["audit"]["event_hash"];
        let record = records.iter().find(|record| record["event_hash"] == *hash).unwrap();
        assert_eq!(record["status"], "denied", "{record}");
    }
    let ran = home.run(["audit", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    println!("INSIDE DONE");
}

// A signal must not take the place of an answer
#[test]
fn a_limit_for_files_refuses_the_call_and_does_not_kill() {
    let home = Home::new();
    let mut plain = home.command(["call", "read_file", r#"{"path":"src/main.rs"}"#, "--json"]);
    // Too little for the index of the log, and too little for the log.
    for limit in [4096, 36 << 10] {
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={limit}")).arg(binary()).args(plain.get_args());
        command.current_dir(home.project()).env_clear();
        command.envs(plain.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = command.output().unwrap();
        // A signal would leave no code.
        assert_eq!(output.status.code(), Some(4), "{limit}: {output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["error"]["code"], "AuditUnavailable", "{answer}");
        assert!(!answer.to_string().contains("println"), "{answer}");
    }
    // Without the limit all is well.
    assert_eq!(plain.output().unwrap().status.code(), Some(0));
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}
