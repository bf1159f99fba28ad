//! Payloads beside the chain: stored in the transaction of their record, checked against the commitment in its
//! line when read, deleted permanently on request. The line says which payloads exist; the table only holds the
//! bytes.

use std::time::Duration;

use rusqlite::{Connection, Row};
use vambrace_ledger::{
    Digest, Entry, ForgottenPayload, NamedPayload, Op, RecordStatus, RedactedText, Salt, Timestamp,
    commitment, line_fields,
};

use crate::batch::StateChange;
use crate::error::StoreError;
use crate::lock::StateDirLock;
use crate::schema;
use crate::sqlite::SqliteStore;
use crate::statements::signed;

/// How long other processes may hold the writer lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long readers of an older state may keep the WAL.
const WAL_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// A payload and its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadRow {
    /// The record that it belongs to.
    pub seq: u64,
    /// Time of that record.
    pub ts: Timestamp,
    /// What its line says about the payload.
    pub named: NamedPayload,
    /// Whether it is stored.
    pub state: PayloadState,
}

/// Whether a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadState {
    /// It is stored.
    Present,
    /// It is not.
    Absent,
}

pub(crate) const INSERT: &str = "INSERT INTO payloads (seq, field, salt, content) VALUES (?1, ?2, ?3, ?4)";
pub(crate) const FORGET: &str = "DELETE FROM payloads WHERE seq = ?1 AND field = ?2";

impl PayloadRow {
    /// What deletes it: the record of who deleted it, and the deletion, for one batch.
    #[must_use]
    pub fn forget(&self, ts: Timestamp, by: RedactedText) -> (Entry, StateChange) {
        let mut entry = Entry::new(Op::PayloadForgotten, ts);
        entry.status = Some(RecordStatus::Success);
        entry.user = Some(by);
        entry.forgotten = Some(ForgottenPayload { seq: self.seq, commitment: self.named.commitment });
        (entry, StateChange::ForgetPayload { seq: self.seq, field: self.named.field.clone() })
    }
}

impl SqliteStore {
    /// The payloads that a record names, stored or not.
    pub fn payloads_of(&self, seq: u64) -> Result<Vec<PayloadRow>, StoreError> {
        self.read_pool.with(|connection| {
            let sql = "SELECT seq, line FROM ledger WHERE seq = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([signed(seq)])?;
            match rows.next()? {
                Some(row) => named_payloads(connection, row),
                None => Ok(Vec::new()),
            }
        })
    }

    /// Every stored payload, oldest first.
    pub fn stored_payloads(&self) -> Result<Vec<PayloadRow>, StoreError> {
        self.read_pool.with(|connection| {
            let sql = "SELECT l.seq, l.line FROM ledger l
                       WHERE l.seq IN (SELECT seq FROM payloads) ORDER BY l.seq";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(())?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.extend(
                    named_payloads(connection, row)?
                        .into_iter()
                        .filter(|row| row.state == PayloadState::Present),
                );
            }
            Ok(found)
        })
    }

    /// The bytes of a payload, or an error if they are not what was recorded.
    pub fn payload(&self, row: &PayloadRow) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT salt, content FROM payloads WHERE seq = ?1 AND field = ?2";
        let found = self.read_pool.one(sql, (signed(row.seq), &row.named.field), |r| {
            Ok((r.get::<_, Vec<u8>>(0)?, r.get::<_, Vec<u8>>(1)?))
        })?;
        let Some((salt, content)) = found else { return Ok(None) };
        if matches_commitment(&salt, &content, row.named.commitment) {
            return Ok(Some(content));
        }
        let reason = format!("the payload of record {} does not match its commitment", row.seq);
        Err(StoreError::Damaged { path: self.dir().database(), reason })
    }

    /// Checkpoints and truncates the WAL, so that deleted bytes are in neither file. `false` if a reader of an
    /// older state keeps the WAL.
    pub fn truncate_log(&self) -> Result<bool, StoreError> {
        let database = self.dir().database();
        let mut lock = StateDirLock::new(self.dir().writer_lock()?);
        lock.acquire(LOCK_TIMEOUT)?;
        let cleared = schema::open_again(&database).and_then(|connection| {
            // Other processes wait for the lock meanwhile, so this must not take long.
            let busy = connection.busy_timeout(WAL_BUSY_TIMEOUT).and_then(|()| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0))
            });
            busy.map(|busy| busy == 0).map_err(|error| StoreError::sqlite(&database, &error))
        });
        lock.release();
        cleared
    }
}

/// Whether a stored payload matches the recorded commitment.
pub(crate) fn matches_commitment(salt: &[u8], content: &[u8], said: Digest) -> bool {
    Salt::try_from(salt).is_ok_and(|salt| commitment(&salt, content) == said)
}

fn named_payloads(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<Vec<PayloadRow>> {
    let seq: i64 = row.get(0)?;
    let line = row.get_ref(1)?.as_str()?;
    let named = NamedPayload::of_line(line);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let said = line_fields(line).and_then(|fields| Timestamp::parse(fields.get("ts")?.as_str()?).ok());
    let ts = said.unwrap_or(Timestamp::from_millis(0));
    let mut there = connection.prepare_cached("SELECT 1 FROM payloads WHERE seq = ?1 AND field = ?2")?;
    named
        .into_iter()
        .map(|named| {
            let kept = there.exists((seq, &named.field))?;
            let state = if kept { PayloadState::Present } else { PayloadState::Absent };
            Ok(PayloadRow { seq: seq.unsigned_abs(), ts, named, state })
        })
        .collect()
}
