//! `vambrace sandbox run`: any program, its code, its output, its changes, its refusals.

use crate::home::{CANARY, Home};

/// The hash of "n" and a newline.
const N_AND_NEWLINE: &str = "sha256:a4fb621495a0122493b2203591c448903c472e306a1ede54fabad829e01075c0";

/// The program's own words with a shell's script.
fn words<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut words = vec!["sandbox", "run"];
    words.extend(options);
    words.extend(["--", "/bin/sh", "-c", script]);
    words
}

#[test]
fn a_program_keeps_its_output_and_its_code() {
    let home = Home::bare();
    let ran = home.run(words(&[], "echo out; echo err >&2; exit 9"));
    assert_eq!((ran.code, ran.out.as_str()), (9, "out\n"));
    assert!(ran.err.starts_with("err\n"), "{}", ran.err);
    let bound = home.run(words(&["--json"], "true")).json()["memory_bound"].clone();
    let memory = if bound == "watched" { "; memory is watched, not bounded by the kernel" } else { "" };
    assert!(ran.err.contains(&format!("[tier full{memory}]")), "{}", ran.err);
}

#[test]
fn deadlines_missing_programs_and_missing_walls_have_codes_of_their_own() {
    let home = Home::bare();
    assert_eq!(home.run(words(&["--timeout", "0.2"], "sleep 100")).code, 124);
    assert_eq!(home.run(["sandbox", "run", "--", "no-such-program"]).code, 125);
    let ran = home.run(["sandbox", "run", "--read", "/no/such/path", "--", "true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    let ran = home.run(["sandbox", "run", "--network", "https://example.org/", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn a_program_that_is_another_file_than_was_named_is_not_started() {
    let home = Home::bare();
    let other = "00".repeat(32);
    let ran = home.run(["sandbox", "run", "--sha256", other.as_str(), "--", "/bin/sh", "-c", "echo started"]);
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    assert!(ran.err.contains("was replaced"), "{}", ran.err);
    let ran = home.run(["sandbox", "run", "--sha256", "00", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

// Issue 3, 1: the ledger's key is read in no sandbox
#[test]
fn no_program_is_shown_the_state_folder() {
    let home = Home::new();
    home.call("list_files", "{}");
    let (state, link) = (home.state(), home.path("alias"));
    std::os::unix::fs::symlink(&state, &link).unwrap();
    let key = format!("cat {}", state.join("keys/ledger.key").display());
    for shown in [state.parent().unwrap(), &state, &state.join("keys"), &link] {
        for option in ["--read", "--write"] {
            let ran = home.run(words(&[option, shown.to_str().unwrap()], &key));
            assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{option} {}: {ran:?}", shown.display());
            assert!(ran.err.contains("state folder"), "{}", ran.err);
        }
    }
    let ran = home.run(words(&["--read", "/"], &key));
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    // In a folder of the home folder that is shown without being named.
    let within = home.path("home/.cargo/state");
    std::fs::create_dir_all(&within).unwrap();
    let ran = home.command(words(&[], &key)).env("VAMBRACE_HOME", &within).output().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(4), &b""[..]), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("state folder"), "{ran:?}");
    let beside = home.path("beside");
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("f"), "seen").unwrap();
    let script = format!("cat {}; {key}", beside.join("f").display());
    let ran = home.run(words(&["--read", beside.to_str().unwrap()], &script));
    assert_eq!(ran.out, "seen", "{ran:?}");
}

// P4, T12
#[test]
fn a_speculative_run_tells_its_changes_and_makes_none() {
    let home = Home::bare();
    let script = "echo more >>docs/guide.md; rm notes.txt; echo x >.env; echo x >.mcp.json; echo n >new.txt";
    let ran = home.run(words(&["--speculative", "--json"], script));
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = ran.json();
    let list = |key: &str| -> Vec<String> {
        told[key].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("changes"), ["docs/guide.md", "new.txt", "notes.txt"]);
    let mut withheld = list("withheld");
    withheld.sort();
    assert_eq!(withheld, [".env", ".mcp.json"]);
    assert!(told["changes"][0]["diff"].as_str().unwrap().contains("+more"), "{told}");
    assert_eq!(told["changes"][1]["after"]["hash"], N_AND_NEWLINE, "{told}");
    assert_eq!(told["sandbox_tier"], "full");
    assert_eq!(std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(), "# Guide\n");
    assert!(!home.project().join("new.txt").exists());
}

// P4
#[test]
fn what_a_killed_run_had_half_taken_over_is_settled_before_the_next_call() {
    let home = Home::new();
    let unfinished = || {
        let names = std::fs::read_dir(home.project()).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with(".vambrace-unfinished-"))
    };
    let begin = std::time::Instant::now();
    // Until one was killed in time: each has other names to take over.
    for round in 0.. {
        assert!(begin.elapsed().as_secs() < 20, "it was never seen at work");
        let script = format!("mkdir m{round}; cd m{round}; for i in $(seq 1500); do echo $i >$i; done");
        let mut run = home.command(words(&["--filesystem", "readwrite"], &script)).spawn().unwrap();
        while run.try_wait().unwrap().is_none() && !unfinished() {}
        run.kill().unwrap();
        run.wait().unwrap();
        if unfinished() {
            break;
        }
    }
    home.call("read_file", r#"{"path":"notes.txt"}"#);
    assert!(!unfinished());
    for folder in std::fs::read_dir(home.project()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if name.strip_prefix('m').is_some_and(|rest| rest.parse::<u32>().is_ok()) {
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1500, "{name}");
        }
    }
}

// P4
#[test]
fn readwrite_takes_changes_over_and_read_does_not() {
    let home = Home::bare();
    let script = "echo more >>docs/guide.md && echo n >new.txt";
    let ran = home.run(words(&[], script));
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("denied: write"), "{}", ran.err);
    assert!(!home.project().join("new.txt").exists());
    let ran = home.run(words(&["--filesystem", "readwrite"], script));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(), "# Guide\nmore\n");
    assert_eq!(std::fs::read_to_string(home.project().join("new.txt")).unwrap(), "n\n");
}

