//! Rows of the database: one module for the SQL of each table, and the encoding of columns.

pub(crate) mod approval;
pub(crate) mod call;
pub(crate) mod checkpoints;
pub(crate) mod ledger_keys;
pub(crate) mod payload;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod timeline_event;
pub(crate) mod token;
pub(crate) mod trust;
pub(crate) mod violation;

use rusqlite::Row;
use rusqlite::types::Type;
use vambrace_ledger::{Digest, Id, Timestamp};

/// SQLite integers are signed; a chain of 2^63 records does not occur.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The condition that the session in a column belongs to an owner: tenant, user and project in three parameters
/// from number `first` on. A tenant of NULL matches every row, a project of NULL every project.
pub(crate) fn session_of_owner(column: &str, first: usize) -> String {
    let (tenant, user, project) = (first, first + 1, first + 2);
    format!(
        "(?{tenant} IS NULL OR {column} IN (SELECT id FROM sessions WHERE tenant = ?{tenant} AND user = ?{user}
          AND (?{project} IS NULL OR project = ?{project})))"
    )
}

fn bad(column: usize, kind: Type, what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, what.into())
}

pub(crate) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<Id> {
    id_or_none(row, column)?.ok_or_else(|| bad(column, Type::Null, "no id"))
}

pub(crate) fn id_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Id>> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    text.map(Id::new).transpose().map_err(|_| bad(column, Type::Text, "not an id"))
}

pub(crate) fn stamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

pub(crate) fn stamp_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

pub(crate) fn word<T>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    parse(row.get_ref(column)?.as_str()?).ok_or_else(|| bad(column, Type::Text, "not a known word"))
}

pub(crate) fn digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    Ok(row.get::<_, Option<[u8; 32]>>(column)?.map(Digest::from_bytes))
}

pub(crate) fn required_digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    row.get(column).map(Digest::from_bytes)
}
