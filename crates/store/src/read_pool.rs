//! A pool of read connections, opened when first needed, and decoding of columns.

use std::path::PathBuf;

use parking_lot::Mutex;
use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use vambrace_ledger::{ChainHead, Digest, Id, LedgerLine, Timestamp};

use crate::error::StoreError;
use crate::schema;

/// The newest record, for [`head`].
pub(crate) const NEWEST_RECORD: &str = "SELECT seq, line FROM ledger ORDER BY seq DESC LIMIT 1";

/// Idle connections kept for the next read.
const MAX_IDLE_CONNECTIONS: usize = 4;

/// The read connections.
#[derive(Debug)]
pub(crate) struct ReadPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl ReadPool {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::new(Vec::new()) }
    }

    /// Lends a connection. One that failed is dropped.
    pub(crate) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_for_reading(&self.path)?,
        };
        let value = read(&connection).map_err(|error| StoreError::sqlite(&self.path, &error))?;
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(value)
    }

    /// The row of a query, if any.
    pub(crate) fn one<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        use rusqlite::OptionalExtension;
        self.with(|connection| connection.prepare_cached(sql)?.query_row(parameters, read).optional())
    }

    /// The rows of a query.
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.with(|connection| connection.prepare_cached(sql)?.query_map(parameters, read)?.collect())
    }
}

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
