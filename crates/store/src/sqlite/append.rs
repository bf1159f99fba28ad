//! Records of the ledger about itself: its keys, its seals, its repairs. The holder of the writer lock writes
//! them in a transaction of their own, together with the rows that they describe.

use std::path::Path;

use rusqlite::Connection;
use vambrace_ledger::{ChainHead, Entry, Id};

use crate::error::StoreError;
use crate::sqlite::group_writer::ChainLink;
use crate::sqlite::statements::{StatementError, Statements};

/// Appends records and makes the changes that belong to them; all or nothing. The caller holds the writer lock.
pub(crate) fn append(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    entries: &[Entry],
    also: impl FnOnce(&[ChainLink]) -> rusqlite::Result<()>,
) -> Result<Vec<ChainLink>, StoreError> {
    let result = transaction(&mut Statements::of(connection), writer, entries, also);
    result.map_err(|error| {
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        match error {
            StatementError::Store(error) => error,
            StatementError::Sqlite(error) => StoreError::sqlite(database, &error),
        }
    })
}

fn transaction(
    statements: &mut Statements<'_>,
    writer: &Id,
    entries: &[Entry],
    also: impl FnOnce(&[ChainLink]) -> rusqlite::Result<()>,
) -> Result<Vec<ChainLink>, StatementError> {
    statements.begin()?;
    let mut head = statements.head()?;
    let mut written = Vec::with_capacity(entries.len());
    for entry in entries {
        let seq = head.seq + 1;
        let line = vambrace_ledger::seal(entry, writer, seq, head.hash);
        let line = line.map_err(|error| StatementError::Store(error.into()))?;
        statements.append(seq, line.as_str())?;
        written.push(ChainLink { seq, prev_hash: head.hash, event_hash: line.event_hash() });
        head = ChainHead { seq, hash: line.event_hash() };
    }
    also(&written)?;
    statements.commit()?;
    Ok(written)
}
