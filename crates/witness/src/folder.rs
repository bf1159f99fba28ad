//! The witness's own folder: its key, and for each log the checkpoint that it signed last. What stands here is
//! all that the promise rests on, so it is written beside, synced, renamed and synced again before a signature
//! leaves, and read strictly: a record that is damaged or that our key did not sign stops the witness instead of
//! counting as "never seen".
//!
//! One process at a time serves from a folder (`witness.lock`). Deliberately not here: finding that the folder
//! itself was rolled back. It is to lie on another machine than the logs.
#![expect(clippy::disallowed_methods, reason = "the witness's folder is owned by this file")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use vambrace_ledger::{Checkpoint, Digest, KeyKind, Note, Signed, SigningKey};

/// No file of the folder is longer.
const MAX_FILE: u64 = 128 << 10;
const KEY: &str = "witness.key";
const RECORD: &str = "checkpoint";

/// A witness's folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// The right to write records: one holder among all processes.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: Folder,
    // INVARIANT: locked as long as it is open.
    _lock: File,
}

/// A log as the witness knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The checkpoint that was signed last.
    pub checkpoint: Checkpoint,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("`{}`: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Something stands there that must not.
    #[error("`{}`: {why}", path.display())]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A sync failed: what is on disk is not known any more.
    #[error("`{}` cannot be synced: {error}", path.display())]
    Sync {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process serves from it.
    #[error("a witness is running on `{}`", path.display())]
    Running {
        /// The folder.
        path: PathBuf,
    },
}

impl Folder {
    /// Makes the folder where it is missing; refuses one that others can write.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FolderError> {
        let path = path.into();
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io_at(&path))?;
        let facts = fs::metadata(&path).map_err(io_at(&path))?;
        private(&path, &facts, 0o022)?;
        Ok(Self { path })
    }

    /// The witness's key. Where there is none it is made from `secret`, in a file that only its owner reads.
    pub fn key<E: std::fmt::Display>(
        &self,
        name: impl FnOnce() -> String,
        secret: impl FnOnce() -> Result<[u8; 32], E>,
    ) -> Result<SigningKey, FolderError> {
        let path = self.path.join(KEY);
        let unfit = |why: String| FolderError::Unfit { path: path.clone(), why };
        if !path.try_exists().map_err(io_at(&path))? {
            let secret = secret().map_err(|error| unfit(format!("no randomness for a key: {error}")))?;
            let key =
                SigningKey::new(&name(), KeyKind::Witness, &secret).map_err(|bad| unfit(bad.to_string()))?;
            // Another process may be making one too: a link never replaces, so the first one stands.
            let own = self.path.join(format!("{KEY}.{}", std::process::id()));
            write(&own, key.secret_text().as_bytes())?;
            let linked = fs::hard_link(&own, &path);
            fs::remove_file(&own).map_err(io_at(&own))?;
            if let Err(error) = linked
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(io_at(&path)(error));
            }
            self.sync()?;
        }
        let (text, facts) = read(&path)?;
        private(&path, &facts, 0o077)?;
        let key = SigningKey::from_secret_text(&text).map_err(|bad| unfit(bad.to_string()))?;
        if key.verify_key().kind() == KeyKind::Witness {
            Ok(key)
        } else {
            Err(unfit("not a witness's key".into()))
        }
    }

    /// Every log that was ever signed for, by origin.
    pub fn seen(&self, key: &SigningKey) -> Result<Vec<Seen>, FolderError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io_at(&self.path))? {
            let path = entry.map_err(io_at(&self.path))?.path();
            if path.extension().is_some_and(|end| end == RECORD) {
                all.push(record(&path, key)?);
            }
        }
        all.sort_by(|a, b| a.checkpoint.origin.cmp(&b.checkpoint.origin));
        Ok(all)
    }

    /// Forgets a log: the next checkpoint of that origin is signed whatever it says. Refused while a witness runs.
    /// False where nothing was known.
    pub fn forget(self, origin: &str) -> Result<bool, FolderError> {
        let claim = self.claim()?;
        let path = claim.folder.record_of(origin);
        match fs::remove_file(&path) {
            Ok(()) => claim.folder.sync().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_at(&path)(error)),
        }
    }

    /// Takes the right to write records; it ends with the process.
    pub(crate) fn claim(self) -> Result<Claim, FolderError> {
        let path = self.path.join("witness.lock");
        let lock = options().truncate(false).open(&path).map_err(io_at(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Claim { folder: self, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(FolderError::Running { path: self.path }),
            Err(error) => Err(io_at(&path)(error.into())),
        }
    }

    /// Origins are free text: their digest names the file.
    fn record_of(&self, origin: &str) -> PathBuf {
        let hex = Digest::of(origin.as_bytes()).hex();
        self.path.join(format!("{}.{RECORD}", String::from_utf8_lossy(&hex)))
    }

    fn sync(&self) -> Result<(), FolderError> {
        let synced = File::open(&self.path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| FolderError::Sync { path: self.path.clone(), error })
    }
}

impl Claim {
    /// The last checkpoint of an origin; none where it was never seen.
    pub(crate) fn last(&self, origin: &str, key: &SigningKey) -> Result<Option<Checkpoint>, FolderError> {
        let path = self.folder.record_of(origin);
        if !path.try_exists().map_err(io_at(&path))? {
            return Ok(None);
        }
        let seen = record(&path, key)?;
        if seen.checkpoint.origin != origin {
            return Err(FolderError::Unfit { path, why: "the record of another log".into() });
        }
        Ok(Some(seen.checkpoint))
    }

    /// Keeps a signed checkpoint as the last one of its origin. It is on disk when this returns.
    pub(crate) fn keep(&self, origin: &str, signed: &Note) -> Result<(), FolderError> {
        let path = self.folder.record_of(origin);
        let beside = path.with_extension("new");
        write(&beside, signed.to_string().as_bytes())?;
        // A rename that fails may have happened all the same.
        fs::rename(&beside, &path).map_err(|error| FolderError::Sync { path, error })?;
        self.folder.sync()
    }
}

/// Reads a record: named by its origin's digest, and signed by our own key.
fn record(path: &Path, key: &SigningKey) -> Result<Seen, FolderError> {
    let unfit = |why: String| FolderError::Unfit { path: path.to_owned(), why };
    let (text, facts) = read(path)?;
    private(path, &facts, 0o022)?;
    let (checkpoint, note) = Checkpoint::parse(text.as_bytes()).map_err(|bad| unfit(bad.to_string()))?;
    let Signed::Yes(Some(at)) = note.signed_by(&key.verify_key()) else {
        return Err(unfit("the record does not carry our signature".into()));
    };
    Ok(Seen { checkpoint, at })
}

fn options() -> OpenOptions {
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
fn write(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let mut file = options().truncate(true).open(path).map_err(io_at(path))?;
    file.write_all(bytes).map_err(io_at(path))?;
    file.sync_all().map_err(|error| FolderError::Sync { path: path.to_owned(), error })
}

fn read(path: &Path) -> Result<(String, fs::Metadata), FolderError> {
    let mut text = String::new();
    let file = File::open(path).map_err(io_at(path))?;
    let facts = file.metadata().map_err(io_at(path))?;
    file.take(MAX_FILE).read_to_string(&mut text).map_err(io_at(path))?;
    Ok((text, facts))
}

/// Ours, and closed to others as far as the mask says.
fn private(path: &Path, facts: &fs::Metadata, mask: u32) -> Result<(), FolderError> {
    let me = rustix::process::geteuid().as_raw();
    let why = if facts.uid() != me {
        format!("it belongs to user {}, this program runs as {me}", facts.uid())
    } else if facts.mode() & mask != 0 {
        format!("others may use it (mode {:03o})", facts.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(FolderError::Unfit { path: path.to_owned(), why })
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> FolderError {
    let path = path.to_owned();
    move |error| FolderError::Io { path: path.clone(), error }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn made(folder: &Folder) -> Result<SigningKey, FolderError> {
        folder.key(|| "eye".to_owned(), || Ok::<_, io::Error>([7; 32]))
    }

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(temp.path().join("w")).unwrap();
        let key = made(&folder).unwrap().verify_key();
        let again = folder.key(|| "other".to_owned(), || Ok::<_, io::Error>([8; 32])).unwrap();
        assert_eq!(again.verify_key(), key);
        let path = temp.path().join("w").join(KEY);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(temp.path().join("w")).unwrap().count(), 1, "nothing is left behind");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(made(&folder), Err(FolderError::Unfit { .. })));
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(Folder::open(temp.path()), Err(FolderError::Unfit { .. })));
    }

    #[test]
    fn one_process_at_a_time_serves_and_meanwhile_nothing_is_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let open = || Folder::open(temp.path().join("w")).unwrap();
        let claim = open().claim().unwrap();
        assert!(matches!(open().claim(), Err(FolderError::Running { .. })));
        assert!(matches!(open().forget("x"), Err(FolderError::Running { .. })));
        drop(claim);
        assert!(!open().forget("x").unwrap());
    }
}
