//! What was found and where: as JSON, as SARIF. Never the secret itself.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};
use vambrace_redact::{Finding, LONGEST_HELD};

/// Line ends that may still be asked about.
const KEPT: u64 = 4 * LONGEST_HELD as u64;

/// Where in a file something is: its lines are counted while it passes.
pub(crate) struct Spot {
    file: String,
    read: u64,
    /// The line that is asked about, and where it begins.
    line: u64,
    begins: u64,
    ends: VecDeque<u64>,
}

impl Spot {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), read: 0, line: 1, begins: 0, ends: VecDeque::new() }
    }

    /// More of the file.
    pub(crate) fn passes(&mut self, bytes: &[u8]) {
        for (n, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            self.ends.push_back(self.read + u64::try_from(n).unwrap_or(0));
        }
        self.read += u64::try_from(bytes.len()).unwrap_or(0);
        self.reach(self.read.saturating_sub(KEPT));
    }

    /// Goes to a place, which is never before the last one.
    fn reach(&mut self, place: u64) {
        while let Some(end) = self.ends.front().copied().filter(|end| *end < place) {
            self.ends.pop_front();
            self.line += 1;
            self.begins = end + 1;
        }
    }
}

/// One finding with its place.
struct Row {
    file: String,
    line: u64,
    column: u64,
    finding: Finding,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn take(&mut self, spot: &mut Spot, findings: Vec<Finding>) {
        for finding in findings {
            spot.reach(finding.start);
            let column = finding.start.saturating_sub(spot.begins) + 1;
            self.rows.push(Row { file: spot.file.clone(), line: spot.line, column, finding });
        }
    }

    /// With the names of files that could not be read.
    pub(crate) fn json(&self, unread: &[String]) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|Row { file, line, column, finding }| {
                json!({"file": file, "line": line, "column": column, "offset": finding.start,
                       "length": finding.end - finding.start, "kind": finding.kind,
                       "fingerprint": finding.print.to_string(), "layer": finding.layer.as_str()})
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
            .map(|Row { file, line, finding, .. }| {
                let region = json!({"startLine": line, "byteOffset": finding.start,
                                    "byteLength": finding.end - finding.start});
                json!({"ruleId": finding.kind, "level": "error",
                       "message": {"text": format!("a secret of the kind `{}`", finding.kind)},
                       "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(file)}, "region": region}}],
                       "partialFingerprints": {"vambrace/v1": finding.print.to_string()}})
            })
            .collect();
        let driver = json!({"name": "vambrace", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
        json!({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
               "runs": [{"tool": {"driver": driver}, "results": results}]})
    }
}

/// A path as an address: what is special there is encoded.
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
