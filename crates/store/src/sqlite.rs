//! The store on SQLite: one writing thread, one thread for chores, connections that read.

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
    Checkpoint, Digest, Encoded, Entry, Head, Id, MAX_SEGMENT_BYTES, Salt, Timestamp, VerifyKey,
};

use crate::batch::{Batch, Change, Committed, Start};
use crate::call::{self, CallRow, RecentCalls};
use crate::checkpoints::{self, CheckpointRow, Copies};
use crate::desk::{self, Desk};
use crate::disk::{DiskSegments, SegmentFiles};
use crate::error::StoreError;
use crate::event::{self, TimelineEvent};
use crate::files::{Disk, OsDisk};
use crate::guard::{self, Guard};
use crate::keeper::{Chore, Keeper};
use crate::keys::{self, KeyFiles};
use crate::life::Life;
use crate::lock::FolderLock;
use crate::questions::Questions;
use crate::read::{self, Readers, stamp_or_none};
use crate::record::{Query, Record};
use crate::reserve::Reserve;
use crate::rotation;
use crate::schema;
use crate::session::{self, SessionRow};
use crate::shared::Shared;
use crate::state_dir::StateDir;
use crate::statements::{self, signed};
use crate::store::{BoxFuture, Store};
use crate::tide::Tide;
use crate::tree;
use crate::trust::{self, TrustRow};
use crate::vault::Vault;
use crate::violation::{self, ViolationRow};
use crate::wake::Wakes;
use crate::wal::Wal;
use crate::witness::{Heard, Turn, View, Witness};
use crate::writer::{Job, Writer};

/// How a store behaves; the defaults are meant for use.
#[derive(Clone)]
pub struct Options {
    /// How long a commit waits for other processes.
    pub patience: Duration,
    /// How far the segments may lag behind the table.
    pub projection_interval: Duration,
    /// When a segment is followed by a new one.
    pub max_segment_bytes: u64,
    /// Where a copy of the newest checkpoint is kept, outside the state folder.
    pub anchors: Option<PathBuf>,
    /// Who signs checkpoints elsewhere; asked when the folder is opened and whenever one was signed.
    pub witness: Option<Arc<dyn Witness>>,
    /// Whether a folder that was set back is opened all the same; it is put on record.
    pub acknowledge_rollback: bool,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What segments, checkpoints and keys are written to, and what brings the database's log to the disk.
    pub disk: Arc<dyn Disk>,
}

impl Options {
    /// The usual ones.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            patience: Duration::from_secs(5),
            projection_interval: Duration::from_secs(1),
            max_segment_bytes: MAX_SEGMENT_BYTES,
            anchors: None,
            witness: None,
            acknowledge_rollback: false,
            clock,
            disk: OsDisk::shared(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("anchors", &self.anchors).finish_non_exhaustive()
    }
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions.
    pub commits: u64,
    /// Records in them.
    pub records: u64,
    /// Syncs of the disk.
    pub syncs: u64,
}

/// State and ledger in a state folder.
pub struct SqliteStore {
    pub(crate) readers: Arc<Readers>,
    // INVARIANT: `Some` until the store is dropped.
    desk: Option<Desk>,
    clerk: Option<JoinHandle<()>>,
    tide: Arc<Tide>,
    keeper: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    pub(crate) vault: Vault,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) life: Life,
    dir: StateDir,
}

/// A new chain beside the segments of an old one would be a second history.
fn refuse_orphans(files: &dyn SegmentFiles, database: &Path) -> Result<(), StoreError> {
    let segments = files.list().map_err(|error| StoreError::io("looking at the segments", error))?;
    if segments.iter().all(|(_, size)| *size == 0) {
        return Ok(());
    }
    let reason =
        "it holds no records, but there are segments: the database was removed or replaced".to_owned();
    Err(StoreError::Damaged { path: database.to_owned(), reason })
}

pub(crate) fn writer_and_head(connection: &Connection, database: &Path) -> Result<(Id, Head), StoreError> {
    let damaged = |reason: String| StoreError::Damaged { path: database.to_owned(), reason };
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(database, &error);
    let name = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let writer = connection.query_row("SELECT name FROM writer WHERE id = 1", (), name).map_err(sqlite)?;
    let writer = Id::new(&writer).map_err(|error| damaged(format!("its writer is {error}")))?;
    let head = connection.query_row(read::NEWEST_RECORD, (), read::head).optional().map_err(sqlite)?;
    let head = head.unwrap_or(Some(Head::EMPTY));
    Ok((writer, head.ok_or_else(|| damaged("its newest record is no record".to_owned()))?))
}

