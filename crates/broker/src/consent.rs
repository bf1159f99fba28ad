//! Consent: the approval that a start is based on. Builds the entries and changes that use it up, store the change
//! with its rollback, and record how the change ended; each is committed together with the start or the end that it
//! belongs to. `completion.rs` explains which process does that.

use vambrace_core::change::ChangeSet;
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::settle::Permit;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Decision, DecisionReach, DecisionVerb, Op, RecordLevel, RecordStatus, SignedNote};
use vambrace_store::{
    ApprovalChange, ApprovalKind, Batch, CallFinish, CallState, ChainPosition, Entry, EventPhase,
    EventStatus, ProposalState, SealedBlob, StateChange,
};
use vambrace_tools::{Amendment, ToolPlan};

use crate::approver::Approver;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::call_result::CallOutcome;
use crate::cleanse::Clean;
use crate::completion::ResultReceiver;
use crate::grants::{self, GrantSubject};

/// Validity of a decision that is used at once, in ms.
const IMMEDIATE_DECISION_MS: i64 = 60_000;

/// A person's approval that this call uses.
#[derive(Debug, Clone)]
pub(crate) struct Consent {
    pub(crate) id: Id,
    /// Digest of the requested plan: even if only a part is approved, the whole must still be that plan.
    pub(crate) requested: Digest,
    pub(crate) part: Amendment,
    /// Digest of what was shown; `None` for a part that was not previewed, which is approved as planned now.
    pub(crate) shown: Option<Digest>,
    /// Diff of the whole proposal, if a part or edited content is approved.
    pub(crate) proposed: Option<String>,
    /// The decision that is committed with the start; `None` if it was committed earlier, or is not made yet.
    pub(crate) decision: Option<NewDecision>,
    /// The applied change that this rollback undoes.
    pub(crate) undoes: Option<Id>,
}

/// A decision that is not committed yet.
#[derive(Debug, Clone)]
pub(crate) struct NewDecision {
    pub(crate) verb: DecisionVerb,
    pub(crate) reach: DecisionReach,
    pub(crate) approver: Approver,
}

impl Broker {
    /// What is committed together with a start: the decision, the use of vouchers, and the change with its rollback.
    pub(crate) fn consent_changes(
        &self,
        record: &mut CallRecord,
        permit: &Permit,
        prepared: &ToolPlan,
        back: Option<ChangeSet>,
    ) -> Result<(Vec<Entry>, Vec<StateChange>), CallError> {
        let now = self.parts.clock.now();
        let (mut entries, mut changes): (Vec<Entry>, Vec<StateChange>) = Default::default();
        for voucher in permit.vouchers() {
            if let Some(id) = Id::new(voucher).ok().filter(|_| voucher.starts_with(grants::PREFIX)) {
                changes.push(ApprovalChange::UseGrant { id, at: now }.into());
            }
        }
        let decision = record.consent.as_ref().and_then(|consent| consent.decision.clone());
        let rollback = record.consent.as_ref().and_then(|consent| consent.undoes.clone());
        if let (Some(new), None) = (&decision, &rollback) {
            self.decide_and_use(record, new, &mut entries, &mut changes)?;
        } else if let Some(id) = record.hitl.clone().filter(|_| record.approval.is_some()) {
            // Used even if today's policy would not need it: only so another process does not perform too.
            changes.push(self.use_approval(&id));
            if record.requested == Some(ApprovalKind::Call) && record.receiver == ResultReceiver::Caller {
                // The caller gets the outcome as the result of this call.
                changes.push(ApprovalChange::Deliver { id }.into());
            }
        }
        let (Some(draft), Some(change)) = (prepared.work.change(), record.change.clone()) else {
            return Ok((entries, changes));
        };
        let hitl = record.hitl.clone().unwrap_or_else(|| self.new_id("hitl-"));
        record.hitl = Some(hitl.clone());
        let kept = || self.seal(&format!("{hitl}/changes"), &draft.changes.to_bytes());
        let back = back.map(|back| self.seal(&format!("{hitl}/back"), &back.to_bytes())).transpose()?;
        let Some(consent) = record.consent.clone() else {
            entries.extend(self.propose_records(record, &change, &hitl, RecordStatus::Allowed)?);
            changes.push(self.proposal_row(record, &change, &hitl, Some((Some(kept()?), back)), None)?);
            return Ok((entries, changes));
        };
        if let (Some(new), Some(undone)) = (decision, rollback) {
            let (entry, _, _) = self.signed_decision(record, &new, now.later(IMMEDIATE_DECISION_MS))?;
            entries.push(entry);
            let owner = self.decides_for(&new.approver)?;
            changes.push(ApprovalChange::RequireApplied { id: undone.clone(), owner }.into());
            entries.extend(self.propose_records(record, &change, &hitl, RecordStatus::Approved)?);
            // Its content is the stored rollback of the change it undoes.
            changes.push(self.proposal_row(record, &change, &hitl, Some((None, back)), Some(undone))?);
            return Ok((entries, changes));
        }
        let mut shown = None;
        if consent.part != Amendment::Whole {
            // The applied change differs from the proposed one: the ledger records both, and both diffs are stored.
            for mut entry in self.propose_records(record, &change, &hitl, RecordStatus::Approved)? {
                entry.event_type = Some("proposal.amended");
                entries.push(entry);
            }
            shown = Some(self.seal(hitl.as_str(), &self.shown(&change, consent.proposed.as_deref())?)?);
        }
        let life = self.parts.store.approval_queries().liveness().id().clone();
        changes.push(
            ApprovalChange::Begin { changes: kept()?, id: hitl, undo: back, shown, life, at: now }.into(),
        );
        Ok((entries, changes))
    }

