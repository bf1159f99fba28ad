//! The statements that write. Each is prepared when first needed and cached by its connection.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params};
use vambrace_ledger::{ChainHead, Id, Payload, RedactedText};

use crate::batch::StateChange;
use crate::error::StoreError;
use crate::{call, payload, read_pool, session, timeline_event, trust, violation};

/// Statement cache size of a write connection.
pub(crate) const CACHED_STATEMENTS: usize = 64;

/// Every statement of a writer, by its index in [`SQL`].
#[derive(Debug, Clone, Copy)]
enum Statement {
    Begin,
    Commit,
    Savepoint,
    Release,
    Undo,
    Head,
    Append,
    OpenSession,
    SetSession,
    RequireSession,
    RequireCallRate,
    InsertCall,
    SetCall,
    FinishCall,
    Event,
    Violation,
    Trust,
    Untrust,
    Payload,
    Forget,
}

const SQL: [&str; 20] = [
    "BEGIN IMMEDIATE",
    "COMMIT",
    "SAVEPOINT batch",
    "RELEASE batch",
    "ROLLBACK TO batch",
    read_pool::NEWEST_RECORD,
    "INSERT INTO ledger (seq, line) VALUES (?1, ?2)",
    session::INSERT,
    session::SET,
    session::OPEN,
    call::RECENT,
    call::INSERT,
    call::SET,
    call::FINISH,
    timeline_event::INSERT,
    violation::INSERT,
    trust::SET,
    trust::REMOVE,
    payload::INSERT,
    payload::FORGET,
];

/// The statements of one group: looked up once, however many batches use them.
pub(crate) struct Statements<'c> {
    connection: &'c Connection,
    ready: [Option<CachedStatement<'c>>; SQL.len()],
}

/// A statement failed, or the state does not allow the change.
#[derive(Debug)]
pub(crate) enum StatementError {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for StatementError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl<'c> Statements<'c> {
    pub(crate) fn of(connection: &'c Connection) -> Self {
        Self { connection, ready: [const { None }; SQL.len()] }
    }

    fn get(&mut self, statement: Statement) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let index = statement as usize;
        let (Some(slot), Some(sql)) = (self.ready.get_mut(index), SQL.get(index)) else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        match slot {
            Some(statement) => Ok(statement),
            empty => Ok(empty.insert(self.connection.prepare_cached(sql)?)),
        }
    }

    fn execute(&mut self, statement: Statement, parameters: impl Params) -> rusqlite::Result<usize> {
        self.get(statement)?.execute(parameters)
    }

