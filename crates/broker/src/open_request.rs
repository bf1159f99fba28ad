//! Opens the approval request of a call: the request, the sealed call and the proposal of a change are one commit, with their
//! ledger records.

use vambrace_core::config::AuditSync;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::principal::{Peer, RawCall};
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, Batch, CallState, ChainPosition, EventPhase,
    EventStatus, StateChange,
};
use vambrace_workspace::diff::omitted_hunks;

use crate::approval_request::{ApprovalRequest, DecisionWait, RequestedCall};
use crate::broker::Broker;
use crate::call_record::CallRecord;

/// Ledger record of a new request, and whether it is durable.
pub(crate) type RequestReceipt = Option<(ChainPosition, bool)>;

impl Broker {
    /// Opens an approval request, with a ledger record. If the same call got one a moment ago, returns that one.
    pub(crate) async fn open_request(
        &self,
        record: &CallRecord,
        request: ApprovalRequest,
        wait: &DecisionWait,
    ) -> Result<(ApprovalRow<String>, RequestReceipt), CallError> {
        if record.change.as_ref().is_some_and(|change| omitted_hunks(&change.diff) > 0) {
            let why = "the diff of this change is too long to be shown, so it cannot be approved";
            return Err(CallError::new(ErrorCode::TooLarge, why).suggest("split it into smaller changes"));
        }
        let store = &self.parts.store;
        let (id, now) = (self.new_id("hitl-"), self.parts.clock.now());
        let kind = if record.change.is_some() { ApprovalKind::Change } else { ApprovalKind::Call };
        let lifetime_ms = match (kind, record.caller_waits) {
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
            held: record.held.clone(),
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
            expires: now.later(lifetime_ms),
            state: ApprovalState::Pending,
            delivered: false,
            waiter: wait.really_waits().then(|| store.approval_queries().liveness().id().clone()),
            performer: None,
            decision: None,
        };
        let mut check = self.check_event(record, EventStatus::Ok)?;
        check.message = record.rule.as_deref().map(|rule| self.text(rule)).transpose()?;
        let request = self.event(record, EventPhase::Approval, "request", EventStatus::Ok)?;
        // The row of a run whose change waits exists since its start.
        let pending = match record.resumed {
            true => StateChange::SetCall { id: record.call.clone(), state: CallState::Pending },
            false => {
                let mut pending = self.call_row(record, CallState::Pending)?;
                pending.counted = record.limit.is_some();
                StateChange::InsertCall(pending)
            }
        };
        let precondition = self.flood_precondition(&record.session, now).await?;
        let mut changes = vec![
            StateChange::RequireSession {
                id: record.session.clone(),
                owner: self.session_owner(&record.principal)?,
            },
            precondition.clone().into(),
            pending,
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
}
