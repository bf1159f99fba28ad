//! The store on SQLite: one writer thread, one background worker, a pool of read connections.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use vambrace_core::clock::Clock;
use vambrace_ledger::{
    ChainHead, Checkpoint, Digest, EncodedEntry, Entry, Id, MAX_SEGMENT_BYTES, Salt, Timestamp, VerifyKey,
};

use crate::approvals::ApprovalQueries;
use crate::background::{BackgroundTask, BackgroundWorker};
use crate::batch::{Batch, Committed, StartRecord, StateChange};
use crate::call::{self, CallRow, RecentCalls};
use crate::checkpoints::{self, CheckpointFiles, CheckpointRow};
use crate::commit_queue::{self, CommitQueue};
use crate::disk::{Disk, OsDisk};
use crate::error::StoreError;
use crate::group_writer::{EncodedBatch, GroupWriter};
use crate::key_rotation;
use crate::ledger_keys::{self, LedgerKeyFiles};
use crate::lock::StateDirLock;
use crate::merkle_tree;
use crate::notify::Notifier;
use crate::process_liveness::ProcessLiveness;
use crate::read_pool::{self, ReadPool, stamp_or_none};
use crate::record_query::{LedgerRecord, RecordQuery};
use crate::reserve::Reserve;
use crate::rollback_check::{self, RollbackCheck};
use crate::schema;
use crate::sealed_blob::BlobCipher;
use crate::segment_files::{DiskSegments, SegmentFiles};
use crate::session::{self, SessionRow};
use crate::shared_state::SharedState;
use crate::state_dir::StateDir;
use crate::statements::{self, signed};
use crate::store::{BoxFuture, Store};
use crate::sync_state::SyncState;
use crate::timeline_event::{self, TimelineEvent};
use crate::trust::{self, TrustRow};
use crate::violation::{self, ViolationRow};
use crate::wal::Wal;
use crate::witness::{CheckpointWitness, TableView, WitnessReply, WitnessSchedule};

/// Options of a store; the defaults are for production use.
#[derive(Clone)]
pub struct StoreOptions {
    /// Maximum time a commit waits for other processes.
    pub lock_timeout: Duration,
    /// How far the segments may lag behind the table.
    pub segment_interval: Duration,
    /// Size at which a segment is sealed and the next one started.
    pub max_segment_bytes: u64,
    /// Directory for a copy of the newest checkpoint, outside the state directory.
    pub anchors: Option<PathBuf>,
    /// Signs checkpoints elsewhere; asked when the directory is opened and whenever a checkpoint was signed.
    pub witness: Option<Arc<dyn CheckpointWitness>>,
    /// Whether a rolled-back directory is opened anyway; the ledger records it.
    pub acknowledge_rollback: bool,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Disk for segments, checkpoints and keys, and for syncing the WAL of the database.
    pub disk: Arc<dyn Disk>,
}

impl StoreOptions {
    /// The defaults.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            lock_timeout: Duration::from_secs(5),
            segment_interval: Duration::from_secs(1),
            max_segment_bytes: MAX_SEGMENT_BYTES,
            anchors: None,
            witness: None,
            acknowledge_rollback: false,
            clock,
            disk: OsDisk::shared(),
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("anchors", &self.anchors).finish_non_exhaustive()
    }
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Transactions.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Syncs of the WAL.
    pub syncs: u64,
}

/// State and ledger in a state directory.
pub struct SqliteStore {
    pub(crate) read_pool: Arc<ReadPool>,
    // INVARIANT: `Some` until the store is dropped.
    commit_queue: Option<CommitQueue>,
    writer_thread: Option<JoinHandle<()>>,
    sync_state: Arc<SyncState>,
    worker: Option<JoinHandle<()>>,
    shared: Arc<SharedState>,
    pub(crate) blob_cipher: BlobCipher,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) liveness: ProcessLiveness,
    dir: StateDir,
}

/// A new chain beside the segments of an old one would be a second history.
fn reject_orphan_segments(files: &dyn SegmentFiles, database: &Path) -> Result<(), StoreError> {
    let segments = files.list().map_err(|error| StoreError::io("listing the segments", error))?;
    if segments.iter().all(|(_, size)| *size == 0) {
        return Ok(());
    }
    let reason =
        "it holds no records although segments exist: the database was removed or replaced".to_owned();
    Err(StoreError::Damaged { path: database.to_owned(), reason })
}

