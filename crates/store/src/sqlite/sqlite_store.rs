//! Opens the store of a state directory: one writer thread, one background worker, a pool of read connections. The
//! traits of the store are implemented in `queries.rs`, `approval_queries.rs` and `ledger_admin.rs`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use vambrace_core::clock::Clock;
use vambrace_ledger::{ChainHead, Checkpoint, Id, MAX_SEGMENT_BYTES};

use crate::checkpoints::CheckpointFiles;
use crate::disk::{Disk, OsDisk};
use crate::error::StoreError;
use crate::ledger_keys::LedgerKeyFiles;
use crate::lock::StateDirLock;
use crate::notify::DatagramNotifier;
use crate::process_liveness::{LockFileLiveness, ProcessLiveness as _};
use crate::sealed_blob::BlobCipher;
use crate::segment_files::{DiskSegments, SegmentFiles};
use crate::sqlite::background::BackgroundWorker;
use crate::sqlite::commit_queue::{self, CommitQueue};
use crate::sqlite::group_writer::GroupWriter;
use crate::sqlite::key_rotation;
use crate::sqlite::read_pool::ReadPool;
use crate::sqlite::reserve::Reserve;
use crate::sqlite::rollback_check::{self, RollbackCheck};
use crate::sqlite::rows::{checkpoints, record};
use crate::sqlite::schema;
use crate::sqlite::shared_state::SharedState;
use crate::sqlite::statements;
use crate::sqlite::sync_state::SyncState;
use crate::sqlite::table_view::TableView;
use crate::sqlite::wal::Wal;
use crate::state_dir::StateDir;
use crate::witness::{CheckpointWitness, WitnessReply, WitnessSchedule};

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

/// State and ledger in a state directory.
pub struct SqliteStore {
    pub(in crate::sqlite) writer: Id,
    pub(in crate::sqlite) read_pool: Arc<ReadPool>,
    // INVARIANT: `Some` until the store is dropped.
    pub(in crate::sqlite) commit_queue: Option<CommitQueue>,
    writer_thread: Option<JoinHandle<()>>,
    pub(in crate::sqlite) sync_state: Arc<SyncState>,
    worker: Option<JoinHandle<()>>,
    pub(in crate::sqlite) shared: Arc<SharedState>,
    pub(in crate::sqlite) blob_cipher: BlobCipher,
    pub(in crate::sqlite) notifier: DatagramNotifier,
    pub(in crate::sqlite) liveness: LockFileLiveness,
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
    let head = connection.query_row(record::NEWEST, (), record::head).optional().map_err(sqlite)?;
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
        let liveness = LockFileLiveness::register(dir.path())?;
        let notifier = DatagramNotifier::of(dir.notify_dir()?, liveness.id());
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
        let group_writer = GroupWriter {
            database: database.clone(),
            writer: writer.clone(),
            lock,
            lock_timeout: options.lock_timeout,
            wal,
            shared: Arc::clone(&shared),
            sync_state: Arc::clone(&sync_state),
            reserve,
            disk_full: false,
            buffer: Vec::new(),
        };
        let (commit_queue, writer_thread) = commit_queue::open(connection, group_writer);
        Ok(Self {
            writer,
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

    pub(in crate::sqlite) fn dir(&self) -> &StateDir {
        &self.dir
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

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| StoreError::io("spawning a thread", error))
}
