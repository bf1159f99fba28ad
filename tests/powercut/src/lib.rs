//! Logs every write of the store in one order: SQLite's files through our own VFS (`vfs.rs`), the rest through
//! a [`Disk`](vambrace_store::Disk). Nothing is really synced, so recording is fast; power cuts are then
//! simulated from the log, as often as needed, at any operation.

mod disk;
mod vfs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use vambrace_simdisk::{DiskModel, DiskOp, FileId, Random};

pub use disk::LoggedDisk;

/// Everything that was written below one directory.
#[derive(Debug, Default)]
pub struct WriteLog {
    steps: Vec<DiskOp>,
    /// The current names, to find the file of a path.
    now: DiskModel,
}

/// A log shared by every writer below a directory.
pub type SharedLog = Arc<Mutex<WriteLog>>;

static LOGS: OnceLock<Mutex<Vec<(PathBuf, SharedLog)>>> = OnceLock::new();

/// Starts logging writes below a directory. Call it before SQLite is used.
pub fn log_below(dir: &Path) -> SharedLog {
    vfs::register();
    let log = SharedLog::default();
    LOGS.get_or_init(Mutex::default).lock().push((dir.to_owned(), Arc::clone(&log)));
    log
}

/// The log of a path.
fn log_of(path: &Path) -> Option<SharedLog> {
    let logs = LOGS.get_or_init(Mutex::default).lock();
    logs.iter().find(|(dir, _)| path.starts_with(dir)).map(|(_, log)| Arc::clone(log))
}

impl WriteLog {
    /// Number of operations.
    #[must_use]
    pub fn length(&self) -> usize {
        self.steps.len()
    }

    /// The operation counts right after a file was truncated or extended.
    pub fn shortened(&self) -> impl Iterator<Item = usize> {
        let steps = (1..).zip(&self.steps);
        steps.filter(|(_, step)| matches!(step, DiskOp::SetLen(..))).map(|(count, _)| count)
    }

    /// The disk after `end` operations.
    #[must_use]
    pub fn until(&self, end: usize, random: &mut Random) -> DiskModel {
        let mut disk = DiskModel::new();
        self.steps.iter().take(end).for_each(|step| disk.apply(step.clone(), random));
        disk
    }

    fn record(&mut self, step: DiskOp) {
        self.now.apply(step.clone(), &mut Random::new(0));
        self.steps.push(step);
    }

    /// The file of a path; created if there is none.
    fn file(&mut self, path: &Path) -> FileId {
        self.now.find(path).unwrap_or_else(|| {
            self.record(DiskOp::Create(path.to_owned()));
            self.now.created_files() - 1
        })
    }
}
