//! The statements that write, prepared once for the life of the writer.

use rusqlite::{Connection, Statement};
use vambrace_ledger::{Digest, Head, Id, Text};

use crate::batch::Change;
use crate::error::StoreError;
use crate::{call, event, session, trust, violation};

/// Everything a writer says to the database.
#[derive(Debug)]
pub(crate) struct Statements<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    savepoint: Statement<'c>,
    release: Statement<'c>,
    undo: Statement<'c>,
    head: Statement<'c>,
    set_head: Statement<'c>,
    append: Statement<'c>,
    open_session: Statement<'c>,
    set_session: Statement<'c>,
    insert_call: Statement<'c>,
    set_call: Statement<'c>,
    finish_call: Statement<'c>,
    event: Statement<'c>,
    violation: Statement<'c>,
    trust: Statement<'c>,
    untrust: Statement<'c>,
}

/// A statement failed, or the state does not allow the change.
#[derive(Debug)]
pub(crate) enum Refusal {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl<'c> Statements<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            savepoint: connection.prepare("SAVEPOINT batch")?,
            release: connection.prepare("RELEASE batch")?,
            undo: connection.prepare("ROLLBACK TO batch")?,
            head: connection.prepare("SELECT seq, event_hash FROM head WHERE id = 1")?,
            set_head: connection
                .prepare("UPDATE head SET seq = ?1, event_hash = ?2 WHERE id = 1")?,
            append: connection.prepare("INSERT INTO ledger (seq, line) VALUES (?1, ?2)")?,
            open_session: connection.prepare(session::INSERT)?,
            set_session: connection.prepare(session::SET)?,
            insert_call: connection.prepare(call::INSERT)?,
            set_call: connection.prepare(call::SET)?,
            finish_call: connection.prepare(call::FINISH)?,
            event: connection.prepare(event::INSERT)?,
            violation: connection.prepare(violation::INSERT)?,
            trust: connection.prepare(trust::SET)?,
            untrust: connection.prepare(trust::REMOVE)?,
        })
    }

    pub(crate) fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute(()).map(drop)
    }

    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute(()).map(drop)
    }

    pub(crate) fn savepoint(&mut self) -> rusqlite::Result<()> {
        self.savepoint.execute(()).map(drop)
    }

    pub(crate) fn release(&mut self) -> rusqlite::Result<()> {
        self.release.execute(()).map(drop)
    }

    /// Back to the savepoint, which is gone afterwards.
    pub(crate) fn undo(&mut self) -> rusqlite::Result<()> {
        self.undo.execute(())?;
        self.release()
    }

    pub(crate) fn head(&mut self) -> Result<Head, Refusal> {
        let (seq, hash) = self.head.query_row((), |row| {
            Ok((row.get::<_, i64>(0)?, row.get_ref(1)?.as_str()?.parse::<Digest>()))
        })?;
        let hash = hash.map_err(|error| {
            Refusal::Store(StoreError::Io(format!("the head row is damaged: {error}")))
        })?;
        Ok(Head { seq: seq.unsigned_abs(), hash })
    }

    pub(crate) fn set_head(&mut self, head: Head) -> rusqlite::Result<()> {
        self.set_head.execute((signed(head.seq), head.hash.to_string())).map(drop)
    }

    pub(crate) fn append(&mut self, seq: u64, line: &str) -> rusqlite::Result<()> {
        self.append.execute((signed(seq), line)).map(drop)
    }

    /// Makes one change. `first` and `last` are the records of its batch.
    pub(crate) fn change(
        &mut self,
        change: &Change,
        first: Option<u64>,
        last: Option<u64>,
    ) -> Result<(), Refusal> {
        match change {
            Change::OpenSession(s) => {
                let names = (s.user.get(), s.agent.get(), s.role.get(), s.project.get());
                let (user, agent, role, project) = names;
                let (opened, changed) = (s.opened.millis(), s.changed.millis());
                let state = s.state.as_str();
                let row = (s.id.as_str(), user, agent, role, project, state, opened, changed);
                self.open_session.execute(row)?;
            }
            Change::SetSession { id, state, at } => {
                let rows = self.set_session.execute((id.as_str(), state.as_str(), at.millis()))?;
                one(rows, "session", id)?;
            }
            Change::InsertCall(c) => {
                self.insert_call.execute((
                    c.id.as_str(),
                    c.session.as_str(),
                    c.tool.get(),
                    c.state.as_str(),
                    c.started.millis(),
                    c.counted,
                    c.plan_digest.as_ref().map(|digest| digest.as_bytes().as_slice()),
                    c.finished.map(vambrace_ledger::Timestamp::millis),
                    text(c.error.as_ref()),
                    first.map(signed),
                    last.map(signed),
                ))?;
            }
            Change::SetCall { id, state } => {
                if state.is_final() {
                    return refuse(format!("`{state}` ends a call, which says when and why"));
                }
                one(self.set_call.execute((id.as_str(), state.as_str()))?, "open call", id)?;
            }
            Change::FinishCall(f) => {
                if !f.state.is_final() {
                    return refuse(format!("`{}` does not end a call", f.state));
                }
                let error = f.error.map(vambrace_core::ErrorCode::as_str);
                let row = (f.id.as_str(), f.state.as_str(), f.at.millis(), error, last.map(signed));
                one(self.finish_call.execute(row)?, "open call", &f.id)?;
            }
            Change::Event(e) => {
                self.event.execute((
                    e.call.as_str(),
                    e.ts.millis(),
                    e.phase.as_str(),
                    e.action.get(),
                    e.tool.get(),
                    text(e.policy.as_ref()),
                    text(e.verdict.as_ref()),
                    text(e.violation_type.as_ref()),
                    text(e.attempted_action.as_ref()),
                    e.status.as_str(),
                    e.error.map(vambrace_core::ErrorCode::as_str),
                    text(e.message.as_ref()),
                    e.attempt,
                    signed(e.duration_us),
                ))?;
            }
            Change::Violation(v) => {
                self.violation.execute((
                    v.ts.millis(),
                    v.session.as_str(),
                    v.call.as_ref().map(Id::as_str),
                    v.violation_type.get(),
                    text(v.target.as_ref()),
                ))?;
            }
            Change::Trust(t) => {
                let (project, digest) =
                    (t.project.as_bytes().as_slice(), t.digest.as_bytes().as_slice());
                self.trust.execute((project, t.path.get(), digest, t.by.get(), t.at.millis()))?;
            }
            Change::Untrust { project } => {
                self.untrust.execute([project.as_bytes().as_slice()])?;
            }
        }
        Ok(())
    }
}

fn text(text: Option<&Text>) -> Option<&str> {
    text.map(|text| text.get().as_str())
}

fn one(rows: usize, what: &str, id: &Id) -> Result<(), Refusal> {
    if rows == 1 { Ok(()) } else { refuse(format!("there is no {what} `{id}`")) }
}

fn refuse(why: String) -> Result<(), Refusal> {
    Err(Refusal::Store(StoreError::Conflict(why)))
}

/// SQLite counts in signed numbers; a chain of 2^63 records does not happen.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
