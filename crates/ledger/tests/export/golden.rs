//! The golden files, and what holds for every format.

use std::fs;
use std::path::PathBuf;

use vambrace_ledger::{Digest, ExportFormat, LedgerLine, LineError};

use crate::fixtures::{exported, ledger};

fn file(format: ExportFormat) -> PathBuf {
    let name = match format {
        ExportFormat::Jsonl => "ledger.jsonl",
        ExportFormat::Ocsf => "ledger.ocsf.jsonl",
        ExportFormat::Cef => "ledger.cef",
        ExportFormat::Otlp => "ledger.otlp.jsonl",
    };
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Masks the version, so that a release does not change the files.
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
fn exports_match_the_golden_files() {
    for format in ExportFormat::ALL {
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
    for format in ExportFormat::ALL {
        for line in ledger() {
            let record = LedgerLine::read(line.as_bytes()).unwrap();
            let text = exported(*format, &line);
            assert!(
                !text.chars().any(|c| c < ' ' || c == '\u{2028}' && *format == ExportFormat::Cef),
                "{format}: {text}"
            );
            let record_ref = format.record_ref(text.as_bytes()).unwrap_or_else(|| panic!("{format}: {text}"));
            assert_eq!((record_ref.seq, record_ref.event_hash), (record.seq, record.event_hash), "{format}");
            assert!(text.contains(&record.prev_hash.to_string()), "{format}: {text}");
        }
    }
}

#[test]
fn jsonl_is_the_ledgers_own_line() {
    for line in ledger() {
        assert_eq!(exported(ExportFormat::Jsonl, &line), line);
    }
}

// B5
#[test]
fn an_altered_line_is_not_exported() {
    let line = ledger().remove(0).replace("ada", "eve");
    for format in ExportFormat::ALL {
        let mut out = Vec::new();
        assert!(matches!(format.write(&line, &mut out), Err(LineError::WrongHash { .. })));
        assert!(out.is_empty());
    }
}

#[test]
fn text_that_is_not_an_export_names_no_record() {
    let seal = Digest::ZERO;
    for format in ExportFormat::ALL {
        for foreign in
            ["", "{}", "hello", "CEF:0|x", "[]", "null", &format!("{{\"seq\":1,\"event_hash\":\"{seal}\"}}")]
        {
            assert_eq!(format.record_ref(foreign.as_bytes()), None, "{format}: {foreign}");
        }
        assert_eq!(format.record_ref(b"\xff"), None);
    }
}
