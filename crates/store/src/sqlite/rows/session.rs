//! SQL of sessions.

use rusqlite::Row;
use vambrace_core::session::SessionState;

use super::{id, stamp, word};
use crate::session::SessionRow;

pub(crate) const INSERT: &str =
    "INSERT INTO sessions (id, user, agent, role, project, state, opened, changed, tenant)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
/// The owner of a session that is open.
pub(crate) const OPEN: &str =
    "SELECT tenant, user, project FROM sessions WHERE id = ?1 AND state IN ('active', 'alert')";
/// Parameters: the session, its state, the time, then the owner.
pub(crate) const SET: &str = "UPDATE sessions SET state = ?2, changed = ?3 WHERE id = ?1
     AND (?4 IS NULL OR (tenant = ?4 AND user = ?5 AND (?6 IS NULL OR project = ?6)))";
pub(crate) const BY_ID: &str =
    "SELECT id, user, agent, role, project, state, opened, changed, tenant FROM sessions WHERE id = ?1";
/// Parameters: the limit, then the owner.
pub(crate) const NEWEST: &str =
    "SELECT id, user, agent, role, project, state, opened, changed, tenant FROM sessions
     WHERE ?2 IS NULL OR (tenant = ?2 AND user = ?3 AND (?4 IS NULL OR project = ?4))
     ORDER BY opened DESC, id DESC LIMIT ?1";

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<SessionRow<String>> {
    Ok(SessionRow {
        id: id(row, 0)?,
        user: row.get(1)?,
        agent: row.get(2)?,
        role: row.get(3)?,
        project: row.get(4)?,
        state: word(row, 5, SessionState::parse)?,
        opened: stamp(row, 6)?,
        changed: stamp(row, 7)?,
        tenant: row.get(8)?,
    })
}
