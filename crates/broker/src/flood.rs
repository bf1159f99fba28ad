//! A flood of approval requests suspends the session (T25): people who are asked too often approve everything. Counts
//! the requests of the last minute that were not approved, since the session was last resumed; a session whose
//! requests are approved may continue.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::session::SessionState;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{RecordLevel, SessionChange};
use vambrace_store::{ApprovalChange, Batch, Entry, OwnerFilter, StateChange};

use crate::admit::MINUTE_MS;
use crate::broker::Broker;
use crate::call_record::CallRecord;

impl Broker {
    /// The store's precondition for another approval request.
    pub(crate) async fn flood_precondition(
        &self,
        session: &Id,
        now: Timestamp,
    ) -> Result<ApprovalChange, CallError> {
        let row =
            self.parts.store.session(session.as_str()).await.map_err(|error| CallError::from(&error))?;
        let minute = now.earlier(MINUTE_MS);
        let since = row.map_or(minute, |row| row.changed.max(minute));
        Ok(ApprovalChange::RequireUnapprovedBelow {
            session: session.clone(),
            since,
            limit: self.parts.approvals.flood_limit,
        })
    }

    /// Whether that precondition fails.
    pub(crate) async fn is_flooded(&self, precondition: &ApprovalChange) -> Result<bool, CallError> {
        let ApprovalChange::RequireUnapprovedBelow { session, since, limit } = precondition else {
            return Ok(false);
        };
        let count = self.parts.store.approval_queries().unapproved_since(session.as_str(), *since).await;
        Ok(count.map_err(|error| CallError::from(&error))? >= u64::from(*limit))
    }

    /// Suspends the session, with a ledger record; returns the error for its caller.
    pub(crate) async fn suspend_session(&self, record: &CallRecord) -> Result<CallError, CallError> {
        let now = self.parts.clock.now();
        let mut entry = Entry::session(SessionChange::Suspended, record.session.clone(), now);
        entry.level = RecordLevel::Critical;
        entry.user = Some(self.text(&record.principal.user)?);
        entry.agent_id = Some(self.text(&record.principal.agent)?);
        let why = format!(
            "{} approval requests within a minute were not approved",
            self.parts.approvals.flood_limit
        );
        entry.message = Some(self.text(&format!("a flood of approval requests: {why}"))?);
        let suspend = StateChange::SetSession {
            id: record.session.clone(),
            owner: OwnerFilter::Owner(self.session_owner(&record.principal)?.stored()),
            state: SessionState::Suspended,
            at: now,
        };
        self.cache_state(&record.session, &record.principal, None);
        let committed = self.parts.store.commit(Batch::durable(vec![entry], vec![suspend])).await;
        committed.map_err(|error| CallError::from(&error))?;
        let why = format!("session `{}` is suspended: {why}", record.session);
        Ok(CallError::new(ErrorCode::SessionSuspended, why)
            .suggest("stop calling; the user can resume it with `vambrace session resume`"))
    }
}
