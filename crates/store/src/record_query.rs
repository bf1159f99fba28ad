//! Records read back, and queries over them. The line is the only source of truth, so a query reads lines:
//! first a search for bytes that every matching line contains, then the parsed fields.

use rusqlite::Connection;
use serde_json::Value;
use vambrace_ledger::{Op, RecordStatus, Timestamp};

/// A record of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRecord {
    /// Its number.
    pub seq: u64,
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
    /// After this record number.
    pub after_seq: Option<u64>,
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
            after_seq: None,
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

    /// The records after `seq`, oldest first.
    #[must_use]
    pub fn after(seq: u64, limit: usize) -> Self {
        Self { after_seq: Some(seq), limit, order: RecordOrder::OldestFirst, ..Self::default() }
    }

    pub(crate) fn run(&self, connection: &Connection) -> rusqlite::Result<Vec<LedgerRecord>> {
        let sql = match self.order {
            RecordOrder::NewestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq DESC",
            RecordOrder::OldestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq",
        };
        let after = self.after_seq.map_or(0, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
        let needles = self.needles();
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([after])?;
        let mut found = Vec::new();
        while found.len() < self.limit
            && let Some(row) = rows.next()?
        {
            let line = row.get_ref(1)?.as_str()?;
            if needles.iter().all(|needle| line.contains(needle.as_str())) && self.fits(line) {
                let seq = row.get::<_, i64>(0)?.unsigned_abs();
                found.push(LedgerRecord { seq, line: line.to_owned() });
            }
        }
        Ok(found)
    }

    /// Bytes that every matching line contains; they may also occur inside the arguments of another line.
    fn needles(&self) -> Vec<String> {
        let words = [
            ("op", self.op.map(Op::as_str)),
            ("status", self.status.map(RecordStatus::as_str)),
            ("session", self.session.as_deref()),
            ("execution_id", self.execution_id.as_deref()),
        ];
        let needle = |(key, word): (&str, Option<&str>)| word.map(|word| format!("\"{key}\":\"{word}\""));
        words.into_iter().filter_map(needle).collect()
    }

    fn fits(&self, line: &str) -> bool {
        let all = self.op.is_none()
            && self.tool.is_none()
            && self.session.is_none()
            && self.execution_id.is_none()
            && self.status.is_none()
            && self.path.is_none()
            && self.since.is_none()
            && self.until.is_none();
        if all {
            return true;
        }
        let Some(fields) = vambrace_ledger::line_fields(line) else { return false };
        let field = |key: &str| fields.get(key).and_then(Value::as_str);
        let is = |key: &str, wanted: Option<&str>| wanted.is_none() || field(key) == wanted;
        is("op", self.op.map(Op::as_str))
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
            RecordQuery { path: Some(asked.into()), ..RecordQuery::default() }.fits(line)
        };
        assert!(fits("src", r#"{"path":"src"}"#));
        assert!(fits("src", r#"{"path":"src/a"}"#));
        assert!(fits("src/", r#"{"target_path":"src/a"}"#));
        assert!(!fits("src", r#"{"path":"src2"}"#));
        assert!(!fits("src", r#"{"tool_args":{"path":"src"}}"#));
    }
}
