//! Opens the database: settings, the application id, and forward-only migrations.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use vambrace_ledger::Digest;

use crate::error::StoreError;

/// "Vamb": marks the file as ours.
const APPLICATION_ID: i64 = 0x5661_6d62;
/// How long another program may hold the database, in ms; our own processes take turns at the writer lock.
const BUSY_TIMEOUT_MS: u32 = 5000;
/// WAL size that is kept when the WAL restarts, so that syncs find their blocks allocated.
const MAX_KEPT_WAL_BYTES: i64 = 64 << 20;

/// Numbered from one, never changed once released: the stored checksums would not match.
const MIGRATIONS: &[&str] = &[
    include_str!("sql/0001.sql"),
    include_str!("sql/0002.sql"),
    include_str!("sql/0003.sql"),
    include_str!("sql/0004.sql"),
    include_str!("sql/0005.sql"),
    include_str!("sql/0006.sql"),
];

/// Opens for writing. The caller holds the writer lock: two processes cannot switch to WAL mode or migrate at
/// the same time.
pub(crate) fn open_for_writing(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| StoreError::sqlite(path, &e))?;
    write_settings(&connection)
        .and_then(|()| identity(&connection))
        .map_err(|e| StoreError::sqlite(path, &e))
        .and_then(|identity| check(path, &identity))?;
    migrate(path, &connection)?;
    Ok(connection)
}

/// Opens a file whose schema was already checked.
pub(crate) fn open_again(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| StoreError::sqlite(path, &e))?;
    write_settings(&connection).map_err(|e| StoreError::sqlite(path, &e))?;
    Ok(connection)
}

/// Opens for reading.
pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS.into()))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        enable_stable_plans(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|e| StoreError::sqlite(path, &e))
}

/// Opens a file in a directory that cannot be written; only for a database without a WAL.
pub(crate) fn open_immutable(path: &Path) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
        .map_err(|e| StoreError::sqlite(path, &e))
}

/// Whether a table exists: a directory that only older programs have opened lacks some.
pub(crate) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection.prepare(sql)?.exists([name])
}

/// The bundled SQLite plans by bound values and so recompiles a statement for every new value; this took a
/// fifth of the time of a commit.
fn enable_stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn write_settings(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS.into()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    enable_stable_plans(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // `sync_state.rs` syncs the WAL, for a whole group of batches and with fdatasync; checkpoints still sync.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // No caller of a commit checkpoints the WAL: see `group_writer.rs` and `background.rs`.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", MAX_KEPT_WAL_BYTES)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Deleted content is overwritten in the file: see `payload.rs`.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(())
}

struct SchemaIdentity {
    application: i64,
    version: i64,
    tables: i64,
}

fn identity(connection: &Connection) -> rusqlite::Result<SchemaIdentity> {
    Ok(SchemaIdentity {
        application: connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
        version: connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
        tables: connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?,
    })
}

fn known_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn check(path: &Path, identity: &SchemaIdentity) -> Result<(), StoreError> {
    if identity.application != APPLICATION_ID && identity.tables > 0 {
        let reason = "it belongs to another program".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), reason });
    }
    if identity.version > known_version() {
        return Err(StoreError::NewerSchema { found: identity.version, known: known_version() });
    }
    Ok(())
}

fn migrate(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(path, &error);
    let transaction = connection.unchecked_transaction().map_err(sqlite)?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, sha256 TEXT NOT NULL) STRICT",
        )
        .map_err(sqlite)?;
    let version: i64 =
        transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
    for (number, sql) in (1_i64..).zip(MIGRATIONS) {
        let sum = Digest::of(sql.as_bytes()).to_string();
        if number <= version {
            let stored: String = transaction
                .query_row("SELECT sha256 FROM migrations WHERE version = ?1", [number], |row| row.get(0))
                .map_err(sqlite)?;
            if stored != sum {
                let reason = format!("its migration {number} differs from the one of this program");
                return Err(StoreError::Damaged { path: path.to_owned(), reason });
            }
            continue;
        }
        transaction.execute_batch(sql).map_err(sqlite)?;
        transaction
            .execute("INSERT INTO migrations (version, sha256) VALUES (?1, ?2)", (number, sum))
            .map_err(sqlite)?;
    }
    if version < known_version() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", known_version()).map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::StateDir;

    fn database() -> (tempfile::TempDir, std::path::PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        dir.prepare_database().unwrap();
        let path = dir.database();
        (temp, path)
    }

    #[test]
    fn opening_twice_migrates_once() {
        let (_temp, path) = database();
        let writer = |c: &Connection| -> String {
            c.query_row("SELECT name FROM writer", (), |row| row.get(0)).unwrap()
        };
        let first = writer(&open_for_writing(&path).unwrap());
        let again = open_for_writing(&path).unwrap();
        assert_eq!(writer(&again), first);
        assert_eq!(identity(&again).unwrap().version, known_version());
    }

    #[test]
    fn foreign_newer_and_altered_databases_are_rejected() {
        let (_temp, path) = database();
        drop(open_for_writing(&path).unwrap());
        let edit = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        edit("PRAGMA user_version = 99");
        assert!(matches!(open_for_writing(&path), Err(StoreError::NewerSchema { found: 99, .. })));
        edit("PRAGMA user_version = 1; UPDATE migrations SET sha256 = 'x'");
        assert!(matches!(open_for_writing(&path), Err(StoreError::Damaged { .. })));
        edit("PRAGMA application_id = 1");
        assert!(matches!(open_for_writing(&path), Err(StoreError::Damaged { .. })));
    }
}