/// Shows the witness what is there before anything is added to it.
fn ask_witness(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    options: &Options,
    lock: &mut FolderLock,
) -> Result<Option<Heard>, StoreError> {
    let Some(witness) = &options.witness else { return Ok(None) };
    let view = View { connection, database };
    match view.ask(witness.as_ref()) {
        Err(StoreError::RolledBack { .. }) if options.acknowledge_rollback => {
            let Heard::RolledBack(size) = witness.show(&view) else { return Ok(None) };
            lock.acquire(options.patience)?;
            let done = guard::acknowledge_witness(&view, writer, size, options.clock.now());
            lock.release();
            done.map(|()| None)
        }
        heard => heard.map(Some),
    }
}

impl SqliteStore {
    /// Opens a state folder, which is made when it is missing.
    pub fn open(dir: StateDir, options: &Options) -> Result<Self, StoreError> {
        match Self::open_once(dir.clone(), options) {
            // Even opening takes some room.
            Err(StoreError::Full(_) | StoreError::Io(_))
                if Reserve::new(Arc::clone(&options.disk), dir.reserve()).release_if_full() =>
            {
                Self::open_once(dir, options)
            }
            other => other,
        }
    }

    fn open_once(dir: StateDir, options: &Options) -> Result<Self, StoreError> {
        let disk = &options.disk;
        let mut files = Box::new(DiskSegments::on(Arc::clone(disk), &dir.ledger()));
        let database = dir.database();
        let mut lock = FolderLock::new(dir.writer_lock()?);
        lock.acquire(options.patience)?;
        dir.prepare_database()?;
        let mut connection = schema::open_for_writing(&database)?;
        connection.set_prepared_statement_cache_capacity(statements::KEPT);
        let sqlite = |error: rusqlite::Error| StoreError::sqlite(&database, &error);
        let (writer, head) = writer_and_head(&connection, &database)?;
        if head.seq == 0 {
            refuse_orphans(&*files, &database)?;
        }
        let keys = KeyFiles::on(Arc::clone(disk), &dir);
        let anchors = options.anchors.as_deref();
        let copies = Copies::on(Arc::clone(disk), dir.latest_checkpoint(), anchors, &writer);
        let tide = Arc::new(Tide::new(Arc::clone(disk), dir.wal()));
        let now = options.clock.now();
        let mut guard = Guard {
            connection: &connection,
            database: &database,
            files: files.as_mut(),
            copies: &copies,
            head,
            tide: &tide,
        };
        let against = guard.look()?;
        if !against.is_empty() && options.acknowledge_rollback {
            if head.seq == 0 {
                // A ledger begins with its key.
                rotation::ensure(&connection, &database, &writer, &keys, &tide, now)?;
                guard.head = writer_and_head(&connection, &database)?.1;
            }
            guard.acknowledge(&against, &writer, now)?;
        } else {
            guard.refuse(&against)?;
        }
        rotation::ensure(&connection, &database, &writer, &keys, &tide, now)?;
        let seen = checkpoints::newest(&connection).map_err(sqlite)?;
        let seen = seen.and_then(|row| Checkpoint::parse(row.note.as_bytes()).ok()).map(|(said, _)| said);
        let vault = Vault::open(&dir.keys())?;
        let life = Life::begin(dir.path())?;
        let wakes = Arc::new(Wakes::of(dir.wake()?, life.id()));
        let wal = Wal::of(&mut connection, Arc::clone(disk), dir.wal()).map_err(sqlite)?;
        let mut reserve = Reserve::new(Arc::clone(disk), dir.reserve());
        // Without it nothing begins; whoever tries is told why.
        let _ = reserve.ensure();
        disk.sync_folder(dir.path()).map_err(|error| StoreError::io("syncing the state folder", error))?;
        lock.release();
        let heard = ask_witness(&connection, &database, &writer, options, &mut lock)?;

        let (chores, chores_in) = channel();
        let shared = Arc::new(Shared::new(chores));
        heard.iter().for_each(|heard| shared.set_witness(heard));
        let keeper = Keeper {
            database: database.clone(),
            connection: None,
            files,
            mirror: FolderLock::new(dir.mirror_lock()?),
            writer: FolderLock::new(dir.writer_lock()?),
            interval: options.projection_interval,
            max_segment: options.max_segment_bytes,
            shared: Arc::clone(&shared),
            tide: Arc::clone(&tide),
            clock: Arc::clone(&options.clock),
            id: writer.clone(),
            keys,
            copies,
            witness: options.witness.clone(),
            turn: Turn::default(),
            seen,
        };
        let writer = Writer {
            database: database.clone(),
            writer,
            lock,
            patience: options.patience,
            wal,
            shared: Arc::clone(&shared),
            tide: Arc::clone(&tide),
            reserve,
            tight: false,
            buffer: Vec::new(),
        };
        let (desk, clerk) = desk::open(connection, writer);
        Ok(Self {
            readers: Arc::new(Readers::new(database)),
            desk: Some(desk),
            clerk: Some(spawn("vambrace-writer", move || clerk.run())?),
            tide,
            keeper: Some(spawn("vambrace-keeper", move || keeper.run(&chores_in))?),
            shared,
            vault,
            wakes,
            life,
            dir,
        })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &StateDir {
        &self.dir
    }

    /// What was done since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { commits: self.tide.commits(), records: self.shared.records(), syncs: self.tide.syncs() }
    }

