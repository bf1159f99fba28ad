//! Opens an approval request and waits for its decision. The caller waits as long as it wants, or takes the id and
//! repeats the call later; both ways it gets the outcome of the same record.

use std::time::{Duration, Instant};

use serde_json::Value;
use vambrace_core::config::AuditSync;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::{Peer, Provenance, RawCall};
use vambrace_core::redacted::Redacted;
use vambrace_core::risk::RiskLevel;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, ApprovalWatch, Batch, CallState, ChainPosition,
    EventPhase, EventStatus, ProposalRow, ProposalState, StateChange,
};
use vambrace_workspace::diff::omitted_hunks;

use crate::approval_request::{
    ApprovalRequest, ApproverAvailability, DecisionWait, PipelineStop, RequestedCall, WaitProgress,
    seconds_left,
};
use crate::approval_view::{describe, display_data, expire};
use crate::broker::{Broker, redactor_failed};
use crate::call_record::CallRecord;
use crate::call_result::{CallOutcome, CallResult, CleanOutput, FailureKind, PendingApproval};
use crate::cleanse::Clean;
use crate::pending_call::resume;

type PendingRow = ApprovalRow<String>;
/// Ledger record of a new request, and whether it is durable.
type RequestReceipt = Option<(ChainPosition, bool)>;

impl Broker {
    /// Records how the pipeline ended; opens an approval request and waits for it where one is needed.
    pub(crate) async fn await_decision(
        &self,
        result: Result<Clean, PipelineStop>,
        mut record: CallRecord,
        wait: &DecisionWait<'_>,
    ) -> CallResult {
        let row = match result {
            Ok(clean) => return self.record_result(record, Ok(clean)).await,
            Err(PipelineStop::Failed(error)) => return self.record_result(record, Err(error)).await,
            Err(PipelineStop::AlreadyRequested(row)) => Ok((*row, None)),
            Err(PipelineStop::NeedsApproval(_))
                if self.parts.approvals.approver == ApproverAvailability::Unavailable =>
            {
                Err(no_approver())
            }
            Err(PipelineStop::NeedsApproval(request)) => self.open_request(&record, *request).await,
        };
        let (row, receipt) = match row {
            Ok(row) => row,
            Err(error) => return self.record_result(record, Err(error)).await,
        };
        record.call = row.call.clone();
        record.hitl = Some(row.id.clone());
        match self.wait_for_decision(&row, &mut record, wait).await {
            // The request's own ledger record reports that it is pending.
            Ok(WaitEnd::Finished(outcome))
                if receipt.is_some() && matches!(*outcome, CallOutcome::Pending(_)) =>
            {
                self.result_for_request(record, &row, *outcome, receipt)
            }
            Ok(WaitEnd::Finished(outcome)) => self.deliver(record, &row, *outcome).await,
            Ok(WaitEnd::Resumed(result)) => match *result {
                Ok(clean) => self.record_result(record, Ok(clean)).await,
                Err(PipelineStop::Failed(error)) => self.record_result(record, Err(error)).await,
                Err(PipelineStop::NeedsApproval(_) | PipelineStop::AlreadyRequested(_)) => {
                    let error =
                        CallError::new(ErrorCode::StaleBase, "the approved call needs another approval");
                    self.record_result(record, Err(error)).await
                }
            },
            Err(error) => {
                self.deliver(record, &row, CallOutcome::Failed { error, failure: FailureKind::Error }).await
            }
        }
    }

