//! Approve, reject and roll back. What is approved runs through the pipeline again, under today's policy and files;
//! `completion.rs` explains in which process. Whom an approver decides for is checked in the transaction of the decision.

use std::sync::Arc;

use serde_json::json;
use vambrace_core::change::{StoredProposal, check_proposal};
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_core::principal::{DEFAULT_TENANT, EntryPoint, Peer, Principal, RawCall};
use vambrace_core::risk::RiskLevel;
use vambrace_ledger::{DecisionReach, DecisionVerb};
use vambrace_store::{
    ApprovalChange, ApprovalKind, ApprovalRow, ApprovalState, CallFinish, CallState, ChainPosition,
    DecisionRow, ProposalState, StateChange,
};
use vambrace_tools::{Amendment, CallContext};

use crate::approval_request::{PipelineStop, RequestedCall};
use crate::approval_view::{read_approval, unknown};
use crate::approver::Approver;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::call_result::{AuditReceipt, CallOutcome, CallResult};
use crate::completion::{CallerPresence, Performer, ResultReceiver};
use crate::consent::{Consent, NewDecision};
use crate::decision::used;
use crate::pipeline::Purpose;

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
    /// Where the caller is.
    pub caller: CallerPresence,
}

impl ApprovalChoice {
    /// Approves the whole, once.
    #[must_use]
    pub fn once() -> Self {
        Self {
            part: Amendment::Whole,
            reach: DecisionReach::Once,
            path: None,
            shown: None,
            caller: CallerPresence::Elsewhere,
        }
    }

    /// Approves the whole, once, in the process of the caller: the caller gets the result, or repeats the call.
    #[must_use]
    pub fn once_for_own_call() -> Self {
        Self { caller: CallerPresence::Returns, ..Self::once() }
    }
}

impl Broker {
    /// Approves. Returns the result, or `None` if only the caller gets it.
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
        if row.kind == ApprovalKind::Call && choice.part != Amendment::Whole {
            let why = "only a change of files can be approved in part";
            return Err(CallError::new(ErrorCode::InvalidArguments, why));
        }
        if !self.has_current_policy().await {
            let why = "the configuration changed since this process read it";
            return Err(
                CallError::new(ErrorCode::ResourceBusy, why).suggest("decide again, or repeat the call")
            );
        }
        match self.performer(&row, choice.caller) {
            Performer::Here => self.decide_and_perform(&row, choice, approver).await.map(Some),
            Performer::LaterCall => self.commit_approval(&row, &choice, approver).await.map(|()| None),
            Performer::Waiter(process) => {
                // Subscribed before the commit, so that no change is missed.
                let mut watch = self.parts.store.approval_queries().notifier().watch();
                self.commit_approval(&row, &choice, approver).await?;
                self.hand_over(&row.id, &process, &mut *watch).await
            }
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
        let owner = self.decides_for(approver)?;
        let changes = vec![
            ApprovalChange::Decide { id: row.id.clone(), owner, decision: decided, note }.into(),
            StateChange::FinishCall(finish),
        ];
        self.decide_commit(&row.id, vec![entry], changes).await
    }