    /// Waits until everything that is committed now is in a segment and signed.
    pub fn catch_up(&self) -> Result<(), StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.ask(Chore::CatchUp(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    /// Lets a new key sign from now on, and returns it.
    pub fn rotate_key(&self) -> Result<VerifyKey, StoreError> {
        let (answer, wait) = sync_channel(1);
        self.shared.ask(Chore::Rotate(answer))?;
        wait.recv().map_err(|_| StoreError::Closed)?
    }

    /// The newest checkpoint.
    pub fn newest_checkpoint(&self) -> Result<Option<CheckpointRow>, StoreError> {
        self.readers.with(checkpoints::newest)
    }

    /// The checkpoint of exactly this size, if one is kept.
    pub fn checkpoint_of(&self, size: u64) -> Result<Option<CheckpointRow>, StoreError> {
        self.readers.with(|connection| checkpoints::of_size(connection, size))
    }

    /// Every key that has signed, oldest first.
    pub fn ledger_keys(&self) -> Result<Vec<VerifyKey>, StoreError> {
        self.readers.with(keys::all)
    }

    /// The root over the first `size` records.
    pub fn root_at(&self, size: u64) -> Result<Digest, StoreError> {
        self.readers.with(|connection| tree::root(connection, 0..size))?.ok_or_else(|| self.no_proof())
    }

    /// The hashes that show that record `seq` is among the first `size`.
    pub fn inclusion_proof(&self, seq: u64, size: u64) -> Result<Vec<Digest>, StoreError> {
        let index = seq.checked_sub(1).ok_or_else(|| self.no_proof())?;
        self.roots(vambrace_ledger::inclusion(index, size).ok_or_else(|| self.no_proof())?)
    }

    /// The hashes that show that the first `old` records are the beginning of the first `new`.
    pub fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Digest>, StoreError> {
        self.roots(vambrace_ledger::consistency(old, new).ok_or_else(|| self.no_proof())?)
    }

    fn roots(&self, stretches: Vec<Range<u64>>) -> Result<Vec<Digest>, StoreError> {
        let roots = self.readers.with(|connection| {
            stretches
                .into_iter()
                .map(|stretch| tree::root(connection, stretch))
                .collect::<Result<Vec<_>, _>>()
        })?;
        roots.into_iter().collect::<Option<_>>().ok_or_else(|| self.no_proof())
    }

    fn no_proof(&self) -> StoreError {
        let reason = "it has not all the records that a proof needs".to_owned();
        StoreError::Damaged { path: self.dir.database(), reason }
    }

    /// What the witness said last; none where there is no witness.
    #[must_use]
    pub fn witness_said(&self) -> Option<Heard> {
        self.shared.witness()
    }

    /// Why the segments are not up to date, if they are not. No call is stopped by it.
    #[must_use]
    pub fn segments_fault(&self) -> Option<String> {
        self.shared.fault()
    }
}

impl Drop for SqliteStore {
    /// Writes and syncs what is queued, then brings the segments up to date.
    fn drop(&mut self) {
        let _connection = self.desk.take().map(Desk::close);
        if let Some(clerk) = self.clerk.take() {
            let _ = clerk.join();
        }
        self.shared.stop();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("dir", &self.dir.path()).finish_non_exhaustive()
    }
}

/// Large arguments get their salts here.
fn encode(entries: &[Entry]) -> Result<Vec<Encoded>, StoreError> {
    let mut failed = None;
    let mut draw = || {
        let mut salt = Salt::default();
        failed = getrandom::fill(&mut salt).err().or(failed);
        salt
    };
    let encoded = entries.iter().map(|entry| entry.encode_beside(&mut draw)).collect();
    match failed {
        None => Ok(encoded),
        Some(error) => Err(StoreError::Io(format!("no salt for a payload: {error}"))),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| StoreError::io("starting a thread", error))
}

impl Store for SqliteStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(async move {
            // Encoded here, on the caller's thread: the pen is the one thing everybody shares.
            let job = Job {
                encoded: encode(&batch.entries)?,
                changes: batch.changes,
                sealed: Vec::with_capacity(batch.entries.len()),
                durability: batch.durability,
                room: batch.room,
            };
            let start = Start::of(&batch.entries);
            drop(batch.entries);
            let desk = self.desk.as_ref().ok_or(StoreError::Closed)?;
            let (job, durable) = desk.write(job).await?;
            if durable.is_ok() && job.changes.iter().any(|change| matches!(change, Change::Ask(_))) {
                self.wakes.ring();
            }
            Ok(Committed::new(job.sealed, durable?, start))
        })
    }

