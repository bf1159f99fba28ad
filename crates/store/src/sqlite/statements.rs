//! The statements that write. Each is prepared when first needed and cached by its connection.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, Row};
use vambrace_ledger::{ChainHead, Id, Payload, RedactedText};

use crate::batch::StateChange;
use crate::error::StoreError;
use crate::record_id::RecordId;
use crate::session_owner::SessionOwner;
use crate::sqlite::approval_transitions;
use crate::sqlite::rows::{call, payload, record, session, signed, timeline_event, trust, violation};

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
    record::NEWEST,
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

/// The first and last record of a batch, and the writer of their chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchRecords<'a> {
    pub(crate) writer: &'a Id,
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
}

impl BatchRecords<'_> {
    /// The number of a record, which must be in the chain of this store.
    fn own_seq(self, record: &RecordId) -> Result<u64, StatementError> {
        if record.writer == *self.writer {
            return Ok(record.seq);
        }
        let why = format!("record `{record}` is not in the chain of `{}`", self.writer);
        Err(StatementError::Store(StoreError::Conflict(why)))
    }
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
        let head = self.get(Statement::Head)?.query_row((), record::head).optional()?;
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

    /// Applies one change of a batch with these records.
    pub(crate) fn change(
        &mut self,
        change: &StateChange,
        records: BatchRecords<'_>,
    ) -> Result<(), StatementError> {
        match change {
            StateChange::OpenSession(s) => {
                let names = (s.user.get(), s.agent.get(), s.role.get(), s.project.get());
                let (user, agent, role, project) = names;
                let (opened, changed) = (s.opened.millis(), s.changed.millis());
                let state = s.state.as_str();
                let row = (s.id.as_str(), user, agent, role, project, state, opened, changed, s.tenant.get());
                self.execute(Statement::OpenSession, row)?;
            }
            StateChange::SetSession { id, owner, state, at } => {
                let [tenant, user, project] = owner.columns();
                let row = (id.as_str(), state.as_str(), at.millis(), tenant, user, project);
                let rows = self.execute(Statement::SetSession, row)?;
                if rows == 0 && self.connection.prepare_cached(session::BY_ID)?.exists([id.as_str()])? {
                    return Err(StatementError::Store(StoreError::ForeignSession(id.clone())));
                }
                one(rows, "session", id)?;
            }
            StateChange::RequireSession { id, owner } => {
                let open = self.get(Statement::RequireSession)?;
                match open.query_row([id.as_str()], |row| is_owner(owner, row)).optional()? {
                    None => return conflict(format!("there is no open session `{id}`")),
                    Some(false) => {
                        return Err(StatementError::Store(StoreError::ForeignSession(id.clone())));
                    }
                    Some(true) => {}
                }
            }
            StateChange::RequireCallRate { session, tool, since, limit } => {
                let recent = (session.as_str(), tool.get(), since.millis());
                let count: i64 = self.get(Statement::RequireCallRate)?.query_row(recent, |row| row.get(0))?;
                if count >= i64::from(*limit) {
                    return conflict(format!("the limit of {limit} calls of `{}` is reached", tool.get()));
                }
            }
            StateChange::InsertCall(c) => {
                let first = match &c.first_record {
                    Some(record) => Some(records.own_seq(record)?),
                    None => records.first,
                };
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
                        first.map(signed),
                        records.last.map(signed),
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
                let row = (f.id.as_str(), f.state.as_str(), f.at.millis(), error, records.last.map(signed));
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
            StateChange::ForgetPayload { record, field } => {
                let seq = records.own_seq(record)?;
                let rows = self.execute(Statement::Forget, (signed(seq), field))?;
                if rows != 1 {
                    return conflict(format!("record {seq} has no payload `{field}`"));
                }
            }
            StateChange::Approval(change) => approval_transitions::apply(self.connection, change)?,
            StateChange::Untrust { project } => {
                self.execute(Statement::Untrust, [project.as_bytes().as_slice()])?;
            }
        }
        Ok(())
    }
}

fn is_owner(owner: &SessionOwner, row: &Row<'_>) -> rusqlite::Result<bool> {
    Ok(row.get_ref(0)?.as_str()? == owner.tenant.get()
        && row.get_ref(1)?.as_str()? == owner.user.get()
        && row.get_ref(2)?.as_str()? == owner.project.get())
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
