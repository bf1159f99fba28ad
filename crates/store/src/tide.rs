//! What is on the disk. Commits are numbered; a sync covers every commit that was made before it began, so
//! several writers can share one. Only one sync runs at a time: the kernel reports a failed write to one of
//! them only, and everybody behind it must learn of it.
//!
//! SQLite runs with `synchronous=NORMAL`, so a commit only writes; the sync of the log is made here, with
//! `fdatasync` (the bundled SQLite falls back to `fsync`). What FULL promises holds: a batch is acknowledged as
//! durable after the log that holds its commit frame was synced. Syncs that other things rely on (the header of
//! a log that starts over, checkpoints) SQLite makes itself at NORMAL.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::StoreError;
use crate::files::{Disk, DiskFile, OpenFor};

/// What was committed lazily is synced after this time at the latest.
const LAZY: Duration = Duration::from_millis(90);

/// How far commits and syncs have come.
#[derive(Debug)]
pub(crate) struct Tide {
    disk: Arc<dyn Disk>,
    log: PathBuf,
    /// The number of the last commit.
    committed: AtomicU64,
    /// The last commit that a sync covers. Written with `file` held.
    synced: AtomicU64,
    syncs: AtomicU64,
    /// Commits that nobody waits for: since when, and the last of them.
    lazy: Mutex<Option<(Instant, u64)>>,
    file: Mutex<Option<Box<dyn DiskFile>>>,
    /// Why nothing is accepted any more.
    poison: Mutex<Option<String>>,
}

impl Tide {
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

    /// A commit was made; returns its number.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How many commits there were.
    pub(crate) fn commits(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Waits until a commit is on the disk.
    pub(crate) fn ensure(&self, commit: u64) -> Result<(), StoreError> {
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

    /// A commit that nobody waits for.
    pub(crate) fn later(&self, commit: u64) {
        let mut lazy = self.lazy.lock();
        let since = match *lazy {
            Some((since, last)) if last > self.synced.load(Ordering::Acquire) => since,
            _ => Instant::now(),
        };
        *lazy = Some((since, commit));
    }

    /// How long what nobody waits for may still wait; none when all of it is on the disk.
    pub(crate) fn due(&self) -> Option<Duration> {
        let mut lazy = self.lazy.lock();
        let (since, last) = (*lazy)?;
        if last <= self.synced.load(Ordering::Acquire) || self.check().is_err() {
            *lazy = None;
            return None;
        }
        Some(LAZY.saturating_sub(since.elapsed()))
    }

    /// Brings what nobody waits for to the disk. A failure is told to whoever comes next.
    pub(crate) fn ensure_lazy(&self) {
        let last = self.lazy.lock().map(|(_, last)| last);
        if let Some(last) = last {
            let _ = self.ensure(last);
        }
    }

    /// Brings everything that was committed here to the disk, what waits for the next sync too.
    pub(crate) fn ensure_all(&self) {
        let _ = self.ensure(self.commits());
    }

    /// Brings everything that anybody has committed so far to the disk, other processes too.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let mut file = self.file.lock();
        self.check()?;
        let covered = self.committed.load(Ordering::Acquire);
        if covered == 0 && file.is_none() && matches!(self.disk.size(&self.log), Ok(None)) {
            // Nobody has written anything yet.
            return Ok(());
        }
        self.sync(&mut file).inspect_err(|error| self.poison(error))?;
        if self.synced.fetch_max(covered, Ordering::AcqRel) < covered {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether anything is still accepted.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.poison.lock() {
            None => Ok(()),
            Some(why) => Err(StoreError::Poisoned(why.clone())),
        }
    }

    /// Accepts nothing any more; the first reason stays.
    pub(crate) fn poison(&self, why: &StoreError) {
        self.poison.lock().get_or_insert_with(|| why.to_string());
    }

    fn sync(&self, file: &mut Option<Box<dyn DiskFile>>) -> Result<(), StoreError> {
        // Whatever the reason, a full disk too: what is on the disk after a failed sync is not known.
        let fault = |error: std::io::Error| StoreError::Unsynced(format!("the log: {error}"));
        let file = match file {
            Some(file) => file,
            empty => empty.insert(self.disk.open(&self.log, OpenFor::Writing).map_err(fault)?),
        };
        if !file.is_linked().map_err(fault)? {
            // SQLite would go on writing into the deleted file, and nothing of it would be found again.
            return Err(StoreError::Io("the log of the database was deleted under a running program".into()));
        }
        file.sync().map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tide() -> (tempfile::NamedTempFile, Tide) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tide = Tide::new(crate::files::OsDisk::shared(), file.path().to_owned());
        (file, tide)
    }

    #[test]
    fn one_sync_covers_every_commit_before_it() {
        let (_file, tide) = tide();
        let (first, second) = (tide.committed(), tide.committed());
        tide.ensure(first).unwrap();
        tide.ensure(second).unwrap();
        assert_eq!(tide.syncs(), 1);
        let third = tide.committed();
        tide.ensure(third).unwrap();
        assert_eq!(tide.syncs(), 2);
    }

    #[test]
    fn what_is_lazy_is_due_until_some_sync_covers_it() {
        let (_file, tide) = tide();
        assert_eq!(tide.due(), None);
        tide.later(tide.committed());
        assert!(tide.due().is_some());
        tide.ensure(tide.committed()).unwrap();
        assert_eq!(tide.due(), None);
        tide.later(tide.committed());
        tide.ensure_lazy();
        assert_eq!((tide.due(), tide.syncs()), (None, 2));
    }

    #[test]
    fn after_a_failed_sync_nothing_is_accepted() {
        let (file, tide) = tide();
        tide.ensure(tide.committed()).unwrap();
        file.close().unwrap();
        let commit = tide.committed();
        assert!(matches!(tide.ensure(commit), Err(StoreError::Io(_))));
        assert!(matches!(tide.ensure(commit), Err(StoreError::Poisoned(_))));
        assert!(tide.check().is_err());
    }
}
