//! Completion: which process performs an approved call, and how the result reaches the caller. One protocol for changes of
//! files and for every other call, whoever decides and from whichever entry point.
//!
//! 1. A caller that waits stores its process with the approval request (`waiter`); it is removed when the wait ends.
//! 2. The process that decides looks for the caller.
//!    - The caller waits in a process that lives: the decision is committed, and that process performs. It has the context
//!      of the call: its output stream, its cancellation.
//!    - The caller repeats the call in this process as soon as it is approved ([`CallerPresence::Returns`]): the decision is
//!      committed, and the repeated call performs.
//!    - Otherwise the process that decides performs, if it holds the workspace: the decision, its use and the start are one
//!      commit, and the result is stored for the caller.
//!    - If it does not, the approval stays unused until a process that does repeats the call, or until it expires.
//! 3. **Performing begins with the use of the approval, in the transaction of the start record. An approval is used once**,
//!    so of several processes one performs; the others read its result.
//! 4. A waiting process that dies, whose configuration changed meanwhile, or that has not begun after [`HANDOVER_LIMIT`], is
//!    overtaken: the process that decided performs, by the same step. What is performed is judged by today's policy.
//! 5. The caller gets the result once: as the result of its own call if it performed, else the stored one, when it waits or
//!    repeats the call.
//!
//! A change whose caller waits in the process that decides is applied by the deciding task: the same process performs, with
//! one commit less.
//!
//! Not here: waiting (`await_decision.rs`), making decisions (`approve.rs`), and a change whose process died while applying
//! it (`recover.rs`).

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::principal::Provenance;
use vambrace_core::redacted::Redacted;
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, ApprovalWatch, ProposalState, StateChange,
};

use crate::approval_request::{NeededApproval, PipelineStop, RequestedCall};
use crate::approve::closes;
use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::call_result::{CallOutcome, CallResult, CleanOutput, FailureKind};
use crate::pending_call::resume;
use crate::pipeline::Purpose;

/// How long a waiting process may take to begin.
pub(crate) const HANDOVER_LIMIT: Duration = Duration::from_secs(5);
/// Polling interval while another process performs: it may die.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Where the caller of an approved call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerPresence {
    /// It waits somewhere, or is gone.
    Elsewhere,
    /// It is in this process, and gets the result of the approval or repeats the call.
    Returns,
}

/// Who gets the result of a call that this process performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultReceiver {
    /// The caller, from this process.
    Caller,
    /// The caller, later: the result is stored for it.
    Stored,
}

/// The process that performs a request once it is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Performer {
    /// This one.
    Here,
    /// The one in which the caller waits.
    Waiter(Id),
    /// The one in which the call is repeated.
    LaterCall,
}

impl Broker {
    /// Which process performs the request.
    pub(crate) fn performer(&self, row: &ApprovalRow<String>, caller: CallerPresence) -> Performer {
        let liveness = self.parts.store.approval_queries().liveness();
        let waiter = row.waiter.as_ref().filter(|process| liveness.is_alive(process));
        let own_change = |process: &Id| process == liveness.id() && row.kind == ApprovalKind::Change;
        match waiter {
            Some(process) if own_change(process) && self.can_perform(row) => Performer::Here,
            Some(process) => Performer::Waiter(process.clone()),
            None if caller == CallerPresence::Returns && row.kind == ApprovalKind::Call => {
                Performer::LaterCall
            }
            None if self.can_perform(row) => Performer::Here,
            None => Performer::LaterCall,
        }
    }

    /// Whether this process holds what the request needs: its tool, and for a change the files.
    pub(crate) fn can_perform(&self, row: &ApprovalRow<String>) -> bool {
        let parts = &self.parts;
        parts.catalogue.find(&row.tool).is_some()
            && (row.kind == ApprovalKind::Call || parts.tool_context.changes.applier.is_some())
    }

    /// Follows a request that was approved for another process, until that process has performed it or this one has.
    /// `None`: the caller gets the result, or no process performs it yet.
    pub(crate) async fn hand_over(
        &self,
        id: &Id,
        waiter: &Id,
        watch: &mut dyn ApprovalWatch,
    ) -> Result<Option<CallResult>, CallError> {
        let queries = self.parts.store.approval_queries();
        let begun = Instant::now();
        loop {
            let found = queries.approval(id.as_str()).await.map_err(|error| CallError::from(&error))?;
            let row = found.ok_or_else(|| {
                CallError::new(ErrorCode::ProposalNotFound, "the approval request no longer exists")
            })?;
            match (row.state, row.kind) {
                (ApprovalState::Approved, _) => {
                    // A waiter whose configuration is outdated no longer waits.
                    let stays = row.waiter.as_ref() == Some(waiter) && queries.liveness().is_alive(waiter);
                    let overdue = begun.elapsed() >= HANDOVER_LIMIT || !stays;
                    if overdue && !self.can_perform(&row) {
                        return Ok(None);
                    }
                    if overdue && let Some(result) = self.perform_approved(&row).await? {
                        return Ok(Some(result));
                    }
                }
                (ApprovalState::Used, ApprovalKind::Call) => return Ok(None),
                (ApprovalState::Used, ApprovalKind::Change) => {
                    if let Some(outcome) = self.stored_outcome(&row).await? {
                        return Ok(Some(self.result_of_other(&row, outcome).await?));
                    }
                }
                _ => return Err(self.unapproved_error(&row)),
            }
            watch.changed(POLL_INTERVAL).await;
        }
    }

