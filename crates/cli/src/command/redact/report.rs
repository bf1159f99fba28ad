//! Reports findings as JSON or SARIF; never contains the secret itself.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};
use vambrace_redact::{MAX_HELD_BYTES, SecretFinding};

/// Line ends are kept for this many bytes behind the read position.
const KEPT_BYTES: u64 = 4 * MAX_HELD_BYTES as u64;

/// Converts byte offsets to lines while a file is read.
pub(crate) struct LineCounter {
    file: String,
    read: u64,
    /// The current line, and the offset of its start.
    line: u64,
    begins: u64,
    ends: VecDeque<u64>,
}

impl LineCounter {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), read: 0, line: 1, begins: 0, ends: VecDeque::new() }
    }

    /// Processes more bytes of the file.
    pub(crate) fn passes(&mut self, bytes: &[u8]) {
        for (n, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.ends.push_back(self.read + u64::try_from(n).unwrap_or(0));
        }
        self.read += u64::try_from(bytes.len()).unwrap_or(0);
        self.reach(self.read.saturating_sub(KEPT_BYTES));
    }

    /// Moves forward to an offset; offsets must not decrease.
    fn reach(&mut self, place: u64) {
        while let Some(end) = self.ends.front().copied().filter(|end| *end < place) {
            self.ends.pop_front();
            self.line += 1;
            self.begins = end + 1;
        }
    }
}

/// A finding with its location.
struct LocatedFinding {
    file: String,
    line: u64,
    column: u64,
    finding: SecretFinding,
}

/// All findings.
#[derive(Default)]
pub(crate) struct SecretReport {
    rows: Vec<LocatedFinding>,
}

impl SecretReport {
    pub(crate) fn take(&mut self, lines: &mut LineCounter, findings: Vec<SecretFinding>) {
        for finding in findings {
            lines.reach(finding.start);
            let column = finding.start.saturating_sub(lines.begins) + 1;
            self.rows.push(LocatedFinding { file: lines.file.clone(), line: lines.line, column, finding });
        }
    }

    /// The report as JSON, with the names of unreadable files.
    pub(crate) fn json(&self, unread: &[String]) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|LocatedFinding { file, line, column, finding }| {
                json!({"file": file, "line": line, "column": column, "offset": finding.start,
                       "length": finding.end - finding.start, "kind": finding.kind,
                       "fingerprint": finding.fingerprint.to_string(), "layer": finding.layer.as_str()})
            })
            .collect();
        json!({"version": 1, "count": rows.len(), "findings": rows, "unread": unread})
    }

    pub(crate) fn sarif(&self) -> Value {
        let kinds: BTreeSet<&str> = self.rows.iter().map(|row| row.finding.kind.as_str()).collect();
        let rules: Vec<Value> = kinds.iter().map(|kind| json!({"id": kind})).collect();
        let results: Vec<Value> = self
            .rows
            .iter()
            .map(|LocatedFinding { file, line, finding, .. }| {
                let region = json!({"startLine": line, "byteOffset": finding.start,
                                    "byteLength": finding.end - finding.start});
                json!({"ruleId": finding.kind, "level": "error",
                       "message": {"text": format!("secret of kind `{}`", finding.kind)},
                       "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(file)}, "region": region}}],
                       "partialFingerprints": {"vambrace/v1": finding.fingerprint.to_string()}})
            })
            .collect();
        let driver = json!({"name": "vambrace", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
        json!({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
               "runs": [{"tool": {"driver": driver}, "results": results}]})
    }
}

/// Percent-encodes a path.
fn uri(path: &str) -> String {
    let path = if path == "-" { "stdin" } else { path };
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}
