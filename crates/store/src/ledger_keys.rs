//! The key that signs checkpoints: a file in `keys/` of the state directory that only its owner can read, and
//! the table of every key so far. A new key is valid from the record that carries the signatures of both keys.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_ledger::{Id, KeyKind, SigningKey};

use crate::disk::{self, Disk, OsDisk};
use crate::error::StoreError;
use crate::state_dir::StateDir;

/// Maximum size of a key file.
const MAX_KEY_FILE_BYTES: u64 = 1024;

/// The origin of a ledger in its checkpoints.
pub(crate) fn origin(writer: &Id) -> String {
    format!("vambrace/{writer}")
}

/// The ledger key files of a state directory.
#[derive(Debug, Clone)]
pub(crate) struct LedgerKeyFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl LedgerKeyFiles {
    pub(crate) fn of(dir: &StateDir) -> Self {
        Self::on(OsDisk::shared(), dir)
    }

    /// Writes to this disk. Reading also checks file modes, which only the real disk has, so it uses the real
    /// one.
    pub(crate) fn on(disk: Arc<dyn Disk>, dir: &StateDir) -> Self {
        Self { disk, dir: dir.keys() }
    }

    /// The current key.
    pub(crate) fn current(&self) -> Result<Option<SigningKey>, StoreError> {
        self.read(&self.dir.join("ledger.key"))
    }

    /// A new key that is not current yet.
    pub(crate) fn next(&self) -> Result<Option<SigningKey>, StoreError> {
        self.read(&self.dir.join("ledger.key.next"))
    }

    /// Creates a key beside the current one.
    pub(crate) fn make_next(&self, origin: &str) -> Result<SigningKey, StoreError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let key = SigningKey::new(origin, KeyKind::Log, &secret)
            .map_err(|error| StoreError::Io(error.to_string()))?;
        let path = self.dir.join("ledger.key.next");
        disk::replace(&*self.disk, &path, key.secret_text().as_bytes())
            .map_err(|error| StoreError::directory(&path, error))?;
        Ok(key)
    }

    /// Makes the new key the current one.
    pub(crate) fn make_current(&self) -> Result<(), StoreError> {
        let fault = |error| StoreError::directory(&self.dir, error);
        let (next, current) = (self.dir.join("ledger.key.next"), self.dir.join("ledger.key"));
        self.disk.rename(&next, &current).and_then(|()| self.disk.sync_dir(&self.dir)).map_err(fault)
    }

    fn read(&self, path: &Path) -> Result<Option<SigningKey>, StoreError> {
        let file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| StoreError::directory(path, error))?,
        };
        let metadata = file.metadata().map_err(|error| StoreError::directory(path, error))?;
        if metadata.mode() & 0o077 != 0 || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(StoreError::KeyExposed { path: path.to_owned(), mode: metadata.mode() & 0o777 });
        }
        let mut bytes = Vec::new();
        file.take(MAX_KEY_FILE_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| StoreError::directory(path, error))?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let key = SigningKey::from_secret_text(text);
        key.map(Some).map_err(|error| StoreError::Key(format!("`{}` is {error}", path.display())))
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}
