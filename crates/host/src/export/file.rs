//! An export file that can be continued: its last line names the record it was made from. A torn last line is removed if it
//! is a prefix of the line that belongs there; a file with any other end is rejected.
#![expect(clippy::disallowed_methods, reason = "the user names the file")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vambrace_core::terminal_escape::sanitize;
use vambrace_ledger::{ExportFormat, LedgerLine};
use vambrace_store::{RecordId, Store};

use super::cursor::ExportCursor;
use crate::error::HostError;
use crate::host::Host;

/// The end of the file is read in steps of this size.
const TAIL_STEP_BYTES: u64 = 1 << 16;
/// Maximum length of an exported line.
const MAX_LINE_BYTES: u64 = 8 << 20;

/// An open export file.
#[derive(Debug)]
pub struct ExportFile {
    path: PathBuf,
    file: File,
    /// Whether there are unsynced writes.
    dirty: bool,
}

/// How a file ends.
struct FileTail {
    /// Its last complete line.
    last: Option<Vec<u8>>,
    /// The incomplete line after it.
    torn: Vec<u8>,
    /// Length of the file without the incomplete line.
    whole: u64,
}

impl ExportFile {
    /// Opens the file and moves the cursor past its last record.
    pub async fn open(
        path: &Path,
        format: ExportFormat,
        cursor: &mut ExportCursor,
        host: &Host,
    ) -> Result<Self, HostError> {
        let store = host.store().as_ref();
        let mut this = Self { path: path.to_owned(), file: claim(path, host.paths().state())?, dirty: false };
        let tail = this.tail()?;
        if let Some(last) = &tail.last {
            cursor.after = cursor.after.max(this.resume(last, format, store).await?);
        }
        if !tail.torn.is_empty() {
            let next = cursor.first(store).await?;
            let mut line = Vec::new();
            let made = next.is_some_and(|record| format.write(&record.line, &mut line).is_ok());
            if !made || !line.starts_with(&tail.torn) {
                return Err(this.rejected("it ends with an incomplete line that is not the next record"));
            }
            this.file.set_len(tail.whole).map_err(|error| this.failed(&error))?;
            this.dirty = true;
            this.sync()?;
        }
        Ok(this)
    }

    /// Its path, sanitized.
    #[must_use]
    pub fn name(&self) -> String {
        sanitize(&self.path.display().to_string())
    }

    /// Writes at the end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        self.dirty |= !bytes.is_empty();
        self.file.write_all(bytes).map_err(|error| self.failed(&error))
    }

    /// Syncs what was written.
    pub fn sync(&mut self) -> Result<(), HostError> {
        if self.dirty {
            self.file.sync_data().map_err(|error| self.failed(&error))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Fails if the file was moved or removed: no reader would see further lines.
    pub fn check(&self, last: u64) -> Result<(), HostError> {
        let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
        let ours = self.file.metadata().map(identity).map_err(|error| self.failed(&error))?;
        if std::fs::metadata(&self.path).map(identity).ok() == Some(ours) {
            return Ok(());
        }
        let hint = format!("it contains the records up to {last}: continue with `--after {last}`");
        Err(HostError::failed(format!("`{}` was moved or removed", self.name())).hint(hint))
    }

    /// The record of the last line, if it is from this ledger.
    async fn resume(&self, last: &[u8], format: ExportFormat, store: &dyn Store) -> Result<u64, HostError> {
        let named = format
            .record_ref(last)
            .ok_or_else(|| self.rejected(&format!("its last line is not in format `{format}`")))?;
        let record = store.record(&RecordId::new(store.writer(), named.seq)).await?;
        let hash = record.and_then(|record| LedgerLine::claimed_hash(record.line.as_bytes()));
        if hash == Some(named.event_hash) {
            return Ok(named.seq);
        }
        Err(self.rejected(&format!("its last line is record {} of another ledger", named.seq)))
    }

    fn tail(&mut self) -> Result<FileTail, HostError> {
        let length = self.file.metadata().map_err(|error| self.failed(&error))?.len();
        let mut back = 0;
        loop {
            back = (back + TAIL_STEP_BYTES).min(length);
            let end = self.read_end(length - back)?;
            let lines: Vec<usize> =
                end.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
            let (newest, before) = match lines.as_slice() {
                [.., before, newest] => (Some(*newest), Some(*before)),
                [newest] => (Some(*newest), None),
                [] => (None, None),
            };
            if back < length && before.is_none() {
                if back > MAX_LINE_BYTES {
                    return Err(self.rejected("its last line is too long to be a record"));
                }
                continue;
            }
            let (whole, torn) = end.split_at(newest.map_or(0, |at| at + 1));
            let last = newest.and_then(|at| whole.get(before.map_or(0, |at| at + 1)..at));
            return Ok(FileTail {
                last: last.map(<[u8]>::to_vec),
                torn: torn.to_vec(),
                whole: length - torn.len() as u64,
            });
        }
    }

    fn read_end(&mut self, from: u64) -> Result<Vec<u8>, HostError> {
        let mut end = Vec::new();
        let read = self.file.seek(SeekFrom::Start(from)).and_then(|_| self.file.read_to_end(&mut end));
        read.map(|_| end).map_err(|error| self.failed(&error))
    }

    fn rejected(&self, why: &str) -> HostError {
        let hint = "nothing was written; name another file, or move this one";
        HostError::usage(format!("`{}` cannot be continued: {why}", self.name()), hint)
    }

    fn failed(&self, error: &std::io::Error) -> HostError {
        HostError::failed(format!("`{}`: {error}", self.name()))
    }
}

/// Opens and locks a file outside the state directory, for one exporter at a time.
fn claim(path: &Path, state: &Path) -> Result<File, HostError> {
    let shown = sanitize(&path.display().to_string());
    let failed = |error: &std::io::Error| HostError::failed(format!("`{shown}`: {error}"));
    let rejected = |why: &str, hint: &str| HostError::usage(format!("`{shown}` {why}"), hint);
    if path.try_exists().unwrap_or(false) && !path.is_file() {
        return Err(rejected(
            "is not a regular file",
            "redirect standard output instead of using `--output`",
        ));
    }
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = file.map_err(|error| failed(&error))?;
    let real = std::fs::canonicalize(path).map_err(|error| failed(&error))?;
    if std::fs::canonicalize(state).is_ok_and(|state| real.starts_with(state)) {
        if file.metadata().is_ok_and(|facts| facts.len() == 0) {
            let _ = std::fs::remove_file(&real);
        }
        return Err(rejected("is in the state directory", "name a file elsewhere"));
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(rejected("is in use by another export", "wait for it, or name another file"))
        }
        Err(TryLockError::Error(error)) => Err(failed(&error)),
    }
}
