//! Batches queue for one writer thread. While it waits for the disk, the next group gathers, so groups grow
//! under load by themselves. (Two writer threads, one writing while the other waits, were no faster and used
//! 10% more CPU time.)
//!
//! A caller that finds the queue empty commits on its own thread, because handing a batch to another thread and
//! back costs as much as writing it. That caller blocks its runtime worker for one fdatasync; callers that
//! arrive meanwhile queue, and from then on every caller queues until a group of one was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::batch::Durability;
use crate::error::StoreError;
use crate::sqlite::group_writer::{BatchOutcome, EncodedBatch, GroupWriter};
use crate::sqlite::sync_state::SyncState;

/// Maximum batches in a group, so that the first caller of a flood gets its answer in time.
const MAX_GROUP_BATCHES: usize = 1024;
/// How often the writer thread yields without a new batch arriving before it writes a small group.
const MAX_IDLE_YIELDS: u32 = 4;

/// A message to the writer thread.
#[derive(Debug)]
enum QueueMessage {
    /// A batch to write.
    Write(QueuedBatch),
    /// A caller committed lazily: wait with a timeout for its sync.
    LazyCommitted,
    /// The WAL needs maintenance.
    MaintainLog,
}

/// A batch and the channel of the caller that waits for it. The batch is sent back with the outcome, so that
/// the allocating thread frees the memory; otherwise both threads contend for the allocator's locks.
#[derive(Debug)]
struct QueuedBatch {
    batch: EncodedBatch,
    answer: oneshot::Sender<(EncodedBatch, BatchOutcome)>,
}

impl AsMut<EncodedBatch> for QueuedBatch {
    fn as_mut(&mut self) -> &mut EncodedBatch {
        &mut self.batch
    }
}

/// The write connection and its group writer.
#[derive(Debug)]
struct WriteHandle {
    connection: Connection,
    writer: GroupWriter,
}

/// Accepts batches.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    write_handle: Arc<Mutex<WriteHandle>>,
    sync_state: Arc<SyncState>,
    queue: Sender<QueueMessage>,
    state: Arc<QueueState>,
    /// Held by the caller that writes directly, until its batch is on disk.
    direct_write: Mutex<()>,
}

/// The thread that commits queued batches.
#[derive(Debug)]
pub(crate) struct WriterThread {
    write_handle: Arc<Mutex<WriteHandle>>,
    sync_state: Arc<SyncState>,
    queue: Receiver<QueueMessage>,
    state: Arc<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Batches that wait for the writer thread.
    queued: AtomicUsize,
    /// Batches in the last group.
    last_group: AtomicUsize,
    /// Whether the writer thread waits with a timeout for a lazy sync.
    timer_armed: AtomicBool,
}

/// A queue and its writer thread.
pub(crate) fn open(connection: Connection, writer: GroupWriter) -> (CommitQueue, WriterThread) {
    let (send, receive) = channel();
    let sync_state = Arc::clone(&writer.sync_state);
    let write_handle = Arc::new(Mutex::new(WriteHandle { connection, writer }));
    let state = Arc::new(QueueState::default());
    let writer_thread = WriterThread {
        write_handle: Arc::clone(&write_handle),
        sync_state: Arc::clone(&sync_state),
        queue: receive,
        state: Arc::clone(&state),
    };
    (
        CommitQueue { write_handle, sync_state, queue: send, state, direct_write: Mutex::new(()) },
        writer_thread,
    )
}

impl CommitQueue {
    /// Writes a batch, directly or through the queue.
    pub(crate) async fn write(
        &self,
        batch: EncodedBatch,
    ) -> Result<(EncodedBatch, BatchOutcome), StoreError> {
        let batch = match self.try_write_directly(batch) {
            Ok(done) => return Ok(done),
            Err(batch) => batch,
        };
        let (answer, answered) = oneshot::channel();
        self.state.queued.fetch_add(1, Ordering::AcqRel);
        self.send(QueueMessage::Write(QueuedBatch { batch, answer }))?;
        answered.await.map_err(|_| StoreError::Closed)
    }

    /// Closes the queue. The returned handle keeps the connection open: closing the last connection deletes the
    /// WAL, which the segments still need while they catch up.
    pub(crate) fn close(self) -> impl Sized {
        self.write_handle
    }

