//! Exports through the binary: every format, followed, killed, continued.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::home::Home;
use crate::mcp::Server;

const FORMATS: [&str; 4] = ["jsonl", "ocsf", "cef", "otlp"];

fn busy() -> Home {
    let home = Home::new();
    home.call("read_file", r#"{"path":"src/main.rs"}"#);
    home.call("read_file", r#"{"path":"../../etc/pass=wd|\\\nx"}"#);
    home.call("list_files", "{}");
    home
}

fn export(home: &Home, format: &str, more: &[&str]) -> String {
    let ran = home.run(["audit", "export", "--format", format].iter().chain(more));
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out
}

fn to_file(home: &Home, format: &str, file: &Path) -> crate::home::Ran {
    home.run(["audit", "export", "--format", format, "--output", file.to_str().unwrap()])
}

fn follower(home: &Home, more: &[&str]) -> Child {
    let args = ["audit", "export", "--follow"].iter().chain(more);
    home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
}

// B7
#[test]
fn every_format_contains_every_record_and_names_it() {
    let home = busy();
    let records = home.records();
    let own = home.run(["audit", "tail", "-n", "1000", "--json"]).out;
    assert_eq!(export(&home, "jsonl", &[]), own);
    for format in FORMATS {
        let out = export(&home, format, &[]);
        assert_eq!(out.lines().count(), records.len(), "{format}");
        for (line, record) in out.lines().zip(&records) {
            for hash in ["event_hash", "prev_hash"] {
                assert!(line.contains(record[hash].as_str().unwrap()), "{format}: {hash} in {line}");
            }
            if format != "cef" {
                serde_json::from_str::<Value>(line).unwrap();
            }
        }
    }
}

// B7
#[test]
fn the_configuration_supplies_options_that_an_export_omits() {
    let home = busy();
    let file = home.path("exported");
    let export =
        |output: &str| format!("version: 1\naudit: {{export: {{format: cef, output: '{output}'}}}}\n");
    home.user_config(&export(file.to_str().unwrap()));
    let ran = home.run(["audit", "export"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.lines().count() == home.records().len() && written.starts_with("CEF:0|"), "{written}");
    assert!(home.run(["audit", "export", "--output", "-"]).out.starts_with("CEF:0|"));
    let ran = home.run(["audit", "export", "--output", "-", "--format", "jsonl"]);
    assert!(ran.out.starts_with("{\"v\":1,"), "{ran:?}");
    // A relative path, and an unknown format.
    home.user_config(&export("records"));
    assert_eq!(home.run(["audit", "export"]).code, 2);
    home.user_config("version: 1\naudit: {export: {format: csv}}\n");
    assert!(home.run(["audit", "export"]).err.contains("audit.export.format"));
}

// B7
#[test]
fn an_export_can_be_filtered() {
    let home = busy();
    let seqs = |more: &[&str]| -> Vec<u64> {
        let lines = export(&home, "jsonl", more);
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect()
    };
    let all = home.records();
    let of = |wanted: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        all.iter().filter(|record| wanted(record)).map(|record| record["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs(&["--op", "violation"]), of(&|r| r["op"] == "violation"));
    assert_eq!(
        seqs(&["--op", "violation", "--op", "tool.start"]),
        of(&|r| r["op"] == "violation" || r["op"] == "tool.start")
    );
    assert_eq!(seqs(&["--after", "3"]), of(&|r| r["seq"].as_u64() > Some(3)));
    let third = all[2]["ts"].as_str().unwrap();
    assert_eq!(seqs(&["--since", third]), of(&|r| r["ts"].as_str() >= Some(third)));
    assert_eq!(seqs(&["--until", third]), of(&|r| r["ts"].as_str() < Some(third)));
    assert_eq!(seqs(&["--since", "2999-01-01"]), [0; 0]);
    for bad in [["--format", "xml"], ["--op", "reed_file"], ["--since", "soon"]] {
        assert_eq!(home.run(["audit", "export"].iter().chain(&bad)).code, 2, "{bad:?}");
    }
    assert_eq!(home.run(["audit", "export", "--follow", "--until", "2030-01-01"]).code, 2);
}

// B7: no loss, no duplicates
#[test]
fn a_file_is_continued_and_a_torn_line_is_repaired() {
    for format in FORMATS {
        let home = busy();
        let file = home.path("export");
        assert_eq!(to_file(&home, format, &file).code, 0);
        let first = fs::read_to_string(&file).unwrap();
        home.call("read_file", r#"{"path":"docs/guide.md"}"#);
        let all = export(&home, format, &[]);
        assert!(all.starts_with(&first) && all.len() > first.len());
        assert_eq!(to_file(&home, format, &file).code, 0);
        assert_eq!(fs::read_to_string(&file).unwrap(), all, "{format}");
        assert_eq!(to_file(&home, format, &file).code, 0);
        assert_eq!(fs::read_to_string(&file).unwrap(), all, "{format}");
        let line = all.lines().last().unwrap().len();
        for cut in [1, 2, 40, line / 2, line, line + 1, line + 2, all.len() - 1, all.len()] {
            fs::write(&file, &all.as_bytes()[..all.len() - cut]).unwrap();
            let ran = to_file(&home, format, &file);
            assert_eq!(ran.code, 0, "{format}, cut {cut}: {ran:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), all, "{format}, cut {cut}");
        }
    }
}

// B7: a file that is not an export of this ledger is left unchanged
#[test]
fn a_file_that_does_not_end_in_an_export_of_this_ledger_is_rejected() {
    let home = busy();
    let other = busy();
    let foreign = export(&other, "ocsf", &[]);
    let own = export(&home, "ocsf", &[]);
    let altered = own.replacen("\"sequence\":1,", "\"sequence\":2,", 1);
    let last_altered = own.lines().next().unwrap().replacen("\"sequence\":1,", "\"sequence\":2,", 1) + "\n";
    let cases = [
        "my notes".to_owned(),
        "my notes\n".to_owned(),
        "\n".to_owned(),
        foreign.clone(),
        foreign.trim_end().to_owned(),
        export(&home, "cef", &[]),
        format!("{own}{{"),
        format!("{}\0\0\0", own.lines().next().unwrap().to_owned() + "\n"),
        last_altered,
    ];
    let file = home.path("export");
    for content in &cases {
        fs::write(&file, content).unwrap();
        let ran = to_file(&home, "ocsf", &file);
        assert_eq!(ran.code, 2, "{ran:?}\n{content}");
        assert_eq!(&fs::read_to_string(&file).unwrap(), content);
    }
    assert_ne!(altered, own);
    // Neither into the state directory, nor into anything but a regular file.
    let segment = fs::read_dir(home.state().join("ledger")).unwrap().next().unwrap().unwrap().path();
    let before = fs::read(&segment).unwrap();
    for place in [segment.clone(), home.state().join("new"), home.state(), "/dev/null".into()] {
        assert_eq!(to_file(&home, "jsonl", &place).code, 2, "{}", place.display());
    }
    assert_eq!(fs::read(&segment).unwrap(), before);
    assert!(!home.state().join("new").exists());
}

// B7: killed at any moment, continued without loss or duplicates
#[test]
fn a_killed_follower_is_continued() {
    let home = Home::new();
    let file = home.path("export");
    for round in 0..12 {
        let output = ["--format", "otlp", "--output", file.to_str().unwrap()];
        let mut follower = follower(&home, &output);
        let mut server = Server::greeted(&home, &[]);
        for id in 0..60 + round * 10 {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "read_file", "arguments": {"path": "src/main.rs"}}});
            server.send(&call.to_string());
            server.receive().unwrap();
        }
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    let ran = to_file(&home, "otlp", &file);
    assert_eq!(ran.code, 0, "{ran:?}");
    let all = export(&home, "otlp", &[]);
    assert!(all.lines().count() > 12 * 120);
    assert!(fs::read_to_string(&file).unwrap() == all, "the file is not the export");
}

// B7
#[test]
fn a_follower_writes_new_records_and_stops_on_a_signal() {
    for name in ["INT", "TERM"] {
        let home = busy();
        let before = home.records().len();
        let mut child = follower(&home, &["--format", "cef"]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..before {
            lines.next().unwrap().unwrap();
        }
        home.call("read_file", r#"{"path":"docs/guide.md"}"#);
        for _ in 0..2 {
            assert!(lines.next().unwrap().unwrap().contains("docs/guide.md"));
        }
        signal(&child, name);
        assert!(lines.next().is_none());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), b"".as_slice()), "{name}");
    }
}

// B7
#[test]
fn a_closed_pipe_ends_an_export_quietly_even_without_new_records() {
    let home = busy();
    let mut child = follower(&home, &[]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn a_file_has_one_writer() {
    let home = busy();
    let file = home.path("export");
    let mut child = follower(&home, &["--output", file.to_str().unwrap()]);
    // The follower has locked the file once it has written to it.
    while fs::metadata(&file).map_or(0, |facts| facts.len()) == 0 {
        std::thread::yield_now();
    }
    let ran = to_file(&home, "jsonl", &file);
    assert_eq!(ran.code, 2, "{ran:?}");
    signal(&child, "INT");
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&file).unwrap(), export(&home, "jsonl", &[]));
}

// B7: rotated under a follower
#[test]
fn a_moved_output_file_ends_the_export_and_the_next_one_continues_after_it() {
    let home = busy();
    let (file, moved) = (home.path("export"), home.path("export.1"));
    let child = follower(&home, &["--output", file.to_str().unwrap()]);
    let all = export(&home, "jsonl", &[]);
    while fs::read(&file).unwrap_or_default().len() < all.len() {
        std::thread::yield_now();
    }
    fs::rename(&file, &moved).unwrap();
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(5), "{stderr}");
    assert_eq!(fs::read_to_string(&moved).unwrap(), all);
    let last = home.records().len().to_string();
    assert!(stderr.contains(&format!("--after {last}")), "{stderr}");
    home.call("read_file", r#"{"path":"docs/guide.md"}"#);
    let next = home.run(["audit", "export", "--after", &last, "--output", file.to_str().unwrap()]);
    assert_eq!(next.code, 0, "{next:?}");
    let both = fs::read_to_string(&moved).unwrap() + &fs::read_to_string(&file).unwrap();
    assert_eq!(both, export(&home, "jsonl", &[]));
}

// B5
#[test]
fn an_altered_record_ends_an_export_and_is_not_written() {
    let home = busy();
    let database = rusqlite::Connection::open(home.state().join("vambrace.db")).unwrap();
    let edit = "UPDATE ledger SET line = replace(line, '\"ada\"', '\"eve\"') WHERE seq = 3";
    assert_eq!(database.execute(edit, ()).unwrap(), 1);
    for format in FORMATS {
        let ran = home.run(["audit", "export", "--format", format]);
        assert_eq!(ran.code, 6, "{ran:?}");
        assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
        assert!(ran.err.contains("record 3"), "{ran:?}");
        assert_eq!(export(&home, format, &["--after", "3"]).lines().count(), home.records().len() - 3);
    }
}

// T22: nesting hides nothing
#[test]
fn a_deeply_nested_call_is_in_the_security_stream_and_in_every_export() {
    let home = Home::new();
    for depth in [100, 125, 126] {
        let args = format!(r#"{{"path":"../../x","a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let _ = home.run(["call", "read_file", &args]);
    }
    // Not every JSON parser goes as deep as the ledger.
    let lines = export(&home, "jsonl", &[]);
    assert!(lines.lines().any(|line| serde_json::from_str::<Value>(line).is_err()), "{lines}");
    for format in FORMATS {
        let out = export(&home, format, &["--op", "tool.end", "--op", "violation"]);
        assert_eq!(out.lines().count(), 3, "{format}: {out}");
    }
    let query = home.run(["audit", "query", "--tool", "read_file", "--json"]);
    assert_eq!(query.out.lines().count(), 3, "{query:?}");
}
