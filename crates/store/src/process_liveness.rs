//! Whether the process that owns a row still runs.
//!
//! In a state directory each store holds a lock on a file of its own while it is open; a lock that can be taken has
//! no owner. Process ids are not compared: they are reused, and differ between containers that share a directory.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use vambrace_ledger::Id;

use crate::error::StoreError;

/// Which processes that use a store still run.
pub trait ProcessLiveness: Send + Sync {
    /// Id of this process, stored with what it starts.
    fn id(&self) -> &Id;

    /// Whether the process with this id still runs.
    fn is_alive(&self, id: &Id) -> bool;
}

/// Marks this store as running by a locked file.
#[derive(Debug)]
pub(crate) struct LockFileLiveness {
    id: Id,
    dir: PathBuf,
    _locked: File,
}

impl LockFileLiveness {
    /// Registers this store, and removes the files of stores that have ended.
    pub(crate) fn register(state: &Path) -> Result<Self, StoreError> {
        let dir = state.join("live");
        let fault = |error: std::io::Error| StoreError::directory(&dir, error);
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(fault)?;
        let mut random = [0; 12];
        getrandom::fill(&mut random).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = Id::new(&format!("l-{hex}")).map_err(|error| StoreError::Io(error.to_string()))?;
        for entry in fs::read_dir(&dir).map_err(fault)?.flatten() {
            if let Ok(file) = File::open(entry.path())
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        let path = dir.join(id.as_str());
        loop {
            let locked = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            let locked = locked.map_err(fault)?;
            flock(&locked, FlockOperation::NonBlockingLockExclusive).map_err(|errno| fault(errno.into()))?;
            // Another process may have removed the file between the two calls.
            if locked.metadata().map_err(fault)?.nlink() > 0 {
                return Ok(Self { id, dir, _locked: locked });
            }
        }
    }
}

impl ProcessLiveness for LockFileLiveness {
    fn id(&self) -> &Id {
        &self.id
    }

    fn is_alive(&self, id: &Id) -> bool {
        if *id == self.id {
            return true;
        }
        match File::open(self.dir.join(id.as_str())) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(_) => false,
        }
    }
}

impl Drop for LockFileLiveness {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.dir.join(self.id.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_alive_until_it_is_dropped() {
        let temp = tempfile::tempdir().unwrap();
        let (one, two) = (
            LockFileLiveness::register(temp.path()).unwrap(),
            LockFileLiveness::register(temp.path()).unwrap(),
        );
        assert!(one.is_alive(two.id()) && two.is_alive(one.id()));
        let gone = two.id().clone();
        drop(two);
        assert!(!one.is_alive(&gone));
        assert!(!one.is_alive(&Id::new("l-never").unwrap()));
    }
}
