//! SQL of the records of the ledger. The number of a record is its key; the writer of the chain is in a row of its own.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, Row};
use vambrace_core::principal::DEFAULT_TENANT;
use vambrace_ledger::{ChainHead, Id, LedgerLine};

use super::signed;
use crate::record_id::RecordId;
use crate::record_query::{LedgerRecord, RecordOrder, RecordQuery};
use crate::session_owner::OwnerFilter;
use crate::sqlite::schema;

/// The newest record, for [`head`].
pub(crate) const NEWEST: &str = "SELECT seq, line FROM ledger ORDER BY seq DESC LIMIT 1";
pub(crate) const LINE: &str = "SELECT line FROM ledger WHERE seq = ?1";

/// The head of the chain, according to its newest record; `None` if that is damaged.
pub(crate) fn head(row: &Row<'_>) -> rusqlite::Result<Option<ChainHead>> {
    let hash = row.get_ref(1)?.as_bytes().ok().and_then(LedgerLine::claimed_hash);
    let seq = u64::try_from(row.get::<_, i64>(0)?).ok().filter(|seq| *seq > 0);
    Ok(seq.zip(hash).map(|(seq, hash)| ChainHead { seq, hash }))
}

/// The number of the newest record.
pub(crate) fn newest_seq(connection: &Connection) -> rusqlite::Result<u64> {
    let seq: Option<i64> =
        connection.prepare_cached("SELECT max(seq) FROM ledger")?.query_row((), |row| row.get(0))?;
    Ok(seq.and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0))
}

/// The name of the writer, if it has a row.
pub(crate) fn writer_name(connection: &Connection) -> rusqlite::Result<Option<String>> {
    // If no newer program has opened the directory, the name is in the `head` table.
    let older = schema::has_table(connection, "head")? && !schema::has_table(connection, "writer")?;
    let sql = if older { "SELECT writer FROM head" } else { "SELECT name FROM writer" };
    connection.query_row(sql, (), |row| row.get(0)).optional()
}

/// The records of the chain of `writer` that match a query.
pub(crate) fn select(
    connection: &Connection,
    writer: &Id,
    query: &RecordQuery,
) -> rusqlite::Result<Vec<LedgerRecord>> {
    let after = match &query.after {
        None => 0,
        Some(after) if after.writer == *writer => signed(after.seq),
        Some(_) => return Ok(Vec::new()),
    };
    let sql = match query.order {
        RecordOrder::NewestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq DESC",
        RecordOrder::OldestFirst => "SELECT seq, line FROM ledger WHERE seq > ?1 ORDER BY seq",
    };
    let sessions = sessions_of(connection, &query.owner)?;
    let needles = query.needles();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([after])?;
    let mut found = Vec::new();
    while found.len() < query.limit
        && let Some(row) = rows.next()?
    {
        let line = row.get_ref(1)?.as_str()?;
        if needles.iter().all(|needle| line.contains(needle.as_str())) && query.fits(line, sessions.as_ref())
        {
            let id = RecordId::new(writer, row.get::<_, i64>(0)?.unsigned_abs());
            found.push(LedgerRecord { id, line: line.to_owned() });
        }
    }
    Ok(found)
}

/// The sessions of an owner; `None` for everybody's.
fn sessions_of(connection: &Connection, owner: &OwnerFilter) -> rusqlite::Result<Option<HashSet<String>>> {
    if *owner == OwnerFilter::Everyone {
        return Ok(None);
    }
    // A directory that only older programs have opened has one tenant and no column for it.
    let sql = "SELECT 1 FROM pragma_table_info('sessions') WHERE name = 'tenant'";
    let newer = connection.prepare_cached(sql)?.exists(())?;
    let tenant = if newer { "tenant".to_owned() } else { format!("'{DEFAULT_TENANT}'") };
    let sql =
        format!("SELECT id FROM sessions WHERE {tenant} = ?1 AND user = ?2 AND (?3 IS NULL OR project = ?3)");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(owner.columns(), |row| row.get(0))?.collect::<Result<_, _>>().map(Some)
}
