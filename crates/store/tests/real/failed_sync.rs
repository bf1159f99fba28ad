//! A disk that can no longer be trusted: the kernel reports a failed sync once, and the next sync of the same
//! file may succeed although nothing was written. So the store never retries.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vambrace_core::{CallError, ErrorCode};
use vambrace_store::{
    Batch, Disk, DiskFile, OpenFor, OsDisk, SqliteStore, StateDir, Store, StoreError, StoreOptions,
};

use crate::fixtures::{clean, home, open, runtime, session, start, test_options};

/// The real disk; syncs of files with this suffix can be made to fail.
#[derive(Debug)]
struct FailingDisk {
    ending: &'static str,
    state: Arc<SyncFaults>,
}

#[derive(Debug, Default)]
struct SyncFaults {
    /// The next sync fails if this is not zero.
    failing: AtomicUsize,
    failed: AtomicUsize,
    /// Syncs requested after one had failed.
    later: AtomicUsize,
}

#[derive(Debug)]
struct FailingFile {
    real: Box<dyn DiskFile>,
    state: Option<Arc<SyncFaults>>,
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let concerned = path.to_str().unwrap().ends_with(self.ending);
        let state = concerned.then(|| Arc::clone(&self.state));
        Ok(Box::new(FailingFile { real: OsDisk.open(path, purpose)?, state }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.sync_dir(dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        OsDisk.list(dir)
    }
    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        OsDisk.size(path)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        OsDisk.free_bytes(dir)
    }
    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        OsDisk.set_writable(path, writable)
    }
}

impl DiskFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.real.write_at(bytes, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.real.set_len(length)
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.real.allocate(length)
    }
    fn sync(&self) -> io::Result<()> {
        if let Some(state) = &self.state {
            if state.failed.load(Ordering::SeqCst) > 0 {
                state.later.fetch_add(1, Ordering::SeqCst);
            }
            if state.failing.swap(0, Ordering::SeqCst) > 0 {
                state.failed.fetch_add(1, Ordering::SeqCst);
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        self.real.sync()
    }
    fn length(&self) -> io::Result<u64> {
        self.real.length()
    }
    fn is_linked(&self) -> io::Result<bool> {
        self.real.is_linked()
    }
}

fn failing_disk(ending: &'static str) -> (tempfile::TempDir, PathBuf, SqliteStore, Arc<SyncFaults>) {
    let (temp, home) = home();
    let state = Arc::new(SyncFaults::default());
    let disk = Arc::new(FailingDisk { ending, state: Arc::clone(&state) });
    let store =
        SqliteStore::open(StateDir::open(&home).unwrap(), &StoreOptions { disk, ..test_options() }).unwrap();
    runtime().block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    store.admin().catch_up().unwrap();
    (temp, home, store, state)
}

fn is_closed(store: &SqliteStore, state: &SyncFaults) {
    let runtime = runtime();
    for n in 0..20 {
        let error = runtime.block_on(store.commit(start("s-1", &format!("late-{n}"), n))).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        assert_eq!(CallError::from(&error).code, ErrorCode::AuditUnavailable);
    }
    assert!(store.admin().catch_up().is_err());
    assert_eq!(state.later.load(Ordering::SeqCst), 0, "a failed sync was retried");
}

// B5
#[test]
fn a_failed_sync_of_the_log_closes_the_store_permanently() {
    let (_temp, home, store, state) = failing_disk("-wal");
    state.failing.store(1, Ordering::SeqCst);
    // Our sync or that of the background worker: the first one fails, and every later commit reports it.
    let error = runtime().block_on(store.commit(start("s-1", "c-1", 1))).unwrap_err();
    assert!(matches!(error, StoreError::Unsynced(_) | StoreError::Poisoned(_)), "{error}");
    is_closed(&store, &state);
    drop(store);
    drop(open(&home));
    clean(&home);
}

// B5
#[test]
fn a_failed_sync_of_a_segment_closes_the_store_permanently() {
    let (_temp, home, store, state) = failing_disk(".jsonl");
    state.failing.store(1, Ordering::SeqCst);
    runtime().block_on(store.commit(start("s-1", "c-1", 1))).unwrap();
    let _ = store.admin().catch_up();
    assert_eq!(state.failed.load(Ordering::SeqCst), 1);
    is_closed(&store, &state);
    drop(store);
    drop(open(&home));
    clean(&home);
}