    fn session<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<SessionRow<String>>, StoreError>> {
        Box::pin(async move { self.readers.one(session::BY_ID, [id], SessionRow::read) })
    }

    fn sessions(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionRow<String>>, StoreError>> {
        Box::pin(async move { self.readers.all(session::NEWEST, [most(limit)], SessionRow::read) })
    }

    fn recent_calls<'a>(
        &'a self,
        session: &'a str,
        tool: &'a str,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<RecentCalls, StoreError>> {
        Box::pin(async move {
            let found = self.readers.one(call::RECENT, (session, tool, since.millis()), |row| {
                let count = row.get::<_, i64>(0)?.unsigned_abs();
                Ok(RecentCalls { count, oldest: stamp_or_none(row, 1)? })
            })?;
            Ok(found.unwrap_or(RecentCalls { count: 0, oldest: None }))
        })
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<CallRow<String>>, StoreError>> {
        Box::pin(async move { self.readers.one(call::BY_ID, [id], CallRow::read) })
    }

    fn calls(&self, limit: usize) -> BoxFuture<'_, Result<Vec<CallRow<String>>, StoreError>> {
        Box::pin(async move { self.readers.all(call::NEWEST, [most(limit)], CallRow::read) })
    }

    fn events<'a>(&'a self, call: &'a str) -> BoxFuture<'a, Result<Vec<TimelineEvent<String>>, StoreError>> {
        Box::pin(async move {
            let mut events = self.readers.all(event::IN_ROW, [call], TimelineEvent::read)?;
            events.extend(self.readers.all(event::OF_CALL, [call], TimelineEvent::read)?);
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
            let found = self.readers.one(violation::COUNT, (session, since.millis()), count)?;
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
                None => self.readers.all(violation::NEWEST, [most(limit)], ViolationRow::read),
                Some(session) => {
                    let wanted = (most(limit), session);
                    self.readers.all(violation::NEWEST_OF, wanted, ViolationRow::read)
                }
            }
        })
    }

    fn trust(&self, project: Digest) -> BoxFuture<'_, Result<Option<TrustRow<String>>, StoreError>> {
        Box::pin(async move {
            let project = project.as_bytes().as_slice();
            self.readers.one(trust::OF_PROJECT, [project], TrustRow::read)
        })
    }

    fn records(&self, query: Query) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        // May read the whole ledger: not on a thread that serves others.
        let readers = Arc::clone(&self.readers);
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || readers.with(|c| query.run(c)));
            reading.await.map_err(|_| StoreError::Closed)?
        })
    }

    fn record(&self, seq: u64) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        Box::pin(async move {
            let sql = "SELECT line FROM ledger WHERE seq = ?1";
            self.readers.one(sql, [signed(seq)], |row| Ok(Record { seq, line: row.get(0)? }))
        })
    }

    fn questions(&self) -> &dyn Questions {
        self
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>> {
        Box::pin(async move {
            let found = self.readers.one(read::NEWEST_RECORD, (), read::head)?;
            found.unwrap_or(Some(Head::EMPTY)).ok_or_else(|| StoreError::Damaged {
                path: self.dir.database(),
                reason: "its newest record is no record".into(),
            })
        })
    }
}

pub(crate) fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