    /// Performs a request that was approved earlier, for a caller that is not here. `None` if another process does.
    async fn perform_approved(&self, row: &ApprovalRow<String>) -> Result<Option<CallResult>, CallError> {
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        let mut record = CallRecord::reopen(self, &call, row);
        resume(self, &mut record, row).await?;
        match self.run_steps(call.raw, &mut record, Purpose::Run).await {
            Ok(clean) => Ok(Some(self.record_result(record, Ok(clean)).await)),
            Err(stop) => match self.lost_race(row, &record, stop).await? {
                None => Ok(None),
                Some(error) => {
                    if record.started.is_some() || closes(error.code) {
                        self.record_result(record, Err(error.clone())).await;
                    }
                    Err(error)
                }
            },
        }
    }

    /// Whether the policy of this broker is still that of the configuration.
    pub(crate) async fn has_current_policy(&self) -> bool {
        match &self.parts.policy_source {
            Some(source) => source.is_current().await,
            None => true,
        }
    }

    /// The error of an approved call that did not start; `None` if the reason is that another process performs it.
    pub(crate) async fn lost_race(
        &self,
        row: &ApprovalRow<String>,
        record: &CallRecord,
        stop: PipelineStop,
    ) -> Result<Option<CallError>, CallError> {
        let error = match stop {
            PipelineStop::Failed(error) => error,
            PipelineStop::Approval(_) => {
                CallError::new(ErrorCode::StaleBase, "the approved call needs another approval")
            }
        };
        if record.started.is_some() {
            return Ok(Some(error));
        }
        let now = self.parts.store.approval_queries().approval(row.id.as_str()).await;
        let now = now.map_err(|error| CallError::from(&error))?;
        Ok(now.is_none_or(|now| now.state == ApprovalState::Approved).then_some(error))
    }

    /// A repeated call that used an approval a moment too late waits for the result of the process that performs.
    pub(crate) async fn unless_lost(&self, record: &CallRecord, stop: PipelineStop) -> PipelineStop {
        let (Some(id), Some(_), None, PipelineStop::Failed(error)) =
            (&record.hitl, &record.approval, &record.started, &stop)
        else {
            return stop;
        };
        match self.parts.store.approval_queries().approval(id.as_str()).await {
            Ok(Some(row)) if row.state != ApprovalState::Approved => {
                PipelineStop::Approval(NeededApproval::Open(Box::new(row)))
            }
            _ => PipelineStop::Failed(error.clone()),
        }
    }

