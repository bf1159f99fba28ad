//! Opens an approval request and waits for its decision. The caller waits as long as it wants, or takes the id and
//! repeats the call later; both ways it gets the outcome of the same record. A wait that ends without a decision, also
//! because the call was cancelled, leaves the request open. `completion.rs` has the protocol after a decision.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::Redacted;
use vambrace_core::risk::RiskLevel;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalRow, ApprovalState, Batch, ProposalRow, ProposalState, StateChange,
};

use crate::approval_request::{
    ApproverAvailability, DecisionWait, NeededApproval, RequestedCall, WaitProgress, seconds_left,
};
use crate::approval_view::{describe, display_data, expire};
use crate::approve::closes;
use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::call_result::{CallOutcome, CallResult, FailureKind, PendingApproval};
use crate::cleanse::Clean;
use crate::completion::HANDOVER_LIMIT;
use crate::pending_call::resume;
use crate::pipeline::Purpose;

type PendingRow = ApprovalRow<String>;

impl Broker {
    /// Opens the approval request of a call where none is open, waits for its decision, and records the end.
    pub(crate) async fn await_decision(
        &self,
        needed: NeededApproval,
        mut record: CallRecord,
        wait: &DecisionWait,
    ) -> CallResult {
        let row = match needed {
            NeededApproval::Open(row) => Ok((*row, None)),
            NeededApproval::New(_) if self.parts.approvals.approver == ApproverAvailability::Unavailable => {
                Err(no_approver())
            }
            NeededApproval::New(request) => self.open_request(&record, *request, wait).await,
        };
        let (row, receipt) = match row {
            Ok(row) => row,
            Err(error) => return self.record_result(record, Err(error)).await,
        };
        record.call = row.call.clone();
        record.hitl = Some(row.id.clone());
        let end = self.wait_for_decision(&row, &mut record, wait).await;
        if matches!(end, Ok(WaitEnd::Open(_)) | Err(_)) {
            self.stop_waiting(&row, wait).await;
        }
        match end {
            Ok(WaitEnd::Performed(clean)) => self.record_result(record, Ok(*clean)).await,
            Ok(WaitEnd::Failed(error)) => self.record_result(record, Err(error)).await,
            Ok(WaitEnd::Decided(outcome)) => self.deliver(record, &row, *outcome, Delivery::Final).await,
            // The request's own ledger record reports that it is pending.
            Ok(WaitEnd::Open(outcome)) if receipt.is_some() => {
                self.result_for_request(record, &row, *outcome, receipt)
            }
            Ok(WaitEnd::Open(outcome)) => self.deliver(record, &row, *outcome, Delivery::Open).await,
            Err(error) => {
                let outcome = CallOutcome::Failed { error, failure: FailureKind::Error };
                self.deliver(record, &row, outcome, Delivery::Open).await
            }
        }
    }

