//! SQLite's own file system for Unix, with four functions of ours in front: what is written, cut, synced and deleted
//! is logged on its way. Files are opened by the original in the memory that SQLite gives for them; afterwards only
//! the pointer to its functions is exchanged, so locks and shared memory are the original's.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};
use vambrace_simdisk::{FileId, Step};

use crate::{SharedLog, log_of};

/// The original.
struct Original(*mut sqlite3_vfs);

// SAFETY: SQLite's file systems are used from every thread, and are never changed.
unsafe impl Send for Original {}
// SAFETY: as above.
unsafe impl Sync for Original {}

static ORIGINAL: OnceLock<Original> = OnceLock::new();

/// An open file that is logged.
struct Open {
    log: SharedLog,
    id: FileId,
    /// The folder whose names the original brings to the disk with the first sync: that of a new log or journal.
    folder: Option<PathBuf>,
    /// The functions of the original: those of a journal are others than those of a database.
    theirs: sqlite3_io_methods,
}

/// The open files that are logged, by their address.
static FILES: OnceLock<Mutex<HashMap<usize, Open>>> = OnceLock::new();

fn files() -> &'static Mutex<HashMap<usize, Open>> {
    FILES.get_or_init(Mutex::default)
}

/// Puts our file system in front of the original, once.
pub(crate) fn register() {
    ORIGINAL.get_or_init(|| {
        // SAFETY: a null name asks for the default, which SQLite keeps for ever.
        let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        assert!(!vfs.is_null());
        // SAFETY: it was just found, and the struct may be copied.
        let mut ours = unsafe { *vfs };
        ours.zName = c"logged".as_ptr();
        ours.pNext = std::ptr::null_mut();
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        // SAFETY: it lives for ever, as SQLite demands.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1) };
        assert_eq!(code, SQLITE_OK);
        Original(vfs)
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
    // SAFETY: the original lives for ever.
    let open = unsafe { (*vfs).xOpen }.unwrap();
    // SAFETY: the arguments are SQLite's, for a file of the size that the original asks for.
    let code = unsafe { open(vfs, name, file, flags, out_flags) };
    let Some(path) = (code == SQLITE_OK).then(|| path_of(name)).flatten() else { return code };
    let Some(log) = log_of(&path) else { return code };
    let id = {
        let mut log = log.lock();
        let is_new = log.now.find(&path).is_none();
        let id = log.file(&path);
        if is_new && flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            // The store makes this file and syncs its name before SQLite sees it.
            log.take(Step::SyncFolder(path.parent().unwrap().to_owned()));
        }
        id
    };
    let journal = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL;
    let is_new_journal = flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & journal != 0;
    let folder = path.parent().filter(|_| is_new_journal).map(Path::to_owned);
    // SAFETY: the original has just opened this file.
    let methods = unsafe { (*file).pMethods };
    // SAFETY: an opened file has functions.
    let theirs = unsafe { *methods };
    files().lock().insert(file as usize, Open { log, id, folder, theirs });
    let ours = sqlite3_io_methods {
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..theirs
    };
    // SAFETY: the functions of ours live for ever; a test has memory for those of a few thousand files.
    unsafe { (*file).pMethods = Box::leak(Box::new(ours)) };
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    let vfs = original();
    // SAFETY: the original lives for ever.
    let delete = unsafe { (*vfs).xDelete }.unwrap();
    // SAFETY: the arguments are SQLite's; nothing is really synced.
    let code = unsafe { delete(vfs, name, 0) };
    if let (SQLITE_OK, Some(path)) = (code, path_of(name))
        && let Some(log) = log_of(&path)
    {
        let mut log = log.lock();
        log.take(Step::Remove(path.clone()));
        if sync_folder != 0 {
            log.take(Step::SyncFolder(path.parent().unwrap().to_owned()));
        }
    }
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let theirs = files().lock().remove(&(file as usize)).unwrap().theirs;
    // SAFETY: the file is one of the original.
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
    // SAFETY: the file is one of the original, the bytes are SQLite's.
    let code = unsafe { theirs(file).xWrite.unwrap()(file, bytes, n, at) };
    if code == SQLITE_OK {
        // SAFETY: SQLite gives `n` bytes to be written.
        let written = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(n).unwrap()) };
        take(file, |id| Step::Write(id, usize::try_from(at).unwrap(), written.to_vec()));
    }
    code
}

/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: the file is one of the original.
    let code = unsafe { theirs(file).xTruncate.unwrap()(file, size) };
    if code == SQLITE_OK {
        take(file, |id| Step::Length(id, usize::try_from(size).unwrap()));
    }
    code
}

/// Logged and not done.
///
/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    take(file, Step::Sync);
    let folder = files().lock().get_mut(&(file as usize)).and_then(|open| open.folder.take());
    if let Some(folder) = folder {
        take(file, |_| Step::SyncFolder(folder));
    }
    SQLITE_OK
}

fn take(file: *mut sqlite3_file, step: impl FnOnce(FileId) -> Step) {
    let logged = files().lock().get(&(file as usize)).map(|open| (open.log.clone(), open.id));
    if let Some((log, id)) = logged {
        log.lock().take(step(id));
    }
}

fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(name.to_str().ok()?).to_owned())
}
