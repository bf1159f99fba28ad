//! `vambrace sandbox run`: exit code, output, changes and denials of a program.

use std::process::Stdio;

use crate::home::{CANARY, Home};

/// SHA-256 of "n\n".
const N_AND_NEWLINE: &str = "sha256:a4fb621495a0122493b2203591c448903c472e306a1ede54fabad829e01075c0";

/// The arguments to run a shell script in the sandbox.
fn words<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut words = vec!["sandbox", "run"];
    words.extend(options);
    words.extend(["--", "/bin/sh", "-c", script]);
    words
}

#[test]
fn output_and_exit_code_of_the_program_are_passed_on() {
    let home = Home::bare();
    let ran = home.run(words(&[], "echo out; echo err >&2; exit 9"));
    assert_eq!((ran.code, ran.out.as_str()), (9, "out\n"));
    assert!(ran.err.starts_with("err\n"), "{}", ran.err);
    let bound = home.run(words(&["--json"], "true")).json()["memory_bound"].clone();
    let memory = if bound == "watched" { "; memory is polled, not limited by the kernel" } else { "" };
    assert!(ran.err.contains(&format!("[tier full{memory}]")), "{}", ran.err);
}

// Lost output is an error; a reader that closes the pipe ends the program.
#[test]
fn lost_output_is_reported_and_a_closed_pipe_ends_the_program() {
    let home = Home::bare();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = home.command(words(&[], "echo lost")).stdout(full).output().unwrap();
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("standard output: No space left"), "{ran:?}");
    let (reading, writing) = std::io::pipe().unwrap();
    drop(reading);
    let ran = home.command(words(&[], "exec yes")).stdout(writing).output().unwrap();
    assert_eq!(ran.status.code(), Some(128 + 13), "{ran:?}");
}

#[test]
fn output_is_truncated_at_its_limit_and_a_signal_is_reported() {
    let home = Home::bare();
    let script = "head -c 2000000 /dev/zero; kill -SEGV $$";
    let ran = home.run(words(&["--output", "1500K"], script));
    assert_eq!((ran.code, ran.out.len()), (128 + 11, 1500 << 10));
    assert!(
        ran.err.contains("truncated: 1536000 of 2000000 bytes") && ran.err.contains("killed by signal 11"),
        "{}",
        ran.err
    );
    assert_eq!(home.run(words(&["--output", "2M"], script)).out.len(), 2_000_000);
}

// A prompt of the program is shown before it is answered.
#[test]
fn prompt_is_shown_before_its_line_ends() {
    use std::io::{Read as _, Write as _};
    let home = Home::bare();
    let mut asks = home.command(words(&["--timeout", "20"], "printf 'name? '; read name; echo hello $name"));
    let mut asks = asks.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut question, mut rest) = ([0; 6], String::new());
    let mut out = asks.stdout.take().unwrap();
    out.read_exact(&mut question).unwrap();
    asks.stdin.take().unwrap().write_all(b"ada\n").unwrap_or_default();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((&question, rest.as_str(), asks.wait().unwrap().code()), (b"name? ", "hello ada\n", Some(0)));
}