    /// A new decision about this call, its use, and the grant that it gives.
    fn decide_and_use(
        &self,
        record: &CallRecord,
        new: &NewDecision,
        entries: &mut Vec<Entry>,
        changes: &mut Vec<StateChange>,
    ) -> Result<(), CallError> {
        let Some(id) = record.hitl.clone() else {
            return Err(CallError::new(ErrorCode::Internal, "an approved call has no request"));
        };
        let expires = self.parts.clock.now().later(IMMEDIATE_DECISION_MS);
        let (entry, decision, note) = self.signed_decision(record, new, expires)?;
        entries.push(entry);
        let decided = self.decided(&decision, &new.approver, None)?;
        let owner = self.decides_for(&new.approver)?;
        changes.push(ApprovalChange::Decide { id: id.clone(), owner, decision: decided, note }.into());
        changes.push(self.use_approval(&id));
        if new.reach != DecisionReach::Once {
            let subject = GrantSubject { id: &id, session: &record.session, principal: &record.principal };
            let (entry, change) = self.new_grant(&subject, new.reach, &record.class, &new.approver)?;
            entries.push(entry);
            changes.push(change);
        }
        Ok(())
    }

    fn signed_decision(
        &self,
        record: &CallRecord,
        new: &NewDecision,
        expires: Timestamp,
    ) -> Result<(Entry, Decision, SignedNote), CallError> {
        let about = record.hitl.as_ref().unwrap_or(&record.call);
        let digest = record.plan_digest.unwrap_or(Digest::ZERO);
        let decision = self.decision(about, digest, new.verb, new.reach, expires);
        let note = new.approver.sign(&decision)?;
        let mut entry = self.entry(Op::ToolApproval, record)?;
        self.decided_entry(&mut entry, &decision, &note, &new.approver, None)?;
        Ok((entry, decision, note))
    }

    fn use_approval(&self, id: &Id) -> StateChange {
        let process = self.parts.store.approval_queries().liveness().id().clone();
        ApprovalChange::Use { id: id.clone(), process, at: self.parts.clock.now() }.into()
    }