pub(crate) fn writer_and_head(
    connection: &Connection,
    database: &Path,
) -> Result<(Id, ChainHead), StoreError> {
    let damaged = |reason: String| StoreError::Damaged { path: database.to_owned(), reason };
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
    let name = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let writer = connection.query_row("SELECT name FROM writer WHERE id = 1", (), name).map_err(sqlite)?;
    let writer = Id::new(&writer).map_err(|error| damaged(format!("its writer id is {error}")))?;
    let head =
        connection.query_row(read_pool::NEWEST_RECORD, (), read_pool::head).optional().map_err(sqlite)?;
    let head = head.unwrap_or(Some(ChainHead::EMPTY));
    Ok((writer, head.ok_or_else(|| damaged("its newest record cannot be read".to_owned()))?))
}

/// Submits the newest checkpoint to the witness before anything is added.
fn ask_witness(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    options: &StoreOptions,
    lock: &mut StateDirLock,
) -> Result<Option<WitnessReply>, StoreError> {
    let Some(witness) = &options.witness else { return Ok(None) };
    let view = TableView { connection, database };
    match view.submit_to(witness.as_ref()) {
        Err(StoreError::RolledBack { .. }) if options.acknowledge_rollback => {
            let WitnessReply::RolledBack(size) = witness.submit(&view) else { return Ok(None) };
            lock.acquire(options.lock_timeout)?;
            let done = rollback_check::acknowledge_witness(&view, writer, size, options.clock.now());
            lock.release();
            done.map(|()| None)
        }
        reply => reply.map(Some),
    }
}

impl SqliteStore {
    /// Opens a state directory; created if it is missing.
    pub fn open(dir: StateDir, options: &StoreOptions) -> Result<Self, StoreError> {
        match Self::open_once(dir.clone(), options) {
            // Even opening needs some disk space.
            Err(StoreError::Full(_) | StoreError::Io(_))
                if Reserve::new(Arc::clone(&options.disk), dir.reserve()).release_if_full() =>
            {
                Self::open_once(dir, options)
            }
            other => other,
        }
    }

    fn open_once(dir: StateDir, options: &StoreOptions) -> Result<Self, StoreError> {
        let disk = &options.disk;
        let mut files = Box::new(DiskSegments::on(Arc::clone(disk), &dir.ledger()));
        let database = dir.database();
        let mut lock = StateDirLock::new(dir.writer_lock()?);
        lock.acquire(options.lock_timeout)?;
        dir.prepare_database()?;
        let mut connection = schema::open_for_writing(&database)?;
        connection.set_prepared_statement_cache_capacity(statements::CACHED_STATEMENTS);
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&database, &error);
        let (writer, head) = writer_and_head(&connection, &database)?;
        if head.seq == 0 {
            reject_orphan_segments(&*files, &database)?;
        }
        let keys = LedgerKeyFiles::on(Arc::clone(disk), &dir);
        let anchors = options.anchors.as_deref();
        let checkpoint_files =
            CheckpointFiles::on(Arc::clone(disk), dir.latest_checkpoint(), anchors, &writer);
        let sync_state = Arc::new(SyncState::new(Arc::clone(disk), dir.wal()));
        let now = options.clock.now();
        let mut rollback_check = RollbackCheck {
            connection: &connection,
            database: &database,
            files: files.as_mut(),
            checkpoint_files: &checkpoint_files,
            head,
            sync_state: &sync_state,
        };
        let contradictions = rollback_check.find_contradictions()?;
        if !contradictions.is_empty() && options.acknowledge_rollback {
            if head.seq == 0 {
                // A ledger begins with the record of its key.
                key_rotation::ensure(&connection, &database, &writer, &keys, &sync_state, now)?;
                rollback_check.head = writer_and_head(&connection, &database)?.1;
            }
            rollback_check.acknowledge(&contradictions, &writer, now)?;
        } else {
            rollback_check.reject(&contradictions)?;
        }
        key_rotation::ensure(&connection, &database, &writer, &keys, &sync_state, now)?;
        let seen = checkpoints::newest(&connection).map_err(sqlite)?;
        let seen = seen
            .and_then(|row| Checkpoint::parse(row.note.as_bytes()).ok())
            .map(|(checkpoint, _)| checkpoint);
        let blob_cipher = BlobCipher::load_or_create(&dir.keys())?;
        let liveness = ProcessLiveness::register(dir.path())?;
        let notifier = Arc::new(Notifier::of(dir.notify_dir()?, liveness.id()));
        let wal = Wal::of(&mut connection, Arc::clone(disk), dir.wal()).map_err(sqlite)?;
        let mut reserve = Reserve::new(Arc::clone(disk), dir.reserve());
        // Without the reserve no call starts; each commit reports why.
        let _ = reserve.ensure();
        disk.sync_dir(dir.path()).map_err(|error| StoreError::io("syncing the state directory", error))?;
        lock.release();
        let reply = ask_witness(&connection, &database, &writer, options, &mut lock)?;