// P5
#[test]
fn only_allowed_variables_come_in() {
    let home = Home::bare();
    let ran = home.run(words(&[], "env"));
    assert!(!ran.out.contains(CANARY), "{}", ran.out);
    let ran = home.run(words(&["--env", "SOME_*"], "echo ${#SOME_TOKEN}"));
    assert_eq!(ran.out, format!("{}\n", CANARY.len()));
}

// Research A 5, 120 and 121
#[test]
fn a_secret_that_a_program_prints_is_not_shown() {
    let home = Home::bare();
    let script = "echo \"plain $SOME_TOKEN\"; printf %s \"$SOME_TOKEN\" | base64; printf %s \"$SOME_TOKEN\" | od -An -tx1 | tr -d ' \\n'; \
                  echo; printf canary-7f3a; sleep 0.1; echo 9c11-env; echo \"err $SOME_TOKEN\" >&2; echo x >\"name-$SOME_TOKEN\"";
    let encoded = "Y2FuYXJ5LTdmM2E5YzExLWVudg";
    let hex = "63616e6172792d37663361396331312d656e76";
    for options in
        [&["--env", "SOME_*", "--speculative"][..], &["--env", "SOME_*", "--speculative", "--json"]]
    {
        let ran = home.run(words(options, script));
        assert_eq!(ran.code, 0, "{ran:?}");
        for secret in [CANARY, encoded, hex] {
            assert!(!ran.out.contains(secret) && !ran.err.contains(secret), "{secret}: {ran:?}");
        }
        assert!(ran.out.contains("[REDACTED:"), "{ran:?}");
    }
}

#[test]
fn output_is_shown_while_the_program_runs() {
    let home = Home::bare();
    let mut child = home
        .command(words(&["--filesystem", "read"], "echo first; cat >/dev/null; echo last"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    // The program waits for the end of its input, which comes after this.
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"first\n");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_the_configuration_bounds_is_bounded() {
    let home = Home::bare();
    home.user_config("sandbox: {memory: 64MiB, pids: 20, tmp: 1MiB, tier: namespaces}\n");
    let ran = home.run(words(&["--memory", "1G"], "head -c 3000000 /dev/zero >/tmp/x; wc -c </tmp/x"));
    let written: u64 = ran.out.trim().parse().unwrap();
    // Together with the few files that every run has.
    assert!((900_000..=1 << 20).contains(&written), "{ran:?}");
    let ran = home.run(words(&[], "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 5 & done; echo all"));
    assert!(!ran.out.contains("all"), "{ran:?}");
}

// Issue 6, 4: as few as will do, and with them it works
#[test]
fn a_failure_is_explained_by_the_grants_that_it_would_need() {
    let home = Home::bare();
    let folder = home.path("outside.txt").canonicalize().unwrap().with_file_name("a folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f"), "there\n").unwrap();
    let check = |script: &str, expected: &[&str]| {
        let explained = home.run(words(&["--explain", "--json"], script)).json()["explain"].clone();
        assert_eq!(explained["grants"], serde_json::json!(expected), "{script}: {explained:#}");
        let mut options: Vec<&str> = Vec::new();
        for grant in expected {
            let (option, value) = grant.split_once(' ').unwrap();
            options.extend([option, value]);
        }
        let ran = home.run(words(&options, script));
        assert_eq!(ran.code, 0, "{script}: {ran:?}");
    };
    // Asked for by its name only, with what leads there.
    let look = format!("test -e '{0}' && test -e '{0}/f'", folder.display());
    check(&look, &[&format!("--read {}", folder.display())]);
    // Shown, and not to be opened.
    check("ls /etc >/dev/null", &["--read /etc"]);
    // A copy looks for more than it needs, and nothing else is behind it.
    check("cp notes.txt new.txt && cat notes.txt >>new.txt", &["--filesystem readwrite"]);
    let ran = home.run(words(&["--explain"], &format!("cat '{}/f'", folder.display())));
    assert!(ran.err.contains(&format!("would need: --read '{}/f'", folder.display())), "{}", ran.err);
    let ran = home.run(words(&["--explain", "--json"], "cat /proc/kallsyms"));
    let explained = &ran.json()["explain"];
    assert_eq!(explained["grants"], serde_json::json!([]), "{explained:#}");
    assert_eq!(explained["never"], serde_json::json!(["/proc/kallsyms"]), "{explained:#}");
}

#[test]
fn the_doctor_tells_every_feature_of_the_sandbox() {
    let home = Home::new();
    let told = home.run(["doctor", "--json"]).json();
    let names: Vec<&str> =
        told["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in [
        "sandbox",
        "namespaces",
        "mounts",
        "proc",
        "overlay",
        "landlock",
        "seccomp",
        "observer",
        "landlock audit",
        "control group",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}