    /// Rolls back an applied change, if nothing changed since. The rollback is a change with its own records.
    pub async fn rollback(&self, id: &str, approver: &Approver) -> Result<CallResult, CallError> {
        let change = self.decidable(id, approver).await?.change.ok_or_else(|| unknown(id))?;
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
        // In the session of the change, so for its owner; the decision names the approver.
        let session = self.parts.store.session(change.session.as_str()).await;
        let session = session.map_err(|error| CallError::from(&error))?;
        let principal = Principal {
            tenant: session.map_or_else(|| DEFAULT_TENANT.to_owned(), |session| session.tenant),
            user: change.user.clone(),
            agent: "rollback".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let peer = Peer { principal, session: change.session.clone(), entry_point: EntryPoint::Cli };
        let mut record = CallRecord::open(self, &raw, &peer, CallContext::default());
        record.hitl = Some(self.new_id("hitl-"));
        record.consent = Some(Consent {
            id: record.hitl.clone().unwrap_or_else(|| change.id.clone()),
            requested: Digest::ZERO,
            part: Amendment::Whole,
            shown: None,
            proposed: None,
            decision: Some(NewDecision {
                verb: DecisionVerb::Rollback,
                reach: DecisionReach::Once,
                approver: approver.clone(),
            }),
            undoes: Some(change.id.clone()),
        });
        let result =
            self.run_steps(raw, &mut record, Purpose::Rollback(back)).await.map_err(PipelineStop::into_error);
        match result {
            Ok(clean) => Ok(self.record_result(record, Ok(clean)).await),
            Err(error) => {
                self.record_result(record, Err(error.clone())).await;
                Err(error)
            }
        }
    }

    /// Checks 1 to 3 of applying, in order: the request exists and is unused, the path belongs to it, it has not
    /// expired.
    pub(crate) async fn pending_request(
        &self,
        id: &str,
        path: Option<&str>,
        approver: &Approver,
    ) -> Result<ApprovalRow<String>, CallError> {
        let mut found = self.decidable(id, approver).await?;
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

    /// Commits an approval that another process, or a later call, uses.
    async fn commit_approval(
        &self,
        row: &ApprovalRow<String>,
        choice: &ApprovalChoice,
        approver: &Approver,
    ) -> Result<(), CallError> {
        let now = self.parts.clock.now();
        let risk = RiskLevel::parse(&row.risk).unwrap_or(RiskLevel::Medium);
        let expires = now.later(self.parts.approvals.deadline_ms(risk));
        let (digest, amendment) = match (&choice.part, choice.shown) {
            (Amendment::Whole, _) => (row.digest, None),
            (part, Some(shown)) => (shown, Some(self.seal_amendment(&row.id, part)?)),
            (part, None) => {
                let preview = self.preview(row.id.as_str(), part.clone(), approver).await?;
                (preview.digest, Some(self.seal_amendment(&row.id, part)?))
            }
        };
        let decision = self.decision(&row.id, digest, DecisionVerb::Approve, choice.reach, expires);
        let note = approver.sign(&decision)?;
        let mut entries = vec![self.decision_record(row, &decision, &note, approver, None)?];
        let decided = DecisionRow { amendment, ..self.decided(&decision, approver, None)? };
        let owner = self.decides_for(approver)?;
        let mut changes = vec![
            ApprovalChange::Decide { id: row.id.clone(), owner, decision: decided, note }.into(),
            StateChange::SetCall { id: row.call.clone(), state: CallState::Approved },
        ];
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        if let Some((entry, change)) = self.grant(row, choice.reach, &call, approver)? {
            entries.push(entry);
            changes.push(change);
        }
        self.decide_commit(&row.id, entries, changes).await
    }

    /// Decides and performs: the decision, its use and the start are one commit.
    async fn decide_and_perform(
        &self,
        row: &ApprovalRow<String>,
        choice: ApprovalChoice,
        approver: &Approver,
    ) -> Result<CallResult, CallError> {
        let call = RequestedCall::of(row, self.parts.store.approval_queries())?;
        let mut record = CallRecord::reopen(self, &call, row);
        if choice.caller == CallerPresence::Returns {
            record.receiver = ResultReceiver::Caller;
        }
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
            decision: Some(NewDecision {
                verb: DecisionVerb::Approve,
                reach: choice.reach,
                approver: approver.clone(),
            }),
            undoes: None,
        });
        let error = match self.run_steps(call.raw, &mut record, Purpose::Run).await {
            Ok(clean) => return Ok(self.record_result(record, Ok(clean)).await),
            Err(PipelineStop::Failed(error)) => error,
            Err(PipelineStop::Approval(_)) => {
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
        let applied = row.kind == ApprovalKind::Change && matches!(outcome, CallOutcome::Completed(_));
        if let (true, Some((method, _))) = (applied, operation.as_mut()) {
            *method = Arc::from("fs.apply_patch");
        }
        CallResult {
            tool,
            duration_ms: record.elapsed_ms(),
            tool_call_id: record.tool_call_id,
            call: Some(row.call.clone()),
            outcome,
            operation,
            checks: "asked",
            risk: RiskLevel::parse(&row.risk),
            environment: record.environment,
            sandbox_tier: record.run.as_ref().map(|run| run.tier),
            audit: audit.map(|(sealed, durable)| AuditReceipt {
                prev_hash: sealed.prev_hash.to_string(),
                event_hash: sealed.event_hash.to_string(),
                durable,
            }),
        }
    }
}

/// Whether a proposal that failed with this code can no longer be applied.
pub(crate) fn closes(code: ErrorCode) -> bool {
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
