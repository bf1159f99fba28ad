//! The state folder: `$VAMBRACE_HOME`. Only its owner may enter, because whoever can write it can rewrite
//! the ledger. Everything else in this crate gets its files from here.
#![expect(clippy::disallowed_methods, reason = "the state folder is owned by this crate")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// A state folder.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Makes the folder when it is missing, and refuses one that others can write.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let dir = Self { path: path.into() };
        dir.own(&dir.path)?;
        dir.own(&dir.ledger())?;
        dir.own(&dir.keys())?;
        Ok(dir)
    }

    /// A folder that is only looked at: a copy, a backup. Nothing is made and no mode is checked.
    pub fn existing(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let facts = fs::metadata(&path).map_err(|error| StoreError::folder(&path, error))?;
        if !facts.is_dir() {
            return Err(StoreError::folder(&path, io::ErrorKind::NotADirectory));
        }
        Ok(Self { path })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join("vambrace.db")
    }

    /// The folder of the segments.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// The folder of the keys.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// The file of the newest checkpoint.
    #[must_use]
    pub fn latest_checkpoint(&self) -> PathBuf {
        self.ledger().join("checkpoint")
    }

    /// The room that is kept back for a full disk.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// The folder where waiting processes are woken; made when it is missing.
    pub(crate) fn wake(&self) -> Result<PathBuf, StoreError> {
        let path = self.path.join("wake");
        self.own(&path).map(|()| path)
    }

    pub(crate) fn wal(&self) -> PathBuf {
        self.path.join("vambrace.db-wal")
    }

    /// Makes an empty database file for its owner only, or checks the one that is there. Under the writer
    /// lock and before the file is opened by SQLite: closing any handle of a file drops the POSIX locks that
    /// this process holds on it.
    pub(crate) fn prepare_database(&self) -> Result<(), StoreError> {
        let path = self.database();
        let fault = |error| StoreError::folder(&path, error);
        match fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_file() => private(&path, &facts),
            Ok(_) => {
                let reason = "not a regular file".to_owned();
                Err(StoreError::Folder { path: path.clone(), reason })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(fault)?;
                self.sync()
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// The file whose lock a writer holds.
    pub(crate) fn writer_lock(&self) -> Result<File, StoreError> {
        self.claim(&self.path.join("writer.lock"))
    }

    /// The file whose lock the one holds who writes the segments.
    pub(crate) fn mirror_lock(&self) -> Result<File, StoreError> {
        self.claim(&self.path.join("mirror.lock"))
    }

    /// Syncs the folder itself: the names of new files.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let folder = File::open(&self.path).map_err(|error| StoreError::folder(&self.path, error))?;
        folder.sync_all().map_err(|error| StoreError::io("syncing the state folder", error))
    }

    /// Whether a file of the folder is there and holds anything.
    pub(crate) fn holds(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|facts| facts.len() > 0)
    }

    fn own(&self, path: &Path) -> Result<(), StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| StoreError::folder(path, error))?;
        let facts = fs::metadata(path).map_err(|error| StoreError::folder(path, error))?;
        private(path, &facts)
    }

    /// Opens a lock file, made with mode 0600 when it is missing.
    fn claim(&self, path: &Path) -> Result<File, StoreError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(|error| StoreError::folder(path, error))?;
        let facts = file.metadata().map_err(|error| StoreError::folder(path, error))?;
        if !facts.is_file() {
            let reason = "not a regular file".to_owned();
            return Err(StoreError::Folder { path: path.to_owned(), reason });
        }
        private(path, &facts)?;
        Ok(file)
    }
}

/// Owned by us, and written by nobody else.
fn private(path: &Path, facts: &fs::Metadata) -> Result<(), StoreError> {
    let me = rustix::process::geteuid().as_raw();
    if facts.uid() != me {
        let reason = format!("it belongs to user {}, this program runs as {me}", facts.uid());
        return Err(StoreError::Folder { path: path.to_owned(), reason });
    }
    let mode = facts.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(StoreError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_folder_is_for_its_owner_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("a/b")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        dir.prepare_database().unwrap();
        dir.prepare_database().unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        assert_eq!(mode(&dir.ledger()), 0o700);
        assert_eq!(mode(&dir.database()), 0o600);
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o707, 0o777] {
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = StateDir::open(temp.path()).unwrap_err();
            assert!(matches!(error, StoreError::Exposed { .. }), "{error}");
            assert!(error.suggestion().contains("chmod 700"));
        }
    }

    #[test]
    fn what_is_not_a_folder_or_file_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(StateDir::open(&file), Err(StoreError::Folder { .. })));
        let home = temp.path().join("home");
        fs::create_dir_all(home.join("vambrace.db")).unwrap();
        let prepare = |path: &Path| StateDir::open(path).unwrap().prepare_database();
        assert!(matches!(prepare(&home), Err(StoreError::Folder { .. })));
        let linked = temp.path().join("linked");
        fs::create_dir_all(&linked).unwrap();
        std::os::unix::fs::symlink(&file, linked.join("vambrace.db")).unwrap();
        assert!(matches!(prepare(&linked), Err(StoreError::Folder { .. })));
    }
}
