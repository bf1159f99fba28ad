//! The first key of a ledger, and its rotation. The record and the table say which key is current; the key file
//! follows, and opening the directory completes a rotation that a crash interrupted.

use std::path::Path;

use rusqlite::Connection;
use vambrace_core::redacted::Redacted;
use vambrace_ledger::{Entry, Id, Op, SigningKey, Timestamp, VerifyKey, handover};

use crate::error::StoreError;
use crate::ledger_keys::{LedgerKeyFiles, origin};
use crate::sqlite::append::append;
use crate::sqlite::rows::ledger_keys;
use crate::sqlite::sync_state::SyncState;

/// Ensures that the ledger has a key and that the file holds it. The caller holds the writer lock.
pub(crate) fn ensure(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    files: &LedgerKeyFiles,
    sync_state: &SyncState,
    at: Timestamp,
) -> Result<(), StoreError> {
    let named = ledger_keys::newest(connection).map_err(|error| StoreError::sqlite(database, &error))?;
    let Some(named) = named else {
        // The key carries the name of the ledger: after a power cut it must not belong to another one.
        sync_state.flush()?;
        let key = match files.current()? {
            Some(key) => key,
            None => {
                let key = files.make_next(&origin(writer))?;
                files.make_current()?;
                key
            }
        };
        return record_key(connection, database, writer, "key.created", &key.verify_key(), None, at);
    };
    finish_rotation(files, &named, sync_state).map(drop)
}

/// The key that the table names; puts it in place if a rotation was interrupted just before. The caller holds
/// the writer lock.
pub(crate) fn finish_rotation(
    files: &LedgerKeyFiles,
    named: &str,
    sync_state: &SyncState,
) -> Result<SigningKey, StoreError> {
    let is_named = |key: &SigningKey| key.verify_key().to_string() == named;
    if let Some(key) = files.current()?.filter(is_named) {
        return Ok(key);
    }
    let Some(key) = files.next()?.filter(is_named) else {
        let why = "`keys/ledger.key` is missing or is not the key that the records name";
        return Err(StoreError::Key(why.into()));
    };
    // This removes the old key, so the record that names the new one must be durable.
    sync_state.flush()?;
    files.make_current()?;
    Ok(key)
}

/// Creates a new key and makes it the current one. The caller holds the segment lock, so that no other process
/// signs meanwhile, and the writer lock.
pub(crate) fn rotate(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    files: &LedgerKeyFiles,
    sync_state: &SyncState,
    at: Timestamp,
) -> Result<VerifyKey, StoreError> {
    ensure(connection, database, writer, files, sync_state, at)?;
    let old = files.current()?.ok_or_else(|| StoreError::Key("it is missing".into()))?;
    let name = origin(writer);
    let new = files.make_next(&name)?;
    let note = handover(&name, &old.verify_key(), &new.verify_key());
    let note = note.map_err(|error| StoreError::Key(error.to_string()))?.sign(&old).sign(&new);
    record_key(connection, database, writer, "key.rotated", &new.verify_key(), Some(note), at)?;
    finish_rotation(files, &new.verify_key().to_string(), sync_state).map(|key| key.verify_key())
}

fn record_key(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    event: &'static str,
    key: &VerifyKey,
    note: Option<vambrace_ledger::SignedNote>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let entry = Entry {
        event_type: Some(event),
        message: Some(Redacted::literal("checkpoints after this record are signed by this key")),
        key: Some(key.clone()),
        note,
        ..Entry::new(Op::LedgerKey, at)
    };
    append(connection, database, writer, &[entry], |written| {
        written.iter().try_for_each(|link| ledger_keys::insert(connection, link.seq, key))
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
    use crate::disk::OsDisk;
    use crate::ledger_admin::LedgerAdmin as _;
    use crate::sqlite::schema;
    use crate::sqlite::sqlite_store::{SqliteStore, StoreOptions, writer_and_head};
    use crate::state_dir::StateDir;

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_785_000_000_000)
        }
    }

    // An interrupted key rotation blocks no process.
    #[test]
    fn a_process_that_dies_during_key_rotation_stops_no_other_process() {
        for promoted in [true, false] {
            let temp = tempfile::tempdir().unwrap();
            let dir = StateDir::open(temp.path().join("s")).unwrap();
            let options = StoreOptions {
                segment_interval: Duration::from_secs(3600),
                ..StoreOptions::new(Arc::new(Noon))
            };
            let lives = SqliteStore::open(dir.clone(), &options).unwrap();
            lives.catch_up().unwrap();

            // The other process: the old key signs what is there, the new key is recorded, then the process
            // dies.
            let database = dir.database();
            let connection = schema::open_again(&database).unwrap();
            let (writer, _) = writer_and_head(&connection, &database).unwrap();
            let entry = Entry::new(Op::Recovery, Noon.now());
            append(&connection, &database, &writer, &[entry], |_| Ok(())).unwrap();
            drop(SqliteStore::open(dir.clone(), &options).unwrap());
            let files = LedgerKeyFiles::of(&dir);
            let [key, next] = ["ledger.key", "ledger.key.next"].map(|name| dir.keys().join(name));
            std::fs::copy(&key, temp.path().join("old")).unwrap();
            let sync_state = SyncState::new(OsDisk::shared(), dir.wal());
            let new = rotate(&connection, &database, &writer, &files, &sync_state, Noon.now()).unwrap();
            if !promoted {
                std::fs::rename(&key, next).unwrap();
                std::fs::rename(temp.path().join("old"), key).unwrap();
            }

            lives.catch_up().unwrap();
            assert_eq!(files.current().unwrap().unwrap().verify_key(), new);
            let newest = lives.newest_checkpoint().unwrap().unwrap();
            let note = vambrace_ledger::SignedNote::parse(newest.note.as_bytes()).unwrap();
            assert_eq!(newest.size, 3);
            assert!(matches!(note.signed_by(&new), vambrace_ledger::SignatureStatus::Valid(_)));
        }
    }
}