    /// Writes on the caller's thread if no other batch is in progress; otherwise returns the batch.
    fn try_write_directly(&self, batch: EncodedBatch) -> Result<(EncodedBatch, BatchOutcome), EncodedBatch> {
        let busy = || {
            self.state.queued.load(Ordering::Acquire) > 0 || self.state.last_group.load(Ordering::Acquire) > 1
        };
        // On a single-threaded runtime no other caller could even queue during our sync.
        let many = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !many || busy() {
            return Err(batch);
        }
        let (Some(_direct), Some(mut write_handle)) =
            (self.direct_write.try_lock(), self.write_handle.try_lock())
        else {
            return Err(batch);
        };
        let WriteHandle { connection, writer } = &mut *write_handle;
        // Lock contention and errors are handled by the writer thread.
        let poisoned = self.sync_state.check().is_err();
        if busy() || poisoned || !writer.lock.try_acquire().is_ok_and(|taken| taken) {
            return Err(batch);
        }
        let mut group = [batch];
        let written = writer.write_group_locked(connection, &mut group);
        let needs_maintenance = writer.needs_maintenance();
        drop(write_handle);
        let outcome = written.map(|written| written.settle(&self.sync_state));
        let outcome = outcome.and_then(|mut all| all.pop().unwrap_or(Err(StoreError::Closed)));
        let [batch] = group;
        if batch.durability == Durability::Lazy && !self.state.timer_armed.swap(true, Ordering::SeqCst) {
            let _ = self.send(QueueMessage::LazyCommitted);
        }
        if needs_maintenance {
            let _ = self.send(QueueMessage::MaintainLog);
        }
        Ok((batch, outcome))
    }

    fn send(&self, message: QueueMessage) -> Result<(), StoreError> {
        self.queue.send(message).map_err(|_| StoreError::Closed)
    }
}

impl WriterThread {
    /// Runs until every sender is dropped.
    pub(crate) fn run(self) {
        let mut group = Vec::new();
        loop {
            match self.next() {
                Ok(QueueMessage::Write(request)) => {
                    group.push(request);
                    self.write(&mut group);
                }
                Ok(QueueMessage::MaintainLog) => self.maintain_log(),
                Ok(QueueMessage::LazyCommitted) => {}
                Err(RecvTimeoutError::Timeout) => self.sync_state.sync_lazy(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.sync_state.sync_all();
                    return;
                }
            }
        }
    }

    /// The next message, or a timeout when a lazy commit is due.
    fn next(&self) -> Result<QueueMessage, RecvTimeoutError> {
        // Cleared before reading `due`: a caller that commits lazily after this sends a message, and an earlier
        // one is seen by `due`.
        self.state.timer_armed.store(false, Ordering::SeqCst);
        match self.sync_state.lazy_due_in() {
            None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => {
                self.state.timer_armed.store(true, Ordering::SeqCst);
                self.queue.recv_timeout(wait)
            }
        }
    }

    /// Writes the gathered group and answers every caller.
    fn write(&self, group: &mut Vec<QueuedBatch>) {
        self.gather(group);
        let mut write_handle = self.write_handle.lock();
        self.gather(group);
        self.state.queued.fetch_sub(group.len(), Ordering::AcqRel);
        self.state.last_group.store(group.len(), Ordering::Release);
        let WriteHandle { connection, writer } = &mut *write_handle;
        let written = writer.write_group(connection, group);
        let needs_maintenance = writer.needs_maintenance();
        drop(write_handle);
        let outcomes = match written {
            Ok(written) => written.settle(&self.sync_state),
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        };
        for (QueuedBatch { batch, answer }, outcome) in group.drain(..).zip(outcomes) {
            // The caller may have stopped waiting; the batch is written anyway.
            let _ = answer.send((batch, outcome));
        }
        if needs_maintenance {
            self.maintain_log();
        }
    }

    fn maintain_log(&self) {
        let mut write_handle = self.write_handle.lock();
        let WriteHandle { connection, writer } = &mut *write_handle;
        writer.maintain_log(connection);
    }

    /// Takes every queued batch. Callers that were just answered are likely to commit again, so the thread
    /// yields the processor while fewer than three quarters of the last group have arrived. No clock is
    /// involved.
    fn gather(&self, group: &mut Vec<QueuedBatch>) {
        let last_group = self.state.last_group.load(Ordering::Acquire);
        let mut idle_yields = 0;
        loop {
            let before = group.len();
            let requests = self.queue.try_iter().filter_map(|message| match message {
                QueueMessage::Write(request) => Some(request),
                // Both are handled after every group anyway.
                QueueMessage::LazyCommitted | QueueMessage::MaintainLog => None,
            });
            group.extend(requests.take(MAX_GROUP_BATCHES.saturating_sub(before)));
            idle_yields = if group.len() > before { 0 } else { idle_yields + 1 };
            if group.len() * 4 >= last_group * 3 || idle_yields > MAX_IDLE_YIELDS {
                return;
            }
            std::thread::yield_now();
        }
    }
}
