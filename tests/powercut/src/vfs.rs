//! SQLite's Unix VFS with our functions in front: writes, truncations, syncs and deletions are logged. The
//! original VFS opens files in the memory that SQLite provides; afterwards only the pointer to its methods is
//! replaced, so locks and shared memory are the original's.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};
use vambrace_simdisk::{DiskOp, FileId};

use crate::{SharedLog, log_of};

/// The original VFS.
struct OriginalVfs(*mut sqlite3_vfs);

// SAFETY: SQLite uses a VFS from every thread and never changes it.
unsafe impl Send for OriginalVfs {}
// SAFETY: as above.
unsafe impl Sync for OriginalVfs {}

static ORIGINAL: OnceLock<OriginalVfs> = OnceLock::new();

/// An open file that is logged.
struct LoggedHandle {
    log: SharedLog,
    id: FileId,
    /// The directory that the original syncs with the first sync of the file: that of a new WAL or journal.
    dir: Option<PathBuf>,
    /// The methods of the original: those of a journal differ from those of a database.
    theirs: sqlite3_io_methods,
}

/// The open files that are logged, by address.
static FILES: OnceLock<Mutex<HashMap<usize, LoggedHandle>>> = OnceLock::new();

fn files() -> &'static Mutex<HashMap<usize, LoggedHandle>> {
    FILES.get_or_init(Mutex::default)
}

/// Puts our VFS in front of the original, once.
pub(crate) fn register() {
    ORIGINAL.get_or_init(|| {
        // SAFETY: a null name asks for the default VFS, which SQLite never frees.
        let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        assert!(!vfs.is_null());
        // SAFETY: it was just found, and the struct may be copied.
        let mut ours = unsafe { *vfs };
        ours.zName = c"logged".as_ptr();
        ours.pNext = std::ptr::null_mut();
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        // SAFETY: it is leaked, so it is never freed, as SQLite requires.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1) };
        assert_eq!(code, SQLITE_OK);
        OriginalVfs(vfs)
    });
}

fn original() -> *mut sqlite3_vfs {
    ORIGINAL.get().unwrap().0
}

fn theirs(file: *mut sqlite3_file) -> sqlite3_io_methods {
    files().lock()[&(file as usize)].theirs
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let vfs = original();
    // SAFETY: the original is never freed.
    let open = unsafe { (*vfs).xOpen }.unwrap();
    // SAFETY: the arguments are SQLite's, for a file of the size that the original requires.
    let code = unsafe { open(vfs, name, file, flags, out_flags) };
    let Some(path) = (code == SQLITE_OK).then(|| path_of(name)).flatten() else { return code };
    let Some(log) = log_of(&path) else { return code };
    let id = {
        let mut log = log.lock();
        let is_new = log.now.find(&path).is_none();
        let id = log.file(&path);
        if is_new && flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            // The store creates this file and syncs its name before SQLite sees it.
            log.record(DiskOp::SyncDir(path.parent().unwrap().to_owned()));
        }
        id
    };
    let journal = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL;
    let is_new_journal = flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & journal != 0;
    let dir = path.parent().filter(|_| is_new_journal).map(Path::to_owned);
    // SAFETY: the original has just opened this file.
    let methods = unsafe { (*file).pMethods };
    // SAFETY: an opened file has methods.
    let theirs = unsafe { *methods };
    files().lock().insert(file as usize, LoggedHandle { log, id, dir, theirs });
    let ours = sqlite3_io_methods {
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..theirs
    };
    // SAFETY: the methods are leaked, so they are never freed; a test has memory for those of a few thousand
    // files.
    unsafe { (*file).pMethods = Box::leak(Box::new(ours)) };
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    let vfs = original();
    // SAFETY: the original is never freed.
    let delete = unsafe { (*vfs).xDelete }.unwrap();
    // SAFETY: the arguments are SQLite's; nothing is really synced.
    let code = unsafe { delete(vfs, name, 0) };
    if let (SQLITE_OK, Some(path)) = (code, path_of(name))
        && let Some(log) = log_of(&path)
    {
        let mut log = log.lock();
        log.record(DiskOp::Remove(path.clone()));
        if sync_dir != 0 {
            log.record(DiskOp::SyncDir(path.parent().unwrap().to_owned()));
        }
    }
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let theirs = files().lock().remove(&(file as usize)).unwrap().theirs;
    // SAFETY: the original opened this file.
    unsafe { theirs.xClose.unwrap()(file) }
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    n: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: the original opened this file, and the bytes are SQLite's.
    let code = unsafe { theirs(file).xWrite.unwrap()(file, bytes, n, at) };
    if code == SQLITE_OK {
        // SAFETY: SQLite passes `n` bytes.
        let written = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(n).unwrap()) };
        record(file, |id| DiskOp::Write(id, usize::try_from(at).unwrap(), written.to_vec()));
    }
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: the original opened this file.
    let code = unsafe { theirs(file).xTruncate.unwrap()(file, size) };
    if code == SQLITE_OK {
        record(file, |id| DiskOp::SetLen(id, usize::try_from(size).unwrap()));
    }
    code
}

/// Logged and not executed.
///
/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    record(file, DiskOp::Sync);
    let dir = files().lock().get_mut(&(file as usize)).and_then(|open| open.dir.take());
    if let Some(dir) = dir {
        record(file, |_| DiskOp::SyncDir(dir));
    }
    SQLITE_OK
}

fn record(file: *mut sqlite3_file, step: impl FnOnce(FileId) -> DiskOp) {
    let logged = files().lock().get(&(file as usize)).map(|open| (open.log.clone(), open.id));
    if let Some((log, id)) = logged {
        log.lock().record(step(id));
    }
}

fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names are NUL-terminated.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(name.to_str().ok()?).to_owned())
}