    pub(crate) fn begin(&mut self) -> rusqlite::Result<()> {
        self.execute(Statement::Begin, ()).map(drop)
    }

    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        self.execute(Statement::Commit, ()).map(drop)
    }

    pub(crate) fn savepoint(&mut self) -> rusqlite::Result<()> {
        self.execute(Statement::Savepoint, ()).map(drop)
    }

    pub(crate) fn release(&mut self) -> rusqlite::Result<()> {
        self.execute(Statement::Release, ()).map(drop)
    }

    /// Rolls back to the savepoint and removes it.
    pub(crate) fn undo(&mut self) -> rusqlite::Result<()> {
        self.execute(Statement::Undo, ())?;
        self.release()
    }

    pub(crate) fn head(&mut self) -> Result<ChainHead, StatementError> {
        let head = self.get(Statement::Head)?.query_row((), read_pool::head).optional()?;
        let damaged = || StatementError::Store(StoreError::Io("the newest record is damaged".to_owned()));
        head.unwrap_or(Some(ChainHead::EMPTY)).ok_or_else(damaged)
    }

    pub(crate) fn append(&mut self, seq: u64, line: &str) -> rusqlite::Result<()> {
        self.execute(Statement::Append, (signed(seq), line)).map(drop)
    }

    /// Stores a payload that a record has beside the chain.
    pub(crate) fn payload(&mut self, seq: u64, payload: &Payload) -> rusqlite::Result<()> {
        let row = (signed(seq), payload.field, payload.salt.as_slice(), payload.content.as_slice());
        self.execute(Statement::Payload, row).map(drop)
    }

    /// Applies one change. `first` and `last` are the records of its batch.
    pub(crate) fn change(
        &mut self,
        change: &StateChange,
        first: Option<u64>,
        last: Option<u64>,
    ) -> Result<(), StatementError> {
        match change {
            StateChange::OpenSession(s) => {
                let names = (s.user.get(), s.agent.get(), s.role.get(), s.project.get());
                let (user, agent, role, project) = names;
                let (opened, changed) = (s.opened.millis(), s.changed.millis());
                let state = s.state.as_str();
                let row = (s.id.as_str(), user, agent, role, project, state, opened, changed);
                self.execute(Statement::OpenSession, row)?;
            }
            StateChange::SetSession { id, state, at } => {
                let rows = self.execute(Statement::SetSession, (id.as_str(), state.as_str(), at.millis()))?;
                one(rows, "session", id)?;
            }
            StateChange::RequireSession { id } => {
                let open = self.get(Statement::RequireSession)?.exists((id.as_str(),))?;
                one(usize::from(open), "open session", id)?;
            }
            StateChange::RequireCallRate { session, tool, since, limit } => {
                let recent = (session.as_str(), tool.get(), since.millis());
                let count: i64 = self.get(Statement::RequireCallRate)?.query_row(recent, |row| row.get(0))?;
                if count >= i64::from(*limit) {
                    return conflict(format!("the limit of {limit} calls of `{}` is reached", tool.get()));
                }
            }
            StateChange::InsertCall(c) => {
                self.execute(
                    Statement::InsertCall,
                    (
                        c.id.as_str(),
                        c.session.as_str(),
                        c.tool.get(),
                        c.state.as_str(),
                        c.started.millis(),
                        c.counted,
                        c.plan_digest.as_ref().map(|digest| digest.as_bytes().as_slice()),
                        c.finished.map(vambrace_ledger::Timestamp::millis),
                        text(c.error.as_ref()),
                        c.first_seq.or(first).map(signed),
                        last.map(signed),
                        timeline_event::in_row(&c.events),
                    ),
                )?;
            }
            StateChange::SetCall { id, state } => {
                if state.is_final() {
                    return conflict(format!("`{state}` is a final state; finish the call instead"));
                }
                one(self.execute(Statement::SetCall, (id.as_str(), state.as_str()))?, "open call", id)?;
            }
            StateChange::FinishCall(f) => {
                if !f.state.is_final() {
                    return conflict(format!("`{}` is not a final state", f.state));
                }
                let error = f.error.map(vambrace_core::ErrorCode::as_str);
                let row = (f.id.as_str(), f.state.as_str(), f.at.millis(), error, last.map(signed));
                one(self.execute(Statement::FinishCall, row)?, "open call", &f.id)?;
            }
            StateChange::Event(e) => {
                self.execute(
                    Statement::Event,
                    (
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
                    ),
                )?;
            }
            StateChange::Violation(v) => {
                self.execute(
                    Statement::Violation,
                    (
                        v.ts.millis(),
                        v.session.as_str(),
                        v.call.as_ref().map(Id::as_str),
                        v.violation_type.get(),
                        text(v.target.as_ref()),
                    ),
                )?;
            }
            StateChange::Trust(t) => {
                let (project, digest) = (t.project.as_bytes().as_slice(), t.digest.as_bytes().as_slice());
                self.execute(Statement::Trust, (project, t.path.get(), digest, t.by.get(), t.at.millis()))?;
            }
            StateChange::ForgetPayload { seq, field } => {
                let rows = self.execute(Statement::Forget, (signed(*seq), field))?;
                if rows != 1 {
                    return conflict(format!("record {seq} has no payload `{field}`"));
                }
            }
            StateChange::Approval(change) => crate::approvals::apply(self.connection, change)?,
            StateChange::Untrust { project } => {
                self.execute(Statement::Untrust, [project.as_bytes().as_slice()])?;
            }
        }
        Ok(())
    }
}

fn text(text: Option<&RedactedText>) -> Option<&str> {
    text.map(|text| text.get().as_str())
}

fn one(rows: usize, what: &str, id: &Id) -> Result<(), StatementError> {
    if rows == 1 { Ok(()) } else { conflict(format!("there is no {what} `{id}`")) }
}

pub(crate) fn conflict(why: String) -> Result<(), StatementError> {
    Err(StatementError::Store(StoreError::Conflict(why)))
}

/// SQLite integers are signed; a chain of 2^63 records does not occur.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
