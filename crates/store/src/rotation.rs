//! The first key of a ledger, and the change to a new one. The record and the table say which key counts; the file
//! follows, and a crash in between is made good when the folder is opened again.

use std::path::Path;

use rusqlite::Connection;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{Entry, Id, Op, SigningKey, Timestamp, VerifyKey, handover};

use crate::append::append;
use crate::error::StoreError;
use crate::keys::{self, KeyFiles};
use crate::tide::Tide;

/// Sees to it that the ledger has a key and that the file holds it. The caller holds the writer lock.
pub(crate) fn ensure(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    files: &KeyFiles,
    tide: &Tide,
    at: Timestamp,
) -> Result<(), StoreError> {
    let named = keys::newest(connection).map_err(|error| StoreError::sqlite(database, &error))?;
    let Some(named) = named else {
        // The key carries the name of the ledger: a power cut must not leave it to another one.
        tide.flush()?;
        let key = match files.current()? {
            Some(key) => key,
            None => {
                let key = files.make_next(&keys::origin(writer))?;
                files.promote()?;
                key
            }
        };
        return counts(connection, database, writer, "key.created", &key.verify_key(), None, at);
    };
    finish(files, &named, tide).map(drop)
}

/// The key that the table names, put in its place where a change was broken off just before. The caller holds the
/// writer lock.
pub(crate) fn finish(files: &KeyFiles, named: &str, tide: &Tide) -> Result<SigningKey, StoreError> {
    let is_named = |key: &SigningKey| key.verify_key().to_string() == named;
    if let Some(key) = files.current()?.filter(is_named) {
        return Ok(key);
    }
    let Some(key) = files.next()?.filter(is_named) else {
        let why = "`keys/ledger.key` is missing or not the key that the records name";
        return Err(StoreError::Key(why.into()));
    };
    // The old key is gone after this: a power cut must not take the record that names the new one.
    tide.flush()?;
    files.promote()?;
    Ok(key)
}

/// Makes a new key and lets it take over. The caller holds the mirror lock, so that nobody signs meanwhile, and
/// the writer lock.
pub(crate) fn rotate(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    files: &KeyFiles,
    tide: &Tide,
    at: Timestamp,
) -> Result<VerifyKey, StoreError> {
    ensure(connection, database, writer, files, tide, at)?;
    let old = files.current()?.ok_or_else(|| StoreError::Key("it is missing".into()))?;
    let origin = keys::origin(writer);
    let new = files.make_next(&origin)?;
    let note = handover(&origin, &old.verify_key(), &new.verify_key());
    let note = note.map_err(|error| StoreError::Key(error.to_string()))?.sign(&old).sign(&new);
    counts(connection, database, writer, "key.rotated", &new.verify_key(), Some(note), at)?;
    finish(files, &new.verify_key().to_string(), tide).map(|key| key.verify_key())
}

fn counts(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    event: &'static str,
    key: &VerifyKey,
    note: Option<vambrace_ledger::Note>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let entry = Entry {
        event_type: Some(event),
        message: Some(Redacted::literal("checkpoints behind this record are signed by this key")),
        key: Some(key.clone()),
        note,
        ..Entry::new(Op::LedgerKey, at)
    };
    append(connection, database, writer, &[entry], |written| {
        written.iter().try_for_each(|record| keys::insert(connection, record.seq, key))
    })?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests move key files as a crash leaves them")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use vambrace_core::clock::Clock;

    use super::*;
    use crate::files::OsDisk;
    use crate::schema;
    use crate::sqlite::{Options, SqliteStore};
    use crate::state_dir::StateDir;

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_785_000_000_000)
        }
    }

    // Issue 3, 1: a key change that is broken off at any place closes nobody.
    #[test]
    fn who_changes_the_key_and_dies_stops_no_other_process() {
        for promoted in [true, false] {
            let temp = tempfile::tempdir().unwrap();
            let dir = StateDir::open(temp.path().join("s")).unwrap();
            let options =
                Options { projection_interval: Duration::from_secs(3600), ..Options::new(Arc::new(Noon)) };
            let lives = SqliteStore::open(dir.clone(), &options).unwrap();
            lives.catch_up().unwrap();

            // The other one: the old key signs what is there, the new one is put on record, and no more.
            let database = dir.database();
            let connection = schema::open_again(&database).unwrap();
            let (writer, _) = crate::sqlite::writer_and_head(&connection, &database).unwrap();
            let entry = Entry::new(Op::Recovery, Noon.now());
            append(&connection, &database, &writer, &[entry], |_| Ok(())).unwrap();
            drop(SqliteStore::open(dir.clone(), &options).unwrap());
            let files = KeyFiles::of(&dir);
            let [key, next] = ["ledger.key", "ledger.key.next"].map(|name| dir.keys().join(name));
            std::fs::copy(&key, temp.path().join("old")).unwrap();
            let tide = Tide::new(OsDisk::shared(), dir.wal());
            let new = rotate(&connection, &database, &writer, &files, &tide, Noon.now()).unwrap();
            if !promoted {
                std::fs::rename(&key, next).unwrap();
                std::fs::rename(temp.path().join("old"), key).unwrap();
            }

            lives.catch_up().unwrap();
            assert_eq!(files.current().unwrap().unwrap().verify_key(), new);
            let newest = lives.newest_checkpoint().unwrap().unwrap();
            let note = vambrace_ledger::Note::parse(newest.note.as_bytes()).unwrap();
            assert_eq!(newest.size, 3);
            assert!(matches!(note.signed_by(&new), vambrace_ledger::Signed::Yes(_)));
        }
    }
}
