//! The file of an export, which can be continued: its last line says which record it was made from. A line that a crash
//! tore is taken back, and only if it is the beginning of the line that belongs there; any other end is refused.
#![expect(clippy::disallowed_methods, reason = "the file is named by whoever runs the command")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vambrace_ledger::{Format, Line};
use vambrace_store::{SqliteStore, Store as _};

use super::course::Course;
use crate::failure::Failure;
use crate::harmless::plain;
use crate::places;

/// The end of a file is read in steps of this size.
const STEP: u64 = 1 << 16;
/// No line of an export is longer.
const LONGEST: u64 = 8 << 20;

/// A file that lines are appended to.
pub(super) struct ExportFile {
    path: PathBuf,
    file: File,
    /// Whether anything was written since the last sync.
    dirty: bool,
}

/// How a file ends.
struct Tail {
    /// Its last complete line.
    last: Option<Vec<u8>>,
    /// What stands behind it, without a newline.
    torn: Vec<u8>,
    /// The length without that.
    whole: u64,
}

impl ExportFile {
    /// Opens the file and sets the course behind its last record.
    pub(super) async fn open(
        path: &Path,
        format: Format,
        course: &mut Course,
        store: &SqliteStore,
    ) -> Result<Self, Failure> {
        let mut this = Self { path: path.to_owned(), file: claim(path)?, dirty: false };
        let tail = this.tail()?;
        if let Some(last) = &tail.last {
            course.after = course.after.max(this.resume(last, format, store).await?);
        }
        if !tail.torn.is_empty() {
            let next = course.first(store).await?;
            let mut line = Vec::new();
            let made = next.is_some_and(|record| format.write(&record.line, &mut line).is_ok());
            if !made || !line.starts_with(&tail.torn) {
                return Err(this.refused("it ends in the middle of a line that is not the next record's"));
            }
            this.file.set_len(tail.whole).map_err(|error| this.failed(&error))?;
            this.dirty = true;
            this.sync()?;
        }
        Ok(this)
    }

    pub(super) fn name(&self) -> String {
        plain(&self.path.display().to_string())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.dirty |= !bytes.is_empty();
        self.file.write_all(bytes).map_err(|error| self.failed(&error))
    }

    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        if self.dirty {
            self.file.sync_data().map_err(|error| self.failed(&error))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Whether the file still has its name: nobody would read what is written to one that was moved away.
    pub(super) fn check(&self, last: u64) -> Result<(), Failure> {
        let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
        let ours = self.file.metadata().map(identity).map_err(|error| self.failed(&error))?;
        if std::fs::metadata(&self.path).map(identity).ok() == Some(ours) {
            return Ok(());
        }
        let hint = format!("all is in it up to record {last}: start again with `--after {last}`");
        Err(Failure::failed(format!("`{}` was moved or removed", self.name())).hint(hint))
    }

    /// The record behind which to go on, if the last line was made from this ledger.
    async fn resume(&self, last: &[u8], format: Format, store: &SqliteStore) -> Result<u64, Failure> {
        let tie = format
            .tie(last)
            .ok_or_else(|| self.refused(&format!("its last line is none of an export as `{format}`")))?;
        let record = store.record(tie.seq).await?;
        let hash = record.and_then(|record| Line::claimed_hash(record.line.as_bytes()));
        if hash == Some(tie.event_hash) {
            return Ok(tie.seq);
        }
        Err(self.refused(&format!("its last line is record {} of another ledger", tie.seq)))
    }

    fn tail(&mut self) -> Result<Tail, Failure> {
        let length = self.file.metadata().map_err(|error| self.failed(&error))?.len();
        let mut back = 0;
        loop {
            back = (back + STEP).min(length);
            let end = self.read_end(length - back)?;
            let lines: Vec<usize> =
                end.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
            let (newest, before) = match lines.as_slice() {
                [.., before, newest] => (Some(*newest), Some(*before)),
                [newest] => (Some(*newest), None),
                [] => (None, None),
            };
            if back < length && before.is_none() {
                if back > LONGEST {
                    return Err(self.refused("its last line is longer than any record"));
                }
                continue;
            }
            let (whole, torn) = end.split_at(newest.map_or(0, |at| at + 1));
            let last = newest.and_then(|at| whole.get(before.map_or(0, |at| at + 1)..at));
            return Ok(Tail {
                last: last.map(<[u8]>::to_vec),
                torn: torn.to_vec(),
                whole: length - torn.len() as u64,
            });
        }
    }

    fn read_end(&mut self, from: u64) -> Result<Vec<u8>, Failure> {
        let mut end = Vec::new();
        let read = self.file.seek(SeekFrom::Start(from)).and_then(|_| self.file.read_to_end(&mut end));
        read.map(|_| end).map_err(|error| self.failed(&error))
    }

    fn refused(&self, why: &str) -> Failure {
        let hint = "nothing was written; name another file, or move this one away";
        Failure::usage(format!("`{}` cannot be continued: {why}", self.name()), hint)
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::failed(format!("`{}`: {error}", self.name()))
    }
}

/// Opens a file for one exporter at a time, outside the state folder.
fn claim(path: &Path) -> Result<File, Failure> {
    let shown = plain(&path.display().to_string());
    let failed = |error: &std::io::Error| Failure::failed(format!("`{shown}`: {error}"));
    let refused = |why: &str, hint: &str| Failure::usage(format!("`{shown}` {why}"), hint);
    if path.try_exists().unwrap_or(false) && !path.is_file() {
        return Err(refused("is no regular file", "leave `--output` out and redirect standard output"));
    }
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = file.map_err(|error| failed(&error))?;
    let real = std::fs::canonicalize(path).map_err(|error| failed(&error))?;
    if std::fs::canonicalize(places::state()?).is_ok_and(|state| real.starts_with(state)) {
        if file.metadata().is_ok_and(|facts| facts.len() == 0) {
            let _ = std::fs::remove_file(&real);
        }
        return Err(refused("lies in the state folder", "name a file elsewhere"));
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refused("is written by another export", "wait for it, or name another file"))
        }
        Err(TryLockError::Error(error)) => Err(failed(&error)),
    }
}
