//! A pool of read connections, opened when first needed.

use std::path::PathBuf;

use parking_lot::Mutex;
use rusqlite::{Connection, Row};

use crate::error::StoreError;
use crate::sqlite::schema;

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
