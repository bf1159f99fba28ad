//! Which records come next. What does not fit is passed by for good, so that a follower never reads it again.

use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::Op;
use vambrace_store::{Order, Query, Record, SqliteStore, Store as _};

use crate::failure::Failure;

/// How many records are fetched at once.
const PIECE: usize = 1000;

/// Where an export is, and what it takes along.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) ops: Vec<Op>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    /// The last record that is behind us.
    pub(super) after: u64,
}

/// The next records.
pub(super) struct Piece {
    pub(super) records: Vec<Record>,
    /// Whether there are no more for now.
    pub(super) complete: bool,
}

impl Course {
    /// The next records; the course is behind them afterwards.
    pub(super) async fn next(&mut self, store: &SqliteStore) -> Result<Piece, Failure> {
        // Asked first: what is committed meanwhile is behind it, and comes next time.
        let head = store.head().await?.seq;
        if head <= self.after {
            return Ok(Piece { records: Vec::new(), complete: true });
        }
        let mut records = store.records(self.query(PIECE)).await?;
        let last = records.last().map_or(self.after, |record| record.seq);
        let complete = records.len() < PIECE;
        self.after = if complete { last.max(head) } else { last };
        self.choose(&mut records);
        Ok(Piece { records, complete })
    }

    /// The first of them, without going there.
    pub(super) async fn first(&self, store: &SqliteStore) -> Result<Option<Record>, Failure> {
        let mut ahead = Self { ops: self.ops.clone(), ..*self };
        loop {
            let piece = ahead.next(store).await?;
            let complete = piece.complete;
            match piece.records.into_iter().next() {
                None if !complete => {}
                found => return Ok(found),
            }
        }
    }

    fn query(&self, limit: usize) -> Query {
        Query {
            op: if let [one] = self.ops.as_slice() { Some(*one) } else { None },
            since: self.since,
            until: self.until,
            after_seq: Some(self.after),
            limit,
            order: Order::OldestFirst,
            ..Query::default()
        }
    }

    /// A query knows one op; several are sorted out here.
    fn choose(&self, records: &mut Vec<Record>) {
        if self.ops.len() > 1 {
            let wanted = |record: &Record| {
                let fields = record.fields();
                let op = fields.get("op").and_then(|op| op.as_str()).and_then(Op::parse);
                op.is_some_and(|op| self.ops.contains(&op))
            };
            records.retain(wanted);
        }
    }
}
