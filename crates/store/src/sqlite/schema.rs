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
    include_str!("sql/0007.sql"),
    include_str!("sql/0008.sql"),
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
    migrate(path, &connection, MIGRATIONS)?;
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
    version_after(MIGRATIONS)
}

fn version_after(migrations: &[&str]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
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

fn migrate(path: &Path, connection: &Connection, migrations: &[&str]) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| StoreError::sqlite(path, &error);
    let transaction = connection.unchecked_transaction().map_err(sqlite)?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, sha256 TEXT NOT NULL) STRICT",
        )
        .map_err(sqlite)?;
    let version: i64 =
        transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sqlite)?;
    for (number, sql) in (1_i64..).zip(migrations) {
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
    let newest = version_after(migrations);
    if version < newest {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", newest).map_err(sqlite)?;
    }
    transaction.commit().map_err(sqlite)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vambrace_core::clock::Clock;
    use vambrace_core::principal::DEFAULT_TENANT;
    use vambrace_core::redacted::{Redact, RedactError, RedactOutput, Redacted};
    use vambrace_ledger::{Entry, Op, Timestamp};

    use super::*;
    use crate::batch::{Batch, StateChange};
    use crate::session_owner::{OwnerFilter, SessionOwner};
    use crate::sqlite::append::append;
    use crate::sqlite::sqlite_store::{SqliteStore, StoreOptions, writer_and_head};
    use crate::sqlite::verify::verify;
    use crate::state_dir::StateDir;
    use crate::store::Store as _;
    use crate::verify_report::VerifyOptions;

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_785_000_000_000)
        }
    }

    struct NoRedaction;

    impl Redact for NoRedaction {
        fn redact<'a>(&self, text: &'a str) -> Result<RedactOutput<'a>, RedactError> {
            Ok(RedactOutput { text: text.into(), count: 0 })
        }
    }

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

    /// The layout before sessions had a tenant, with rows as the program of that time wrote them.
    fn database_without_tenants(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        write_settings(&connection).unwrap();
        migrate(path, &connection, &MIGRATIONS[..6]).unwrap();
        let rows = "INSERT INTO sessions (id, user, agent, role, project, state, opened, changed)
                        VALUES ('s-1', 'ada', 'agent', 'dev', '/one', 'active', 1, 1),
                               ('s-2', 'bob', 'agent', 'dev', '/one', 'suspended', 2, 2);
                    INSERT INTO tokens (id, kind, name, user, hash, created)
                        VALUES ('tok-1', 'approver', 'laptop', 'ada', zeroblob(32), 1);";
        connection.execute_batch(rows).unwrap();
        let (writer, _) = writer_and_head(&connection, path).unwrap();
        append(&connection, path, &writer, &[Entry::new(Op::Recovery, Noon.now())], |_| Ok(())).unwrap();
        connection
    }

    #[test]
    fn a_store_of_the_previous_version_is_upgraded() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path().join("s")).unwrap();
        dir.prepare_database().unwrap();
        let older = database_without_tenants(&dir.database());
        assert_eq!(identity(&older).unwrap().version, 6);
        let (writer, head) = writer_and_head(&older, &dir.database()).unwrap();
        drop(older);

        let store = SqliteStore::open(dir.clone(), &StoreOptions::new(Arc::new(Noon))).unwrap();
        assert_eq!((store.writer(), head.seq), (&writer, 1));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bob = store.session("s-2").await.unwrap().unwrap();
            assert_eq!((bob.user.as_str(), bob.tenant.as_str()), ("bob", DEFAULT_TENANT));
            let ada = OwnerFilter::User { tenant: DEFAULT_TENANT.to_owned(), user: "ada".to_owned() };
            let sessions = store.sessions(&ada, 9).await.unwrap();
            assert_eq!(sessions.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["s-1"]);
            let tokens = store.approval_queries().tokens(&ada).await.unwrap();
            assert_eq!(tokens.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["laptop"]);
            // An old session is used by its owner only.
            let text = |text: &str| Redacted::text(text, &NoRedaction).unwrap();
            for (user, is_owner) in [("ada", true), ("bob", false)] {
                let owner =
                    SessionOwner { tenant: text(DEFAULT_TENANT), user: text(user), project: text("/one") };
                let require = StateChange::RequireSession { id: sessions[0].id.clone(), owner };
                let result = store.commit(Batch::durable(vec![], vec![require])).await;
                assert_eq!(result.is_ok(), is_owner, "{result:?}");
            }
        });
        drop(store);
        let report = verify(&dir, &VerifyOptions::new(Noon.now()), &mut |_| {}).unwrap();
        assert!(report.findings.is_clean() && report.records == 2, "{report:?}");
        // The second start finds nothing to do.
        let again = open_for_writing(&dir.database()).unwrap();
        assert_eq!(identity(&again).unwrap().version, known_version());
    }
}
