//! The state directory: `$VAMBRACE_HOME`. Only its owner may enter, because anyone who can write it can rewrite
//! the ledger. Everything else in this crate gets its files from here.
#![expect(clippy::disallowed_methods, reason = "this crate owns the state directory")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// A state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Creates the directory if it is missing, and rejects one that other users can write.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let dir = Self { path: path.into() };
        dir.create_private(&dir.path)?;
        dir.create_private(&dir.ledger())?;
        dir.create_private(&dir.keys())?;
        Ok(dir)
    }

    /// A directory that is only read: a copy, a backup. Creates nothing and checks no mode.
    pub fn existing(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let metadata = fs::metadata(&path).map_err(|error| StoreError::directory(&path, error))?;
        if !metadata.is_dir() {
            return Err(StoreError::directory(&path, io::ErrorKind::NotADirectory));
        }
        Ok(Self { path })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join("vambrace.db")
    }

    /// The directory of the segments.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// The directory of the keys.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// The file of the newest checkpoint.
    #[must_use]
    pub fn latest_checkpoint(&self) -> PathBuf {
        self.ledger().join("checkpoint")
    }

    /// The file that reserves space for a full disk.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// The directory of the notification sockets; created if it is missing.
    pub(crate) fn notify_dir(&self) -> Result<PathBuf, StoreError> {
        let path = self.path.join("wake");
        self.create_private(&path).map(|()| path)
    }

    pub(crate) fn wal(&self) -> PathBuf {
        self.path.join("vambrace.db-wal")
    }

    /// Creates an empty database file with mode 0600, or checks the existing one. The caller holds the writer
    /// lock, and SQLite has not opened the file yet: closing any handle of a file drops the POSIX locks that
    /// this process holds on it.
    pub(crate) fn prepare_database(&self) -> Result<(), StoreError> {
        let path = self.database();
        let fault = |error| StoreError::directory(&path, error);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => check_private(&path, &metadata),
            Ok(_) => {
                let reason = "not a regular file".to_owned();
                Err(StoreError::Directory { path: path.clone(), reason })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(fault)?;
                self.sync()
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// The lock file of the process that writes the database.
    pub(crate) fn writer_lock(&self) -> Result<File, StoreError> {
        self.open_lock_file(&self.path.join("writer.lock"))
    }

    /// The lock file of the process that writes the segments.
    pub(crate) fn segment_lock(&self) -> Result<File, StoreError> {
        self.open_lock_file(&self.path.join("mirror.lock"))
    }

    /// Syncs the directory itself: the names of new files.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let dir = File::open(&self.path).map_err(|error| StoreError::directory(&self.path, error))?;
        dir.sync_all().map_err(|error| StoreError::io("syncing the state directory", error))
    }

    /// Whether a file exists and is not empty.
    pub(crate) fn is_nonempty(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
    }

    fn create_private(&self, path: &Path) -> Result<(), StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| StoreError::directory(path, error))?;
        let metadata = fs::metadata(path).map_err(|error| StoreError::directory(path, error))?;
        check_private(path, &metadata)
    }

    /// Opens a lock file; created with mode 0600 if it is missing.
    fn open_lock_file(&self, path: &Path) -> Result<File, StoreError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(|error| StoreError::directory(path, error))?;
        let metadata = file.metadata().map_err(|error| StoreError::directory(path, error))?;
        if !metadata.is_file() {
            let reason = "not a regular file".to_owned();
            return Err(StoreError::Directory { path: path.to_owned(), reason });
        }
        check_private(path, &metadata)?;
        Ok(file)
    }
}

/// Checks that we own the file and that no other user can write it.
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), StoreError> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me {
        let reason = format!("it belongs to user {}, this program runs as {me}", metadata.uid());
        return Err(StoreError::Directory { path: path.to_owned(), reason });
    }
    let mode = metadata.mode() & 0o777;
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
    fn a_new_state_directory_is_private_to_its_owner() {
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
    fn a_directory_that_others_can_write_is_rejected() {
        let temp = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o707, 0o777] {
            fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = StateDir::open(temp.path()).unwrap_err();
            assert!(matches!(error, StoreError::Exposed { .. }), "{error}");
            assert!(error.suggestion().contains("chmod 700"));
        }
    }

    #[test]
    fn a_path_of_the_wrong_file_type_is_rejected() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(StateDir::open(&file), Err(StoreError::Directory { .. })));
        let home = temp.path().join("home");
        fs::create_dir_all(home.join("vambrace.db")).unwrap();
        let prepare = |path: &Path| StateDir::open(path).unwrap().prepare_database();
        assert!(matches!(prepare(&home), Err(StoreError::Directory { .. })));
        let linked = temp.path().join("linked");
        fs::create_dir_all(&linked).unwrap();
        std::os::unix::fs::symlink(&file, linked.join("vambrace.db")).unwrap();
        assert!(matches!(prepare(&linked), Err(StoreError::Directory { .. })));
    }
}
