//! Records read back, and the questions one can ask about them. The line is the only truth, so a query reads
//! lines: a search for the bytes that a fitting line must hold first, then the fields themselves.

use rusqlite::Connection;
use serde_json::Value;
use vambrace_ledger::{Op, Status, Timestamp};

/// A record as it stands in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// The line, without a newline.
    pub line: String,
}

impl Record {
    /// The fields of the line; `null` for a line that somebody has damaged.
    #[must_use]
    pub fn fields(&self) -> Value {
        vambrace_ledger::fields(&self.line).map_or(Value::Null, Value::Object)
    }
}

/// Which end of the ledger comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The newest record first.
    NewestFirst,
    /// The oldest record first.
    OldestFirst,
}

/// Which records are wanted; what is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// About what.
    pub op: Option<Op>,
    /// Of which tool.
    pub tool: Option<String>,
    /// In which session.
    pub session: Option<String>,
    /// Of which call.
    pub execution_id: Option<String>,
    /// How it stands.
    pub status: Option<Status>,
    /// On this path, or below it.
    pub path: Option<String>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
    /// Behind this record.
    pub after_seq: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// Which first.
    pub order: Order,
}

impl Default for Query {
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
            order: Order::NewestFirst,
        }
    }
}

impl Query {
    /// The newest records, newest first.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The records behind one, in their order.
    #[must_use]
    pub fn after(seq: u64, limit: usize) -> Self {
        Self { after_seq: Some(seq), limit, order: Order::OldestFirst, ..Self::default() }
    }

    pub(crate) fn run(&self, connection: &Connection) -> rusqlite::Result<Vec<Record>> {
        let sql = match self.order {
            Order::NewestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq DESC",
            Order::OldestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq",
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
                found.push(Record { seq, line: line.to_owned() });
            }
        }
        Ok(found)
    }

    /// What a fitting line holds for certain; the same bytes may also stand inside its arguments.
    fn needles(&self) -> Vec<String> {
        let words = [
            ("op", self.op.map(Op::as_str)),
            ("status", self.status.map(Status::as_str)),
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
        let Some(fields) = vambrace_ledger::fields(line) else { return false };
        let field = |key: &str| fields.get(key).and_then(Value::as_str);
        let is = |key: &str, wanted: Option<&str>| wanted.is_none() || field(key) == wanted;
        is("op", self.op.map(Op::as_str))
            && is("status", self.status.map(Status::as_str))
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
    fn a_path_fits_itself_and_what_lies_below() {
        let fits =
            |asked: &str, line: &str| Query { path: Some(asked.into()), ..Query::default() }.fits(line);
        assert!(fits("src", r#"{"path":"src"}"#));
        assert!(fits("src", r#"{"path":"src/a"}"#));
        assert!(fits("src/", r#"{"target_path":"src/a"}"#));
        assert!(!fits("src", r#"{"path":"src2"}"#));
        assert!(!fits("src", r#"{"tool_args":{"path":"src"}}"#));
    }
}
