//! A flood of questions pauses the session (T25): people who are asked too often agree to everything. Counted are the
//! questions of the last minute that nobody agreed to, since the session was last resumed; whoever gets answers may ask on.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Level, SessionChange};
use vambrace_store::{AskChange, Batch, Change, Entry};

use crate::admit::MINUTE_MS;
use crate::broker::Broker;
use crate::trail::Trail;

impl Broker {
    /// What must hold when a further question is put.
    pub(crate) async fn calm(&self, session: &Id, now: Timestamp) -> Result<AskChange, CallError> {
        let row =
            self.parts.store.session(session.as_str()).await.map_err(|error| CallError::from(&error))?;
        let minute = now.earlier(MINUTE_MS);
        let since = row.map_or(minute, |row| row.changed.max(minute));
        Ok(AskChange::RequireCalm { session: session.clone(), since, limit: self.parts.asking.flood_limit })
    }

    /// Whether it does not hold.
    pub(crate) async fn is_flooded(&self, calm: &AskChange) -> Result<bool, CallError> {
        let AskChange::RequireCalm { session, since, limit } = calm else { return Ok(false) };
        let count = self.parts.store.questions().unanswered(session.as_str(), *since).await;
        Ok(count.map_err(|error| CallError::from(&error))? >= u64::from(*limit))
    }

    /// Pauses the session, on record; what its caller is told.
    pub(crate) async fn pause(&self, trail: &Trail) -> Result<CallError, CallError> {
        let now = self.parts.clock.now();
        let mut entry = Entry::session(SessionChange::Suspended, trail.session.clone(), now);
        entry.level = Level::Critical;
        entry.user = Some(self.text(&trail.principal.user)?);
        entry.agent_id = Some(self.text(&trail.principal.agent)?);
        let why =
            format!("{} questions within a minute that nobody agreed to", self.parts.asking.flood_limit);
        entry.message = Some(self.text(&format!("a flood of questions: {why}"))?);
        let pause = Change::SetSession { id: trail.session.clone(), state: SessionState::Suspended, at: now };
        self.remember(&trail.session, None);
        let committed = self.parts.store.commit(Batch::durable(vec![entry], vec![pause])).await;
        committed.map_err(|error| CallError::from(&error))?;
        let why = format!("session `{}` is paused: {why}", trail.session);
        Ok(CallError::new(ErrorCode::SessionSuspended, why)
            .suggest("stop asking; the user looks at it and lifts it with `vambrace session resume`"))
    }
}