    /// Opens an approval request, with a ledger record. If the same call got one a moment ago, returns that one.
    async fn open_request(
        &self,
        record: &CallRecord,
        request: ApprovalRequest,
    ) -> Result<(PendingRow, RequestReceipt), CallError> {
        if record.change.as_ref().is_some_and(|change| omitted_hunks(&change.diff) > 0) {
            let why = "the diff of this change is too long to be shown, so it cannot be approved";
            return Err(CallError::new(ErrorCode::TooLarge, why).suggest("split it into smaller changes"));
        }
        let store = &self.parts.store;
        let (id, now) = (self.new_id("hitl-"), self.parts.clock.now());
        let kind = if record.change.is_some() { ApprovalKind::Change } else { ApprovalKind::Call };
        let approved_state = match (kind, record.caller_waits) {
            (ApprovalKind::Change, false) => self.parts.approvals.proposal_ms,
            _ => self.parts.approvals.deadline_ms(request.level),
        };
        let summary = match &record.change {
            Some(change) => change.summary.clone(),
            None => match record.operation.as_ref().and_then(|(_, path)| path.as_ref()) {
                Some(path) => format!("{} {path}", record.tool),
                None => record.class.clone(),
            },
        };
        let call = RequestedCall {
            raw: RawCall {
                tool: record.tool.clone(),
                args: record.args.clone(),
                tool_call_id: record.tool_call_id.clone(),
                context_id: record.context_id.clone(),
            },
            peer: Peer {
                principal: record.principal.clone(),
                session: record.session.clone(),
                entry_point: record.entry_point,
            },
            role: self.parts.requested_role.clone(),
            project: self.parts.project.clone(),
            class: record.class.clone(),
        };
        let row = ApprovalRow {
            id: id.clone(),
            call: record.call.clone(),
            session: record.session.clone(),
            user: self.text(&record.principal.user)?,
            agent: self.text(&record.principal.agent)?,
            project: self.text(&self.parts.project)?,
            tool: self.text(&record.tool)?,
            kind,
            risk: self.text(request.level.as_str())?,
            summary: self.text(&summary)?,
            why: self.text(&request.why.join("\n"))?,
            grantable: request.grantable,
            asked: record.request_digest(),
            digest: request.digest,
            revision: self.parts.policy.revision,
            sealed: call.seal(&id, store.approval_queries())?,
            created: now,
            expires: now.later(approved_state),
            state: ApprovalState::Pending,
            delivered: false,
            decision: None,
        };
        let mut check = self.check_event(record, EventStatus::Ok)?;
        check.message = record.rule.as_deref().map(|rule| self.text(rule)).transpose()?;
        let request = self.event(record, EventPhase::Approval, "request", EventStatus::Ok)?;
        let mut pending = self.call_row(record, CallState::Pending)?;
        pending.counted = record.limit.is_some();
        let precondition = self.flood_precondition(&record.session, now).await?;
        let mut changes = vec![
            StateChange::RequireSession { id: record.session.clone() },
            precondition.clone().into(),
            StateChange::InsertCall(pending),
            StateChange::Event(check),
            StateChange::Event(request),
            ApprovalChange::Open(row).into(),
        ];
        let entries = match &record.change {
            Some(change) => {
                changes.push(self.proposal_row(record, change, &id, None, None)?);
                self.propose_records(record, change, &id, RecordStatus::HitlRequired)?
            }
            None => {
                let mut entry = self.entry(Op::ToolApproval, record)?;
                entry.event_type = Some("approval.request");
                entry.status = Some(RecordStatus::HitlRequired);
                entry.hitl_id = Some(id.clone());
                entry.tool_args = Some(self.args(record)?);
                vec![entry]
            }
        };
        let mut receipt = None;
        // A waiting caller gets the outcome, not the id: a power cut ends the caller too, and the decision is synced
        // later.
        let later = record.caller_waits && self.parts.sync == AuditSync::ReadsLater;
        let batch = if later { Batch::lazy(entries, changes) } else { Batch::durable(entries, changes) };
        let found = match store.commit(batch).await {
            Ok(committed) => {
                receipt = committed.last().map(|sealed| (sealed, committed.is_durable()));
                store.approval_queries().approval(id.as_str()).await
            }
            Err(error) if error.concerns_batch_only() => {
                let before = store
                    .approval_queries()
                    .latest_for_call(record.session.as_str(), record.request_digest())
                    .await;
                match before {
                    Ok(Some(row))
                        if matches!(row.state, ApprovalState::Pending | ApprovalState::Approved) =>
                    {
                        return Ok((row, None));
                    }
                    _ if self.is_flooded(&precondition).await? => {
                        return Err(self.suspend_session(record).await?);
                    }
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let found = found.map_err(|error| CallError::from(&error))?;
        let row = found.ok_or_else(|| {
            CallError::new(ErrorCode::AuditUnavailable, "the approval request was not stored")
        })?;
        Ok((row, receipt))
    }

    /// Waits until the request is decided, the caller's wait is over, or the request expires.
    async fn wait_for_decision(
        &self,
        row: &PendingRow,
        record: &mut CallRecord,
        wait: &DecisionWait<'_>,
    ) -> Result<WaitEnd, CallError> {
        let queries = self.parts.store.approval_queries();
        // Subscribe before the first read, so that no change is missed.
        let mut watch: Option<ApprovalWatch> = wait.max_wait.map(|_| queries.watch());
        if watch.is_some() && row.state == ApprovalState::Pending {
            self.extend(row).await;
        }
        let begun = Instant::now();
        let mut expired = false;
        loop {
            let found = queries.approval(row.id.as_str()).await.map_err(|error| CallError::from(&error))?;
            let row = found.ok_or_else(|| {
                CallError::new(ErrorCode::ProposalNotFound, "the approval request no longer exists")
            })?;
            let now = self.parts.clock.now();
            let open = match (row.state, row.kind) {
                (ApprovalState::Pending | ApprovalState::Approved, _) if now >= row.expires && !expired => {
                    expired = true;
                    self.expire(&row).await?;
                    continue;
                }
                (ApprovalState::Pending, _) if now >= row.expires => {
                    return Ok(WaitEnd::finished(self.unapproved_outcome(&row)));
                }
                (ApprovalState::Pending, _) => true,
                (ApprovalState::Approved, ApprovalKind::Call) if now < row.expires => {
                    let call = RequestedCall::of(&row, queries)?;
                    resume(record, &row);
                    let result = self.run_steps(call.raw, record).await;
                    return Ok(WaitEnd::Resumed(Box::new(result)));
                }
                (ApprovalState::Used, ApprovalKind::Change) => {
                    let change = queries.proposal(row.id.as_str()).await;
                    let change = change.map_err(|error| CallError::from(&error))?;
                    match change {
                        Some(change) if change.state == ProposalState::Applying => {
                            if change.life.as_ref().is_none_or(|life| !queries.is_process_alive(life)) {
                                self.recover().await?;
                            }
                            true
                        }
                        Some(change) => {
                            let undone = self.rollback_outcome(&change).await?;
                            return match undone {
                                Some(undone) => Ok(WaitEnd::finished(undone)),
                                None => self.applied_outcome(&row, &change).map(WaitEnd::finished),
                            };
                        }
                        None => {
                            return Err(CallError::new(ErrorCode::Internal, "the proposal no longer exists"));
                        }
                    }
                }
                _ => return Ok(WaitEnd::finished(self.unapproved_outcome(&row))),
            };
            let left = wait.max_wait.and_then(|max_wait| max_wait.checked_sub(begun.elapsed()));
            let (true, Some(watch), Some(left)) = (open, watch.as_mut(), left.filter(|left| !left.is_zero()))
            else {
                return self.pending_outcome(&row).await.map(WaitEnd::finished);
            };
            if let Some(on_waiting) = wait.on_waiting {
                on_waiting(&WaitProgress::of(&row, now));
            }
            let until = (row.expires.millis() - now.millis()).max(1).unsigned_abs();
            watch.changed(left.min(Duration::from_millis(until))).await;
        }
    }

    /// A caller waits: extends the short deadline of a proposal to the deadline of its risk (B2). If the commit fails
    /// the short one stays.
    async fn extend(&self, row: &PendingRow) {
        let risk = RiskLevel::parse(&row.risk).unwrap_or(RiskLevel::Medium);
        let expires = row.created.later(self.parts.approvals.deadline_ms(risk));
        if expires > row.expires {
            let change = ApprovalChange::Extend { id: row.id.clone(), expires };
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

    /// The outcome of a request that was not approved.
    fn unapproved_outcome(&self, row: &PendingRow) -> CallOutcome {
        let error = match row.state {
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
        };
        CallOutcome::Failed { error, failure: FailureKind::Denied }
    }

    /// The outcome of a change that was applied and rolled back since. A rollback may itself have been rolled back.
    async fn rollback_outcome(&self, change: &ProposalRow<String>) -> Result<Option<CallOutcome>, CallError> {
        let (mut last, mut approved_state) = (change.clone(), true);
        while last.state == ProposalState::RolledBack {
            let found = self.parts.store.approval_queries().rollback_of(last.id.as_str()).await;
            let Some(by) = found.map_err(|error| CallError::from(&error))? else { break };
            (last, approved_state) = (by, !approved_state);
        }
        let why = || {
            format!(
                "`{}` was applied, and the user rolled it back (`{}`): the files are as before",
                change.id, last.id
            )
        };
        Ok((!approved_state).then(|| CallOutcome::Failed {
            error: CallError::new(ErrorCode::ApprovalRejected, why())
                .suggest("repeating the call makes a new proposal; ask the user what is wanted first"),
            failure: FailureKind::Denied,
        }))
    }

    /// The outcome of a change that was approved.
    fn applied_outcome(
        &self,
        row: &PendingRow,
        change: &ProposalRow<String>,
    ) -> Result<CallOutcome, CallError> {
        let damaged =
            || CallError::new(ErrorCode::OutcomeUnknown, "the outcome of the proposal cannot be read");
        let queries = self.parts.store.approval_queries();
        let kept = change.outcome.as_ref().ok_or_else(damaged)?;
        let bytes = queries.blob_cipher().unseal(row.id.as_str(), kept).ok_or_else(damaged)?;
        let stored: Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let text = |from: Option<&Value>, key: &str| {
            from.and_then(|from| from.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if let Some(error) = stored.get("error") {
            let word = text(Some(error), "code");
            let code = ErrorCode::ALL.iter().copied().find(|code| code.as_str() == word);
            let error = CallError::new(code.unwrap_or(ErrorCode::Internal), text(Some(error), "message"))
                .suggest(text(Some(error), "suggestion"));
            return Ok(CallOutcome::Failed { error, failure: FailureKind::Error });
        }
        let clean = |value: Option<&Value>| {
            Redacted::json(value.cloned().unwrap_or_default(), &*self.parts.redactor).map_err(redactor_failed)
        };
        Ok(CallOutcome::Completed(Box::new(CleanOutput {
            data: clean(stored.get("data"))?,
            details: clean(stored.get("details"))?.into_inner(),
            text: Some(
                Redacted::text(&text(Some(&stored), "text"), &*self.parts.redactor)
                    .map_err(redactor_failed)?,
            ),
            note: None,
            provenance: Provenance::Broker,
            truncated: false,
        })))
    }

    /// Returns the outcome of a request to its caller, with a ledger record; a final outcome is delivered once.
    async fn deliver(&self, record: CallRecord, row: &PendingRow, outcome: CallOutcome) -> CallResult {
        let made = async {
            let mut entry = vambrace_store::Entry::new(Op::ToolApproval, self.parts.clock.now());
            self.describe(&mut entry, row)?;
            entry.tool_call_id = record.tool_call_id.as_deref().map(|id| self.text(id)).transpose()?;
            let mut changes = Vec::new();
            (entry.event_type, entry.status) = match &outcome {
                CallOutcome::Pending(_) => (Some("approval.waiting"), Some(RecordStatus::HitlRequired)),
                CallOutcome::Completed(_) => (Some("approval.told"), Some(RecordStatus::Success)),
                CallOutcome::Failed { error, .. } => {
                    entry.error_code = Some(error.code);
                    (Some("approval.told"), Some(RecordStatus::Denied))
                }
            };
            if !matches!(outcome, CallOutcome::Pending(_)) {
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
    let why = "no approver is available: under `profile: ci` what needs an approval is denied";
    CallError::new(ErrorCode::ApprovalRejected, why).suggest(
        "do something that needs no approval, or ask the user to allow it with a rule in the configuration",
    )
}

/// How the wait ended.
enum WaitEnd {
    Finished(Box<CallOutcome>),
    Resumed(Box<Result<Clean, PipelineStop>>),
}

impl WaitEnd {
    fn finished(outcome: CallOutcome) -> Self {
        Self::Finished(Box::new(outcome))
    }
}
