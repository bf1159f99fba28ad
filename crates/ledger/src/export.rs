//! Exports: a ledger line in the format of another system. Each format is a pure function of the stored line and writes
//! one output line per record, with the record's number and both hashes, so that an export can be compared with the
//! ledger.
//!
//! Everything inside a record may come from an agent: each format does its own escaping, and a value never ends its
//! field, its line or its document.

mod cef;
mod ocsf;
mod otlp;

use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::line::{LedgerLine, LineError};
use crate::line_fields::line_fields;
use crate::op::{Op, RecordLevel, RecordStatus};
use crate::timestamp::Timestamp;
use crate::word_enum;

word_enum! {
    /// The format of an export.
    pub enum ExportFormat {
        /// The ledger's own lines, byte for byte.
        Jsonl = "jsonl",
        /// Open Cybersecurity Schema Framework, one JSON event per line.
        Ocsf = "ocsf",
        /// Common Event Format, one event per line.
        Cef = "cef",
        /// OpenTelemetry logs, one `ExportLogsServiceRequest` as JSON per line.
        Otlp = "otlp",
    }
}

/// Which record of the ledger an exported line was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef {
    /// The record's number.
    pub seq: u64,
    /// The record's hash.
    pub event_hash: Digest,
}

impl ExportFormat {
    /// Appends a record and a newline. Checks the hash of the line first, so that an altered line is not exported.
    pub fn write(self, line: &str, out: &mut Vec<u8>) -> Result<RecordRef, LineError> {
        let read = LedgerLine::read(line.as_bytes())?;
        let record_ref = RecordRef { seq: read.seq, event_hash: read.event_hash };
        if self == Self::Jsonl {
            out.extend_from_slice(line.as_bytes());
        } else {
            let fields = line_fields(line).ok_or(LineError::Malformed("not a JSON object"))?;
            let event = ExportEvent { fields: &fields };
            let text = match self {
                Self::Cef => cef::line(&event),
                Self::Ocsf => ocsf::event(&event).to_string(),
                Self::Jsonl | Self::Otlp => otlp::request(&event).to_string(),
            };
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b'\n');
        Ok(record_ref)
    }

    /// The record that an exported line (without its newline) names.
    #[must_use]
    pub fn record_ref(self, exported: &[u8]) -> Option<RecordRef> {
        if self == Self::Jsonl {
            let line = LedgerLine::read(exported).ok()?;
            return Some(RecordRef { seq: line.seq, event_hash: line.event_hash });
        }
        let text = std::str::from_utf8(exported).ok()?;
        let document = if self == Self::Cef { Value::Null } else { serde_json::from_str(text).ok()? };
        let (seq, hash) = match self {
            Self::Cef => cef::record_ref(text)?,
            Self::Ocsf => ocsf::record_ref(&document)?,
            Self::Jsonl | Self::Otlp => otlp::record_ref(&document)?,
        };
        Some(RecordRef { seq, event_hash: hash.parse().ok()? })
    }
}

const PRODUCT: &str = "Vambrace";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Maximum nesting depth; deeper arguments are exported as text, because many readers give up far earlier than the
/// ledger does.
const MAX_DEPTH: usize = 16;

/// The fields of one record, with typed access.
struct ExportEvent<'l> {
    fields: &'l Map<String, Value>,
}

impl<'l> ExportEvent<'l> {
    fn text(&self, key: &str) -> Option<&'l str> {
        self.fields.get(key).and_then(Value::as_str)
    }

    fn number(&self, key: &str) -> u64 {
        self.fields.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn op(&self) -> Option<Op> {
        self.text("op").and_then(Op::parse)
    }

    fn status(&self) -> Option<RecordStatus> {
        self.text("status").and_then(RecordStatus::parse)
    }

    fn level(&self) -> RecordLevel {
        self.text("level").and_then(RecordLevel::parse).unwrap_or(RecordLevel::Info)
    }

    fn event_type(&self) -> &'l str {
        self.text("event_type").or_else(|| self.text("op")).unwrap_or("unknown")
    }

    /// Milliseconds since 1970; zero for an invalid time, which `audit verify` reports.
    fn millis(&self) -> i64 {
        self.text("ts").and_then(|ts| Timestamp::parse(ts).ok()).map_or(0, Timestamp::millis)
    }
}

/// The value, or its JSON text if it is nested too deeply.
fn bounded(value: &Value) -> Value {
    if fits(value, MAX_DEPTH) { value.clone() } else { Value::from(value.to_string()) }
}

fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(fields) => depth > 0 && fields.values().all(|field| fits(field, depth - 1)),
        _ => true,
    }
}
