//! Everything that the store writes, logged in one order: SQLite's files by a file system of our own (`vfs.rs`), the
//! rest by a [`Disk`](vambrace_store::Disk). Nothing is really synced, so a log is made fast; a power cut is made of
//! it afterwards, as often as one likes, at any operation.

mod disk;
mod vfs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use vambrace_simdisk::{FileId, Paper, Random, Step};

pub use disk::LoggedDisk;

/// What was written below one folder.
#[derive(Debug, Default)]
pub struct Log {
    steps: Vec<Step>,
    /// The names as they are now, to know which file is meant.
    now: Paper,
}

/// A log that is shared by everybody who writes below a folder.
pub type SharedLog = Arc<Mutex<Log>>;

static LOGS: OnceLock<Mutex<Vec<(PathBuf, SharedLog)>>> = OnceLock::new();

/// From now on what is written below a folder is logged. Asked for before SQLite is used.
pub fn log_below(folder: &Path) -> SharedLog {
    vfs::register();
    let log = SharedLog::default();
    LOGS.get_or_init(Mutex::default).lock().push((folder.to_owned(), Arc::clone(&log)));
    log
}

/// The log that a path belongs to.
fn log_of(path: &Path) -> Option<SharedLog> {
    let logs = LOGS.get_or_init(Mutex::default).lock();
    logs.iter().find(|(folder, _)| path.starts_with(folder)).map(|(_, log)| Arc::clone(log))
}

impl Log {
    /// How many operations there were.
    #[must_use]
    pub fn length(&self) -> usize {
        self.steps.len()
    }

    /// Where a file was cut, as many operations as there were by then.
    pub fn shortened(&self) -> impl Iterator<Item = usize> {
        let steps = (1..).zip(&self.steps);
        steps.filter(|(_, step)| matches!(step, Step::Length(..))).map(|(count, _)| count)
    }

    /// The disk after so many operations.
    #[must_use]
    pub fn until(&self, end: usize, random: &mut Random) -> Paper {
        let mut paper = Paper::new();
        self.steps.iter().take(end).for_each(|step| paper.take(step.clone(), random));
        paper
    }

    fn take(&mut self, step: Step) {
        self.now.take(step.clone(), &mut Random::new(0));
        self.steps.push(step);
    }

    /// The file of a name, which is made when there is none.
    fn file(&mut self, path: &Path) -> FileId {
        self.now.find(path).unwrap_or_else(|| {
            self.take(Step::Make(path.to_owned()));
            self.now.made() - 1
        })
    }
}