    /// Records the end of an applied change: one entry per file, and the outcome for its caller.
    pub(crate) async fn record_applied(
        &self,
        record: &CallRecord,
        mut clean: Clean,
    ) -> Result<(CallOutcome, Option<ChainPosition>, bool), CallError> {
        let now = self.parts.clock.now();
        let hitl =
            record.hitl.clone().ok_or_else(|| CallError::new(ErrorCode::Internal, "a change has no id"))?;
        if let Some(details) = clean.output.details.as_object_mut() {
            details.insert("hitl_id".to_owned(), hitl.as_str().into());
        }
        let mut entries = Vec::with_capacity(clean.touched.files.len());
        for file in &clean.touched.files {
            let mut entry = self.changed_file_entry(record, file, now)?;
            entry.patch_hash = record.change.as_ref().map(|change| change.patch_hash);
            entry.duration_ms = Some(record.elapsed_ms());
            if entries.is_empty() && !clean.touched.warnings.is_empty() {
                entry.level = RecordLevel::Warn;
                entry.message = Some(self.text(&clean.touched.warnings.join("; "))?);
            }
            entries.push(entry);
        }
        let outcome = Self::outcome_json(&clean.output);
        let outcome = Some(self.seal(hitl.as_str(), outcome.to_string().as_bytes())?);
        let finish =
            CallFinish { id: record.call.clone(), state: CallState::Completed, at: now, error: None };
        let mut event = self.event(record, EventPhase::Call, "call", EventStatus::Ok)?;
        event.attempt = Some(1);
        let events = vec![self.check_event(record, EventStatus::Ok)?, event];
        let mut changes = self.end(record, finish, events)?;
        if record.requested.is_some() && record.receiver == ResultReceiver::Caller {
            changes.push(ApprovalChange::Deliver { id: hitl.clone() }.into());
        }
        changes.extend(self.call_outcome_change(record, || Self::outcome_json(&clean.output))?);
        changes.push(
            ApprovalChange::Settle { id: hitl, state: ProposalState::Applied, outcome, at: now }.into(),
        );
        if let Some(id) = record.consent.as_ref().and_then(|consent| consent.undoes.clone()) {
            changes.push(ApprovalChange::RolledBack { id, at: now }.into());
        }
        // File and directory are synced, and so is the start: after a power cut recovery finds by the file's hash
        // that the change was made, and records it.
        let batch = Batch::with_next_sync(entries, changes).from_reserve();
        let committed = self.parts.store.commit(batch).await;
        let committed = committed.map_err(|error| CallError::from(&error))?;
        Ok((CallOutcome::Completed(Box::new(clean.output)), committed.last(), committed.is_durable()))
    }

    /// Changes to the approval request and the proposal of a call that failed.
    pub(crate) fn failed_request_changes(
        &self,
        record: &CallRecord,
        error: &CallError,
    ) -> Result<Vec<StateChange>, CallError> {
        let (now, mut changes) = (self.parts.clock.now(), Vec::new());
        let Some(id) = record.hitl.clone() else { return Ok(changes) };
        let rollback = record.consent.as_ref().is_some_and(|consent| consent.undoes.is_some());
        let approved = (record.approval.is_some() || record.consent.is_some()) && !rollback;
        if record.started.is_none() && approved {
            changes.push(ApprovalChange::Stale { id: id.clone() }.into());
        }
        if approved && record.receiver == ResultReceiver::Caller {
            changes.push(ApprovalChange::Deliver { id: id.clone() }.into());
        }
        if record.started.is_some() {
            changes.extend(self.call_outcome_change(record, || Self::error_json(error))?);
        }
        let begun = record.started.is_some() && record.change.is_some();
        if begun || (approved && record.requested == Some(ApprovalKind::Change)) {
            let state = match error.code {
                ErrorCode::OutcomeUnknown => ProposalState::Unknown,
                _ => ProposalState::Failed,
            };
            let outcome = Self::error_json(error);
            let outcome = Some(self.seal(id.as_str(), outcome.to_string().as_bytes())?);
            changes.push(ApprovalChange::Settle { id, state, outcome, at: now }.into());
        }
        Ok(changes)
    }

    pub(crate) fn seal(&self, place: &str, bytes: &[u8]) -> Result<SealedBlob, CallError> {
        let sealed = self.parts.store.approval_queries().blob_sealer().seal(place, bytes);
        sealed.map_err(|error| CallError::from(&error))
    }
}
