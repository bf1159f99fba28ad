//! Sessions: one connection of one agent, with the state that can stop it.

use rusqlite::Row;
pub use vambrace_core::session::SessionState;
use vambrace_ledger::{Id, RedactedText, Timestamp};

use crate::read_pool::{id, stamp, word};

/// A session. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow<T = RedactedText> {
    /// Its id.
    pub id: Id,
    /// User that the agent works for.
    pub user: T,
    /// Agent.
    pub agent: T,
    /// Role.
    pub role: T,
    /// Project.
    pub project: T,
    /// State.
    pub state: SessionState,
    /// When it was opened.
    pub opened: Timestamp,
    /// When it last changed its state.
    pub changed: Timestamp,
}

pub(crate) const INSERT: &str =
    "INSERT INTO sessions (id, user, agent, role, project, state, opened, changed)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(crate) const OPEN: &str = "SELECT 1 FROM sessions WHERE id = ?1 AND state IN ('active', 'alert')";
pub(crate) const SET: &str = "UPDATE sessions SET state = ?2, changed = ?3 WHERE id = ?1";
pub(crate) const BY_ID: &str =
    "SELECT id, user, agent, role, project, state, opened, changed FROM sessions WHERE id = ?1";
pub(crate) const NEWEST: &str = "SELECT id, user, agent, role, project, state, opened, changed FROM sessions
     ORDER BY opened DESC, id DESC LIMIT ?1";

impl SessionRow<String> {
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: id(row, 0)?,
            user: row.get(1)?,
            agent: row.get(2)?,
            role: row.get(3)?,
            project: row.get(4)?,
            state: word(row, 5, SessionState::parse)?,
            opened: stamp(row, 6)?,
            changed: stamp(row, 7)?,
        })
    }
}
