//! Tracks which commits are durable; group fsync. Commits are numbered; a sync covers every commit made before
//! it began, so several writers share one. Only one sync runs at a time: the kernel reports a failed write to
//! one sync only, and every commit behind it must fail too.
//!
//! SQLite runs with `synchronous=NORMAL`, so a commit only writes; this module syncs the WAL with `fdatasync`
//! (the bundled SQLite falls back to `fsync`). The guarantee of FULL still holds: a batch is acknowledged as
//! durable after the WAL with its commit frame was synced. SQLite itself syncs what else needs it at NORMAL:
//! the header of a restarted WAL, and checkpoints.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, OpenFor};
use crate::error::StoreError;

/// Maximum delay before lazy commits are synced.
const LAZY_SYNC_DELAY: Duration = Duration::from_millis(90);

/// How far commits and syncs have come.
#[derive(Debug)]
pub(crate) struct SyncState {
    disk: Arc<dyn Disk>,
    log: PathBuf,
    /// Number of the last commit.
    committed: AtomicU64,
    /// The last commit that a sync covers. Written while `file` is held.
    synced: AtomicU64,
    syncs: AtomicU64,
    /// Lazy commits: since when, and the last of them.
    lazy: Mutex<Option<(Instant, u64)>>,
    file: Mutex<Option<Box<dyn DiskFile>>>,
    /// Why the store accepts nothing more.
    poison: Mutex<Option<String>>,
}

impl SyncState {
    pub(crate) fn new(disk: Arc<dyn Disk>, log: PathBuf) -> Self {
        Self {
            disk,
            log,
            committed: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            lazy: Mutex::new(None),
            file: Mutex::new(None),
            poison: Mutex::new(None),
        }
    }

    /// Counts a commit and returns its number.
    pub(crate) fn record_commit(&self) -> u64 {
        self.committed.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of commits.
    pub(crate) fn commits(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Number of syncs.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns when `commit` is on disk.
    pub(crate) fn ensure_durable(&self, commit: u64) -> Result<(), StoreError> {
        let mut file = self.file.lock();
        self.check()?;
        if self.synced.load(Ordering::Acquire) >= commit {
            return Ok(());
        }
        let covered = self.committed.load(Ordering::Acquire);
        match self.sync(&mut file) {
            Ok(()) => {
                self.synced.store(covered, Ordering::Release);
                self.syncs.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.poison(&error);
                Err(error)
            }
        }
    }

    /// Notes a lazy commit.
    pub(crate) fn defer(&self, commit: u64) {
        let mut lazy = self.lazy.lock();
        let since = match *lazy {
            Some((since, last)) if last > self.synced.load(Ordering::Acquire) => since,
            _ => Instant::now(),
        };
        *lazy = Some((since, commit));
    }

    /// Time left until lazy commits must be synced; `None` if all are on disk.
    pub(crate) fn lazy_due_in(&self) -> Option<Duration> {
        let mut lazy = self.lazy.lock();
        let (since, last) = (*lazy)?;
        if last <= self.synced.load(Ordering::Acquire) || self.check().is_err() {
            *lazy = None;
            return None;
        }
        Some(LAZY_SYNC_DELAY.saturating_sub(since.elapsed()))
    }

    /// Syncs lazy commits. A failure poisons the store, so the next commit reports it.
    pub(crate) fn sync_lazy(&self) {
        let last = self.lazy.lock().map(|(_, last)| last);
        if let Some(last) = last {
            let _ = self.ensure_durable(last);
        }
    }

    /// Syncs every commit of this process, including those that wait for the next sync.
    pub(crate) fn sync_all(&self) {
        let _ = self.ensure_durable(self.commits());
    }

    /// Syncs every commit made so far, including those of other processes.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let mut file = self.file.lock();
        self.check()?;
        let covered = self.committed.load(Ordering::Acquire);
        if covered == 0 && file.is_none() && matches!(self.disk.size(&self.log), Ok(None)) {
            // Nothing has been written yet.
            return Ok(());
        }
        self.sync(&mut file).inspect_err(|error| self.poison(error))?;
        if self.synced.fetch_max(covered, Ordering::AcqRel) < covered {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// An error if the store accepts nothing more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.poison.lock() {
            None => Ok(()),
            Some(why) => Err(StoreError::Poisoned(why.clone())),
        }
    }

    /// Closes the store for writing; the first reason is kept.
    pub(crate) fn poison(&self, why: &StoreError) {
        self.poison.lock().get_or_insert_with(|| why.to_string());
    }

    fn sync(&self, file: &mut Option<Box<dyn DiskFile>>) -> Result<(), StoreError> {
        // Whatever the reason, a full disk included: after a failed sync the content of the disk is unknown.
        let fault = |error: std::io::Error| StoreError::Unsynced(format!("syncing the WAL: {error}"));
        let file = match file {
            Some(file) => file,
            empty => empty.insert(self.disk.open(&self.log, OpenFor::Writing).map_err(fault)?),
        };
        if !file.is_linked().map_err(fault)? {
            // SQLite would keep writing to the deleted file, and all of it would be lost.
            return Err(StoreError::Io(
                "the WAL of the database was deleted while the store was open".into(),
            ));
        }
        file.sync().map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync_state() -> (tempfile::NamedTempFile, SyncState) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sync_state = SyncState::new(crate::disk::OsDisk::shared(), file.path().to_owned());
        (file, sync_state)
    }

    #[test]
    fn one_sync_covers_every_commit_before_it() {
        let (_file, sync_state) = sync_state();
        let (first, second) = (sync_state.record_commit(), sync_state.record_commit());
        sync_state.ensure_durable(first).unwrap();
        sync_state.ensure_durable(second).unwrap();
        assert_eq!(sync_state.syncs(), 1);
        let third = sync_state.record_commit();
        sync_state.ensure_durable(third).unwrap();
        assert_eq!(sync_state.syncs(), 2);
    }

    #[test]
    fn a_lazy_commit_is_due_until_a_sync_covers_it() {
        let (_file, sync_state) = sync_state();
        assert_eq!(sync_state.lazy_due_in(), None);
        sync_state.defer(sync_state.record_commit());
        assert!(sync_state.lazy_due_in().is_some());
        sync_state.ensure_durable(sync_state.record_commit()).unwrap();
        assert_eq!(sync_state.lazy_due_in(), None);
        sync_state.defer(sync_state.record_commit());
        sync_state.sync_lazy();
        assert_eq!((sync_state.lazy_due_in(), sync_state.syncs()), (None, 2));
    }

    #[test]
    fn after_a_failed_sync_nothing_is_accepted() {
        let (file, sync_state) = sync_state();
        sync_state.ensure_durable(sync_state.record_commit()).unwrap();
        file.close().unwrap();
        let commit = sync_state.record_commit();
        assert!(matches!(sync_state.ensure_durable(commit), Err(StoreError::Io(_))));
        assert!(matches!(sync_state.ensure_durable(commit), Err(StoreError::Poisoned(_))));
        assert!(sync_state.check().is_err());
    }
}
