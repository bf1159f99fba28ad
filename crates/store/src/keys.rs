//! The key that signs checkpoints: a file in `keys/` of the state folder that only its owner reads, and the table of
//! the keys that have counted. A new key counts from a record on that carries the signatures of both.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{Id, KeyKind, SigningKey, VerifyKey};

use crate::error::StoreError;
use crate::files::{self, Disk, OsDisk};
use crate::state_dir::StateDir;
use crate::statements::signed;

/// The longest key file.
const MOST: u64 = 1024;

/// The name of a ledger in its checkpoints.
pub(crate) fn origin(writer: &Id) -> String {
    format!("vambrace/{writer}")
}

/// The key files of a state folder.
#[derive(Debug, Clone)]
pub(crate) struct KeyFiles {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl KeyFiles {
    pub(crate) fn of(dir: &StateDir) -> Self {
        Self::on(OsDisk::shared(), dir)
    }

    /// Written to this disk. Who reads looks at the modes as well, which only the real disk has.
    pub(crate) fn on(disk: Arc<dyn Disk>, dir: &StateDir) -> Self {
        Self { disk, folder: dir.keys() }
    }

    /// The key that signs now.
    pub(crate) fn current(&self) -> Result<Option<SigningKey>, StoreError> {
        self.read(&self.folder.join("ledger.key"))
    }

    /// A key that was made to take over and has not yet.
    pub(crate) fn next(&self) -> Result<Option<SigningKey>, StoreError> {
        self.read(&self.folder.join("ledger.key.next"))
    }

    /// Makes a key beside the one that counts.
    pub(crate) fn make_next(&self, origin: &str) -> Result<SigningKey, StoreError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| StoreError::Io(format!("no randomness: {error}")))?;
        let key = SigningKey::new(origin, KeyKind::Log, &secret)
            .map_err(|error| StoreError::Io(error.to_string()))?;
        let path = self.folder.join("ledger.key.next");
        files::replace(&*self.disk, &path, key.secret_text().as_bytes())
            .map_err(|error| StoreError::folder(&path, error))?;
        Ok(key)
    }

    /// The key beside becomes the one that counts.
    pub(crate) fn promote(&self) -> Result<(), StoreError> {
        let fault = |error| StoreError::folder(&self.folder, error);
        let (next, current) = (self.folder.join("ledger.key.next"), self.folder.join("ledger.key"));
        self.disk.rename(&next, &current).and_then(|()| self.disk.sync_folder(&self.folder)).map_err(fault)
    }

    fn read(&self, path: &Path) -> Result<Option<SigningKey>, StoreError> {
        let file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| StoreError::folder(path, error))?,
        };
        let facts = file.metadata().map_err(|error| StoreError::folder(path, error))?;
        if facts.mode() & 0o077 != 0 || facts.uid() != rustix::process::geteuid().as_raw() {
            return Err(StoreError::KeyExposed { path: path.to_owned(), mode: facts.mode() & 0o777 });
        }
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).map_err(|error| StoreError::folder(path, error))?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let key = SigningKey::from_secret_text(text);
        key.map(Some).map_err(|error| StoreError::Key(format!("`{}` is {error}", path.display())))
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

/// The key that counts, as the table says.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT key FROM ledger_keys ORDER BY seq DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row((), |row| row.get(0)).optional()
}

/// The keys that have counted and the records that say so, as the table says.
pub(crate) fn rows(connection: &Connection) -> rusqlite::Result<Vec<(u64, String)>> {
    let mut statement = connection.prepare_cached("SELECT seq, key FROM ledger_keys ORDER BY seq")?;
    statement.query_map((), |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?.collect()
}

/// Every key that has counted, as the table says.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<VerifyKey>> {
    let mut statement = connection.prepare_cached("SELECT key FROM ledger_keys ORDER BY seq")?;
    let keys = statement.query_map((), |row| Ok(row.get_ref(0)?.as_str()?.parse().ok()))?;
    keys.filter_map(Result::transpose).collect()
}

/// A key counts from a record on.
pub(crate) fn insert(connection: &Connection, seq: u64, key: &VerifyKey) -> rusqlite::Result<()> {
    let sql = "INSERT INTO ledger_keys (seq, key) VALUES (?1, ?2)";
    connection.execute(sql, (signed(seq), key.to_string())).map(drop)
}
