//! The position of an export and its filter. Records that do not match are skipped once and never read again.

use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::Op;
use vambrace_store::{LedgerRecord, OwnerFilter, RecordId, RecordOrder, RecordQuery, Store};

use crate::error::HostError;

/// Records read at once.
const BATCH_RECORDS: usize = 1000;

/// Position and filter of an export.
#[derive(Debug, Clone)]
pub struct ExportCursor {
    /// Operations; all if empty.
    pub ops: Vec<Op>,
    /// At or after this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Whose records.
    pub owner: OwnerFilter,
    /// The last record that was processed.
    pub after: u64,
}

/// The next records.
#[derive(Debug)]
pub struct RecordBatch {
    /// The records.
    pub records: Vec<LedgerRecord>,
    /// Whether there are no more records at the moment.
    pub complete: bool,
}

impl ExportCursor {
    /// Returns the next records and moves past them.
    pub async fn next(&mut self, store: &dyn Store) -> Result<RecordBatch, HostError> {
        // Read the head first: records committed in the meantime come after it and are returned next time.
        let head = store.head().await?.seq;
        if head <= self.after {
            return Ok(RecordBatch { records: Vec::new(), complete: true });
        }
        let mut records = store.records(self.query(store)).await?;
        let last = records.last().map_or(self.after, |record| record.id.seq);
        let complete = records.len() < BATCH_RECORDS;
        self.after = if complete { last.max(head) } else { last };
        self.choose(&mut records);
        Ok(RecordBatch { records, complete })
    }

    /// The next matching record, without moving.
    pub(super) async fn first(&self, store: &dyn Store) -> Result<Option<LedgerRecord>, HostError> {
        let mut ahead = self.clone();
        loop {
            let batch = ahead.next(store).await?;
            let complete = batch.complete;
            match batch.records.into_iter().next() {
                None if !complete => {}
                found => return Ok(found),
            }
        }
    }

    fn query(&self, store: &dyn Store) -> RecordQuery {
        RecordQuery {
            op: if let [one] = self.ops.as_slice() { Some(*one) } else { None },
            since: self.since,
            until: self.until,
            after: Some(RecordId::new(store.writer(), self.after)),
            owner: self.owner.clone(),
            limit: BATCH_RECORDS,
            order: RecordOrder::OldestFirst,
            ..RecordQuery::default()
        }
    }

    /// The query can filter by one operation only; several are filtered here.
    fn choose(&self, records: &mut Vec<LedgerRecord>) {
        if self.ops.len() > 1 {
            let wanted = |record: &LedgerRecord| {
                let fields = record.fields();
                let op = fields.get("op").and_then(|op| op.as_str()).and_then(Op::parse);
                op.is_some_and(|op| self.ops.contains(&op))
            };
            records.retain(wanted);
        }
    }
}
