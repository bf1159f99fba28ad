//! Administration of the ledger on SQLite.

use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use vambrace_ledger::{Digest, VerifyKey};

use crate::checkpoints::CheckpointRow;
use crate::error::StoreError;
use crate::ledger_admin::{LedgerAdmin, StoreCounters};
use crate::lock::StateDirLock;
use crate::payload::{PayloadRow, matches_commitment};
use crate::record_id::RecordId;
use crate::sqlite::background::BackgroundTask;
use crate::sqlite::rows::{checkpoints, ledger_keys, payload, signed};
use crate::sqlite::{SqliteStore, merkle_tree, schema};
use crate::witness::WitnessReply;

/// How long other processes may hold the writer lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long readers of an older state may keep the WAL.
const WAL_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

impl LedgerAdmin for SqliteStore {
    fn catch_up(&self) -> Result<(), StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.send_task(BackgroundTask::CatchUp(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    fn rotate_key(&self) -> Result<VerifyKey, StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.send_task(BackgroundTask::RotateKey(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    fn ledger_keys(&self) -> Result<Vec<VerifyKey>, StoreError> {
        self.read_pool.with(ledger_keys::all)
    }

    fn newest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError> {
        self.read_pool.with(checkpoints::newest)
    }

    fn checkpoint_of(&self, size: u64) -> Result<Option<CheckpointRow>, StoreError> {
        self.read_pool.with(|connection| checkpoints::of_size(connection, size))
    }

    fn root_at(&self, size: u64) -> Result<Digest, StoreError> {
        self.read_pool
            .with(|connection| merkle_tree::root(connection, 0..size))?
            .ok_or_else(|| self.no_proof())
    }

    fn inclusion_proof(&self, record: &RecordId, size: u64) -> Result<Vec<Digest>, StoreError> {
        let index = self.own_seq(record).and_then(|seq| seq.checked_sub(1)).ok_or_else(|| self.no_proof())?;
        self.roots(vambrace_ledger::inclusion(index, size).ok_or_else(|| self.no_proof())?)
    }

    fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError> {
        self.roots(vambrace_ledger::consistency(old, new).ok_or_else(|| self.no_proof())?)
    }

    fn payloads_of(&self, record: &RecordId) -> Result<Vec<PayloadRow>, StoreError> {
        let Some(seq) = self.own_seq(record) else { return Ok(Vec::new()) };
        self.read_pool.with(|connection| payload::of_record(connection, &self.writer, seq))
    }

    fn stored_payloads(&self) -> Result<Vec<PayloadRow>, StoreError> {
        self.read_pool.with(|connection| payload::stored(connection, &self.writer))
    }

    fn payload(&self, row: &PayloadRow) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(seq) = self.own_seq(&row.record) else { return Ok(None) };
        let found = self.read_pool.one(payload::CONTENT, (signed(seq), &row.named.field), |r| {
            Ok((r.get::<_, Vec<u8>>(0)?, r.get::<_, Vec<u8>>(1)?))
        })?;
        let Some((salt, content)) = found else { return Ok(None) };
        if matches_commitment(&salt, &content, row.named.commitment) {
            return Ok(Some(content));
        }
        let reason = format!("the payload of record {seq} does not match its commitment");
        Err(StoreError::Damaged { path: self.dir().database(), reason })
    }

    /// Checkpoints and truncates the WAL, so that deleted bytes are in neither file.
    fn truncate_log(&self) -> Result<bool, StoreError> {
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

    fn witness_reply(&self) -> Option<WitnessReply> {
        self.shared.witness()
    }

    fn segment_error(&self) -> Option<String> {
        self.shared.segment_error()
    }

    fn counters(&self) -> StoreCounters {
        StoreCounters {
            commits: self.sync_state.commits(),
            records: self.shared.records(),
            syncs: self.sync_state.syncs(),
        }
    }
}

impl SqliteStore {
    /// The number of a record; `None` if it is in the chain of another writer.
    pub(in crate::sqlite) fn own_seq(&self, record: &RecordId) -> Option<u64> {
        (record.writer == self.writer).then_some(record.seq)
    }

    fn roots(&self, stretches: Vec<Range<u64>>) -> Result<Vec<Digest>, StoreError> {
        let roots = self.read_pool.with(|connection| {
            stretches
                .into_iter()
                .map(|stretch| merkle_tree::root(connection, stretch))
                .collect::<Result<Vec<_>, _>>()
        })?;
        roots.into_iter().collect::<Option<_>>().ok_or_else(|| self.no_proof())
    }

    fn no_proof(&self) -> StoreError {
        let reason = "records that the proof needs are missing".to_owned();
        StoreError::Damaged { path: self.dir().database(), reason }
    }
}