    /// The stored result of a request whose approval was used; `None` while a process performs it.
    pub(crate) async fn stored_outcome(
        &self,
        row: &ApprovalRow<String>,
    ) -> Result<Option<CallOutcome>, CallError> {
        let queries = self.parts.store.approval_queries();
        let alive =
            |process: Option<&Id>| process.is_some_and(|process| queries.liveness().is_alive(process));
        if row.kind == ApprovalKind::Call {
            let kept =
                queries.call_outcome(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
            return match kept {
                Some(kept) => self.unseal_outcome(row, &kept).map(Some),
                None if !row.delivered && alive(row.performer.as_ref()) => Ok(None),
                None => Ok(Some(self.lost_outcome(row))),
            };
        }
        let change = queries.proposal(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let change =
            change.ok_or_else(|| CallError::new(ErrorCode::Internal, "the proposal no longer exists"))?;
        if change.state == ProposalState::Applying {
            if !alive(change.life.as_ref()) {
                self.recover().await?;
            }
            return Ok(None);
        }
        if let Some(undone) = self.rollback_outcome(&change).await? {
            return Ok(Some(undone));
        }
        let damaged = CallError::new(ErrorCode::OutcomeUnknown, "the outcome of the proposal cannot be read");
        let kept = change.outcome.as_ref().ok_or(damaged)?;
        self.unseal_outcome(row, kept).map(Some)
    }

    /// A call that was performed, without a result for this caller: another call got it, or its process died.
    fn lost_outcome(&self, row: &ApprovalRow<String>) -> CallOutcome {
        let (error, failure) = if row.delivered {
            let why = "the approval of this call was used already";
            (CallError::new(ErrorCode::ProposalUsed, why), FailureKind::Denied)
        } else {
            let why = "the process that performed the approved call ended before it recorded the result";
            (CallError::new(ErrorCode::OutcomeUnknown, why), FailureKind::Error)
        };
        CallOutcome::Failed { error, failure }
    }

    fn unseal_outcome(
        &self,
        row: &ApprovalRow<String>,
        kept: &vambrace_store::SealedBlob,
    ) -> Result<CallOutcome, CallError> {
        let damaged = || CallError::new(ErrorCode::OutcomeUnknown, "the stored outcome cannot be read");
        let sealer = self.parts.store.approval_queries().blob_sealer();
        let bytes = sealer.unseal(row.id.as_str(), kept).ok_or_else(damaged)?;
        let stored: Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let text = |from: Option<&Value>, key: &str| {
            from.and_then(|from| from.get(key)).and_then(Value::as_str).map(str::to_owned)
        };
        if let Some(error) = stored.get("error") {
            let word = text(Some(error), "code").unwrap_or_default();
            let code = ErrorCode::ALL.iter().copied().find(|code| code.as_str() == word);
            let message = text(Some(error), "message").unwrap_or_default();
            let error = CallError::new(code.unwrap_or(ErrorCode::Internal), message)
                .suggest(text(Some(error), "suggestion").unwrap_or_default());
            return Ok(CallOutcome::Failed { error, failure: FailureKind::Error });
        }
        let clean = |value: Option<&Value>| {
            Redacted::json(value.cloned().unwrap_or_default(), &*self.parts.redactor).map_err(redactor_failed)
        };
        let clean_text = |text: String| Redacted::text(&text, &*self.parts.redactor).map_err(redactor_failed);
        let redactions = stored.get("redactions").and_then(Value::as_u64).unwrap_or(0);
        let redactions = u32::try_from(redactions).unwrap_or(u32::MAX);
        Ok(CallOutcome::Completed(Box::new(CleanOutput {
            data: clean(stored.get("data"))?.add_count(redactions),
            details: clean(stored.get("details"))?.into_inner(),
            text: text(Some(&stored), "text").map(clean_text).transpose()?,
            note: text(Some(&stored), "note"),
            provenance: stored_provenance(text(Some(&stored), "provenance").as_deref()),
            truncated: stored.get("truncated").and_then(Value::as_bool).unwrap_or(false),
        })))
    }

    /// The stored form of a result.
    pub(crate) fn outcome_json(output: &CleanOutput) -> Value {
        json!({
            "data": output.data.get(), "details": output.details, "text": output.text.as_ref().map(|text| text.get()),
            "note": output.note, "provenance": output.provenance.kind(), "truncated": output.truncated,
            "redactions": output.data.count(),
        })
    }

    /// The stored form of an error.
    pub(crate) fn error_json(error: &CallError) -> Value {
        json!({"error": {
            "code": error.code.as_str(), "message": error.message, "suggestion": error.suggestion,
        }})
    }

    /// Stores the result of an approved call whose caller is not here.
    pub(crate) fn call_outcome_change(
        &self,
        record: &CallRecord,
        outcome: impl FnOnce() -> Value,
    ) -> Result<Option<StateChange>, CallError> {
        let id = record.stored_for.clone().or_else(|| record.stored_result_id());
        let Some(id) = id else { return Ok(None) };
        let outcome = self.seal(id.as_str(), outcome().to_string().as_bytes())?;
        Ok(Some(ApprovalChange::CallOutcome { id, outcome }.into()))
    }

    /// The result, for the approver, of a change that another process applied.
    async fn result_of_other(
        &self,
        row: &ApprovalRow<String>,
        outcome: CallOutcome,
    ) -> Result<CallResult, CallError> {
        let queries = self.parts.store.approval_queries();
        let call = RequestedCall::of(row, queries)?;
        let change = queries.proposal(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let mut record = CallRecord::reopen(self, &call, row);
        record.operation = change.map(|change| ("fs.apply_patch".into(), Some(change.path)));
        Ok(self.result_for_request(record, row, outcome, None))
    }

    /// Why a request was not performed.
    pub(crate) fn unapproved_error(&self, row: &ApprovalRow<String>) -> CallError {
        match row.state {
            ApprovalState::Rejected => {
                let reason = row.decision.as_ref().and_then(|decided| decided.reason.as_deref());
                let why = match reason {
                    Some(reason) => format!("rejected by the user: {reason}"),
                    None => "rejected by the user".to_owned(),
                };
                CallError::new(ErrorCode::ApprovalRejected, why)
            }
            ApprovalState::Stale => CallError::new(
                ErrorCode::StaleBase,
                "the files changed before it could be applied, or a rule denies it now",
            ),
            ApprovalState::Used => {
                CallError::new(ErrorCode::ProposalUsed, "the approval of this call was used already")
            }
            ApprovalState::Expired | ApprovalState::Pending | ApprovalState::Approved => {
                CallError::new(ErrorCode::ApprovalTimeout, "Approval timeout: nobody decided in time")
            }
        }
    }
}

/// Results of older programs name no provenance: they were those of changes.
fn stored_provenance(word: Option<&str>) -> Provenance {
    let known =
        [Provenance::File, Provenance::Listing, Provenance::Web, Provenance::Program, Provenance::Broker];
    match word {
        None => Provenance::Broker,
        // An unknown word is untrusted.
        Some(word) => known.into_iter().find(|known| known.kind() == word).unwrap_or(Provenance::Web),
    }
}
