//! SQL of the keys of the ledger.

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::VerifyKey;

use super::signed;

/// The current key, according to the table.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT key FROM ledger_keys ORDER BY seq DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row((), |row| row.get(0)).optional()
}

/// Every key and the record that introduced it, according to the table.
pub(crate) fn rows(connection: &Connection) -> rusqlite::Result<Vec<(u64, String)>> {
    let mut statement = connection.prepare_cached("SELECT seq, key FROM ledger_keys ORDER BY seq")?;
    statement.query_map((), |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?.collect()
}

/// Every key so far, according to the table.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<VerifyKey>> {
    let mut statement = connection.prepare_cached("SELECT key FROM ledger_keys ORDER BY seq")?;
    let keys = statement.query_map((), |row| Ok(row.get_ref(0)?.as_str()?.parse().ok()))?;
    keys.filter_map(Result::transpose).collect()
}

/// Inserts the key that is valid from record `seq`.
pub(crate) fn insert(connection: &Connection, seq: u64, key: &VerifyKey) -> rusqlite::Result<()> {
    let sql = "INSERT INTO ledger_keys (seq, key) VALUES (?1, ?2)";
    connection.execute(sql, (signed(seq), key.to_string())).map(drop)
}
