//! Approve and reject. Approving a change runs the pipeline again, under today's policy and files, and applies it:
//! the decision, its use and the start are one commit. Approving any other call gives its caller a voucher.

use serde_json::json;
use vambrace_core::change::{ChangeSet, StoredProposal, check_proposal};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::path::AskedPath;
use vambrace_core::principal::{Peer, Principal, RawCall};
use vambrace_core::risk::RiskLevel;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Op, RecordStatus, SignedNote};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, Batch, CallFinish, CallState, ChainPosition,
    DecisionRow, Entry, ProposalState, StateChange,
};
use vambrace_tools::Amendment;

use crate::admit::{NewSession, admit};
use crate::approval_request::{PipelineStop, RequestedCall};
use crate::approval_view::{read_approval, unknown, visible};
use crate::approver::Approver;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::call_result::{AuditReceipt, CallOutcome, CallResult};
use crate::cleanse::{Clean, cleanse};
use crate::consent::Consent;
use crate::decide::decide;
use crate::perform::perform;
use crate::plan::plan_rollback;
use crate::settle::settle;
use crate::start::start;

/// What a person approves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChoice {
    /// The whole, a part, or edited content.
    pub part: Amendment,
    /// Once, for a class of calls, or for the session.
    pub reach: DecisionReach,
    /// A path that must be one of the proposal's (B3).
    pub path: Option<String>,
    /// Plan digest of a part or an edited change, as [`Broker::preview`] returned it: no other plan is applied.
    pub shown: Option<Digest>,
}

impl ApprovalChoice {
    /// Approves the whole, once.
    #[must_use]
    pub fn once() -> Self {
        Self { part: Amendment::Whole, reach: DecisionReach::Once, path: None, shown: None }
    }
}

impl Broker {
    /// Approves. Returns the result of the applied change; `None` for a call that its caller runs.
    pub async fn approve(
        &self,
        id: &str,
        choice: ApprovalChoice,
        approver: &Approver,
    ) -> Result<Option<CallResult>, CallError> {
        let row = self.pending_request(id, choice.path.as_deref(), approver).await?;
        if choice.reach != DecisionReach::Once && !row.grantable {
            let why = "this request can only be approved for this one call: it is HIGH, or a rule of the organisation requires it";
            return Err(CallError::new(ErrorCode::InvalidArguments, why).suggest("approve it once"));
        }
        match row.kind {
            ApprovalKind::Call if choice.part != Amendment::Whole => Err(CallError::new(
                ErrorCode::InvalidArguments,
                "only a change of files can be approved in part",
            )),
            ApprovalKind::Call => self.approve_call(&row, choice.reach, approver).await.map(|()| None),
            ApprovalKind::Change => self.apply(&row, choice, approver).await.map(Some),
        }
    }

    /// Rejects, with an optional reason for the agent.
    pub async fn reject(&self, id: &str, reason: Option<&str>, approver: &Approver) -> Result<(), CallError> {
        let row = self.pending_request(id, None, approver).await?;
        let now = self.parts.clock.now();
        let decision =
            self.decision(&row.id, row.digest, DecisionVerb::Reject, DecisionReach::Once, row.expires);
        let note = approver.sign(&decision)?;
        let reason: Option<String> = reason.map(|reason| reason.chars().take(2000).collect());
        let entry = self.decision_record(&row, &decision, &note, approver, reason.as_deref())?;
        let error = Some(ErrorCode::ApprovalRejected);
        let finish = CallFinish { id: row.call.clone(), state: CallState::Rejected, at: now, error };
        let decided = self.decided(&decision, approver, reason.as_deref())?;
        let changes = vec![
            ApprovalChange::Decide { id: row.id.clone(), decision: decided, note }.into(),
            StateChange::FinishCall(finish),
        ];
        self.decide_commit(vec![entry], changes).await
    }

