//! Payloads beside the chain: kept in the transaction of their record, read back against the commitment in its line,
//! deleted for good. The line is the truth about which payloads there are; the table only has the bytes.

use std::time::Duration;

use rusqlite::{Connection, Row};
use vambrace_ledger::{
    Digest, Entry, Forgotten, NamedPayload, Op, Salt, Status, Text, Timestamp, commitment, fields,
};

use crate::batch::Change;
use crate::error::StoreError;
use crate::lock::FolderLock;
use crate::schema;
use crate::sqlite::SqliteStore;
use crate::statements::signed;

/// How long other processes may hold the folder.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long readers of an older state may keep the log.
const CLEARING: Duration = Duration::from_secs(1);

/// A payload and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadRow {
    /// The record that it belongs to.
    pub seq: u64,
    /// When that was recorded.
    pub ts: Timestamp,
    /// What its line says about the payload.
    pub named: NamedPayload,
    /// Whether it is there.
    pub standing: Standing,
}

/// What became of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is there.
    Kept,
    /// It is not there.
    Gone,
}

pub(crate) const INSERT: &str = "INSERT INTO payloads (seq, field, salt, content) VALUES (?1, ?2, ?3, ?4)";
pub(crate) const FORGET: &str = "DELETE FROM payloads WHERE seq = ?1 AND field = ?2";

impl PayloadRow {
    /// What it takes to forget it: the record of who did so, and the deletion, for one batch.
    #[must_use]
    pub fn forget(&self, ts: Timestamp, by: Text) -> (Entry, Change) {
        let mut entry = Entry::new(Op::PayloadForgotten, ts);
        entry.status = Some(Status::Success);
        entry.user = Some(by);
        entry.forgotten = Some(Forgotten { seq: self.seq, commitment: self.named.commitment });
        (entry, Change::ForgetPayload { seq: self.seq, field: self.named.field.clone() })
    }
}

impl SqliteStore {
    /// The payloads that a record names, there or not.
    pub fn payloads_of(&self, seq: u64) -> Result<Vec<PayloadRow>, StoreError> {
        self.readers.with(|connection| {
            let sql = "SELECT seq, line FROM ledger WHERE seq = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([signed(seq)])?;
            match rows.next()? {
                Some(row) => named(connection, row),
                None => Ok(Vec::new()),
            }
        })
    }

    /// Every payload that is kept, oldest first.
    pub fn payloads_kept(&self) -> Result<Vec<PayloadRow>, StoreError> {
        self.readers.with(|connection| {
            let sql = "SELECT l.seq, l.line FROM ledger l
                       WHERE l.seq IN (SELECT seq FROM payloads) ORDER BY l.seq";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(())?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found
                    .extend(named(connection, row)?.into_iter().filter(|row| row.standing == Standing::Kept));
            }
            Ok(found)
        })
    }

    /// The bytes of a payload, or why they are not what was recorded.
    pub fn payload(&self, row: &PayloadRow) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT salt, content FROM payloads WHERE seq = ?1 AND field = ?2";
        let found = self.readers.one(sql, (signed(row.seq), &row.named.field), |r| {
            Ok((r.get::<_, Vec<u8>>(0)?, r.get::<_, Vec<u8>>(1)?))
        })?;
        let Some((salt, content)) = found else { return Ok(None) };
        if fits(&salt, &content, row.named.commitment) {
            return Ok(Some(content));
        }
        let reason = format!("the payload of record {} is not the one that was recorded", row.seq);
        Err(StoreError::Damaged { path: self.dir().database(), reason })
    }

    /// Copies the log into the database and empties it, so that deleted bytes are in neither. `false` when somebody
    /// reads an older state and the log has to stay.
    pub fn clear_log(&self) -> Result<bool, StoreError> {
        let database = self.dir().database();
        let mut lock = FolderLock::new(self.dir().writer_lock()?);
        lock.acquire(PATIENCE)?;
        let cleared = schema::open_again(&database).and_then(|connection| {
            // Others wait for the lock meanwhile, and not for ever.
            let busy = connection.busy_timeout(CLEARING).and_then(|()| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0))
            });
            busy.map(|busy| busy == 0).map_err(|error| StoreError::sqlite(&database, &error))
        });
        lock.release();
        cleared
    }
}

/// Whether a stored payload is the one that was recorded.
pub(crate) fn fits(salt: &[u8], content: &[u8], said: Digest) -> bool {
    Salt::try_from(salt).is_ok_and(|salt| commitment(&salt, content) == said)
}

fn named(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<Vec<PayloadRow>> {
    let seq: i64 = row.get(0)?;
    let line = row.get_ref(1)?.as_str()?;
    let named = NamedPayload::of_line(line);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let said = fields(line).and_then(|fields| Timestamp::parse(fields.get("ts")?.as_str()?).ok());
    let ts = said.unwrap_or(Timestamp::from_millis(0));
    let mut there = connection.prepare_cached("SELECT 1 FROM payloads WHERE seq = ?1 AND field = ?2")?;
    named
        .into_iter()
        .map(|named| {
            let kept = there.exists((seq, &named.field))?;
            let standing = if kept { Standing::Kept } else { Standing::Gone };
            Ok(PayloadRow { seq: seq.unsigned_abs(), ts, named, standing })
        })
        .collect()
}
