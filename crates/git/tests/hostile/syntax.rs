//! The parser of configuration files and the rules for names against git's own.

use std::fs;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use vambrace_git::{BranchName, parse_git_config};

use super::lab::{Git, versions};

/// A full key and its value.
type ReadSetting = (Vec<u8>, Option<Vec<u8>>);

/// What git reads; `None` if it rejects the file.
fn git_reads(git: &Git, file: &std::path::Path) -> Option<Vec<ReadSetting>> {
    let output = Command::new(&git.program)
        .args(["config", "--list", "-z", "--no-includes", "--file"])
        .arg(file)
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let split = |record: &[u8]| match record.iter().position(|byte| *byte == b'\n') {
        Some(at) => (record[..at].to_vec(), Some(record[at + 1..].to_vec())),
        None => (record.to_vec(), None),
    };
    let records = output.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    output.status.success().then(|| records.map(split).collect())
}

/// Git 2.39 reads each unquoted blank inside a value as a space.
fn blanks_as_spaces(value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    value.map(|value| {
        value.iter().map(|byte| if matches!(byte, b'\t' | b'\r') { b' ' } else { *byte }).collect()
    })
}

#[test]
fn settings_are_those_that_git_reads() {
    let lines = prop::sample::select(vec![
        "[core]\n",
        "[Core] ",
        "[filter \"A b\"]\r\n",
        "[a.B]\n",
        "[a \"q\\\"\\x.y\"]",
        "clean = b\n",
        "Key=\"q # r\" s ; c\n",
        "flag\n",
        "long = a \\\n  b\n",
        "t =\ta  b \n",
        "e = \\n\\t\\\\x\n",
        "# comment\n",
        "  ; comment\n",
        "u = \u{e9}\n",
    ]);
    let noise = prop::sample::select(vec![
        "[", "]", "\"", "\\", ".", "=", " ", "\t", "\n", "\r\n", "\r", "#", ";", "a", "B-1", "\u{feff}", "1",
        "\\\n", "\\\"",
    ]);
    let file = prop::collection::vec(prop_oneof![6 => lines, 1 => noise], 0..10);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for git in versions() {
        let mut runner =
            TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        let compared = std::cell::Cell::new(0);
        runner
            .run(&file, |pieces| {
                let text = pieces.concat();
                fs::write(&path, &text).unwrap();
                // Keys without a section are of no use to git, nor here.
                let read = git_reads(&git, &path)
                    .map(|read| read.into_iter().filter(|(key, _)| key.contains(&b'.')).collect::<Vec<_>>());
                if let Ok(parsed) = parse_git_config(text.as_bytes()) {
                    let parsed: Vec<_> = parsed
                        .into_iter()
                        .map(|entry| (entry.key.to_full(), blanks_as_spaces(entry.value)))
                        .collect();
                    let read: Vec<_> = read
                        .unwrap_or_default()
                        .into_iter()
                        .map(|(key, value)| (key, blanks_as_spaces(value)))
                        .collect();
                    compared.set(compared.get() + usize::from(!parsed.is_empty()));
                    prop_assert_eq!(parsed, read);
                } else {
                    prop_assert!(read.is_none(), "git accepts {:?}", text);
                }
                Ok(())
            })
            .unwrap();
        assert!(compared.get() > 40, "too few files had settings: {}", compared.get());
    }
}

// T15
#[test]
fn branch_names_are_valid_for_git_too() {
    let plain = prop::sample::select(vec!["a", "main", "/b", "x.y", "-c", "\u{e9}", "@d"]);
    let odd = prop::sample::select(vec![
        "/", ".", "..", "@", "{", "@{", "~", "^", ":", "?", "*", "[", "\\", " ", ".lock", "HEAD", "\x7f",
        "refs/",
    ]);
    let pieces = prop_oneof![3 => plain, 1 => odd];
    let name = prop::collection::vec(pieces, 1..5);
    for git in versions() {
        let mut runner =
            TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
        let accepted = std::cell::Cell::new(0);
        runner
            .run(&name, |pieces| {
                let name = pieces.concat();
                let ours = BranchName::new(&name).is_ok();
                let checked = Command::new(&git.program)
                    .args(["check-ref-format", "--branch", &name])
                    .output()
                    .unwrap();
                accepted.set(accepted.get() + usize::from(ours));
                prop_assert!(!ours || checked.status.success(), "git rejects {:?}", name);
                Ok(())
            })
            .unwrap();
        assert!(accepted.get() > 10, "too few names were valid: {}", accepted.get());
    }
}