    /// Rolls back an applied change, if nothing changed since. The rollback is a change with its own records.
    pub async fn rollback(&self, id: &str, approver: &Approver) -> Result<CallResult, CallError> {
        let queries = self.parts.store.approval_queries();
        let found = visible(queries, id, |user| approver.decides_for(user)).await?;
        let change = found.change.ok_or_else(|| unknown(id))?;
        if change.state != ProposalState::Applied {
            let why = format!("`{id}` is {}, and only an applied change can be rolled back", change.state);
            return Err(CallError::new(ErrorCode::ProposalUsed, why));
        }
        let back = self.way_back(&change.id).await?.ok_or_else(|| {
            CallError::new(
                ErrorCode::TooLarge,
                "the previous content was too large to store, so it cannot be rolled back",
            )
        })?;
        let raw = RawCall {
            tool: "apply_patch".to_owned(),
            args: json!({"rollback": id}),
            tool_call_id: None,
            context_id: None,
        };
        let principal = Principal {
            tenant: "default".to_owned(),
            user: approver.user().to_owned(),
            agent: "rollback".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let peer = Peer { principal, session: change.session.clone(), entry_point: "cli" };
        let mut record = CallRecord::open(self, &raw, &peer);
        record.hitl = Some(self.new_id("hitl-"));
        record.consent = Some(Consent {
            id: record.hitl.clone().unwrap_or_else(|| change.id.clone()),
            requested: Digest::ZERO,
            part: Amendment::Whole,
            shown: None,
            proposed: None,
            verb: DecisionVerb::Rollback,
            reach: DecisionReach::Once,
            approver: approver.clone(),
            undoes: Some(change.id.clone()),
        });
        let result = self.run_rollback_steps(raw, back, &mut record).await;
        match result {
            Ok(clean) => Ok(self.record_result(record, Ok(clean)).await),
            Err(error) => {
                self.record_result(record, Err(error.clone())).await;
                Err(error)
            }
        }
    }

    /// The pipeline of a rollback: the same steps, for a change that is already known.
    async fn run_rollback_steps(
        &self,
        raw: RawCall,
        back: ChangeSet,
        record: &mut CallRecord,
    ) -> Result<Clean, CallError> {
        let as_error = |stop: PipelineStop| match stop {
            PipelineStop::Failed(error) => error,
            PipelineStop::NeedsApproval(_) | PipelineStop::AlreadyRequested(_) => {
                CallError::new(ErrorCode::Internal, "a rollback needs no approval request")
            }
        };
        let admitted = admit(self, raw, record, NewSession::Open).await?;
        let planned = plan_rollback(self, admitted, back, record)?;
        let decided = decide(self, planned, record);
        let permitted = settle(self, decided, record).await.map_err(as_error)?;
        let started = start(self, permitted, record).await?;
        let performed = perform(self, started, record).await?;
        cleanse(self, performed, record)
    }

    /// Checks 1 to 3 of applying, in order: the request exists and is unused, the path belongs to it, it has not
    /// expired.
    pub(crate) async fn pending_request(
        &self,
        id: &str,
        path: Option<&str>,
        approver: &Approver,
    ) -> Result<ApprovalRow<String>, CallError> {
        let queries = self.parts.store.approval_queries();
        let mut found = visible(queries, id, |user| approver.decides_for(user)).await?;
        let row = found.request.take().ok_or_else(|| used("it needed no decision"))?;
        let now = self.parts.clock.now();
        let used = match row.state {
            ApprovalState::Pending | ApprovalState::Expired => None,
            ApprovalState::Approved | ApprovalState::Used => Some("it was approved already"),
            ApprovalState::Rejected => Some("it was rejected already"),
            ApprovalState::Stale => Some("the files changed, so it can no longer be applied"),
        };
        let paths: Vec<String> = found.files.iter().map(|file| file.path.clone()).collect();
        // An expired request stays expired, even if the clock was set back.
        let expires_at = if row.state == ApprovalState::Expired { now } else { row.expires };
        let stored = StoredProposal { paths: &paths, expires_at, used };
        let Err(error) = check_proposal(Some(&stored), path.map(AskedPath::new).as_ref(), now) else {
            return Ok(row);
        };
        if error.code == ErrorCode::ProposalExpired && row.state == ApprovalState::Pending {
            self.expire(&row).await?;
        }
        Err(error)
    }

    /// Approves a call: its caller gets a voucher.
    async fn approve_call(
        &self,
        row: &ApprovalRow<String>,
        reach: DecisionReach,
        approver: &Approver,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        let risk = RiskLevel::parse(&row.risk).unwrap_or(RiskLevel::Medium);
        let expires = now.later(self.parts.approvals.deadline_ms(risk));
        let decision = self.decision(&row.id, row.digest, DecisionVerb::Approve, reach, expires);
        let note = approver.sign(&decision)?;
        let mut entries = vec![self.decision_record(row, &decision, &note, approver, None)?];
        let decided = self.decided(&decision, approver, None)?;
        let mut changes = vec![
            ApprovalChange::Decide { id: row.id.clone(), decision: decided, note }.into(),
            StateChange::SetCall { id: row.call.clone(), state: CallState::Approved },
        ];
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        if let Some((entry, change)) = self.grant(row, reach, &call.class, approver)? {
            entries.push(entry);
            changes.push(change);
        }
        self.decide_commit(entries, changes).await
    }

    /// Applies a change that a person approves.
    async fn apply(
        &self,
        row: &ApprovalRow<String>,
        choice: ApprovalChoice,
        approver: &Approver,
    ) -> Result<CallResult, CallError> {
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        let mut record = CallRecord::reopen(self, &call, row);
        let proposed = if choice.part == Amendment::Whole {
            None
        } else {
            Some(read_approval(self.parts.store.approval_queries(), row.id.as_str()).await?.diff)
        };
        record.consent = Some(Consent {
            id: row.id.clone(),
            requested: row.digest,
            proposed,
            shown: if choice.part == Amendment::Whole { Some(row.digest) } else { choice.shown },
            part: choice.part,
            verb: DecisionVerb::Approve,
            reach: choice.reach,
            approver: approver.clone(),
            undoes: None,
        });
        let error = match self.run_steps(call.raw, &mut record).await {
            Ok(clean) => return Ok(self.record_result(record, Ok(clean)).await),
            Err(PipelineStop::Failed(error)) => error,
            Err(PipelineStop::NeedsApproval(_) | PipelineStop::AlreadyRequested(_)) => {
                CallError::new(ErrorCode::StaleBase, "it would need another approval")
            }
        };
        if record.started.is_some() || closes(error.code) {
            self.record_result(record, Err(error.clone())).await;
        }
        Err(error)
    }

    /// The result of a call that is about an approval request.
    pub(crate) fn result_for_request(
        &self,
        record: CallRecord,
        row: &ApprovalRow<String>,
        outcome: CallOutcome,
        audit: Option<(ChainPosition, bool)>,
    ) -> CallResult {
        let (tool, mut operation) = self.names(&record).unwrap_or_else(|_| ("unknown".to_owned(), None));
        if let (CallOutcome::Completed(_), Some((method, _))) = (&outcome, operation.as_mut()) {
            *method = "fs.apply_patch";
        }
        CallResult {
            tool,
            duration_ms: record.elapsed_ms(),
            tool_call_id: record.tool_call_id,
            call: Some(row.call.clone()),
            outcome,
            operation,
            checks: "asked",
            risk: RiskLevel::parse(&row.risk).map(RiskLevel::as_str),
            audit: audit.map(|(sealed, durable)| AuditReceipt {
                prev_hash: sealed.prev_hash.to_string(),
                event_hash: sealed.event_hash.to_string(),
                durable,
            }),
        }
    }

    pub(crate) fn decision(
        &self,
        about: &Id,
        plan: Digest,
        verb: DecisionVerb,
        reach: DecisionReach,
        expires: Timestamp,
    ) -> Decision {
        Decision { about: about.clone(), plan, verb, reach, at: self.parts.clock.now(), expires }
    }

    pub(crate) fn decided(
        &self,
        decision: &Decision,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<DecisionRow<vambrace_store::RedactedText>, CallError> {
        Ok(DecisionRow {
            verb: decision.verb,
            reach: decision.reach,
            digest: decision.plan,
            at: decision.at,
            expires: decision.expires,
            by: self.text(approver.by())?,
            reason: reason.map(|reason| self.text(reason)).transpose()?,
        })
    }

    fn decision_record(
        &self,
        row: &ApprovalRow<String>,
        decision: &Decision,
        note: &SignedNote,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<Entry, CallError> {
        let mut entry = Entry::new(Op::ToolApproval, decision.at);
        self.describe(&mut entry, row)?;
        self.decided_entry(&mut entry, decision, note, approver, reason)?;
        Ok(entry)
    }

    pub(crate) fn decided_entry(
        &self,
        entry: &mut Entry,
        decision: &Decision,
        note: &SignedNote,
        approver: &Approver,
        reason: Option<&str>,
    ) -> Result<(), CallError> {
        entry.ts = decision.at;
        (entry.event_type, entry.status) = match decision.verb {
            DecisionVerb::Reject => (Some("approval.rejected"), Some(RecordStatus::Rejected)),
            DecisionVerb::Rollback => (Some("approval.rollback"), Some(RecordStatus::Approved)),
            _ => (Some("approval.approved"), Some(RecordStatus::Approved)),
        };
        entry.hitl_id = Some(decision.about.clone());
        entry.plan_digest = Some(decision.plan);
        entry.message = Some(match reason {
            Some(reason) => self.text(&format!("by {}: {reason}", approver.by()))?,
            None => self.text(&format!("by {}, {}", approver.by(), decision.reach))?,
        });
        entry.note = Some(note.clone());
        Ok(())
    }

    async fn decide_commit(&self, entries: Vec<Entry>, changes: Vec<StateChange>) -> Result<(), CallError> {
        match self.parts.store.commit(Batch::durable(entries, changes)).await {
            Ok(_) => Ok(()),
            Err(error) if error.concerns_batch_only() => {
                Err(used("it was decided a moment ago by someone else, or it has expired"))
            }
            Err(error) => Err(CallError::from(&error)),
        }
    }
}

/// Whether a proposal that failed with this code can no longer be applied.
fn closes(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::InvalidArguments
            | ErrorCode::ResourceBusy
            | ErrorCode::AuditUnavailable
            | ErrorCode::Internal
            | ErrorCode::SessionSuspended
            | ErrorCode::RateLimited
            | ErrorCode::ProposalUsed
            | ErrorCode::SecretInContent
            | ErrorCode::TooLarge
    )
}

fn used(why: &str) -> CallError {
    CallError::new(ErrorCode::ProposalUsed, why)
}
