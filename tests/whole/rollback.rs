//! A state folder that is set back: found at the start by the copy outside of it, and by a witness where even that copy
//! was set back; acknowledged on record; checkpoints and proofs as a person uses them.

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

/// Puts an older copy of the state folder in its place.
fn set_back(home: &Home, old: &Path) {
    std::fs::remove_dir_all(home.state()).unwrap();
    copy(old, &home.state());
}

// B5
#[test]
fn a_folder_that_was_set_back_is_refused_until_somebody_says_so_on_record() {
    let home = Home::new();
    read(&home, 2);
    let old = home.path("old-state");
    copy(&home.state(), &old);
    read(&home, 3);
    set_back(&home, &old);

    let refused = home.run(["call", "read_file", "path=src/main.rs", "--json"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "AuditUnavailable");
    let found = home.run(["audit", "verify", "--json"]);
    assert_eq!(found.code, 6, "{found:?}");
    assert!(found.out.contains("shorter_than_checkpoint"), "{}", found.out);

    // What is left can still be looked at.
    let left = home.run(["audit", "tail", "--json"]);
    assert_eq!((left.code, left.out.matches("\"op\":\"tool.start\"").count()), (0, 2), "{left:?}");
    assert_eq!(home.run(["audit", "query", "--tool", "read_file", "--json"]).code, 0);

    let told = home.run(["call", "read_file", "path=src/main.rs", "--acknowledge-rollback"]);
    assert_eq!(told.code, 0, "{told:?}");
    let records = home.run(["audit", "query", "--op", "recovery", "--json"]);
    assert!(records.out.contains("rollback.acknowledged"), "{}", records.out);
    let after = home.run(["audit", "verify", "--json"]);
    assert_eq!(after.code, 0, "{after:?}");
    assert!(after.out.contains("\"rollback\""), "it stays a note: {}", after.out);
    read(&home, 1);
}

#[test]
fn acknowledging_what_did_not_happen_leaves_no_trace() {
    let home = Home::new();
    read(&home, 1);
    assert_eq!(home.run(["doctor", "--acknowledge-rollback"]).code, 0);
    assert!(home.run(["audit", "query", "--op", "recovery", "--json"]).out.is_empty());
}

struct Eye(Child);

impl Drop for Eye {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a witness that knows the ledger of a home, and names it in the user's configuration.
fn witnessed(home: &Home) -> Eye {
    let log = home.run(["audit", "checkpoint", "--json"]).json()["key"].as_str().unwrap().to_owned();
    let folder = home.path("eye");
    let folder = folder.to_str().unwrap();
    let key = home.run(["witness", "key", "--state", folder]).out.trim().to_owned();
    let args = ["witness", "--state", folder, "--listen", "127.0.0.1:0", "--log", &log];
    let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    home.user_config(&format!("version: 1\naudit:\n  witness:\n    url: {}\n    key: {key}\n", line.trim()));
    Eye(child)
}

// B5
#[test]
fn where_every_copy_was_set_back_the_witness_still_knows() {
    let home = Home::new();
    read(&home, 1);
    let eye = witnessed(&home);
    read(&home, 2);
    let said = home.run(["doctor"]);
    assert!(said.out.contains("it has signed the newest checkpoint"), "{said:?}");
    let (old, anchors) = (home.path("old-state"), home.path("home/.local/share/vambrace"));
    copy(&home.state(), &old);
    copy(&anchors, &home.path("old-anchors"));
    read(&home, 3);
    set_back(&home, &old);
    std::fs::remove_dir_all(&anchors).unwrap();
    copy(&home.path("old-anchors"), &anchors);

    let refused = home.run(["call", "read_file", "path=src/main.rs"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("witness"), "{}", refused.err);
    assert_eq!(home.run(["audit", "verify"]).code, 6);

    let told = home.run(["call", "read_file", "path=src/main.rs", "--acknowledge-rollback"]);
    assert_eq!(told.code, 0, "{told:?}");
    read(&home, 1);
    assert!(home.run(["doctor"]).out.contains("does not follow"), "the witness is not pacified");

    drop(eye);
    read(&home, 1);
    assert!(home.run(["doctor"]).out.contains("could not be reached"));
}

#[test]
fn proofs_are_printed_and_a_kept_checkpoint_finds_a_cut() {
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

    // Another ledger altogether does not fit it.
    let other = Home::new();
    read(&other, 4);
    let found = other.run(["audit", "verify", "--checkpoint", kept, "--json"]);
    assert_eq!(found.code, 6);
    assert!(found.out.contains("other_ledger"), "{}", found.out);
}
