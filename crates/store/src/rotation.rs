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
    let is_named = |key: &SigningKey| key.verify_key().to_string() == named;
    if files.current()?.as_ref().is_some_and(is_named) {
        return Ok(());
    }
    if files.next()?.as_ref().is_some_and(is_named) {
        return files.promote();
    }
    Err(StoreError::Key("`keys/ledger.key` is missing or not the key that the records name".into()))
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
    // The old key is gone after this: a power cut must not take the record that names the new one.
    tide.flush()?;
    files.promote()?;
    Ok(new.verify_key())
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