    /// Waits until the request is decided, the caller's wait is over or cancelled, or the request expires. If the request
    /// is approved, this process performs, unless another one does.
    async fn wait_for_decision(
        &self,
        row: &PendingRow,
        record: &mut CallRecord,
        wait: &DecisionWait,
    ) -> Result<WaitEnd, CallError> {
        let queries = self.parts.store.approval_queries();
        // Subscribe before the first read, so that no change is missed.
        let mut watch = wait.max_wait.map(|_| queries.notifier().watch());
        if watch.is_some() && row.state == ApprovalState::Pending {
            self.announce_wait(row, wait).await;
        }
        let begun = Instant::now();
        let (mut expired, mut approved_since) = (false, None);
        loop {
            let found = queries.approval(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
            let row = found.ok_or_else(|| {
                CallError::new(ErrorCode::ProposalNotFound, "the approval request no longer exists")
            })?;
            let now = self.parts.clock.now();
            match row.state {
                ApprovalState::Pending | ApprovalState::Approved if now >= row.expires && !expired => {
                    expired = true;
                    self.expire(&row).await?;
                    continue;
                }
                ApprovalState::Pending if now < row.expires => {}
                ApprovalState::Approved if now < row.expires => {
                    let since: Instant = *approved_since.get_or_insert_with(Instant::now);
                    let theirs = self.is_other_waiter(&row) && since.elapsed() < HANDOVER_LIMIT;
                    if !self.has_current_policy().await {
                        // The configuration changed during the wait: the process that decided has the new one, and performs.
                        self.stop_waiting(&row, wait).await;
                    } else if !theirs && self.can_perform(&row) {
                        match self.perform_for_caller(&row, record).await? {
                            Some(end) => return Ok(end),
                            // Another process performs it.
                            None => continue,
                        }
                    }
                }
                ApprovalState::Used => {
                    if let Some(outcome) = self.stored_outcome(&row).await? {
                        return Ok(WaitEnd::decided(outcome));
                    }
                }
                _ => {
                    let (error, failure) = (self.unapproved_error(&row), FailureKind::Denied);
                    return Ok(WaitEnd::decided(CallOutcome::Failed { error, failure }));
                }
            }
            let left = wait.max_wait.and_then(|max_wait| max_wait.checked_sub(begun.elapsed()));
            let (Some(watch), Some(left)) = (watch.as_mut(), left.filter(|left| !left.is_zero())) else {
                return self.pending_outcome(&row).await.map(WaitEnd::open);
            };
            if let Some(on_waiting) = &wait.on_waiting {
                on_waiting(&WaitProgress::of(&row, now));
            }
            let until = (row.expires.millis() - now.millis()).max(1).unsigned_abs();
            let cancel = record.context.cancel.clone();
            tokio::select! {
                () = watch.changed(left.min(Duration::from_millis(until))) => {}
                () = cancel.cancelled() => return self.pending_outcome(&row).await.map(WaitEnd::open),
            }
        }
    }

    /// Performs an approved request as the call of its caller. `None` if another process does.
    async fn perform_for_caller(
        &self,
        row: &PendingRow,
        record: &mut CallRecord,
    ) -> Result<Option<WaitEnd>, CallError> {
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        resume(self, record, row).await?;
        match self.run_steps(call.raw, record, Purpose::Run).await {
            Ok(clean) => Ok(Some(WaitEnd::Performed(Box::new(clean)))),
            Err(stop) => match self.lost_race(row, record, stop).await? {
                // What may succeed later does not use up the approval.
                Some(error) if record.started.is_none() && !closes(error.code) => Err(error),
                lost => Ok(lost.map(WaitEnd::Failed)),
            },
        }
    }

    /// A caller waits: names this process as the one that performs, and extends the short deadline of a proposal to the
    /// deadline of its risk (B2). If the commit fails, another process performs, and the short deadline stays.
    async fn announce_wait(&self, row: &PendingRow, wait: &DecisionWait) {
        let mut changes: Vec<StateChange> = Vec::new();
        let process = self.parts.store.approval_queries().liveness().id();
        if wait.really_waits() && row.waiter.as_ref() != Some(process) {
            changes.push(ApprovalChange::Wait { id: row.id.clone(), process: process.clone() }.into());
        }
        let risk = RiskLevel::parse(&row.risk).unwrap_or(RiskLevel::Medium);
        let expires = row.created.later(self.parts.approvals.deadline_ms(risk));
        if expires > row.expires {
            changes.push(ApprovalChange::Extend { id: row.id.clone(), expires }.into());
        }
        if !changes.is_empty() {
            let _ = self.parts.store.commit(Batch::with_next_sync(Vec::new(), changes)).await;
        }
    }

    /// The wait ended without a decision: this process no longer performs. If the commit fails, the process that decides
    /// overtakes it after a while.
    async fn stop_waiting(&self, row: &PendingRow, wait: &DecisionWait) {
        if wait.really_waits() {
            let process = self.parts.store.approval_queries().liveness().id().clone();
            let change = ApprovalChange::StopWaiting { id: row.id.clone(), process };
            let _ = self.parts.store.commit(Batch::with_next_sync(Vec::new(), vec![change.into()])).await;
        }
    }

    /// Expires a request that was not decided in time.
    pub(crate) async fn expire(&self, row: &PendingRow) -> Result<(), CallError> {
        expire(&*self.parts.store, &*self.parts.redactor, self.parts.clock.now(), row).await
    }

    /// Fills in what every ledger entry about a request contains.
    pub(crate) fn describe(
        &self,
        entry: &mut vambrace_store::Entry,
        row: &PendingRow,
    ) -> Result<(), CallError> {
        describe(entry, row, &*self.parts.redactor)
    }

    /// The outcome while a request is pending.
    async fn pending_outcome(&self, row: &PendingRow) -> Result<CallOutcome, CallError> {
        let queries = self.parts.store.approval_queries();
        let change = queries.proposal(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
        let shown = change.as_ref().map(|change| display_data(change, queries)).transpose()?;
        let part = |key: &str| shown.as_ref().and_then(|shown| shown.get(key)).cloned();
        let clean = |value: Value| Redacted::json(value, &*self.parts.redactor).map_err(redactor_failed);
        let diff = part("diff").and_then(|diff| diff.as_str().map(str::to_owned)).unwrap_or_default();
        Ok(CallOutcome::Pending(Box::new(PendingApproval {
            id: row.id.clone(),
            ttl: seconds_left(row, self.parts.clock.now()),
            summary: row.summary.clone(),
            preview: vambrace_workspace::diff::preview(diff.as_bytes()),
            data: clean(part("payload").unwrap_or_else(|| Value::Object(Default::default())))?,
            details: clean(part("details").unwrap_or_else(|| Value::Object(Default::default())))?
                .into_inner(),
        })))
    }

    /// The outcome of a change that was applied and rolled back since. A rollback may itself have been rolled back.
    pub(crate) async fn rollback_outcome(
        &self,
        change: &ProposalRow<String>,
    ) -> Result<Option<CallOutcome>, CallError> {
        let (mut last, mut still_applied) = (change.clone(), true);
        while last.state == ProposalState::RolledBack {
            let found = self.parts.store.approval_queries().rollback_of(last.id.as_str()).await;
            let Some(by) = found.map_err(|error| CallError::from(&error))? else { break };
            (last, still_applied) = (by, !still_applied);
        }
        let why = || {
            format!(
                "`{}` was applied, and the user rolled it back (`{}`): the files are as before",
                change.id, last.id
            )
        };
        Ok((!still_applied).then(|| CallOutcome::Failed {
            error: CallError::new(ErrorCode::ApprovalRejected, why())
                .suggest("repeating the call makes a new proposal; ask the user what is wanted first"),
            failure: FailureKind::Denied,
        }))
    }

    /// Returns the outcome of a request to its caller, with a ledger record. A final outcome is delivered once; after any
    /// other the request stays as it is.
    async fn deliver(
        &self,
        record: CallRecord,
        row: &PendingRow,
        outcome: CallOutcome,
        delivery: Delivery,
    ) -> CallResult {
        let made = async {
            let mut entry = vambrace_store::Entry::new(Op::ToolApproval, self.parts.clock.now());
            self.describe(&mut entry, row)?;
            entry.tool_call_id = record.tool_call_id.as_deref().map(|id| self.text(id)).transpose()?;
            let mut changes = Vec::new();
            (entry.event_type, entry.status) = match (&outcome, delivery) {
                (CallOutcome::Pending(_), _) => (Some("approval.waiting"), Some(RecordStatus::HitlRequired)),
                (CallOutcome::Completed(_), _) => (Some("approval.told"), Some(RecordStatus::Success)),
                (CallOutcome::Failed { error, .. }, Delivery::Final) => {
                    entry.error_code = Some(error.code);
                    (Some("approval.told"), Some(RecordStatus::Denied))
                }
                (CallOutcome::Failed { error, .. }, Delivery::Open) => {
                    entry.error_code = Some(error.code);
                    (Some("approval.waiting"), Some(RecordStatus::Error))
                }
            };
            if delivery == Delivery::Final {
                changes.push(ApprovalChange::Deliver { id: row.id.clone() }.into());
            }
            let committed = self.parts.store.commit(Batch::lazy(vec![entry], changes)).await;
            committed.map_err(|error| CallError::from(&error))
        };
        let (outcome, audit) = match made.await {
            Ok(committed) => (outcome, committed.last().map(|sealed| (sealed, committed.is_durable()))),
            Err(error) => (CallOutcome::Failed { error, failure: FailureKind::Denied }, None),
        };
        self.result_for_request(record, row, outcome, audit)
    }
}

fn no_approver() -> CallError {
    let why = "no approver is available: under `profile: ci`, and for a `sandbox run` without a terminal, what needs an approval is denied";
    CallError::new(ErrorCode::ApprovalRejected, why).suggest(
        "do something that needs no approval, or ask the user to allow it with a rule in the configuration",
    )
}

/// How the wait ended.
enum WaitEnd {
    /// The request is open still.
    Open(Box<CallOutcome>),
    /// It was decided, and performed by another task or process, or not at all.
    Decided(Box<CallOutcome>),
    /// This call performed it.
    Performed(Box<Clean>),
    /// It was approved, and this call could not perform it.
    Failed(CallError),
}

impl WaitEnd {
    fn open(outcome: CallOutcome) -> Self {
        Self::Open(Box::new(outcome))
    }

    fn decided(outcome: CallOutcome) -> Self {
        Self::Decided(Box::new(outcome))
    }
}

/// Whether a request is over when its caller gets an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Final,
    Open,
}
