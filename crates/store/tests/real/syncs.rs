//! A disk that cannot be trusted any more: the kernel tells of a failed sync once, and the next one on the same file
//! may succeed although nothing was written. So nobody asks again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vambrace_core::{CallError, ErrorCode};
use vambrace_store::{
    Batch, Disk, DiskFile, OpenFor, Options, OsDisk, SqliteStore, StateDir, Store, StoreError,
};

use crate::given::{clean, home, open, quick, runtime, session, start};

/// The machine's disk; syncs of files with this ending can be made to fail.
#[derive(Debug)]
struct Worn {
    ending: &'static str,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A sync fails when this is not zero.
    failing: AtomicUsize,
    failed: AtomicUsize,
    /// Syncs that were asked for after one had failed.
    later: AtomicUsize,
}

#[derive(Debug)]
struct WornFile {
    real: Box<dyn DiskFile>,
    state: Option<Arc<State>>,
}

impl Disk for Worn {
    fn open(&self, path: &Path, purpose: OpenFor) -> io::Result<Box<dyn DiskFile>> {
        let concerned = path.to_str().unwrap().ends_with(self.ending);
        let state = concerned.then(|| Arc::clone(&self.state));
        Ok(Box::new(WornFile { real: OsDisk.open(path, purpose)?, state }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        OsDisk.sync_folder(folder)
    }
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        OsDisk.make_folder(folder)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(String, u64)>> {
        OsDisk.list(folder)
    }
    fn size(&self, path: &Path) -> io::Result<Option<u64>> {
        OsDisk.size(path)
    }
    fn room(&self, folder: &Path) -> io::Result<u64> {
        OsDisk.room(folder)
    }
    fn set_writable(&self, path: &Path, writable: bool) -> io::Result<()> {
        OsDisk.set_writable(path, writable)
    }
}

impl DiskFile for WornFile {
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

fn worn(ending: &'static str) -> (tempfile::TempDir, PathBuf, SqliteStore, Arc<State>) {
    let (temp, home) = home();
    let state = Arc::new(State::default());
    let disk = Arc::new(Worn { ending, state: Arc::clone(&state) });
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &Options { disk, ..quick() }).unwrap();
    runtime().block_on(store.commit(Batch::durable(vec![], vec![session("s-1")]))).unwrap();
    store.catch_up().unwrap();
    (temp, home, store, state)
}

fn is_closed(store: &SqliteStore, state: &State) {
    let runtime = runtime();
    for n in 0..20 {
        let error = runtime.block_on(store.commit(start("s-1", &format!("late-{n}"), n))).unwrap_err();
        assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        assert_eq!(CallError::from(&error).code, ErrorCode::AuditUnavailable);
    }
    assert!(store.catch_up().is_err());
    assert_eq!(state.later.load(Ordering::SeqCst), 0, "a failed sync was tried again");
}

// B5
#[test]
fn a_failed_sync_of_the_log_closes_the_store_for_good() {
    let (_temp, home, store, state) = worn("-wal");
    state.failing.store(1, Ordering::SeqCst);
    // The keeper's sync or ours: whoever is first is told, and everybody learns of it.
    let error = runtime().block_on(store.commit(start("s-1", "c-1", 1))).unwrap_err();
    assert!(matches!(error, StoreError::Unsynced(_) | StoreError::Poisoned(_)), "{error}");
    is_closed(&store, &state);
    drop(store);
    drop(open(&home));
    clean(&home);
}

// B5
#[test]
fn a_failed_sync_of_a_segment_closes_the_store_for_good() {
    let (_temp, home, store, state) = worn(".jsonl");
    state.failing.store(1, Ordering::SeqCst);
    runtime().block_on(store.commit(start("s-1", "c-1", 1))).unwrap();
    let _ = store.catch_up();
    assert_eq!(state.failed.load(Ordering::SeqCst), 1);
    is_closed(&store, &state);
    drop(store);
    drop(open(&home));
    clean(&home);
}
