//! Records of the ledger about itself: its keys, its seals, what was repaired. They are written by whoever holds
//! the writer lock, in a transaction of their own together with the rows that they speak of.

use std::path::Path;

use rusqlite::Connection;
use vambrace_ledger::{Entry, Head, Id};

use crate::batch::Sealed;
use crate::error::StoreError;
use crate::statements::{Refusal, Statements};

/// Appends records, and makes the changes that belong to them; all of it or nothing. The caller holds the writer
/// lock.
pub(crate) fn append(
    connection: &Connection,
    database: &Path,
    writer: &Id,
    entries: &[Entry],
    also: impl FnOnce(&[Sealed]) -> rusqlite::Result<()>,
) -> Result<Vec<Sealed>, StoreError> {
    let result = transaction(&mut Statements::of(connection), writer, entries, also);
    result.map_err(|refusal| {
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        match refusal {
            Refusal::Store(error) => error,
            Refusal::Sqlite(error) => StoreError::sqlite(database, &error),
        }
    })
}

fn transaction(
    statements: &mut Statements<'_>,
    writer: &Id,
    entries: &[Entry],
    also: impl FnOnce(&[Sealed]) -> rusqlite::Result<()>,
) -> Result<Vec<Sealed>, Refusal> {
    statements.begin()?;
    let mut head = statements.head()?;
    let mut written = Vec::with_capacity(entries.len());
    for entry in entries {
        let seq = head.seq + 1;
        let line = vambrace_ledger::seal(entry, writer, seq, head.hash);
        let line = line.map_err(|error| Refusal::Store(error.into()))?;
        statements.append(seq, line.as_str())?;
        written.push(Sealed { seq, prev_hash: head.hash, event_hash: line.event_hash() });
        head = Head { seq, hash: line.event_hash() };
    }
    also(&written)?;
    statements.commit()?;
    Ok(written)
}
