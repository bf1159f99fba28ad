//! Whether a process that began something is still there. Each store holds a lock on a file of its own for as long as it
//! lives; a lock that can be taken belongs to nobody. No process number is compared: those are used again, and differ
//! between containers that share a folder.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use vambrace_ledger::Id;

use crate::error::StoreError;

/// The life of one store.
#[derive(Debug)]
pub(crate) struct Life {
    id: Id,
    folder: PathBuf,
    _held: File,
}

impl Life {
    /// Begins, and tidies up behind those that have ended.
    pub(crate) fn begin(state: &Path) -> Result<Self, StoreError> {
        let folder = state.join("live");
        let fault = |error: std::io::Error| StoreError::folder(&folder, error);
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(fault)?;
        let mut random = [0; 12];
        getrandom::fill(&mut random).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = Id::new(&format!("l-{hex}")).map_err(|error| StoreError::Io(error.to_string()))?;
        for entry in fs::read_dir(&folder).map_err(fault)?.flatten() {
            if let Ok(file) = File::open(entry.path())
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = fs::remove_file(entry.path());
            }
        }
        let path = folder.join(id.as_str());
        loop {
            let held = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            let held = held.map_err(fault)?;
            flock(&held, FlockOperation::NonBlockingLockExclusive).map_err(|errno| fault(errno.into()))?;
            // Somebody may have tidied it away between the two.
            if held.metadata().map_err(fault)?.nlink() > 0 {
                return Ok(Self { id, folder, _held: held });
            }
        }
    }

    pub(crate) fn id(&self) -> &Id {
        &self.id
    }

    /// Whether the holder of a life is still there.
    pub(crate) fn lives(&self, id: &Id) -> bool {
        if *id == self.id {
            return true;
        }
        match File::open(self.folder.join(id.as_str())) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(_) => false,
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(self.id.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_seen_while_it_lasts_and_not_after() {
        let temp = tempfile::tempdir().unwrap();
        let (one, two) = (Life::begin(temp.path()).unwrap(), Life::begin(temp.path()).unwrap());
        assert!(one.lives(two.id()) && two.lives(one.id()));
        let gone = two.id().clone();
        drop(two);
        assert!(!one.lives(&gone));
        assert!(!one.lives(&Id::new("l-never").unwrap()));
    }
}
