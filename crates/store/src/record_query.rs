//! Records read back, and queries over them. The line is the only source of truth, so a query reads lines:
//! first a search for bytes that every matching line contains, then the parsed fields.

use std::collections::HashSet;

use serde_json::Value;
use vambrace_ledger::{Op, RecordStatus, Timestamp};

use crate::record_id::RecordId;
use crate::session_owner::OwnerFilter;

/// A record of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRecord {
    /// Its address.
    pub id: RecordId,
    /// The line, without a newline.
    pub line: String,
}

impl LedgerRecord {
    /// The fields of the line; `null` if the line is damaged.
    #[must_use]
    pub fn fields(&self) -> Value {
        vambrace_ledger::line_fields(&self.line).map_or(Value::Null, Value::Object)
    }
}

/// Which end of the ledger comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOrder {
    /// The newest record first.
    NewestFirst,
    /// The oldest record first.
    OldestFirst,
}

/// Selects records; a field that is `None` matches every record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordQuery {
    /// Operation.
    pub op: Option<Op>,
    /// Tool name.
    pub tool: Option<String>,
    /// Session id.
    pub session: Option<String>,
    /// Id of the call.
    pub execution_id: Option<String>,
    /// Status.
    pub status: Option<RecordStatus>,
    /// This path, or a path below it.
    pub path: Option<String>,
    /// At or after this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// After this record in its chain.
    pub after: Option<RecordId>,
    /// Whose records. A record belongs to the owner of its session; one without a session is only in everybody's.
    pub owner: OwnerFilter,
    /// Maximum number of records.
    pub limit: usize,
    /// Which end of the ledger comes first.
    pub order: RecordOrder,
}

impl Default for RecordQuery {
    fn default() -> Self {
        Self {
            op: None,
            tool: None,
            session: None,
            execution_id: None,
            status: None,
            path: None,
            since: None,
            until: None,
            after: None,
            owner: OwnerFilter::Everyone,
            limit: 100,
            order: RecordOrder::NewestFirst,
        }
    }
}

impl RecordQuery {
    /// The newest records, newest first.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The records after this one in its chain, oldest first. Number 0 is before the first.
    #[must_use]
    pub fn after(record: RecordId, limit: usize) -> Self {
        Self { after: Some(record), limit, order: RecordOrder::OldestFirst, ..Self::default() }
    }

    /// Bytes that every matching line contains; they may also occur inside the arguments of another line.
    pub(crate) fn needles(&self) -> Vec<String> {
        let words = [
            ("op", self.op.map(Op::as_str)),
            ("status", self.status.map(RecordStatus::as_str)),
            ("session", self.session.as_deref()),
            ("execution_id", self.execution_id.as_deref()),
        ];
        let needle = |(key, word): (&str, Option<&str>)| word.map(|word| format!("\"{key}\":\"{word}\""));
        words.into_iter().filter_map(needle).collect()
    }

    /// Whether a line matches. `sessions` are those of the owner; `None` for everybody's.
    pub(crate) fn fits(&self, line: &str, sessions: Option<&HashSet<String>>) -> bool {
        let all = self.op.is_none()
            && self.tool.is_none()
            && self.session.is_none()
            && self.execution_id.is_none()
            && self.status.is_none()
            && self.path.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && sessions.is_none();
        if all {
            return true;
        }
        let Some(fields) = vambrace_ledger::line_fields(line) else { return false };
        let field = |key: &str| fields.get(key).and_then(Value::as_str);
        let is = |key: &str, wanted: Option<&str>| wanted.is_none() || field(key) == wanted;
        sessions.is_none_or(|sessions| field("session").is_some_and(|session| sessions.contains(session)))
            && is("op", self.op.map(Op::as_str))
            && is("status", self.status.map(RecordStatus::as_str))
            && is("session", self.session.as_deref())
            && is("execution_id", self.execution_id.as_deref())
            && is("tool_name", self.tool.as_deref())
            && self.since.is_none_or(|since| field("ts").is_some_and(|ts| *ts >= *since.to_string()))
            && self.until.is_none_or(|until| field("ts").is_some_and(|ts| *ts < *until.to_string()))
            && self.path.as_deref().is_none_or(|path| {
                let under = |at: &str| {
                    at.strip_prefix(path)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.ends_with('/'))
                };
                field("path").is_some_and(under) || field("target_path").is_some_and(under)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_itself_and_everything_below_it() {
        let fits = |asked: &str, line: &str| {
            RecordQuery { path: Some(asked.into()), ..RecordQuery::default() }.fits(line, None)
        };
        assert!(fits("src", r#"{"path":"src"}"#));
        assert!(fits("src", r#"{"path":"src/a"}"#));
        assert!(fits("src/", r#"{"target_path":"src/a"}"#));
        assert!(!fits("src", r#"{"path":"src2"}"#));
        assert!(!fits("src", r#"{"tool_args":{"path":"src"}}"#));
    }
}
