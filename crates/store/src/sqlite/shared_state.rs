//! State shared by the threads of a store: counts, pending work, and errors of the background worker. Nothing
//! here blocks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::sqlite::background::BackgroundTask;
use crate::witness::WitnessReply;

/// State shared by the threads of a store.
#[derive(Debug)]
pub(crate) struct SharedState {
    records: AtomicU64,
    dirty: AtomicBool,
    checkpointed_at: AtomicU32,
    /// The WAL was checkpointed except for what was written meanwhile.
    nearly_copied: AtomicBool,
    tasks: Sender<BackgroundTask>,
    fault: Mutex<Option<String>>,
    /// Last reply of the witness.
    witness: Mutex<Option<WitnessReply>>,
}

impl SharedState {
    pub(crate) fn new(tasks: Sender<BackgroundTask>) -> Self {
        Self {
            records: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            checkpointed_at: AtomicU32::new(0),
            nearly_copied: AtomicBool::new(false),
            tasks,
            fault: Mutex::new(None),
            witness: Mutex::new(None),
        }
    }

    /// Counts new records.
    pub(crate) fn add_records(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.wake_worker();
    }

    /// Wakes the background worker once, not at every commit.
    fn wake_worker(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            let _ = self.tasks.send(BackgroundTask::WriteSegments);
        }
    }

    pub(crate) fn clear_dirty(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// The WAL has `pages` pages: requests a checkpoint whenever it has grown by `step`.
    pub(crate) fn wal_grew(&self, pages: u32, step: u32) {
        let last = self.checkpointed_at.load(Ordering::Relaxed);
        let last = if pages < last { 0 } else { last };
        if pages >= last + step {
            self.checkpointed_at.store(pages, Ordering::Relaxed);
            let _ = self.tasks.send(BackgroundTask::CheckpointWal);
        } else if last == 0 {
            self.checkpointed_at.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_wal_nearly_checkpointed(&self) {
        self.nearly_copied.store(true, Ordering::Release);
    }

    pub(crate) fn is_wal_nearly_checkpointed(&self) -> bool {
        self.nearly_copied.load(Ordering::Acquire)
    }

    pub(crate) fn take_wal_nearly_checkpointed(&self) -> bool {
        self.nearly_copied.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_segment_error(&self, fault: Option<String>) {
        *self.fault.lock() = fault;
    }

    /// Why the segments are not up to date, if they are not.
    pub(crate) fn segment_error(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(crate) fn set_witness(&self, heard: &WitnessReply) {
        *self.witness.lock() = Some(heard.clone());
    }

    /// Last reply of the witness.
    pub(crate) fn witness(&self) -> Option<WitnessReply> {
        self.witness.lock().clone()
    }

    /// How many records were added.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Sends a task to the background worker.
    pub(crate) fn send_task(&self, task: BackgroundTask) -> Result<(), StoreError> {
        self.tasks.send(task).map_err(|_| StoreError::Closed)
    }

    /// The store is being closed.
    pub(crate) fn stop(&self) {
        let _ = self.tasks.send(BackgroundTask::Stop);
    }
}
