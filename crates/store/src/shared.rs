//! What the threads of a store tell each other: counts, what there is to do, and what went wrong in the
//! background. Nobody waits for anything here.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::keeper::Chore;
use crate::witness::Heard;

/// What the threads of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    records: AtomicU64,
    dirty: AtomicBool,
    checkpointed_at: AtomicU32,
    /// The log was copied back but for what came meanwhile.
    nearly_copied: AtomicBool,
    chores: Sender<Chore>,
    fault: Mutex<Option<String>>,
    /// What the witness said last.
    witness: Mutex<Option<Heard>>,
}

impl Shared {
    pub(crate) fn new(chores: Sender<Chore>) -> Self {
        Self {
            records: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            checkpointed_at: AtomicU32::new(0),
            nearly_copied: AtomicBool::new(false),
            chores,
            fault: Mutex::new(None),
            witness: Mutex::new(None),
        }
    }

    /// So many records were added.
    pub(crate) fn recorded(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.changed();
    }

    /// Records were added: wakes the keeper once, not at every commit.
    fn changed(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            let _ = self.chores.send(Chore::Project);
        }
    }

    pub(crate) fn seen(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// The log has so many pages: asks for a checkpoint whenever it has grown by `step`.
    pub(crate) fn log_grew(&self, pages: u32, step: u32) {
        let last = self.checkpointed_at.load(Ordering::Relaxed);
        let last = if pages < last { 0 } else { last };
        if pages >= last + step {
            self.checkpointed_at.store(pages, Ordering::Relaxed);
            let _ = self.chores.send(Chore::Checkpoint);
        } else if last == 0 {
            self.checkpointed_at.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_nearly_copied(&self) {
        self.nearly_copied.store(true, Ordering::Release);
    }

    pub(crate) fn is_nearly_copied(&self) -> bool {
        self.nearly_copied.load(Ordering::Acquire)
    }

    pub(crate) fn take_nearly_copied(&self) -> bool {
        self.nearly_copied.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock() = fault;
    }

    /// Why the segments are not up to date, if they are not.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(crate) fn set_witness(&self, heard: &Heard) {
        *self.witness.lock() = Some(heard.clone());
    }

    /// What the witness said last.
    pub(crate) fn witness(&self) -> Option<Heard> {
        self.witness.lock().clone()
    }

    /// How many records were added.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Asks the keeper for something.
    pub(crate) fn ask(&self, chore: Chore) -> Result<(), StoreError> {
        self.chores.send(chore).map_err(|_| StoreError::Closed)
    }

    /// The store is being closed.
    pub(crate) fn stop(&self) {
        let _ = self.chores.send(Chore::Stop);
    }
}