        let (tasks, task_receiver) = channel();
        let shared = Arc::new(SharedState::new(tasks));
        reply.iter().for_each(|reply| shared.set_witness(reply));
        let worker = BackgroundWorker {
            database: database.clone(),
            connection: None,
            files,
            segment_lock: StateDirLock::new(dir.segment_lock()?),
            writer_lock: StateDirLock::new(dir.writer_lock()?),
            interval: options.segment_interval,
            max_segment: options.max_segment_bytes,
            shared: Arc::clone(&shared),
            sync_state: Arc::clone(&sync_state),
            clock: Arc::clone(&options.clock),
            id: writer.clone(),
            keys,
            checkpoint_files,
            witness: options.witness.clone(),
            witness_schedule: WitnessSchedule::default(),
            seen,
        };
        let writer = GroupWriter {
            database: database.clone(),
            writer,
            lock,
            lock_timeout: options.lock_timeout,
            wal,
            shared: Arc::clone(&shared),
            sync_state: Arc::clone(&sync_state),
            reserve,
            disk_full: false,
            buffer: Vec::new(),
        };
        let (commit_queue, writer_thread) = commit_queue::open(connection, writer);
        Ok(Self {
            read_pool: Arc::new(ReadPool::new(database)),
            commit_queue: Some(commit_queue),
            writer_thread: Some(spawn("vambrace-writer", move || writer_thread.run())?),
            sync_state,
            worker: Some(spawn("vambrace-worker", move || worker.run(&task_receiver))?),
            shared,
            blob_cipher,
            notifier,
            liveness,
            dir,
        })
    }

    /// The state directory.
    #[must_use]
    pub fn dir(&self) -> &StateDir {
        &self.dir
    }

    /// What the store has done since it was opened.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        StoreCounters {
            commits: self.sync_state.commits(),
            records: self.shared.records(),
            syncs: self.sync_state.syncs(),
        }
    }

    /// Waits until every committed record is in a segment and covered by a signed checkpoint.
    pub fn catch_up(&self) -> Result<(), StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.send_task(BackgroundTask::CatchUp(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    /// Rotates the ledger key and returns the new one.
    pub fn rotate_key(&self) -> Result<VerifyKey, StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.send_task(BackgroundTask::RotateKey(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    /// The newest checkpoint.
    pub fn newest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError> {
        self.read_pool.with(checkpoints::newest)
    }

    /// The checkpoint of exactly this size, if it is stored.
    pub fn checkpoint_of(&self, size: u64) -> Result<Option<CheckpointRow>, StoreError> {
        self.read_pool.with(|connection| checkpoints::of_size(connection, size))
    }

    /// Every key that has signed checkpoints, oldest first.
    pub fn ledger_keys(&self) -> Result<Vec<VerifyKey>, StoreError> {
        self.read_pool.with(ledger_keys::all)
    }

    /// The root over the first `size` records.
    pub fn root_at(&self, size: u64) -> Result<Digest, StoreError> {
        self.read_pool
            .with(|connection| merkle_tree::root(connection, 0..size))?
            .ok_or_else(|| self.no_proof())
    }

    /// The hashes that prove that record `seq` is among the first `size`.
    pub fn inclusion_proof(&self, seq: u64, size: u64) -> Result<Vec<Digest>, StoreError> {
        let index = seq.checked_sub(1).ok_or_else(|| self.no_proof())?;
        self.roots(vambrace_ledger::inclusion(index, size).ok_or_else(|| self.no_proof())?)
    }

    /// The hashes that prove that the first `old` records are a prefix of the first `new`.
    pub fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError> {
        self.roots(vambrace_ledger::consistency(old, new).ok_or_else(|| self.no_proof())?)
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
        StoreError::Damaged { path: self.dir.database(), reason }
    }

    /// Last reply of the witness; `None` if no witness is configured.
    #[must_use]
    pub fn witness_reply(&self) -> Option<WitnessReply> {
        self.shared.witness()
    }

    /// Why the segments are not up to date, if they are not. Calls go on regardless.
    #[must_use]
    pub fn segment_error(&self) -> Option<String> {
        self.shared.segment_error()
    }
}

impl Drop for SqliteStore {
    /// Writes and syncs queued batches, then brings the segments up to date.
    fn drop(&mut self) {
        let _connection = self.commit_queue.take().map(CommitQueue::close);
        if let Some(writer_thread) = self.writer_thread.take() {
            let _ = writer_thread.join();
        }
        self.shared.stop();
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("dir", &self.dir.path()).finish_non_exhaustive()
    }
}

/// Encodes entries; large arguments get their salts here.
fn encode(entries: &[Entry]) -> Result<Vec<EncodedEntry>, StoreError> {
    let mut failed = None;
    let mut draw = || {
        let mut salt = Salt::default();
        failed = getrandom::fill(&mut salt).err().or(failed);
        salt
    };
    let encoded = entries.iter().map(|entry| entry.encode_with_payloads(&mut draw)).collect();
    match failed {
        None => Ok(encoded),
        Some(error) => Err(StoreError::Io(format!("no salt for a payload: {error}"))),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| StoreError::io("spawning a thread", error))
}

impl Store for SqliteStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            // Encoded on the caller's thread: the write connection is the one resource that all callers share.
            let encoded = EncodedBatch {
                encoded: encode(&batch.entries)?,
                changes: batch.changes,
                positions: Vec::with_capacity(batch.entries.len()),
                durability: batch.durability,
                space: batch.space,
            };
            let start = StartRecord::of(&batch.entries);
            drop(batch.entries);
            let commit_queue = self.commit_queue.as_ref().ok_or(StoreError::Closed)?;
            let (encoded, durable) = commit_queue.write(encoded).await?;
            if durable.is_ok()
                && encoded.changes.iter().any(|change| matches!(change, StateChange::Approval(_)))
            {
                self.notifier.notify();
            }
            Ok(Committed::new(encoded.positions, durable?, start))
        })
    }

    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.one(session::BY_ID, [id], SessionRow::read) })
    }

    fn sessions(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.all(session::NEWEST, [sql_limit(limit)], SessionRow::read) })
    }

    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>> {
        Box::pin(async move {
            let found = self.read_pool.one(call::RECENT, (session, tool, since.millis()), |row| {
                let count = row.get::<_, i64>(0)?.unsigned_abs();
                Ok(RecentCalls { count, oldest: stamp_or_none(row, 1)? })
            })?;
            Ok(found.unwrap_or(RecentCalls { count: 0, oldest: None }))
        })
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.one(call::BY_ID, [id], CallRow::read) })
    }

    fn calls(&self, limit: usize) -> BoxFuture<'_, Result<Vec<CallRow<String>>, StoreError>> {
        Box::pin(async move { self.read_pool.all(call::NEWEST, [sql_limit(limit)], CallRow::read) })
    }

    fn events<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>> {
        Box::pin(async move {
            let mut events = self.read_pool.all(timeline_event::IN_ROW, [call], TimelineEvent::read)?;
            events.extend(self.read_pool.all(timeline_event::OF_CALL, [call], TimelineEvent::read)?);
            Ok(events)
        })
    }

    fn violations_since<'a>(
        &'a self,
        session: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            let found = self.read_pool.one(violation::COUNT, (session, since.millis()), count)?;
            Ok(found.unwrap_or(0).unsigned_abs())
        })
    }

    fn violations<'a>(
        &'a self,
        session: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ViolationRow<String>>, StoreError>> {
        Box::pin(async move {
            match session {
                None => self.read_pool.all(violation::NEWEST, [sql_limit(limit)], ViolationRow::read),
                Some(session) => {
                    let wanted = (sql_limit(limit), session);
                    self.read_pool.all(violation::NEWEST_OF, wanted, ViolationRow::read)
                }
            }
        })
    }

    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>> {
        Box::pin(async move {
            let project = project.as_bytes().as_slice();
            self.read_pool.one(trust::OF_PROJECT, [project], TrustRow::read)
        })
    }

    fn records(&self, query: RecordQuery) -> BoxFuture<'_, Result<Vec<LedgerRecord>, StoreError>> {
        // May read the whole ledger, so it does not run on a runtime worker.
        let read_pool = Arc::clone(&self.read_pool);
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || read_pool.with(|c| query.run(c)));
            reading.await.map_err(|_| StoreError::Closed)?
        })
    }

    fn record(&self, seq: u64) -> BoxFuture<'_, Result<Option<LedgerRecord>, StoreError>> {
        Box::pin(async move {
            let sql = "SELECT line FROM ledger WHERE seq = ?1";
            self.read_pool.one(sql, [signed(seq)], |row| Ok(LedgerRecord { seq, line: row.get(0)? }))
        })
    }

    fn approval_queries(&self) -> &dyn ApprovalQueries {
        self
    }

    fn head(&self) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        Box::pin(async move {
            let found = self.read_pool.one(read_pool::NEWEST_RECORD, (), read_pool::head)?;
            found.unwrap_or(Some(ChainHead::EMPTY)).ok_or_else(|| StoreError::Damaged {
                path: self.dir.database(),
                reason: "its newest record cannot be read".into(),
            })
        })
    }
}

pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
