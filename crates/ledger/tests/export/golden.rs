//! The golden files, and what holds for every format.

use std::fs;
use std::path::PathBuf;

use vambrace_ledger::{Digest, Fault, Format, Line};

use crate::given::{exported, ledger};

fn file(format: Format) -> PathBuf {
    let name = match format {
        Format::Jsonl => "ledger.jsonl",
        Format::Ocsf => "ledger.ocsf.jsonl",
        Format::Cef => "ledger.cef",
        Format::Otlp => "ledger.otlp.jsonl",
    };
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A release does not change the files.
fn without_version(text: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    text.replace(&format!("\"version\":\"{version}\""), "\"version\":\"(version)\"")
        .replace(
            &format!("\"service.version\",\"value\":{{\"stringValue\":\"{version}\""),
            "\"service.version\",\"value\":{\"stringValue\":\"(version)\"",
        )
        .replace(&format!("|vambrace|{version}|"), "|vambrace|(version)|")
}

// B7
#[test]
fn exports_are_what_they_were() {
    for format in Format::ALL {
        let lines: String = ledger().iter().map(|line| exported(*format, line) + "\n").collect();
        let now = without_version(&lines);
        if std::env::var_os("VAMBRACE_BLESS").is_some() {
            fs::write(file(*format), &now).unwrap();
        }
        let golden = fs::read_to_string(file(*format)).unwrap();
        for (at, (now, then)) in (1..).zip(now.lines().zip(golden.lines())) {
            assert_eq!(now, then, "{format}, line {at}");
        }
        assert_eq!(now.len(), golden.len(), "{format}");
    }
}

// B5, B7
#[test]
fn every_exported_line_is_one_line_and_names_its_record() {
    for format in Format::ALL {
        for line in ledger() {
            let record = Line::read(line.as_bytes()).unwrap();
            let text = exported(*format, &line);
            assert!(
                !text.chars().any(|c| c < ' ' || c == '\u{2028}' && *format == Format::Cef),
                "{format}: {text}"
            );
            let tie = format.tie(text.as_bytes()).unwrap_or_else(|| panic!("{format}: {text}"));
            assert_eq!((tie.seq, tie.event_hash), (record.seq, record.event_hash), "{format}");
            assert!(text.contains(&record.prev_hash.to_string()), "{format}: {text}");
        }
    }
}

#[test]
fn jsonl_is_the_ledgers_own_line() {
    for line in ledger() {
        assert_eq!(exported(Format::Jsonl, &line), line);
    }
}

// B5
#[test]
fn an_altered_line_is_not_passed_on() {
    let line = ledger().remove(0).replace("ada", "eve");
    for format in Format::ALL {
        let mut out = Vec::new();
        assert!(matches!(format.write(&line, &mut out), Err(Fault::WrongHash { .. })));
        assert!(out.is_empty());
    }
}

#[test]
fn what_is_no_export_has_no_tie() {
    let seal = Digest::ZERO;
    for format in Format::ALL {
        for foreign in
            ["", "{}", "hello", "CEF:0|x", "[]", "null", &format!("{{\"seq\":1,\"event_hash\":\"{seal}\"}}")]
        {
            assert_eq!(format.tie(foreign.as_bytes()), None, "{format}: {foreign}");
        }
        assert_eq!(format.tie(b"\xff"), None);
    }
}
