//! A rolled-back state directory: detected at the start by the checkpoint copy outside of it, and by a witness if that
//! copy was rolled back too; acknowledged in a record; checkpoints and proofs as a user handles them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::home::Home;

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

fn read(home: &Home, n: usize) {
    for _ in 0..n {
        let ran = home.run(["call", "read_file", "path=src/main.rs"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

/// Replaces the state directory by an older copy.
fn roll_back(home: &Home, old: &Path) {
    std::fs::remove_dir_all(home.state()).unwrap();
    copy(old, &home.state());
}

// B5
#[test]
fn a_rolled_back_state_directory_is_rejected_until_a_user_acknowledges_it() {
    let home = Home::new();
    read(&home, 2);
    let old = home.path("old-state");
    copy(&home.state(), &old);
    read(&home, 3);
    roll_back(&home, &old);

    let denied = home.run(["call", "read_file", "path=src/main.rs", "--json"]);
    assert_eq!(denied.code, 4, "{denied:?}");
    assert_eq!(denied.json()["error"]["code"], "AuditUnavailable");
    let found = home.run(["audit", "verify", "--json"]);
    assert_eq!(found.code, 6, "{found:?}");
    assert!(found.out.contains("shorter_than_checkpoint"), "{}", found.out);

    // The remaining records can still be read.
    let left = home.run(["audit", "tail", "--json"]);
    assert_eq!((left.code, left.out.matches("\"op\":\"tool.start\"").count()), (0, 2), "{left:?}");
    assert_eq!(home.run(["audit", "query", "--tool", "read_file", "--json"]).code, 0);

    let acknowledged = home.run(["call", "read_file", "path=src/main.rs", "--acknowledge-rollback"]);
    assert_eq!(acknowledged.code, 0, "{acknowledged:?}");
    let records = home.run(["audit", "query", "--op", "recovery", "--json"]);
    assert!(records.out.contains("rollback.acknowledged"), "{}", records.out);
    let after = home.run(["audit", "verify", "--json"]);
    assert_eq!(after.code, 0, "{after:?}");
    assert!(after.out.contains("\"rollback\""), "it remains a note: {}", after.out);
    read(&home, 1);
}

#[test]
fn acknowledging_a_rollback_that_did_not_happen_leaves_no_record() {
    let home = Home::new();
    read(&home, 1);
    assert_eq!(home.run(["doctor", "--acknowledge-rollback"]).code, 0);
    assert!(home.run(["audit", "query", "--op", "recovery", "--json"]).out.is_empty());
}

struct WitnessProcess(Child);

impl Drop for WitnessProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a witness that knows the ledger of a home, and adds it to the user's configuration.
fn start_witness(home: &Home) -> WitnessProcess {
    let log = home.run(["audit", "checkpoint", "--json"]).json()["key"].as_str().unwrap().to_owned();
    let directory = home.path("witness");
    let directory = directory.to_str().unwrap();
    let key = home.run(["witness", "key", "--state", directory]).out.trim().to_owned();
    let args = ["witness", "--state", directory, "--listen", "127.0.0.1:0", "--log", &log];
    let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    home.user_config(&format!("version: 1\naudit:\n  witness:\n    url: {}\n    key: {key}\n", line.trim()));
    WitnessProcess(child)
}

// B5
#[test]
fn the_witness_detects_a_rollback_of_every_local_copy() {
    let home = Home::new();
    read(&home, 1);
    let witness = start_witness(&home);
    read(&home, 2);
    let report = home.run(["doctor"]);
    assert!(report.out.contains("it signed the newest checkpoint"), "{report:?}");
    let (old, anchors) = (home.path("old-state"), home.path("home/.local/share/vambrace"));
    copy(&home.state(), &old);
    copy(&anchors, &home.path("old-anchors"));
    read(&home, 3);
    roll_back(&home, &old);
    std::fs::remove_dir_all(&anchors).unwrap();
    copy(&home.path("old-anchors"), &anchors);

    let denied = home.run(["call", "read_file", "path=src/main.rs"]);
    assert_eq!(denied.code, 4, "{denied:?}");
    assert!(denied.err.contains("witness"), "{}", denied.err);
    assert_eq!(home.run(["audit", "verify"]).code, 6);

    let acknowledged = home.run(["call", "read_file", "path=src/main.rs", "--acknowledge-rollback"]);
    assert_eq!(acknowledged.code, 0, "{acknowledged:?}");
    read(&home, 1);
    assert!(home.run(["doctor"]).out.contains("does not follow"), "the witness still objects");

    drop(witness);
    read(&home, 1);
    assert!(home.run(["doctor"]).out.contains("unreachable"));
}

#[test]
fn proofs_are_printed_and_a_kept_checkpoint_detects_another_ledger() {
    let home = Home::new();
    read(&home, 3);
    let kept = home.path("kept");
    let note = home.run(["audit", "checkpoint"]);
    std::fs::write(&kept, &note.out).unwrap();
    let kept = kept.to_str().unwrap();
    read(&home, 1);

    let proof = home.run(["audit", "prove", "3"]);
    assert!(proof.out.starts_with("c2sp.org/tlog-proof@v1\nextra "), "{proof:?}");
    assert_eq!(home.run(["audit", "prove", "3", "--checkpoint", kept]).code, 0);
    assert_eq!(home.run(["audit", "prove", "999"]).code, 2);
    let grown = home.run(["audit", "consistency", kept, "--json"]);
    assert_eq!(grown.json()["old"]["note"], note.out, "{grown:?}");
    assert_eq!(home.run(["audit", "verify", "--checkpoint", kept]).code, 0);
    assert_eq!(home.run(["audit", "rotate-key"]).code, 0);
    read(&home, 1);
    assert_eq!(
        home.run(["audit", "verify", "--checkpoint", kept]).code,
        0,
        "{:?}",
        home.run(["audit", "verify"])
    );

    // Another ledger does not match the checkpoint.
    let other = Home::new();
    read(&other, 4);
    let found = other.run(["audit", "verify", "--checkpoint", kept, "--json"]);
    assert_eq!(found.code, 6);
    assert!(found.out.contains("other_ledger"), "{}", found.out);
}
