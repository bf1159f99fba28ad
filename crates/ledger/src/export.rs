//! Exports: a ledger line in the words of other systems. Each is a pure function of the stored line, one output line for
//! each record, and carries its number and both hashes, so that an export can be held against the ledger.
//!
//! Everything inside a record may come from an agent: each format escapes for itself, and a value never ends its
//! field, its line or its document.

mod cef;
mod ocsf;
mod otlp;

use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::line::{Fault, Line};
use crate::op::{Level, Op, Status};
use crate::parsed;
use crate::timestamp::Timestamp;
use crate::words;

words! {
    /// The form of an export.
    pub enum Format {
        /// The ledger's own lines, byte for byte.
        Jsonl = "jsonl",
        /// Open Cybersecurity Schema Framework, one event as JSON a line.
        Ocsf = "ocsf",
        /// Common Event Format, one event a line.
        Cef = "cef",
        /// OpenTelemetry logs, one `ExportLogsServiceRequest` as JSON a line.
        Otlp = "otlp",
    }
}

/// What ties an exported line to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tie {
    /// The number of the record.
    pub seq: u64,
    /// Its hash.
    pub event_hash: Digest,
}

impl Format {
    /// Appends a record and a newline. The hash of the line is checked first: what was altered is not passed on.
    pub fn write(self, line: &str, out: &mut Vec<u8>) -> Result<Tie, Fault> {
        let read = Line::read(line.as_bytes())?;
        let tie = Tie { seq: read.seq, event_hash: read.event_hash };
        if self == Self::Jsonl {
            out.extend_from_slice(line.as_bytes());
        } else {
            let fields = parsed::fields(line).ok_or(Fault::Malformed("no JSON object"))?;
            let event = Event { fields: &fields };
            let text = match self {
                Self::Cef => cef::line(&event),
                Self::Ocsf => ocsf::event(&event).to_string(),
                Self::Jsonl | Self::Otlp => otlp::request(&event).to_string(),
            };
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b'\n');
        Ok(tie)
    }

    /// What a line of an export (without its newline) says it was made from.
    #[must_use]
    pub fn tie(self, exported: &[u8]) -> Option<Tie> {
        if self == Self::Jsonl {
            let line = Line::read(exported).ok()?;
            return Some(Tie { seq: line.seq, event_hash: line.event_hash });
        }
        let text = std::str::from_utf8(exported).ok()?;
        let document = if self == Self::Cef { Value::Null } else { serde_json::from_str(text).ok()? };
        let (seq, hash) = match self {
            Self::Cef => cef::tie(text)?,
            Self::Ocsf => ocsf::tie(&document)?,
            Self::Jsonl | Self::Otlp => otlp::tie(&document)?,
        };
        Some(Tie { seq, event_hash: hash.parse().ok()? })
    }
}

const PRODUCT: &str = "Vambrace";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Deeper arguments are handed on as text: many readers give up far earlier than the ledger does.
const DEEPEST: usize = 16;

/// The fields of one record, by what they mean.
struct Event<'l> {
    fields: &'l Map<String, Value>,
}

impl<'l> Event<'l> {
    fn text(&self, key: &str) -> Option<&'l str> {
        self.fields.get(key).and_then(Value::as_str)
    }

    fn number(&self, key: &str) -> u64 {
        self.fields.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn op(&self) -> Option<Op> {
        self.text("op").and_then(Op::parse)
    }

    fn status(&self) -> Option<Status> {
        self.text("status").and_then(Status::parse)
    }

    fn level(&self) -> Level {
        self.text("level").and_then(Level::parse).unwrap_or(Level::Info)
    }

    fn event_type(&self) -> &'l str {
        self.text("event_type").or_else(|| self.text("op")).unwrap_or("unknown")
    }

    /// Milliseconds since 1970; zero for a time that is none, which `audit verify` reports.
    fn millis(&self) -> i64 {
        self.text("ts").and_then(|ts| Timestamp::parse(ts).ok()).map_or(0, Timestamp::millis)
    }
}

/// A value as it is, or as its text when it is nested deeper than readers like.
fn bounded(value: &Value) -> Value {
    if fits(value, DEEPEST) { value.clone() } else { Value::from(value.to_string()) }
}

fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(fields) => depth > 0 && fields.values().all(|field| fits(field, depth - 1)),
        _ => true,
    }
}
