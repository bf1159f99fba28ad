//! The state directory of a witness: its key, and for each log the checkpoint that it signed last. The guarantee of the
//! witness rests on these files. So a record is written to a temporary file, synced, renamed into place and the directory is
//! synced before a signature is sent; and it is read strictly: a record that is damaged or not signed by our key stops the
//! witness instead of counting as "never seen".
//!
//! One process at a time serves from a directory (`witness.lock`). Deliberately absent: detecting that this directory itself
//! was rolled back. It belongs on another machine than the logs.
#![expect(clippy::disallowed_methods, reason = "this file owns the witness's state directory")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use vambrace_ledger::{Checkpoint, Digest, KeyKind, SignatureStatus, SignedNote, SigningKey};

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 128 << 10;
const KEY_FILE: &str = "witness.key";
const RECORD_EXTENSION: &str = "checkpoint";

/// The state directory of a witness.
#[derive(Debug)]
pub struct WitnessDir {
    path: PathBuf,
}

/// A locked state directory, which can write records; one holder among all processes.
#[derive(Debug)]
pub(crate) struct LockedWitnessDir {
    dir: WitnessDir,
    // INVARIANT: holds the flock as long as it is open.
    _flock: File,
}

/// The newest checkpoint of a log that the witness signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Time of the signature, in seconds since 1970.
    pub at: u64,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WitnessDirError {
    /// An I/O error.
    #[error("`{}`: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Invalid content or permissions.
    #[error("`{}`: {why}", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A sync failed: what is on disk is unknown.
    #[error("cannot sync `{}`: {error}", path.display())]
    Sync {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process serves from it.
    #[error("a witness is already running on `{}`", path.display())]
    Running {
        /// The directory.
        path: PathBuf,
    },
}

impl WitnessDir {
    /// Opens the directory and creates it if it is missing; rejects one that other users can write.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, WitnessDirError> {
        let path = path.into();
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_at(&path))?;
        let metadata = fs::metadata(&path).map_err(io_at(&path))?;
        check_private(&path, &metadata, 0o022)?;
        Ok(Self { path })
    }

    /// The witness's key. If there is none it is created from `secret`, in a file that only its owner can read.
    pub fn key<E: std::fmt::Display>(
        &self,
        name: impl FnOnce() -> String,
        secret: impl FnOnce() -> Result<[u8; 32], E>,
    ) -> Result<SigningKey, WitnessDirError> {
        let path = self.path.join(KEY_FILE);
        let invalid = |why: String| WitnessDirError::Invalid { path: path.clone(), why };
        if !path.try_exists().map_err(io_at(&path))? {
            let secret = secret().map_err(|error| invalid(format!("no randomness for a key: {error}")))?;
            let key = SigningKey::new(&name(), KeyKind::Witness, &secret)
                .map_err(|bad| invalid(bad.to_string()))?;
            // Another process may create a key at the same time: a hard link never replaces a file, so the first one wins.
            let own = self.path.join(format!("{KEY_FILE}.{}", std::process::id()));
            write_synced(&own, key.secret_text().as_bytes())?;
            let linked = fs::hard_link(&own, &path);
            fs::remove_file(&own).map_err(io_at(&own))?;
            if let Err(error) = linked
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(io_at(&path)(error));
            }
            self.sync()?;
        }
        let (text, metadata) = read_file(&path)?;
        check_private(&path, &metadata, 0o077)?;
        let key = SigningKey::from_secret_text(&text).map_err(|bad| invalid(bad.to_string()))?;
        if key.verify_key().kind() == KeyKind::Witness {
            Ok(key)
        } else {
            Err(invalid("not the key of a witness".into()))
        }
    }

    /// The newest checkpoint of every log that was ever signed, sorted by origin.
    pub fn signed_checkpoints(&self, key: &SigningKey) -> Result<Vec<SignedCheckpoint>, WitnessDirError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io_at(&self.path))? {
            let path = entry.map_err(io_at(&self.path))?.path();
            if path.extension().is_some_and(|end| end == RECORD_EXTENSION) {
                all.push(read_record(&path, key)?);
            }
        }
        all.sort_by(|a, b| a.checkpoint.origin.cmp(&b.checkpoint.origin));
        Ok(all)
    }

    /// Forgets a log: the next checkpoint of that origin is signed whatever it says. Fails while a witness runs. False if the
    /// log was unknown.
    pub fn forget(self, origin: &str) -> Result<bool, WitnessDirError> {
        let lock = self.lock()?;
        let path = lock.dir.record_path(origin);
        match fs::remove_file(&path) {
            Ok(()) => lock.dir.sync().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_at(&path)(error)),
        }
    }

    /// Locks the directory, until dropped or the process exits.
    pub(crate) fn lock(self) -> Result<LockedWitnessDir, WitnessDirError> {
        let path = self.path.join("witness.lock");
        let lock = open_options().truncate(false).open(&path).map_err(io_at(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(LockedWitnessDir { dir: self, _flock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(WitnessDirError::Running { path: self.path }),
            Err(error) => Err(io_at(&path)(error.into())),
        }
    }

    /// Origins are free text, so the file is named by their digest.
    fn record_path(&self, origin: &str) -> PathBuf {
        let hex = Digest::of(origin.as_bytes()).hex();
        self.path.join(format!("{}.{RECORD_EXTENSION}", String::from_utf8_lossy(&hex)))
    }

    fn sync(&self) -> Result<(), WitnessDirError> {
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(|error| WitnessDirError::Sync { path: self.path.clone(), error })
    }
}

impl LockedWitnessDir {
    /// The last checkpoint of an origin; `None` if it was never seen.
    pub(crate) fn last_checkpoint(
        &self,
        origin: &str,
        key: &SigningKey,
    ) -> Result<Option<Checkpoint>, WitnessDirError> {
        let path = self.dir.record_path(origin);
        if !path.try_exists().map_err(io_at(&path))? {
            return Ok(None);
        }
        let seen = read_record(&path, key)?;
        if seen.checkpoint.origin != origin {
            return Err(WitnessDirError::Invalid { path, why: "it is the record of another log".into() });
        }
        Ok(Some(seen.checkpoint))
    }

    /// Stores a signed checkpoint as the last one of its origin. It is durable when this returns.
    pub(crate) fn store(&self, origin: &str, signed: &SignedNote) -> Result<(), WitnessDirError> {
        let path = self.dir.record_path(origin);
        let temporary = path.with_extension("new");
        write_synced(&temporary, signed.to_string().as_bytes())?;
        // A rename that reports an error may still have happened.
        fs::rename(&temporary, &path).map_err(|error| WitnessDirError::Sync { path, error })?;
        self.dir.sync()
    }
}

/// Reads a record, which must be signed by our own key.
fn read_record(path: &Path, key: &SigningKey) -> Result<SignedCheckpoint, WitnessDirError> {
    let invalid = |why: String| WitnessDirError::Invalid { path: path.to_owned(), why };
    let (text, metadata) = read_file(path)?;
    check_private(path, &metadata, 0o022)?;
    let (checkpoint, note) = Checkpoint::parse(text.as_bytes()).map_err(|bad| invalid(bad.to_string()))?;
    let SignatureStatus::Valid(Some(at)) = note.signed_by(&key.verify_key()) else {
        return Err(invalid("the record has no valid signature of this witness".into()));
    };
    Ok(SignedCheckpoint { checkpoint, at })
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Writes a whole file and syncs it.
fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), WitnessDirError> {
    let mut file = open_options().truncate(true).open(path).map_err(io_at(path))?;
    file.write_all(bytes).map_err(io_at(path))?;
    file.sync_all().map_err(|error| WitnessDirError::Sync { path: path.to_owned(), error })
}

fn read_file(path: &Path) -> Result<(String, fs::Metadata), WitnessDirError> {
    let mut text = String::new();
    let file = File::open(path).map_err(io_at(path))?;
    let metadata = file.metadata().map_err(io_at(path))?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(io_at(path))?;
    Ok((text, metadata))
}

/// Checks that the file belongs to this user and that no permission bit of `mask` is set.
fn check_private(path: &Path, metadata: &fs::Metadata, mask: u32) -> Result<(), WitnessDirError> {
    let me = rustix::process::geteuid().as_raw();
    let why = if metadata.uid() != me {
        format!("it belongs to user {}, this program runs as {me}", metadata.uid())
    } else if metadata.mode() & mask != 0 {
        format!("other users can access it (mode {:03o})", metadata.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(WitnessDirError::Invalid { path: path.to_owned(), why })
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> WitnessDirError {
    let path = path.to_owned();
    move |error| WitnessDirError::Io { path: path.clone(), error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn made(dir: &WitnessDir) -> Result<SigningKey, WitnessDirError> {
        dir.key(|| "eye".to_owned(), || Ok::<_, io::Error>([7; 32]))
    }

    #[test]
    fn key_is_created_once_and_only_its_owner_can_read_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = WitnessDir::open(temp.path().join("w")).unwrap();
        let key = made(&dir).unwrap().verify_key();
        let again = dir.key(|| "other".to_owned(), || Ok::<_, io::Error>([8; 32])).unwrap();
        assert_eq!(again.verify_key(), key);
        let path = temp.path().join("w").join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::read_dir(temp.path().join("w")).unwrap().count(),
            1,
            "a temporary file is left behind"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(made(&dir), Err(WitnessDirError::Invalid { .. })));
    }

    #[test]
    fn directory_that_other_users_can_write_is_rejected() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(WitnessDir::open(temp.path()), Err(WitnessDirError::Invalid { .. })));
    }

    #[test]
    fn directory_can_be_locked_once_and_nothing_is_forgotten_while_it_is_locked() {
        let temp = tempfile::tempdir().unwrap();
        let open = || WitnessDir::open(temp.path().join("w")).unwrap();
        let lock = open().lock().unwrap();
        assert!(matches!(open().lock(), Err(WitnessDirError::Running { .. })));
        assert!(matches!(open().forget("x"), Err(WitnessDirError::Running { .. })));
        drop(lock);
        assert!(!open().forget("x").unwrap());
    }
}