#[test]
fn timeout_missing_program_and_invalid_options_have_exit_codes() {
    let home = Home::bare();
    assert_eq!(home.run(words(&["--timeout", "0.2"], "sleep 100")).code, 124);
    assert_eq!(home.run(["sandbox", "run", "--", "no-such-program"]).code, 125);
    let ran = home.run(["sandbox", "run", "--read", "/no/such/path", "--", "true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    let ran = home.run(["sandbox", "run", "--network", "https://example.org/", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn program_with_another_hash_is_not_started() {
    let home = Home::bare();
    let other = "00".repeat(32);
    let ran = home.run(["sandbox", "run", "--sha256", other.as_str(), "--", "/bin/sh", "-c", "echo started"]);
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    assert!(ran.err.contains("was replaced"), "{}", ran.err);
    let ran = home.run(["sandbox", "run", "--sha256", "00", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

// No program can read the ledger's key
#[test]
fn state_directory_is_never_visible_to_a_program() {
    let home = Home::new();
    home.call("list_files", "{}");
    let (state, link) = (home.state(), home.path("alias"));
    std::os::unix::fs::symlink(&state, &link).unwrap();
    let key = format!("cat {}", state.join("keys/ledger.key").display());
    for shown in [state.parent().unwrap(), &state, &state.join("keys"), &link] {
        for option in ["--read", "--write"] {
            let ran = home.run(words(&[option, shown.to_str().unwrap()], &key));
            assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{option} {}: {ran:?}", shown.display());
            assert!(ran.err.contains("state directory"), "{}", ran.err);
        }
    }
    let ran = home.run(words(&["--read", "/"], &key));
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    // In a directory of the home directory that is visible by default.
    let within = home.path("home/.cargo/state");
    std::fs::create_dir_all(&within).unwrap();
    let ran = home.command(words(&[], &key)).env("VAMBRACE_HOME", &within).output().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(125), &b""[..]), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("state directory"), "{ran:?}");
    let beside = home.path("beside");
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("f"), "seen").unwrap();
    let script = format!("cat {}; {key}", beside.join("f").display());
    let ran = home.run(words(&["--read", beside.to_str().unwrap()], &script));
    assert_eq!(ran.out, "seen", "{ran:?}");
}

// P4, T12
#[test]
fn speculative_run_reports_changes_and_makes_none() {
    let home = Home::bare();
    let script = "echo more >>docs/guide.md; rm notes.txt; echo x >.env; echo x >.mcp.json; echo n >new.txt";
    let ran = home.run(words(&["--speculative", "--json"], script));
    assert_eq!(ran.code, 0, "{ran:?}");
    let reported = ran.json();
    let list = |key: &str| -> Vec<String> {
        reported[key].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("changes"), ["docs/guide.md", "new.txt", "notes.txt"]);
    let mut withheld = list("withheld");
    withheld.sort();
    assert_eq!(withheld, [".env", ".mcp.json"]);
    assert!(reported["changes"][0]["diff"].as_str().unwrap().contains("+more"), "{reported}");
    assert_eq!(reported["changes"][1]["after"]["hash"], N_AND_NEWLINE, "{reported}");
    assert_eq!(reported["sandbox_tier"], "full");
    assert_eq!(std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(), "# Guide\n");
    assert!(!home.project().join("new.txt").exists());
}

// P4: diffs of written-back changes show the old content
#[test]
fn diffs_are_against_the_content_before_the_write_back() {
    let home = Home::bare();
    for (mode, script, diffs) in [
        (
            "readwrite",
            "echo more >>docs/guide.md; rm notes.txt",
            &["@@ -1 +1,2 @@\n # Guide\n+more\n", "\n+++ /dev/null\n@@ -1"][..],
        ),
        ("write", "echo n >new.txt", &["\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+n\n"]),
    ] {
        let reported = home.run(words(&["--filesystem", mode, "--json"], script)).json();
        assert_eq!(reported["promoted"]["changes"], diffs.len(), "{reported}");
        for (change, diff) in reported["changes"].as_array().unwrap().iter().zip(diffs) {
            assert!(change["diff"].as_str().unwrap().contains(diff), "{change}");
            let side = if change["kind"] == "deleted" { "before" } else { "after" };
            assert!(change[side]["hash"].as_str().unwrap().starts_with("sha256:"), "{change}");
        }
    }
    let ran = home.run(words(&["--filesystem", "readwrite"], "printf 'a\\r\\n' >new.txt"));
    assert!(ran.err.starts_with("modified new.txt\n["), "{}", ran.err);
    let ran = home.run(words(&["--speculative"], "printf 'a\\r\\nb\\r\\n' >new.txt"));
    assert!(ran.err.contains("\n a\u{240d}\n+b\u{240d}\n["), "{}", ran.err);
}

// P4, B6: the report contains names that the program chose
#[test]
fn file_name_cannot_forge_a_line_of_the_report() {
    let home = Home::bare();
    let name = |name: &str| format!("\"$(printf '{name}')\"");
    let script = format!(
        "exec 2>/dev/null; echo x >{}; echo x >{}; ln -s {} l; echo x >{}; echo x >{}; exit 1",
        name("a\\n+++ b"),
        name(".env\\nmodified y/.env"),
        name("t\\ndeleted all"),
        name("/etc/h\\ndenied: all\\nwould need: --write x"),
        name("/etc/vambrace\\nx/y"),
    );
    for options in [&["--speculative", "--explain"][..], &["--filesystem", "readwrite"], &["--explain"]] {
        let ran = home.run(words(options, &script));
        let begins = ["+++ b", "modified y", "deleted all", "denied: all", "would need: --write x", "x/y"];
        let forged = |line: &&str| begins.iter().any(|begin| line.trim_start().starts_with(begin));
        assert_eq!(ran.err.lines().find(forged), None, "{}", ran.err);
        assert!(ran.err.contains("denied: write \"/etc/h\\ndenied: all"), "{}", ran.err);
        if options == ["--speculative", "--explain"] {
            assert!(ran.err.contains("+++ \"b/a\\n+++ b\""), "{}", ran.err);
            assert!(ran.err.contains("link to `\"t\\ndeleted all\"`"), "{}", ran.err);
        }
    }
}

// P9, B6: many files with long names neither flood the report nor hide other changes
#[test]
fn report_lists_a_bounded_number_of_changes_and_counts_the_rest() {
    let home = Home::bare();
    let folder = vec!["a".repeat(240); 15].join("/");
    let script =
        format!("mkdir -p {folder}; cd {folder}; for i in $(seq 310); do : >$i; done; cd -; rm notes.txt");
    let ran = home.run(words(&["--filesystem", "readwrite"], &script));
    let listed =
        |begin: &str, reported: &str| reported.lines().filter(|line| line.starts_with(begin)).count();
    let created = listed("created ", &ran.err);
    let more = format!("changes are not listed: {} created; `--every-change`", 325 - created);
    assert!(created < 310 && ran.err.contains(&more), "{created}: {}", ran.err);
    assert_eq!(listed("deleted notes.txt", &ran.err), 1, "{}", ran.err);
    // Unlisted changes are written back too.
    assert!((1..=310).all(|number| home.project().join(&folder).join(number.to_string()).exists()));
    let script = "rm -r aaa*";
    let reported = home.run(words(&["--speculative", "--json"], script)).json();
    let deleted = reported["changes"].as_array().unwrap().len();
    assert!((1..310).contains(&deleted), "{deleted}");
    assert_eq!(reported["unlisted"]["changes"]["deleted"], 325 - deleted, "{}", reported["unlisted"]);
    assert!(
        reported["unlisted"]["hint"].as_str().unwrap().contains("--every-change"),
        "{}",
        reported["unlisted"]
    );
    let ran = home.run(words(&["--filesystem", "readwrite", "--every-change"], script));
    assert_eq!((listed("deleted ", &ran.err), listed("further changes", &ran.err)), (325, 0), "{}", ran.err);
}

// P4
#[test]
fn interrupted_write_back_is_completed_before_the_next_call() {
    let home = Home::new();
    let unfinished = || {
        let names = std::fs::read_dir(home.project()).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with(".vambrace-unfinished-"))
    };
    let begin = std::time::Instant::now();
    // Repeated until a run was killed during its write-back; each run has other names.
    for round in 0.. {
        assert!(begin.elapsed().as_secs() < 20, "no run was killed during its write-back");
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

// P6
#[test]
fn signal_stops_the_program_and_its_changes_are_written_back() {
    let home = Home::bare();
    let script = "echo x >made; echo up; while :; do sleep 1; done";
    // SIGINT may already be ignored in the parent of the tests; a shell cannot change that.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let ignored = u64::from_str_radix(mask, 16).unwrap() & 2 != 0;
    for (first, trap, code) in
        [("-INT", "trap - INT", 130), ("-TERM", "trap - INT", 143), ("-INT", "trap '' INT", 143)]
    {
        let mut start = std::process::Command::new("/bin/sh");
        let run = home.command(words(&["--filesystem", "readwrite", "--timeout", "600"], script));
        start.args(["-c", &format!("{trap}; exec \"$@\""), "sh"]).arg(run.get_program()).args(run.get_args());
        start.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        start.current_dir(home.project()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(&said, b"up\n");
        let send = |name: &str| {
            let sent = std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
            assert!(sent.unwrap().success());
        };
        send(first);
        if first == "-INT" && (ignored || trap.contains("''")) {
            // The first signal was ignored.
            send("-TERM");
        }
        let ended = child.wait_with_output().unwrap();
        let reported = String::from_utf8_lossy(&ended.stderr);
        let code = if first == "-INT" && ignored { 143 } else { code };
        assert_eq!(ended.status.code(), Some(code), "{first} {trap}: {reported}");
        assert!(reported.contains("stopped; all processes were killed"), "{reported}");
        assert_eq!(std::fs::read_to_string(home.project().join("made")).unwrap(), "x\n");
        std::fs::remove_file(home.project().join("made")).unwrap();
    }
}

// P6: one signal is enough, even if the reader is stuck and output is left
#[test]
fn stuck_reader_does_not_delay_a_signal() {
    let home = Home::bare();
    let all_at_the_end = ["--json"].as_slice();
    for (options, script) in [([].as_slice(), "exec yes"), (all_at_the_end, "yes | head -c 300000")] {
        let run = &mut home.command(words(options, script));
        let mut child = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        wait_until_full(child.stdout.as_ref().unwrap());
        let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(143), "{options:?}");
    }
}

/// The content of the file with this name below a directory that changes meanwhile.
fn read_below(dir: &std::path::Path, name: &str) -> Option<String> {
    std::fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        if entry.file_name() == name {
            std::fs::read_to_string(entry.path()).ok()
        } else {
            read_below(&entry.path(), name)
        }
    })
}

/// Waits until a pipe that has no reader takes no more: its writer is blocked.
fn wait_until_full(pipe: &std::process::ChildStdout) {
    let (mut last, mut unchanged) = (0, 0);
    while unchanged < 5 {
        // The writer fills the pipe meanwhile; polling is the only way to see that it stopped.
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        let held = rustix::io::ioctl_fionread(pipe).unwrap();
        unchanged = if held > 0 && held == last { unchanged + 1 } else { 0 };
        last = held;
    }
}

#[test]
fn explanation_that_is_stopped_is_marked_incomplete() {
    let home = Home::bare();
    // Build directories are kept, so the marks of both runs are visible from outside; the second run waits to be killed.
    let script =
        "echo run >>target/marks; touch /etc/x || { [ $(wc -l <target/marks) = 1 ] || sleep 60; exit 1; }";
    let run = &mut home.command(words(&["--explain", "--json"], script));
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while read_below(&home.state(), "marks").as_deref() != Some("run\nrun\n") {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    let reported: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(reported["explain"]["denials_missing"], true, "{reported}");
}

#[test]
fn limits_that_are_too_small_are_rejected() {
    let home = Home::bare();
    for option in ["--memory", "--disk"] {
        let ran = home.run(words(&[option, "1K"], "true"));
        assert!(ran.code == 2 && ran.err.contains("at least 4M"), "{ran:?}");
    }
}

// P4
#[test]
fn readwrite_writes_changes_back_and_read_does_not() {
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

// P4: if a file of the user changed during the run, the user's version wins and the exit code says so
#[test]
fn conflict_with_a_concurrent_change_has_a_code_and_an_exit_code() {
    for (mode, code) in [("readwrite", 5), ("speculative", 0)] {
        let home = Home::bare();
        let place = home.path("signal");
        std::fs::create_dir(&place).unwrap();
        let (place, pipe) = (place.to_str().unwrap(), place.join("wait"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut options = vec!["--json", "--write", place];
        options.extend(if mode == "speculative" {
            vec!["--speculative"]
        } else {
            vec!["--filesystem", mode]
        });
        let script = format!("echo agent >>notes.txt; echo x >.mcp.json; cat {}", pipe.display());
        let run = &mut home.command(words(&options, &script));
        let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The open returns when the program opens the FIFO for reading.
        let writes = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        home.write("notes.txt", "user\n");
        drop(writes);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{mode} {ended:?}");
        let reported: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        let mut codes: Vec<_> = reported["withheld"].as_array().unwrap().iter().collect();
        codes.sort_by_key(|one| one["path"].as_str());
        assert_eq!(codes[0]["code"], "Protected", "{reported}");
        assert_eq!((&codes[1]["code"], &codes[1]["why"]), (&"StaleBase".into(), &"changed meanwhile".into()));
        assert_eq!(reported["exit_code"], 0, "exit code of the program itself");
        assert_eq!(std::fs::read_to_string(home.project().join("notes.txt")).unwrap(), "user\n");
    }
    // Changes that are withheld by a rule are not a failure.
    let ran = Home::bare().run(words(&["--filesystem", "readwrite"], "echo x >.mcp.json"));
    assert_eq!(ran.code, 0, "{ran:?}");
}

// T12, P4: the user's own files hold inside, whatever the program uses to read
#[test]
fn blocked_and_denied_paths_are_hidden_from_programs_and_not_written_back() {
    let home = Home::bare();
    home.write("private/key.txt", "blocked-by-the-user\n");
    home.write("docs/private/plan.md", "denied-by-a-rule\n");
    home.user_config(
        "workspace: {block: [private/]}\napprovals: {rules: [{paths: ['docs/private/**'], decision: deny}]}\n",
    );
    let files = "private/key.txt docs/private/plan.md";
    let python = "import sys; [sys.stdout.write(open(n).read()) for n in sys.argv[1:]]";
    for script in [
        format!("cat {files}"),
        format!("grep -r . {files}"),
        "! grep -rE 'blocked-by|denied-by' .".to_owned(),
        format!("python3 -c '{python}' {files}"),
    ] {
        for options in [&[][..], &["--filesystem", "readwrite"], &["--speculative"]] {
            let ran = home.run(words(options, &script));
            let said = format!("{}{}", ran.out, ran.err);
            assert!(
                !said.contains("blocked-by-the-user") && !said.contains("denied-by-a-rule"),
                "{script}: {said}"
            );
            assert_eq!(ran.code == 0, script.starts_with('!'), "{script}: {ran:?}");
        }
    }
    let script = "mkdir -p private docs/private; for n in private/key.txt docs/private/plan.md docs/private/new; do echo agent >$n; done; \
                  echo more >>docs/guide.md";
    let ran = home.run(words(&["--filesystem", "readwrite", "--json"], script));
    assert_eq!(ran.code, 0, "{ran:?}");
    let read = |name: &str| std::fs::read_to_string(home.project().join(name)).ok();
    assert_eq!(read("private/key.txt").as_deref(), Some("blocked-by-the-user\n"));
    assert_eq!(read("docs/private/plan.md").as_deref(), Some("denied-by-a-rule\n"));
    assert_eq!(read("docs/private/new"), None);
    assert_eq!(read("docs/guide.md").as_deref(), Some("# Guide\nmore\n"));
    // No tier limits single names in a directory that a program changes directly.
    let docs = home.project().join("docs");
    let ran = home.run(words(&["--json", "--write", docs.to_str().unwrap()], "echo agent >docs/private/new"));
    assert_eq!((ran.code, read("docs/private/new")), (125, None), "{ran:?}");
    assert!(format!("{}{}", ran.out, ran.err).contains("SandboxUnavailable"), "{ran:?}");
}

// P5: the passphrase of the approver is in such a variable
#[test]
fn own_environment_variables_are_never_passed() {
    let home = Home::bare();
    for names in ["*", "VAMBRACE_*", "VAMBRACE_PASSPHRASE,LANG"] {
        let mut command = home.command(words(&["--env", names], "env"));
        let ran = command.env("VAMBRACE_PASSPHRASE", "never").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(said.contains("PATH=") && !said.contains("VAMBRACE_"), "{names}: {said}");
    }
}

// P5
#[test]
fn only_selected_environment_variables_are_passed() {
    let home = Home::bare();
    let ran = home.run(words(&[], "env"));
    assert!(!ran.out.contains(CANARY), "{}", ran.out);
    let ran = home.run(words(&["--env", "SOME_*"], "echo ${#SOME_TOKEN}"));
    assert_eq!(ran.out, format!("{}\n", CANARY.len()));
}

#[test]
fn secret_printed_by_a_program_is_redacted() {
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
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    // The program waits for the end of its input, which is closed below.
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"first\n");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn limits_of_the_configuration_apply() {
    let home = Home::bare();
    home.user_config("sandbox: {memory: 64MiB, pids: 20, tmp: 1MiB, tier: namespaces}\n");
    let ran = home.run(words(&["--memory", "1G"], "head -c 3000000 /dev/zero >/tmp/x; wc -c </tmp/x"));
    let written: u64 = ran.out.trim().parse().unwrap();
    // Includes the few files that every run has.
    assert!((900_000..=1 << 20).contains(&written), "{ran:?}");
    let ran = home.run(words(&[], "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 5 & done; echo all"));
    assert!(!ran.out.contains("all"), "{ran:?}");
}

// The options are minimal and sufficient
#[test]
fn failure_is_explained_by_the_needed_options() {
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
    // Only looked up, with its parent directory.
    let look = format!("test -e '{0}' && test -e '{0}/f'", folder.display());
    check(&look, &[&format!("--read {}", folder.display())]);
    // Visible, but not readable.
    check("ls /etc >/dev/null", &["--read /etc"]);
    // `cp` looks up more files than it needs.
    check("cp notes.txt new.txt && cat notes.txt >>new.txt", &["--filesystem readwrite"]);
    let ran = home.run(words(&["--explain"], &format!("cat '{}/f'", folder.display())));
    assert!(ran.err.contains(&format!("would need: --read '{}/f'", folder.display())), "{}", ran.err);
    let ran = home.run(words(&["--explain", "--json"], "cat /proc/kallsyms"));
    let explained = &ran.json()["explain"];
    assert_eq!(explained["grants"], serde_json::json!([]), "{explained:#}");
    assert_eq!(explained["never"], serde_json::json!(["/proc/kallsyms"]), "{explained:#}");
}

// Neither impossible nor superfluous options
#[test]
fn explanation_names_limits_and_no_missing_paths() {
    let home = Home::bare();
    let ran = home.run(words(&["--explain", "--json", "--timeout", "0.2"], "sleep 100"));
    assert_eq!(ran.json()["explain"]["grants"], serde_json::json!(["--timeout 0.4"]), "{ran:?}");
    let ran = home.run(words(&["--explain", "--json"], "/no/such/program"));
    assert_eq!(ran.json()["explain"]["grants"], serde_json::json!([]), "{ran:?}");
    let ran = home.run(words(&["--explain", "--filesystem", "deny"], "cat notes.txt"));
    assert!(!ran.err.contains("is not why it fails"), "{}", ran.err);
    for option in ["--timeout", "--processes"] {
        assert_eq!(home.run(words(&[option, "0"], "true")).code, 2, "{option}");
    }
}

/// Explains a program, runs it with exactly the reported options and `further` ones that cannot be granted, and returns the
/// reported options.
fn explained(home: &Home, program: &[&str], further: &[&str]) -> Vec<String> {
    let run = |options: &[&str]| {
        let mut words = vec!["sandbox", "run"];
        words.extend(options);
        words.push("--");
        words.extend(program);
        let path = format!("{}:/usr/bin:/bin", home.path("home/kit/bin").display());
        let ran = home.command(words).env("PATH", path).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let (code, reported, said) = run(&["--explain", "--json"]);
    assert_ne!(code, Some(0), "{program:?}: {said}");
    let reported: serde_json::Value = serde_json::from_str(&reported).unwrap();
    let grants: Vec<String> = serde_json::from_value(reported["explain"]["grants"].clone()).unwrap();
    let mut options: Vec<&str> = grants.iter().flat_map(|grant| grant.splitn(2, ' ')).collect();
    options.extend(further);
    let ran = run(&options);
    assert_eq!(ran.0, Some(0), "{program:?} {options:?}: {ran:?} {reported:#}");
    grants
}

// The reported options are sufficient
#[test]
fn common_programs_work_with_the_reported_options() {
    let home = Home::bare();
    std::fs::create_dir_all(home.path("home/notes")).unwrap();
    let real = home.path("home").canonicalize().unwrap();
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.current_dir(home.project()).env("HOME", home.path("home")).args(words);
        assert!(command.output().unwrap().status.success(), "{words:?}");
    };
    for words in
        [&["init", "-q"][..], &["config", "user.email", "a@b.example"], &["config", "user.name", "a"]]
    {
        git(words);
    }
    git(&["add", "notes.txt"]);
    let readwrite = ["--filesystem readwrite"];
    assert_eq!(explained(&home, &["git", "commit", "-qm", "one"], &[]), readwrite);
    home.write("m.py", "x = 1\n");
    let compile = "import py_compile; py_compile.compile('m.py', doraise=True)";
    assert_eq!(explained(&home, &["python3", "-c", compile], &[]), readwrite);
    // A directory of the user that is not visible.
    let script = format!("echo x >>{}", real.join("notes/log").display());
    assert_eq!(
        explained(&home, &["sh", "-c", &script], &[]),
        [format!("--write {}", real.join("notes").display())]
    );
    assert_eq!(std::fs::read_to_string(home.path("home/notes/log")).unwrap(), "x\n", "written once");
    // The directories in `PATH` are visible, their neighbours are not.
    for folder in ["bin", "lib"] {
        std::fs::create_dir_all(home.path("home/kit").join(folder)).unwrap();
    }
    std::fs::write(home.path("home/kit/lib/data"), "data\n").unwrap();
    let tool = home.path("home/kit/bin/tool");
    std::fs::write(&tool, "#!/bin/sh\ncat \"${0%/*}/../lib/data\"\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(explained(&home, &["tool"], &[]), [format!("--read {}", real.join("kit/lib/data").display())]);
    // A host name: reported, although nothing is sent.
    let proxy = format!("http://127.0.0.1:{}", proxy());
    let get = "exec 3<>/dev/tcp/some.example/80 && printf 'GET / HTTP/1.1\\r\\nHost: some.example\\r\\nConnection: close\\r\\n\\r\\n' >&3 && \
               cat <&3 | grep served";
    let grants = explained(&home, &["bash", "-c", get], &["--upstream-proxy", &proxy]);
    assert_eq!(grants, ["--network some.example"]);
}

/// Files outside the workspace that a program may not access.
struct Outside {
    home: Home,
    folder: std::path::PathBuf,
}

impl Outside {
    fn new() -> Self {
        let home = Home::bare();
        let folder = home.path("outside.txt").canonicalize().unwrap().with_file_name("outside");
        for name in ["out/sub", "out2", "lib"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let program = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::copy("/bin/cat", folder.join("lib/show")).unwrap();
        std::fs::write(folder.join("out/script"), format!("#! {}/lib/show -u\ntext\n", folder.display()))
            .unwrap();
        std::fs::set_permissions(folder.join("out/script"), program).unwrap();
        for name in ["out/data", "out/sub/x", "out2/data", "lib/q"] {
            std::fs::write(folder.join(name), "there\n").unwrap();
        }
        for (link, target) in [("out/lnk", "../lib/q"), ("out/dirlnk", "../lib"), ("out/near", "data")] {
            std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
        }
        std::os::unix::fs::symlink(folder.join("lib"), home.path("project/leads")).unwrap();
        Self { home, folder }
    }

    /// Explains a script, with `OUT` replaced by the directory, and compares the reported options.
    #[track_caller]
    fn check(&self, script: &str, expected: &[&str]) {
        let real = |text: &str| text.replace("OUT", self.folder.to_str().unwrap());
        let grants = explained(&self.home, &["sh", "-c", &real(script)], &[]);
        assert_eq!(grants, expected.iter().map(|text| real(text)).collect::<Vec<_>>(), "{script}");
    }
}

// Removing a file changes its directory, moving it changes two
#[test]
fn files_can_be_removed_and_moved_with_the_reported_options() {
    Outside::new().check("rm OUT/out/data", &["--write OUT/out"]);
    Outside::new().check("rm -r OUT/out/sub", &["--write OUT/out"]);
    Outside::new().check("rm OUT/out/lnk", &["--write OUT/out"]);
    Outside::new().check("mv OUT/out/data OUT/out2/data", &["--write OUT/out", "--write OUT/out2"]);
    Outside::new().check("mv OUT/out/data OUT/out2/", &["--write OUT/out", "--write OUT/out2"]);
    Outside::new().check("mv -T OUT/out/data OUT/out/other", &["--write OUT/out"]);
    // A path that is granted by its own name cannot be removed.
    let outside = Outside::new();
    let (sub, out) = (outside.folder.join("out/sub"), outside.folder.join("out"));
    let script = format!("rm -r {}", sub.display());
    let ran = outside.home.run(words(&["--explain", "--json", "--write", sub.to_str().unwrap()], &script));
    let reported = &ran.json()["explain"];
    assert_eq!(reported["grants"], serde_json::json!([format!("--write {}", out.display())]), "{reported:#}");
    assert_eq!(reported["in_place_of"], serde_json::json!([sub]), "{reported:#}");
}

// A symlink needs its directory and its target
#[test]
fn symlinks_work_with_the_reported_options() {
    let outside = Outside::new();
    outside.check("cat OUT/out/lnk", &["--read OUT/lib/q", "--read OUT/out"]);
    outside.check("cat OUT/out/dirlnk/q", &["--read OUT/lib/q", "--read OUT/out"]);
    outside.check("cat OUT/out/near", &["--read OUT/out"]);
    outside.check("test -e OUT/out/near", &["--read OUT/out"]);
    outside.check("cat leads/q", &["--read OUT/lib/q"]);
    outside.check("echo x >>OUT/out/lnk", &["--read OUT/out", "--write OUT/lib/q"]);
    outside.check("OUT/out/script", &["--read OUT/lib/show", "--read OUT/out/script"]);
    // The script itself is not enough.
    let script = outside.folder.join("out/script");
    let script = script.to_str().unwrap();
    let ran = outside.home.run(words(&["--explain", "--json", "--read", script], script));
    let grants = serde_json::json!([format!("--read {}", outside.folder.join("lib/show").display())]);
    assert_eq!(ran.json()["explain"]["grants"], grants, "{ran:?}");
}

// The explanation states what it cannot detect, and suggests nothing that the user may not access
#[test]
fn explanation_states_what_it_cannot_detect() {
    let home = Home::bare();
    let ran = home.run(words(&["--explain", "--disk", "4M"], "head -c 8000000 /dev/zero >/tmp/x"));
    assert!(ran.err.contains("filling `--disk` is not detected"), "{}", ran.err);
    let ran = home.run(words(&["--explain"], "truncate -s 1G /tmp/x; echo x >>/tmp/x"));
    assert!(ran.err.contains("never granted: a file of more than 1024M"), "{}", ran.err);
    if rustix::process::geteuid().is_root() {
        vambrace_skip::skip_part("root may open every file");
        return;
    }
    let ran = home.run(words(&["--explain"], "cat /etc/shadow"));
    assert!(ran.err.contains("never granted: /etc/shadow: you have no access yourself"), "{}", ran.err);
    assert!(!ran.err.contains("would need"), "{}", ran.err);
}

// Overlayfs cannot copy up a file whose group is not mapped
#[test]
fn group_that_prevents_a_change_is_reported() {
    let own = rustix::process::getegid();
    let other = rustix::process::getgroups().unwrap().into_iter().find(|group| *group != own);
    let Some(other) = other.filter(|_| !rustix::process::geteuid().is_root()) else {
        vambrace_skip::skip("needs an unprivileged user with two groups");
        return;
    };
    let home = Home::bare();
    let notes = home.path("project/notes.txt");
    let explain = || home.run(words(&["--explain", "--filesystem", "readwrite"], "echo x >>notes.txt"));
    std::os::unix::fs::chown(&notes, None, Some(other.as_raw())).unwrap();
    let ran = explain();
    let said = format!("notes.txt has group {}, which is not your current group", other.as_raw());
    assert!(ran.code != 0 && ran.err.contains(&said), "{ran:?}");
    // The suggested fix works.
    std::os::unix::fs::chown(&notes, None, Some(own.as_raw())).unwrap();
    let ran = explain();
    assert!(ran.code == 0 && !ran.err.contains("has group"), "{ran:?}");
}

/// A proxy that answers every request itself.
fn proxy() -> u16 {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 1000];
            let length = stream.read(&mut asked).unwrap_or(0);
            if asked[..length].starts_with(b"CONNECT") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                let _ = stream.read(&mut asked);
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nserved\n");
        }
    });
    port
}

// An explanation changes nothing
#[test]
fn writes_during_an_explanation_are_discarded() {
    let home = Home::bare();
    let log = home.path("outside.txt").canonicalize().unwrap().with_file_name("log");
    std::fs::write(&log, "begin\n").unwrap();
    let script = format!("echo line >>{}; exit 3", log.display());
    let ran = home.run(words(&["--explain", "--write", log.to_str().unwrap()], &script));
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "begin\nline\n");
    let folder = log.with_file_name("logs");
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    std::fs::write(folder.join("old"), "old\n").unwrap();
    let script = format!(
        "cd {}; echo line >>deep/log; test -e gone && exit 4; cat old && rm old; >gone; exit 3",
        folder.display()
    );
    let ran = home.run(words(&["--explain", "--write", folder.to_str().unwrap()], &script));
    assert_eq!((ran.code, ran.out.as_str()), (3, "old\n"), "{ran:?}");
    assert!(
        ran.err.contains("with everything observed, exit code 4"),
        "it must see the files of the first run: {}",
        ran.err
    );
    assert_eq!(std::fs::read_to_string(folder.join("deep/log")).unwrap(), "line\n");
}

/// Runs as on a machine without user namespaces.
fn without_namespaces(home: &Home, options: &[&str], script: &str) -> Option<std::process::Output> {
    if rustix::process::geteuid().is_root() {
        vambrace_skip::skip(
            "root needs no user namespace; the second pass of `cargo xtask test` is another user",
        );
        return None;
    }
    let program = home.command::<&str>([]).get_program().to_owned();
    let limit =
        "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps -all --inh-caps -all \"$@\"";
    let command = home.command(words(options, script));
    let arguments: Vec<std::ffi::OsString> = command.get_args().map(Into::into).collect();
    let mut outer = std::process::Command::new("unshare");
    outer
        .args(["-U", "--map-current-user", "--keep-caps", "sh", "-c", limit, "sh"])
        .arg(program)
        .args(arguments);
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    Some(outer.current_dir(home.project()).output().unwrap())
}

#[test]
fn without_namespaces_a_new_file_needs_filesystem_write() {
    let home = Home::bare();
    let check = |options: &[&str], script: &str, expected: &str| {
        let Some(ran) = without_namespaces(&home, options, script) else { return };
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("[tier no-userns") && said.contains(expected), "{script}: {said}");
    };
    check(&["--explain"], "echo x >new.txt", "would need: --filesystem write");
    check(&["--explain"], "cat notes.txt >new.txt", "never granted:");
    let log = home.path("outside.txt").canonicalize().unwrap();
    let elsewhere = log.with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("q"), "there\n").unwrap();
    std::os::unix::fs::symlink(&elsewhere, home.path("project/leads")).unwrap();
    let place = elsewhere.display();
    check(&["--explain"], "cat leads/q", &format!("would need: --read {place}/q"));
    check(&["--explain"], &format!("rm {place}/q"), &format!("would need: --write {place}\n"));
    let before = std::fs::read_to_string(&log).unwrap();
    check(
        &["--explain", "--write", log.to_str().unwrap()],
        &format!("echo line >>{}; exit 3", log.display()),
        "explain: not run again",
    );
    if !rustix::process::geteuid().is_root() {
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{before}line\n"));
    }
}

#[test]
fn doctor_reports_every_feature_of_the_sandbox() {
    let home = Home::new();
    let reported = home.run(["doctor", "--json"]).json();
    let names: Vec<&str> =
        reported["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
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
