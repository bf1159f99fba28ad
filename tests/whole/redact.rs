//! `vambrace redact`: the filter and the report. Tokens are concatenated here, so that no scanner finds one in this file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::Value;

use crate::home::{CANARY, Home, Ran};

fn token() -> String {
    format!("gh{}_{}", "p", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

fn filter(home: &Home, args: &[&str], input: &[u8]) -> Ran {
    let mut child = home
        .command(["redact"].iter().chain(args))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

// T21: exit 0 if nothing was found, 1 if something was
#[test]
fn the_filter_replaces_secrets_and_reports_them_by_exit_status() {
    let home = Home::bare();
    let ran = filter(&home, &[], b"nothing here\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "nothing here\n", ""));
    let ran = filter(&home, &[], format!("a {} b {CANARY}\n", token()).as_bytes());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.starts_with("a [REDACTED:github-token:") && ran.out.contains("[REDACTED:env:"),
        "{ran:?}"
    );
    assert!(!ran.out.contains(&token()) && !ran.out.contains(CANARY));
    let again = filter(&home, &[], ran.out.as_bytes());
    assert_eq!((again.code, again.out), (0, ran.out));
    let binary = [0_u8, 255, 254, b'\n', 7];
    let mut child = home.command(["redact"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&binary).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, binary);
}

// The filter writes the lines of a pipe while the pipe is still open
#[test]
fn lines_are_written_as_they_arrive() {
    let home = Home::bare();
    let mut child = home.command(["redact"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    for (sent, expected) in
        [("one\n".to_owned(), "one"), (format!("x={}\n", token()), "x=[REDACTED:github-token:")]
    {
        input.write_all(sent.as_bytes()).unwrap();
        // The write end stays open: without a flush this would block for ever.
        assert!(lines.next().unwrap().unwrap().starts_with(expected));
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn reports_name_positions_and_never_the_secret() {
    let home = Home::bare();
    home.write("a.txt", &format!("one\ntwo {}\n", token()));
    home.write("b.txt", "clean\n");
    let ran = home.run(["redact", "--report", "json", "a.txt", "b.txt"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["count"], 1);
    let found = &report["findings"][0];
    assert_eq!(
        (&found["file"], &found["line"], &found["column"], &found["kind"]),
        (&"a.txt".into(), &2.into(), &5.into(), &"github-token".into())
    );
    let ran = home.run(["redact", "--report", "sarif", "a.txt"]);
    let sarif: Value = ran.json();
    assert_eq!(sarif["version"], "2.1.0");
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(
        (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
        (&"a.txt".into(), &2.into())
    );
    assert!(!ran.out.contains(&token()));
    assert_eq!(home.run(["redact", "--json", "b.txt"]).json()["count"], 0);
}

// T21, T24: imported rules and patterns of the configuration; a rule that does not compile is reported with its location
#[test]
fn rules_can_be_added_and_invalid_ones_are_reported_with_their_location() {
    let home = Home::bare();
    home.write(
        "mine.toml",
        "[[rules]]\nid = \"acme\"\nregex = '''acme_[0-9]{4}'''\nkeywords = [\"acme_\"]\n",
    );
    home.write("a.txt", "acme_1234 and zq-77\n");
    home.user_config("secrets: {redact_patterns: [zq-...]}\n");
    let ran = home.run(["redact", "--rules", "mine.toml", "a.txt"]);
    assert!(ran.out.starts_with("[REDACTED:acme:") && ran.out.contains("[REDACTED:pattern:"), "{ran:?}");
    home.write("bad.toml", "[[rules]]\nid = \"bad\"\nregex = '''acme_('''\nkeywords = [\"acme_\"]\n");
    let ran = home.run(["redact", "--rules", "bad.toml", "a.txt"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("bad.toml:2: rule `bad`"), "{ran:?}");
    assert_eq!(home.run(["redact", "missing.txt"]).code, 2);
}

// One unreadable file does not stop the others, and the exit status reports it
#[test]
fn an_unreadable_file_is_reported_and_the_others_are_processed() {
    let home = Home::bare();
    home.write("a.txt", "one\n");
    home.write("b.txt", &format!("two {}\n", token()));
    let ran = home.run(["redact", "a.txt", "missing.txt", "src", "b.txt"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.out.starts_with("one\ntwo [REDACTED:github-token:"), "{ran:?}");
    assert!(ran.err.contains("missing.txt") && ran.err.contains("`src`"), "{ran:?}");
    let ran = home.run(["redact", "--report", "json", "missing.txt", "b.txt"]);
    assert_eq!(
        (ran.code, &ran.json()["count"], &ran.json()["unread"][0]),
        (2, &1.into(), &"missing.txt".into())
    );
}

// A home directory contains the state directory and is not a project
#[test]
fn the_filter_works_inside_the_state_directory() {
    let home = Home::bare();
    home.user_config("secrets: {redact_patterns: [zq-...]}\n");
    let text = format!("a {CANARY} zq-77\n");
    for directory in [home.path(""), home.state()] {
        std::fs::create_dir_all(&directory).unwrap();
        let mut child = home
            .command(["redact"])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}: {out}", directory.display());
        assert!(out.contains("[REDACTED:env:") && out.contains("[REDACTED:pattern:"), "{out}");
    }
}

// The exit status is that of a program killed by SIGPIPE
#[test]
fn a_closed_output_pipe_is_not_a_success() {
    let home = Home::bare();
    home.write("large.log", &"an ordinary line of a log\n".repeat(100_000));
    for args in [vec!["redact", "large.log"], vec!["redact", "--report", "json", "large.log"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = home.command(args).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(141));
    }
}

// T21: a search or read that shows the value, but not the line above it that has the name
#[test]
fn a_value_below_its_name_is_masked_when_it_is_shown_alone() {
    let home = Home::new();
    home.write("a.yaml", "db:\n  password:\n    \"aB3!xyz77Q\"\n  port: 1\nenv:\n- name: DB_PASSWORD\n  value: aB3!xyz77Q\nfolded: >-\n  plainword\npassword: |\n  aB3!xyz77Q\n");
    home.write("far.yaml", "password: >-\n\n\n\n\n  aB3!xyz77Q\nport: 1\n");
    home.write("call.sh", "curl -u \\\n  bob:aB3!xyz77Q https://x\npsql postgres://b:aB3!xyz77Q@db/x\n");
    for (tool, args) in [
        ("search_file", r#"{"regex":"^    |^  value: ","path":"a.yaml","context_lines":0}"#),
        ("search_file", r#"{"regex":"port","path":"a.yaml","context_lines":1}"#),
        ("search_file", r#"{"regex":"folded","context_lines":2}"#),
        ("read_file", r#"{"path":"a.yaml","start_line":3,"end_line":3}"#),
        ("read_file", r#"{"path":"a.yaml","start_line":7,"end_line":9}"#),
        ("read_file", r#"{"path":"a.yaml","start_line":11}"#),
        ("read_file", r#"{"path":"far.yaml","start_line":5}"#),
        ("read_file", r#"{"path":"call.sh","start_line":2}"#),
        // Cut before the `@` that identifies the password.
        ("read_file", r#"{"path":"call.sh","start_line":3,"max_bytes":25}"#),
    ] {
        let (code, result) = home.call(tool, args);
        assert_eq!(code, 0, "{args}: {result}");
        let text = result.to_string();
        let leaked = text.contains("aB3") || text.contains("xyz77Q");
        assert!(!leaked && text.contains("password:"), "{tool} {args}: {text}");
        let masked = text.contains("[REDACTED:") && !text.contains("applied\":0");
        assert!(masked, "{tool} {args}: {text}");
    }
    let (_, result) = home.call("search_file", r#"{"regex":"plainword","path":"a.yaml","context_lines":0}"#);
    assert!(result.to_string().contains("plainword"), "{result}");
}

/// What the filter prints on a terminal while it reads a file.
fn on_a_terminal(home: &Home, file: &str) -> (i32, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read as _;

    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = std::fs::File::options().read(true).write(true).open(name).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    let mut child = home
        .command(["redact", file])
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(theirs)
        .spawn()
        .unwrap();
    let reader = std::thread::spawn(move || {
        let (mut output, mut piece) = (Vec::new(), [0; 4096]);
        let mut terminal = std::fs::File::from(ours);
        // The read fails once the last handle to the other end is closed.
        while let Ok(count @ 1..) = terminal.read(&mut piece) {
            output.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&output).into_owned()
    });
    let code = child.wait().unwrap().code().unwrap_or(-1);
    (code, reader.join().unwrap())
}

// A progress bar for large inputs, on a terminal and nowhere else
#[test]
fn large_inputs_show_a_progress_bar_only_on_a_terminal() {
    let home = Home::bare();
    let line = "an ordinary line of a log without anything in it\n";
    home.write("large.log", &line.repeat((24 << 20) / line.len()));
    home.write("small.log", line);
    let (code, output) = on_a_terminal(&home, "large.log");
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("MiB/") && output.contains("MiB/s"), "{output:?}");
    let (code, output) = on_a_terminal(&home, "small.log");
    assert_eq!((code, output.as_str()), (0, ""));
    let ran = home.run(["redact", "--report", "json", "large.log"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
