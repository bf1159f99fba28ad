//! The statements that write. Each is prepared when first needed and kept by its connection.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params};
use vambrace_ledger::{Head, Id, Payload, Text};

use crate::batch::Change;
use crate::error::StoreError;
use crate::{call, event, payload, read, session, trust, violation};

/// How many statements a writing connection has to keep.
pub(crate) const KEPT: usize = 64;

/// Every statement of a writer, by its place in [`SQL`].
#[derive(Debug, Clone, Copy)]
enum Which {
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
    RequirePace,
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
    read::NEWEST_RECORD,
    "INSERT INTO ledger (seq, line) VALUES (?1, ?2)",
    session::INSERT,
    session::SET,
    session::OPEN,
    call::RECENT,
    call::INSERT,
    call::SET,
    call::FINISH,
    event::INSERT,
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
    pub(crate) fn of(connection: &'c Connection) -> Self {
        Self { connection, ready: [const { None }; SQL.len()] }
    }

    fn get(&mut self, which: Which) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let place = which as usize;
        let (Some(slot), Some(sql)) = (self.ready.get_mut(place), SQL.get(place)) else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        match slot {
            Some(statement) => Ok(statement),
            empty => Ok(empty.insert(self.connection.prepare_cached(sql)?)),
        }
    }

    fn execute(&mut self, which: Which, parameters: impl Params) -> rusqlite::Result<usize> {
        self.get(which)?.execute(parameters)
    }

    pub(crate) fn begin(&mut self) -> rusqlite::Result<()> {
        self.execute(Which::Begin, ()).map(drop)
    }

    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        self.execute(Which::Commit, ()).map(drop)
    }

    pub(crate) fn savepoint(&mut self) -> rusqlite::Result<()> {
        self.execute(Which::Savepoint, ()).map(drop)
    }

    pub(crate) fn release(&mut self) -> rusqlite::Result<()> {
        self.execute(Which::Release, ()).map(drop)
    }

    /// Back to the savepoint, which is gone afterwards.
    pub(crate) fn undo(&mut self) -> rusqlite::Result<()> {
        self.execute(Which::Undo, ())?;
        self.release()
    }

    pub(crate) fn head(&mut self) -> Result<Head, Refusal> {
        let head = self.get(Which::Head)?.query_row((), read::head).optional()?;
        let damaged = || Refusal::Store(StoreError::Io("the newest record is damaged".to_owned()));
        head.unwrap_or(Some(Head::EMPTY)).ok_or_else(damaged)
    }

    pub(crate) fn append(&mut self, seq: u64, line: &str) -> rusqlite::Result<()> {
        self.execute(Which::Append, (signed(seq), line)).map(drop)
    }

    /// Keeps what a record has beside the chain.
    pub(crate) fn payload(&mut self, seq: u64, payload: &Payload) -> rusqlite::Result<()> {
        let row = (signed(seq), payload.field, payload.salt.as_slice(), payload.content.as_slice());
        self.execute(Which::Payload, row).map(drop)
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
                self.execute(Which::OpenSession, row)?;
            }
            Change::SetSession { id, state, at } => {
                let rows = self.execute(Which::SetSession, (id.as_str(), state.as_str(), at.millis()))?;
                one(rows, "session", id)?;
            }
            Change::RequireSession { id } => {
                let open = self.get(Which::RequireSession)?.exists((id.as_str(),))?;
                one(usize::from(open), "open session", id)?;
            }
            Change::RequirePace { session, tool, since, limit } => {
                let recent = (session.as_str(), tool.get(), since.millis());
                let count: i64 = self.get(Which::RequirePace)?.query_row(recent, |row| row.get(0))?;
                if count >= i64::from(*limit) {
                    return refuse(format!("{limit} calls of `{}` are the limit", tool.get()));
                }
            }
            Change::InsertCall(c) => {
                self.execute(
                    Which::InsertCall,
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
                        event::in_row(&c.events),
                    ),
                )?;
            }
            Change::SetCall { id, state } => {
                if state.is_final() {
                    return refuse(format!("`{state}` ends a call, which says when and why"));
                }
                one(self.execute(Which::SetCall, (id.as_str(), state.as_str()))?, "open call", id)?;
            }
            Change::FinishCall(f) => {
                if !f.state.is_final() {
                    return refuse(format!("`{}` does not end a call", f.state));
                }
                let error = f.error.map(vambrace_core::ErrorCode::as_str);
                let row = (f.id.as_str(), f.state.as_str(), f.at.millis(), error, last.map(signed));
                one(self.execute(Which::FinishCall, row)?, "open call", &f.id)?;
            }
            Change::Event(e) => {
                self.execute(
                    Which::Event,
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
            Change::Violation(v) => {
                self.execute(
                    Which::Violation,
                    (
                        v.ts.millis(),
                        v.session.as_str(),
                        v.call.as_ref().map(Id::as_str),
                        v.violation_type.get(),
                        text(v.target.as_ref()),
                    ),
                )?;
            }
            Change::Trust(t) => {
                let (project, digest) = (t.project.as_bytes().as_slice(), t.digest.as_bytes().as_slice());
                self.execute(Which::Trust, (project, t.path.get(), digest, t.by.get(), t.at.millis()))?;
            }
            Change::ForgetPayload { seq, field } => {
                let rows = self.execute(Which::Forget, (signed(*seq), field))?;
                if rows != 1 {
                    return refuse(format!("record {seq} has no payload `{field}`"));
                }
            }
            Change::Ask(change) => crate::ask::make(self.connection, change)?,
            Change::Untrust { project } => {
                self.execute(Which::Untrust, [project.as_bytes().as_slice()])?;
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

pub(crate) fn refuse(why: String) -> Result<(), Refusal> {
    Err(Refusal::Store(StoreError::Conflict(why)))
}

/// SQLite counts in signed numbers; a chain of 2^63 records does not happen.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
